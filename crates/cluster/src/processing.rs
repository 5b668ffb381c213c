//! Processing times, measured on finished pods of Jobs in opted-in namespaces. Each site has times for each namespace and
//! class, and for each Job or CronJob.
//!
//! [`Processing`] keeps the last few times of each, and no pod.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use edgeward_decision::model::slo::Class;
use edgeward_decision::model::snapshot::{JobTime, JobTimes, ProcessingTime};
use edgeward_decision::recent::Recent;
use edgeward_kube::pod::CRON_JOB;
use edgeward_kube::units::{Micros, Moment};

/// The number of last observations that are kept for each key.
const KEPT: usize = 20;

/// After such a time without observations, only the last few older ones are kept: the new one tells more about the present.
const GAP: Micros = Micros::from_secs(600);

/// The smallest mean that counts. Kubernetes writes the start and the end of a container in whole seconds. The mean of many
/// differences is still right, but a mean below a second is mostly rounding.
pub(crate) const RESOLUTION: Micros = Micros::from_secs(1);

/// The number of observations from which they replace the model.
const ENOUGH: usize = 5;

/// For how many seconds the observations of a class or Job count after the last one.
const HOUR: u64 = 3_600;

/// For how many seconds those of a CronJob count, which may run once a day.
const WEEK: u64 = 7 * 24 * 3_600;

/// Observations by key. Beyond 4,096 keys, the one with the oldest observation is forgotten.
type ByKey<K, const SECONDS: u64> = Recent<K, Observations, SECONDS, 4_096>;

/// Observed processing times at all sites.
#[derive(Debug, Default)]
pub(crate) struct Processing(BTreeMap<Box<str>, Site>);

#[derive(Debug, Default)]
struct Site {
    /// By namespace and class.
    classes: ByKey<(Arc<str>, Class), HOUR>,
    /// By namespace and uid.
    jobs: ByKey<[Arc<str>; 2], HOUR>,
    /// By namespace and key.
    cron_jobs: ByKey<[Arc<str>; 2], WEEK>,
    /// The result of [`Site::read`], until it changes.
    known: Option<Arc<JobTimes>>,
}

#[derive(Debug, Clone, Default)]
struct Observations {
    /// When each pod finished, in this order, and how long it took.
    last: VecDeque<(Moment, Micros)>,
    /// Mean and p95 of `last`.
    time: Option<ProcessingTime>,
}

impl Observations {
    /// Adds an observation. Cost: a few passes over the last ones.
    fn observe(&mut self, time: Micros, finished: Moment) {
        let at = self.last.partition_point(|(other, _)| *other <= finished);
        self.last.insert(at, (finished, time));
        let is_after_gap = |at: &usize| self.last[*at].0.since(self.last[at - 1].0) >= GAP;
        let after_gap = (1..self.last.len()).rfind(is_after_gap).unwrap_or(0);
        let before_gap = after_gap.saturating_sub(ENOUGH - 1);
        self.last.drain(..before_gap.max(self.last.len().saturating_sub(KEPT)));
        let mut times: Vec<_> = self.last.iter().map(|(_, time)| *time).collect();
        self.time = ProcessingTime::of(&mut times);
    }

    /// When the last pod finished.
    fn as_of(&self) -> Option<Moment> {
        self.last.back().map(|(finished, _)| *finished)
    }

    /// The times, if there are enough of them and their mean is at least [`RESOLUTION`].
    fn known(&self) -> Option<JobTime> {
        let time = self
            .time
            .filter(|time| self.last.len() >= ENOUGH && time.mean >= RESOLUTION)?;
        Some(JobTime {
            time,
            as_of: self.as_of(),
        })
    }
}

impl Processing {
    /// Adds a pod that worked at `site` for `time` until `finished`, as seen `now`. `job` is the key of its Job in `namespace`. Cost:
    /// a few searches.
    pub(crate) fn observe(
        &mut self,
        site: &str,
        class: Class,
        namespace: &str,
        job: Option<&str>,
        time: Micros,
        [finished, now]: [Moment; 2],
    ) {
        let site = self.0.entry(site.into()).or_default();
        site.known = None;
        let namespace = Arc::<str>::from(namespace);
        observe(
            &mut site.classes,
            (Arc::clone(&namespace), class),
            time,
            [finished, now],
        );
        match job {
            Some(key) if key.starts_with(CRON_JOB) => {
                observe(&mut site.cron_jobs, [namespace, key.into()], time, [finished, now]);
            }
            Some(uid) => observe(&mut site.jobs, [namespace, uid.into()], time, [finished, now]),
            None => {}
        }
    }

    /// The site's times with enough observations, a recent last one, and a mean of at least [`RESOLUTION`]. Forgets old
    /// ones. Cost: a pass over the site's keys, if they changed.
    pub(crate) fn times(&mut self, site: &str, now: Moment) -> Arc<JobTimes> {
        let Some(site) = self.0.get_mut(site) else {
            return Arc::default();
        };
        let have_expired = [
            site.classes.expire(now),
            site.jobs.expire(now),
            site.cron_jobs.expire(now),
        ];
        match &site.known {
            Some(known) if have_expired == [false; 3] => Arc::clone(known),
            _ => Arc::clone(site.known.insert(Arc::new(site.read()))),
        }
    }
}

impl Site {
    fn read(&self) -> JobTimes {
        let mut times = JobTimes::default();
        for ((namespace, class), observations) in self.classes.iter() {
            if let Some(known) = observations.known() {
                times.classes.entry((&**namespace).into()).or_default()[*class] = Some(known);
            }
        }
        for ([namespace, key], observations) in self.jobs.iter().chain(self.cron_jobs.iter()) {
            if let Some(known) = observations.known() {
                times.of_jobs.entry(namespace, key).insert_entry(known);
            }
        }
        times
    }
}

/// Adds an observation to those of this key, unless it is too old to count. They begin again if the last one no longer counts.
fn observe<K: Ord + Clone, const SECONDS: u64>(
    by_key: &mut ByKey<K, SECONDS>,
    key: K,
    time: Micros,
    [finished, now]: [Moment; 2],
) {
    if now.since(finished) >= Micros::from_secs(SECONDS) {
        return;
    }
    let counts = by_key.get(&key, now).is_some();
    let before = by_key.remove(&key).filter(|_| counts);
    let mut observations = before.unwrap_or_default();
    observations.observe(time, finished);
    let as_of = observations.as_of().unwrap_or(finished);
    by_key.insert(key, observations, as_of);
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
            processing.observe("edge", Class::Batch, "shop", Some("job"), time, [NOW; 2]);
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
        assert_eq!(*processing.times("edge", NOW), JobTimes::default());
        processing.observe("edge", Class::Batch, "shop", Some("job"), S(20), [NOW; 2]);
        let times = processing.times("edge", NOW);
        let expected = JobTime {
            time: ProcessingTime {
                mean: S(20),
                p95: S(30),
            },
            as_of: Some(NOW),
        };
        let of_class = PerClass([None, None, Some(expected)]);
        assert_eq!(times.classes, BTreeMap::from([("shop".into(), of_class)]));
        assert_eq!(times.of_jobs.iter().collect::<Vec<_>>(), [("shop", "job", &expected)]);
        assert_eq!(*processing.times("cloud", NOW), JobTimes::default());

        // One of the last twenty may be longer than the p95.
        let long: Vec<_> = (1..=21).map(S).collect();
        let mut long = observed(&long);
        let times = |processing: &mut Processing, now| {
            let known = processing.times("edge", now).classes["shop"][Class::Batch].unwrap();
            [known.time.mean, known.time.p95]
        };
        assert_eq!(times(&mut long, NOW), [Micros(11_500_000), S(20)]);
        // After ten minutes, only 18, 19, 20 and 21 s are kept with the new one.
        let late = NOW.after(GAP);
        long.observe("edge", Class::Batch, "shop", None, S(2), [late; 2]);
        assert_eq!(times(&mut long, late), [S(16), S(21)]);
    }

    #[test]
    fn means_are_separate_per_namespace_and_controller() {
        let mut processing = observed(&[S(10); 4]);
        processing.observe("edge", Class::Batch, "other", Some("job"), S(600), [NOW; 2]);
        processing.observe("edge", Class::Batch, "shop", None, S(10), [NOW; 2]);
        let times = processing.times("edge", NOW);
        assert_eq!(times.classes.keys().map(|name| &**name).collect::<Vec<_>>(), ["shop"]);
        assert!(times.of_jobs.is_empty());
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
        assert!(!at_end.classes.is_empty() && !at_end.of_jobs.is_empty());
        // The namespace's other class keeps its own mean.
        processing.observe("edge", Class::Latency, "shop", None, S(1), [late; 2]);
        assert_eq!(*processing.times("edge", late), JobTimes::default());
        processing.observe("edge", Class::Batch, "shop", Some("job"), S(1), [late; 2]);
        assert_eq!(*processing.times("edge", late), JobTimes::default(), "one of five");
        processing.times("edge", late.after(Micros::from_secs(3_600)));
        let Site { classes, jobs, .. } = &processing.0["edge"];
        assert!(classes.iter().next().is_none() && jobs.iter().next().is_none());
    }

    /// Jobs that are found finished count from then on, in any order.
    #[test]
    fn times_are_as_old_as_the_pods() {
        let (now, second) = (NOW.after(S(10_000)), |second: u64| NOW.after(S(second)));
        let mut processing = Processing::default();
        let mut observe = |at: u64, time: u64| {
            processing.observe("edge", Class::Batch, "shop", Some("job"), S(time), [second(at), now]);
            let known = processing.times("edge", now);
            known
                .of_jobs
                .get("shop", "job")
                .map(|known| (known.time.mean, known.as_of))
        };
        for time in (1..=9).rev() {
            observe(9_000 + time, time);
        }
        let nine = Some((S(5), Some(second(9_009))));
        assert_eq!(observe(6_399, 999), nine, "an hour and a second ago");
        // At most four are kept from before a gap of ten minutes: first this one, then 6, 7, 8 and 9 s.
        assert_eq!(observe(8_000, 15), Some((S(6), Some(second(9_009)))));
        assert_eq!(observe(9_700, 20), Some((S(10), Some(second(9_700)))));
    }

    /// A CronJob runs each day, and then no longer.
    #[test]
    fn times_of_cron_jobs_count_for_a_week() {
        let mut processing = Processing::default();
        let day = |day: u64| NOW.after(S(24 * 3_600 * day));
        for number in 0..7 {
            processing.observe(
                "edge",
                Class::Batch,
                "shop",
                Some("cronjob/nightly"),
                S(number),
                [day(number); 2],
            );
        }
        let times = |processing: &mut Processing, now| {
            let known = processing.times("edge", now);
            known
                .of_jobs
                .get("shop", "cronjob/nightly")
                .map(|known| known.time.mean)
        };
        assert_eq!(times(&mut processing, day(12)), Some(S(4)));
        assert_eq!(times(&mut processing, day(13)), None);
    }

    #[test]
    fn controller_observed_longest_ago_is_evicted_at_limit() {
        let mut processing = Processing::default();
        let mut now = NOW;
        let mut observe = |uid: &str| {
            now = now.after(Micros(1));
            processing.observe("edge", Class::Batch, "shop", Some(uid), S(5), [now; 2]);
        };
        for i in 0..4_096 {
            (0..ENOUGH).for_each(|_| observe(&i.to_string()));
        }
        observe("0");
        (0..ENOUGH).for_each(|_| observe("new"));
        let times = processing.times("edge", NOW);
        let means = &times.of_jobs;
        assert_eq!(means.iter().count(), 4_096);
        assert!(means.get("shop", "1").is_none());
        assert!(means.get("shop", "0").is_some() && means.get("shop", "new").is_some());
    }

    proptest! {
        #[test]
        fn times_lie_between_smallest_and_largest_observation(times in vec(1_000_000..=u64::MAX, 5..60)) {
            let JobTime { time, .. } = known(observed(&times.iter().copied().map(Micros).collect::<Vec<_>>())).unwrap();
            let last = &times[times.len().saturating_sub(KEPT)..];
            prop_assert!(*last.iter().min().unwrap() <= time.mean.0 && time.mean.0 <= *last.iter().max().unwrap());
            let longer = last.iter().filter(|other| **other > time.p95.0).count();
            prop_assert!(longer * 20 <= last.len() && last.contains(&time.p95.0));
        }
    }
}
