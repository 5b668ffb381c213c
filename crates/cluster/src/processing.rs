//! Processing times, measured on finished pods of Jobs in opted-in namespaces. Each site has times for each namespace and
//! class, and for each controller.
//!
//! [`Processing`] keeps the last few times of each, and no pod.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use edgeward_decision::model::slo::Class;
use edgeward_decision::model::snapshot::{JobTime, JobTimes, ProcessingTime};
use edgeward_decision::recent::Recent;
use edgeward_kube::units::{Micros, Moment};

/// The number of last observations that are kept for each key.
const KEPT: usize = 20;

/// After a time without observations, only the last few older ones stay beside the new one, which tells more about the present.
const GAP: Micros = Micros::from_secs(600);

/// The smallest mean that counts. Kubernetes writes the start and the end of a container in whole seconds. The mean of many
/// differences is still right, but a mean below a second is mostly rounding.
pub(crate) const RESOLUTION: Micros = Micros::from_secs(1);

/// The number of observations from which they replace the model.
const ENOUGH: usize = 5;

/// Observations by key. They count for an hour after the last one. Beyond 4,096 keys, the one with the oldest observation is
/// forgotten.
type ByKey<K> = Recent<K, Observations, 3_600, 4_096>;

/// Observed processing times at all sites.
#[derive(Debug, Default)]
pub(crate) struct Processing(BTreeMap<Box<str>, Site>);

#[derive(Debug, Default)]
struct Site {
    /// By namespace and class.
    classes: ByKey<(Arc<str>, Class)>,
    /// By namespace and uid of the controller.
    controllers: ByKey<[Arc<str>; 2]>,
}

/// The last observations, oldest first, and what they say.
#[derive(Debug, Clone, Default)]
struct Observations {
    last: VecDeque<Micros>,
    times: Option<JobTime>,
}

impl Observations {
    /// Adds an observation. Cost: a few passes over the last ones.
    fn observe(&mut self, time: Micros, now: Moment) {
        let as_of = self.times.and_then(|times| times.as_of);
        let is_after_gap = as_of.is_some_and(|as_of| now.since(as_of) >= GAP);
        let most = if is_after_gap { ENOUGH - 1 } else { KEPT - 1 };
        self.last.drain(..self.last.len().saturating_sub(most));
        self.last.push_back(time);
        let mut last: Vec<_> = self.last.iter().copied().collect();
        self.times = ProcessingTime::of(&mut last).map(|time| JobTime {
            time,
            shortest: last.into_iter().min().unwrap_or_default(),
            as_of: Some(now),
        });
    }

    /// The times, if there are enough of them and their mean is at least [`RESOLUTION`].
    fn known(&self) -> Option<JobTime> {
        let times = self.times.filter(|_| self.last.len() >= ENOUGH);
        times.filter(|times| times.time.mean >= RESOLUTION)
    }
}

impl Processing {
    /// Adds a pod that finished at `site` after `duration`. `controller` is the uid of its controller in `namespace`. Cost:
    /// a few searches.
    pub(crate) fn observe(
        &mut self,
        site: &str,
        class: Class,
        namespace: &str,
        controller: Option<&str>,
        duration: Micros,
        now: Moment,
    ) {
        let site = self.0.entry(site.into()).or_default();
        let namespace = Arc::<str>::from(namespace);
        observe(&mut site.classes, (Arc::clone(&namespace), class), duration, now);
        if let Some(uid) = controller {
            observe(&mut site.controllers, [namespace, uid.into()], duration, now);
        }
    }

    /// The site's times with enough observations, a recent last one, and a mean of at least [`RESOLUTION`]. Forgets old
    /// ones. Cost: a pass over the site's keys.
    pub(crate) fn times(&mut self, site: &str, now: Moment) -> JobTimes {
        let mut times = JobTimes::default();
        let Some(site) = self.0.get_mut(site) else {
            return times;
        };
        site.classes.expire(now);
        site.controllers.expire(now);
        for ((namespace, class), observations) in site.classes.iter() {
            if let Some(known) = observations.known() {
                times.classes.entry((&**namespace).into()).or_default()[*class] = Some(known);
            }
        }
        for ([namespace, uid], observations) in site.controllers.iter() {
            if let Some(known) = observations.known() {
                times.controllers.entry(namespace, uid).insert_entry(known);
            }
        }
        times
    }
}

/// Adds an observation to those of this key, which begin again after an hour without any.
fn observe<K: Ord + Clone>(by_key: &mut ByKey<K>, key: K, time: Micros, now: Moment) {
    let counts = by_key.get(&key, now).is_some();
    let before = by_key.remove(&key).filter(|_| counts);
    let mut observations = before.unwrap_or_default();
    observations.observe(time, now);
    by_key.insert(key, observations, now);
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgeward_decision::model::slo::PerClass;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const S: fn(u64) -> Micros = Micros::from_secs;
    const NOW: Moment = Moment(0);

    fn observed(times: &[Micros]) -> Processing {
        let mut processing = Processing::default();
        for &time in times {
            processing.observe("edge", Class::Batch, "shop", Some("job"), time, NOW);
        }
        processing
    }

    /// The processing time of the class in `shop` at the edge.
    fn known(mut processing: Processing) -> Option<JobTime> {
        processing.times("edge", NOW).classes.get("shop")?[Class::Batch]
    }

    fn mean(processing: Processing) -> Option<Micros> {
        Some(known(processing)?.time.mean)
    }

    #[test]
    fn times_are_used_after_five_observations() {
        let mut processing = observed(&[S(10), S(20), S(30), S(20)]);
        assert_eq!(processing.times("edge", NOW), JobTimes::default());
        processing.observe("edge", Class::Batch, "shop", Some("job"), S(20), NOW);
        let times = processing.times("edge", NOW);
        let expected = JobTime {
            time: ProcessingTime {
                mean: S(20),
                p95: S(30),
            },
            shortest: S(10),
            as_of: Some(NOW),
        };
        let of_class = PerClass([None, None, Some(expected)]);
        assert_eq!(times.classes, BTreeMap::from([("shop".into(), of_class)]));
        assert_eq!(
            times.controllers.iter().collect::<Vec<_>>(),
            [("shop", "job", &expected)]
        );
        assert_eq!(processing.times("cloud", NOW), JobTimes::default());

        // Of the last twenty, one may be longer than the p95.
        let long: Vec<_> = (1..=21).map(S).collect();
        let mut long = observed(&long);
        let times = |processing: &mut Processing, now| {
            let known = processing.times("edge", now).classes["shop"][Class::Batch].unwrap();
            [known.time.mean, known.time.p95, known.shortest]
        };
        assert_eq!(times(&mut long, NOW), [Micros(11_500_000), S(20), S(2)]);
        // After ten minutes, the new one counts as much as the last four: 18, 19, 20 and 21 s.
        let late = NOW.after(GAP);
        long.observe("edge", Class::Batch, "shop", None, S(2), late);
        assert_eq!(times(&mut long, late), [S(16), S(21), S(2)]);
    }

    #[test]
    fn means_are_separate_per_namespace_and_controller() {
        let mut processing = observed(&[S(10); 4]);
        processing.observe("edge", Class::Batch, "other", Some("job"), S(600), NOW);
        processing.observe("edge", Class::Batch, "shop", None, S(10), NOW);
        let times = processing.times("edge", NOW);
        assert_eq!(times.classes.keys().map(|name| &**name).collect::<Vec<_>>(), ["shop"]);
        assert!(times.controllers.is_empty());
    }

    #[test]
    fn mean_below_one_second_is_none() {
        assert_eq!(mean(observed(&[S(0), S(1), S(1), S(1), S(1)])), None);
        assert_eq!(mean(observed(&[S(1); 5])), Some(S(1)));
    }

    #[test]
    fn mean_expires_an_hour_after_last_observation() {
        let late = NOW.after(Micros::from_secs(3_600));
        let end = late.before(Micros(1));
        let mut processing = observed(&[S(600); 5]);
        let at_end = processing.times("edge", end);
        assert!(!at_end.classes.is_empty() && !at_end.controllers.is_empty());
        // The namespace's other class keeps its own mean.
        processing.observe("edge", Class::Latency, "shop", None, S(1), late);
        assert_eq!(processing.times("edge", late), JobTimes::default());
        processing.observe("edge", Class::Batch, "shop", Some("job"), S(1), late);
        assert_eq!(processing.times("edge", late), JobTimes::default(), "one of five");
        processing.times("edge", late.after(Micros::from_secs(3_600)));
        let Site { classes, controllers } = &processing.0["edge"];
        assert!(classes.iter().next().is_none() && controllers.iter().next().is_none());
    }

    #[test]
    fn controller_observed_longest_ago_is_evicted_at_limit() {
        let mut processing = Processing::default();
        let mut now = NOW;
        let mut observe = |uid: &str| {
            now = now.after(Micros(1));
            processing.observe("edge", Class::Batch, "shop", Some(uid), S(5), now);
        };
        for i in 0..4_096 {
            (0..ENOUGH).for_each(|_| observe(&i.to_string()));
        }
        observe("0");
        (0..ENOUGH).for_each(|_| observe("new"));
        let times = processing.times("edge", NOW);
        let means = &times.controllers;
        assert_eq!(means.iter().count(), 4_096);
        assert!(means.get("shop", "1").is_none());
        assert!(means.get("shop", "0").is_some() && means.get("shop", "new").is_some());
    }

    proptest! {
        #[test]
        fn times_lie_between_smallest_and_largest_observation(times in vec(1_000_000..=u64::MAX, 5..60)) {
            let JobTime { time, shortest, .. } = known(observed(&times.iter().copied().map(Micros).collect::<Vec<_>>())).unwrap();
            let last = &times[times.len().saturating_sub(KEPT)..];
            prop_assert_eq!(last.iter().min(), Some(&shortest.0));
            prop_assert!(shortest <= time.mean && time.mean.0 <= *last.iter().max().unwrap());
            let longer = last.iter().filter(|other| **other > time.p95.0).count();
            prop_assert!(longer * 20 <= last.len() && last.contains(&time.p95.0));
        }
    }
}
