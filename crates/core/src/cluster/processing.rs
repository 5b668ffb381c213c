//! Processing times, measured on finished pods of Jobs in opted-in namespaces. Each site has a mean for each namespace and
//! class, and for each controller.
//!
//! [`Processing`] keeps a few numbers for each mean, and no pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::slo::{Class, PerClass};
use crate::model::snapshot::{ByNamespace, JobTimes};
use crate::units::{Micros, Moment};

/// The weight of a new observation in a mean is one divided by this (alpha = 0.2). The first observations are averaged
/// equally, so none of them weighs more than the others.
const WEIGHT: u64 = 5;

/// The smallest mean that counts. Kubernetes writes the start and the end of a container in whole seconds. The mean of many
/// differences is still right, but a mean below a second is mostly rounding.
pub const RESOLUTION: Micros = Micros::from_secs(1);

/// The number of observations from which a mean replaces the model.
const ENOUGH: u32 = 5;

/// How long a mean counts after its last observation.
const MEMORY: Micros = Micros::from_secs(3_600);

/// The most controllers that are remembered at a site. Beyond that, the controller with the oldest observation is
/// forgotten.
pub const MAX_CONTROLLERS: usize = 4_096;

/// Observed processing times at all sites.
#[derive(Debug, Default)]
pub struct Processing(BTreeMap<Box<str>, Site>);

#[derive(Debug, Default)]
struct Site {
    /// Means by namespace.
    classes: BTreeMap<Box<str>, PerClass<Mean>>,
    controllers: ByNamespace<Mean>,
    /// The last result of [`Processing::times`], and until when it holds; `None` once it is outdated.
    answer: Option<(Arc<JobTimes>, Moment)>,
}

/// An exponentially weighted mean, its number of observations, and the time of the last one.
#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    value: Micros,
    count: u32,
    last: Moment,
}

impl Mean {
    /// Adds an observation. The mean stays between the smallest and the largest observation. It restarts after a time
    /// without observations.
    fn observe(&mut self, time: Micros, now: Moment) {
        if self.is_old(now) {
            *self = Self::default();
        }
        self.last = now;
        self.count = self.count.saturating_add(1);
        let weight = u64::from(self.count).min(WEIGHT);
        let step = Micros(time.0.abs_diff(self.value.0) / weight);
        self.value = if time > self.value {
            self.value + step
        } else {
            self.value - step
        };
    }

    /// The mean, if it has enough observations, the last one is recent, and it is at least [`RESOLUTION`].
    fn known(self, now: Moment) -> Option<Micros> {
        (self.count >= ENOUGH && self.value >= RESOLUTION && !self.is_old(now)).then_some(self.value)
    }

    fn is_old(&self, now: Moment) -> bool {
        now.since(self.last) > MEMORY
    }
}

impl Processing {
    /// Adds a pod that finished at `site` after `duration`. `controller` is the uid of its controller in `namespace`. Cost:
    /// a few searches; for a new controller, a pass over the site's controllers.
    pub fn observe(
        &mut self,
        site: &str,
        class: Class,
        namespace: &str,
        controller: Option<&str>,
        duration: Micros,
        now: Moment,
    ) {
        let site = self.0.entry(site.into()).or_default();
        site.answer = None;
        let classes = site.classes.entry(namespace.into()).or_default();
        classes[class].observe(duration, now);
        if let Some(uid) = controller {
            site.make_room(namespace, uid);
            let mean = site.controllers.entry(namespace, uid).or_default();
            mean.observe(duration, now);
        }
    }

    /// The site's means with enough observations, a recent last one, and a value of at least [`RESOLUTION`]. Cost: nothing
    /// until a mean changes or ends. Then a pass over the site's means, which also forgets old ones.
    pub fn times(&mut self, site: &str, now: Moment) -> Arc<JobTimes> {
        let Some(site) = self.0.get_mut(site) else {
            return Arc::default();
        };
        if let Some((times, end)) = &site.answer
            && now <= *end
        {
            return Arc::clone(times);
        }
        let mut times = JobTimes::default();
        site.classes
            .retain(|_, means| means.0.iter().any(|mean| !mean.is_old(now)));
        for (namespace, means) in &site.classes {
            let known = means.map(|mean| mean.known(now));
            if known != PerClass::default() {
                times.classes.insert(namespace.clone(), known);
            }
        }
        site.controllers.retain(|mean| !mean.is_old(now));
        times.controllers = site.controllers.filter_map(|mean| mean.known(now));
        let classes = site.classes.values().flat_map(|means| &means.0);
        let means = classes.chain(site.controllers.iter().map(|(.., mean)| mean));
        let oldest = means.filter(|mean| !mean.is_old(now)).map(|mean| mean.last).min();
        let times = Arc::new(times);
        site.answer = oldest.map(|oldest| (Arc::clone(&times), oldest.after(MEMORY)));
        times
    }
}

impl Site {
    /// Makes room for this controller if it is new and the limit is reached.
    fn make_room(&mut self, namespace: &str, uid: &str) {
        if self.controllers.get(namespace, uid).is_some() || self.controllers.iter().count() < MAX_CONTROLLERS {
            return;
        }
        let oldest = self.controllers.iter().min_by_key(|(.., mean)| mean.last);
        if let Some((namespace, uid)) = oldest.map(|(namespace, uid, _)| (namespace.to_owned(), uid.to_owned())) {
            self.controllers.remove(&namespace, &uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
    fn means_are_used_from_enough_observations_on() {
        let mut processing = observed(&[S(10), S(20), S(30), S(20)]);
        assert_eq!(*processing.times("edge", NOW), JobTimes::default());
        processing.observe("edge", Class::Batch, "shop", Some("job"), S(20), NOW);
        let times = processing.times("edge", NOW);
        let of_class = PerClass([None, None, Some(S(20))]);
        assert_eq!(times.classes, BTreeMap::from([("shop".into(), of_class)]));
        assert_eq!(times.controllers.iter().collect::<Vec<_>>(), [("shop", "job", &S(20))]);
        assert_eq!(*processing.times("cloud", NOW), JobTimes::default());

        // The first five samples have equal weight. Each later one has a weight of one fifth.
        assert_eq!(
            mean(observed(&[S(10), S(10), S(10), S(10), S(60), S(120)])),
            Some(S(40))
        );
    }

    #[test]
    fn means_of_other_namespaces_and_controllers_are_apart() {
        let mut processing = observed(&[S(10); 4]);
        processing.observe("edge", Class::Batch, "other", Some("job"), S(600), NOW);
        processing.observe("edge", Class::Batch, "shop", None, S(10), NOW);
        let times = processing.times("edge", NOW);
        assert_eq!(times.classes.keys().map(|name| &**name).collect::<Vec<_>>(), ["shop"]);
        assert!(times.controllers.is_empty());
    }

    #[test]
    fn times_are_shared_until_one_is_observed_or_too_old() {
        let mut processing = observed(&[S(10); 5]);
        let first = processing.times("edge", NOW);
        let end = NOW.after(MEMORY);
        assert!(Arc::ptr_eq(&first, &processing.times("edge", end)));
        assert_eq!(*processing.times("edge", end.after(Micros(1))), JobTimes::default());
        let mut processing = observed(&[S(10); 5]);
        processing.times("edge", NOW);
        processing.observe("edge", Class::Batch, "shop", Some("job"), S(20), NOW);
        assert_eq!(
            processing.times("edge", NOW).controllers.get("shop", "job"),
            Some(&S(12))
        );
    }

    #[test]
    fn a_mean_finer_than_the_clock_of_kubernetes_is_none() {
        assert_eq!(mean(observed(&[S(0), S(1), S(1), S(1), S(1)])), None);
        assert_eq!(mean(observed(&[S(1); 5])), Some(S(1)));
    }

    #[test]
    fn a_mean_not_observed_for_an_hour_is_none_and_begins_again() {
        let (end, late) = (NOW.after(MEMORY), NOW.after(MEMORY + Micros(1)));
        let mut processing = observed(&[S(600); 5]);
        let at_end = processing.times("edge", end);
        assert!(!at_end.classes.is_empty() && !at_end.controllers.is_empty());
        // The namespace's other class keeps its own mean.
        processing.observe("edge", Class::Latency, "shop", None, S(1), late);
        assert_eq!(*processing.times("edge", late), JobTimes::default());
        processing.observe("edge", Class::Batch, "shop", Some("job"), S(1), late);
        assert_eq!(*processing.times("edge", late), JobTimes::default(), "one of five");
        processing.times("edge", late.after(MEMORY + Micros(1)));
        let Site {
            classes, controllers, ..
        } = &processing.0["edge"];
        assert!(classes.is_empty() && controllers.is_empty(), "nothing is kept of them");
    }

    #[test]
    fn the_controller_observed_longest_ago_makes_room() {
        let mut processing = Processing::default();
        let mut now = NOW;
        let mut observe = |uid: &str| {
            now = now.after(Micros(1));
            processing.observe("edge", Class::Batch, "shop", Some(uid), S(5), now);
        };
        for i in 0..MAX_CONTROLLERS {
            (0..ENOUGH).for_each(|_| observe(&i.to_string()));
        }
        observe("0");
        (0..ENOUGH).for_each(|_| observe("new"));
        let times = processing.times("edge", NOW);
        let means = &times.controllers;
        assert_eq!(means.iter().count(), MAX_CONTROLLERS);
        assert!(means.get("shop", "1").is_none());
        assert!(means.get("shop", "0").is_some() && means.get("shop", "new").is_some());
    }

    proptest! {
        #[test]
        fn a_mean_lies_between_what_was_observed(times in vec(1_000_000..=u64::MAX, 5..40)) {
            let mean = mean(observed(&times.iter().copied().map(Micros).collect::<Vec<_>>())).unwrap().0;
            prop_assert!(times.iter().min().unwrap() <= &mean && &mean <= times.iter().max().unwrap());
        }

        #[test]
        fn a_mean_follows_what_changes(before in 1_000_000..1_000_000_000_u64, after in 1_000_000..1_000_000_000_u64) {
            let times: Vec<_> = [before; 20].into_iter().chain([after; 120]).map(Micros).collect();
            let mean = mean(observed(&times)).unwrap().0;
            // A fifth of less than 5 µs rounds to 0.
            prop_assert!(mean.abs_diff(after) < WEIGHT, "{mean} after {before} and {after}");
        }
    }
}
