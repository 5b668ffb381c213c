//! Processing times, measured on finished pods of Jobs in opted-in namespaces. Each site has a mean for each namespace and
//! class, and for each controller.
//!
//! [`Processing`] keeps a few numbers for each mean, and no pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use edgeward_decision::model::slo::Class;
use edgeward_decision::model::snapshot::JobTimes;
use edgeward_decision::recent::Recent;
use edgeward_kube::units::{Micros, Moment};

/// The weight of a new observation in a mean is one divided by this (alpha = 0.2). The first observations are averaged
/// equally, so none of them weighs more than the others.
const WEIGHT: u64 = 5;

/// The smallest mean that counts. Kubernetes writes the start and the end of a container in whole seconds. The mean of many
/// differences is still right, but a mean below a second is mostly rounding.
pub(crate) const RESOLUTION: Micros = Micros::from_secs(1);

/// The number of observations from which a mean replaces the model.
const ENOUGH: u32 = 5;

/// Means by key. A mean counts for an hour after its last observation. Beyond 4,096 keys, the one with the oldest
/// observation is forgotten.
type Means<K> = Recent<K, Mean, 3_600, 4_096>;

/// Observed processing times at all sites.
#[derive(Debug, Default)]
pub(crate) struct Processing(BTreeMap<Box<str>, Site>);

#[derive(Debug, Default)]
struct Site {
    /// Means by namespace and class.
    classes: Means<(Arc<str>, Class)>,
    /// Means by namespace and uid of the controller.
    controllers: Means<[Arc<str>; 2]>,
}

/// An exponentially weighted mean, and its number of observations.
#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    value: Micros,
    count: u32,
}

impl Mean {
    /// Adds an observation. The mean stays between the smallest and the largest observation.
    fn observe(&mut self, time: Micros) {
        self.count = self.count.saturating_add(1);
        let weight = u64::from(self.count).min(WEIGHT);
        let step = Micros(time.0.abs_diff(self.value.0) / weight);
        self.value = if time > self.value {
            self.value + step
        } else {
            self.value - step
        };
    }

    /// The mean, if it has enough observations and is at least [`RESOLUTION`].
    fn known(self) -> Option<Micros> {
        (self.count >= ENOUGH && self.value >= RESOLUTION).then_some(self.value)
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

    /// The site's means with enough observations, a recent last one, and a value of at least [`RESOLUTION`]. Forgets old
    /// means. Cost: a pass over the site's means.
    pub(crate) fn times(&mut self, site: &str, now: Moment) -> JobTimes {
        let mut times = JobTimes::default();
        let Some(site) = self.0.get_mut(site) else {
            return times;
        };
        site.classes.expire(now);
        site.controllers.expire(now);
        for ((namespace, class), mean) in site.classes.iter() {
            if let Some(known) = mean.known() {
                times.classes.entry((&**namespace).into()).or_default()[*class] = Some(known);
            }
        }
        for ([namespace, uid], mean) in site.controllers.iter() {
            if let Some(known) = mean.known() {
                times.controllers.entry(namespace, uid).insert_entry(known);
            }
        }
        times
    }
}

/// Adds an observation to the mean of this key, which begins again after an hour without any.
fn observe<K: Ord + Clone>(means: &mut Means<K>, key: K, time: Micros, now: Moment) {
    let mut mean = means.get(&key, now).copied().unwrap_or_default();
    mean.observe(time);
    means.insert(key, mean, now);
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

    /// The mean processing time of the class in `shop` at the edge.
    fn mean(mut processing: Processing) -> Option<Micros> {
        processing.times("edge", NOW).classes.get("shop")?[Class::Batch]
    }

    #[test]
    fn mean_is_used_after_five_observations() {
        let mut processing = observed(&[S(10), S(20), S(30), S(20)]);
        assert_eq!(processing.times("edge", NOW), JobTimes::default());
        processing.observe("edge", Class::Batch, "shop", Some("job"), S(20), NOW);
        let times = processing.times("edge", NOW);
        let of_class = PerClass([None, None, Some(S(20))]);
        assert_eq!(times.classes, BTreeMap::from([("shop".into(), of_class)]));
        assert_eq!(times.controllers.iter().collect::<Vec<_>>(), [("shop", "job", &S(20))]);
        assert_eq!(processing.times("cloud", NOW), JobTimes::default());

        // The first five samples have equal weight. Each later one has a weight of one fifth.
        assert_eq!(
            mean(observed(&[S(10), S(10), S(10), S(10), S(60), S(120)])),
            Some(S(40))
        );
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
        fn mean_lies_between_smallest_and_largest_observation(times in vec(1_000_000..=u64::MAX, 5..40)) {
            let mean = mean(observed(&times.iter().copied().map(Micros).collect::<Vec<_>>())).unwrap().0;
            prop_assert!(times.iter().min().unwrap() <= &mean && &mean <= times.iter().max().unwrap());
        }

        #[test]
        fn mean_converges_to_a_changed_processing_time(before in 1_000_000..1_000_000_000_u64, after in 1_000_000..1_000_000_000_u64) {
            let times: Vec<_> = [before; 20].into_iter().chain([after; 120]).map(Micros).collect();
            let mean = mean(observed(&times)).unwrap().0;
            // A fifth of less than 5 µs rounds to 0.
            prop_assert!(mean.abs_diff(after) < WEIGHT, "{mean} after {before} and {after}");
        }
    }
}
