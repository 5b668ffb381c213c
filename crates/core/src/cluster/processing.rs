//! How long work took, by the finished pods of Jobs: a mean per class, and per controller, at each site.
//!
//! [`Processing`] remembers a few numbers for each mean, and no pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::slo::{Class, PerClass};
use crate::model::snapshot::ByController;
use crate::units::Micros;

/// The part of a new observation in a mean is one in so many (alpha = 0.2); the first ones are averaged plainly, so
/// that none of them weighs more than the others.
const WEIGHT: u64 = 5;

/// A mean below this is none. Kubernetes writes the start and the end of a container in whole seconds: the mean of many
/// differences is right all the same, but one of less than a second is mostly rounding.
pub const RESOLUTION: Micros = Micros::from_secs(1);

/// Observations from which on a mean replaces the model.
const ENOUGH: u32 = 5;

/// Controllers remembered at a site; beyond, the one observed longest ago is forgotten.
pub const MAX_CONTROLLERS: usize = 4_096;

/// Observed processing times at all sites.
#[derive(Debug, Default)]
pub struct Processing {
    sites: BTreeMap<Box<str>, Site>,
    /// Counts observations, to know which controller was observed longest ago.
    observations: u64,
}

#[derive(Debug, Default)]
struct Site {
    classes: PerClass<Mean>,
    controllers: ByController<OfController>,
    /// Namespace and uid of each of them, by its last observation.
    by_age: BTreeMap<u64, (Box<str>, Box<str>)>,
    /// What [`Processing::by_controller`] last answered; `None` once it is outdated.
    answer: Option<Arc<ByController<Micros>>>,
}

#[derive(Debug, Default)]
struct OfController {
    mean: Mean,
    last: u64,
}

/// An exponentially weighted mean and the number of observations in it.
#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    value: Micros,
    count: u32,
}

impl Mean {
    /// Stays between the least and the greatest that was observed.
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

    /// The mean, if there are enough observations.
    fn known(self) -> Option<Micros> {
        (self.count >= ENOUGH && self.value >= RESOLUTION).then_some(self.value)
    }
}

impl Processing {
    /// Folds in one pod that finished after `duration` at `site`. `controller` is the uid of its controller in
    /// `namespace`. Cost: a few searches.
    pub fn observe(&mut self, site: &str, class: Class, namespace: &str, controller: Option<&str>, duration: Micros) {
        self.observations += 1;
        if !self.sites.contains_key(site) {
            self.sites.insert(site.into(), Site::default());
        }
        let Some(known) = self.sites.get_mut(site) else { return };
        known.classes[class].observe(duration);
        if let Some(uid) = controller {
            if known.controllers.get(namespace, uid).is_none() {
                known.make_room();
            }
            let of = known.controllers.entry(namespace, uid).or_default();
            let before = of.mean;
            of.mean.observe(duration);
            known.by_age.remove(&of.last);
            of.last = self.observations;
            known.by_age.insert(of.last, (namespace.into(), uid.into()));
            if before.known() != of.mean.known() {
                known.answer = None;
            }
        }
    }

    /// The mean per class at the site, of classes with enough observations and a mean of at least [`RESOLUTION`].
    pub fn by_class(&self, site: &str) -> PerClass<Option<Micros>> {
        let classes = self.sites.get(site).map(|site| site.classes).unwrap_or_default();
        PerClass(classes.0.map(Mean::known))
    }

    /// The same per controller, to be shared with snapshots. Cost: nothing while it is the same as at the last call, else a pass
    /// over the controllers of the site.
    pub fn by_controller(&mut self, site: &str) -> Arc<ByController<Micros>> {
        let Some(site) = self.sites.get_mut(site) else {
            return Arc::default();
        };
        if let Some(answer) = &site.answer {
            return Arc::clone(answer);
        }
        let mut means = ByController::default();
        for (namespace, uid, of) in site.controllers.iter() {
            if let Some(mean) = of.mean.known() {
                means.entry(namespace, uid).or_insert(mean);
            }
        }
        let answer = Arc::new(means);
        site.answer = Some(Arc::clone(&answer));
        answer
    }
}

impl Site {
    fn make_room(&mut self) {
        if self.by_age.len() < MAX_CONTROLLERS {
            return;
        }
        if let Some((_, (namespace, uid))) = self.by_age.pop_first() {
            self.answer.take_if(|answer| answer.get(&namespace, &uid).is_some());
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

    fn observed(times: &[Micros]) -> Processing {
        let mut processing = Processing::default();
        for &time in times {
            processing.observe("edge", Class::Batch, "shop", Some("job"), time);
        }
        processing
    }

    #[test]
    fn means_are_used_from_enough_observations_on() {
        let mut processing = observed(&[S(10), S(20), S(30), S(20)]);
        assert_eq!(processing.by_class("edge"), PerClass::default());
        assert!(processing.by_controller("edge").is_empty());
        processing.observe("edge", Class::Batch, "shop", Some("job"), S(20));
        assert_eq!(processing.by_class("edge")[Class::Batch], Some(S(20)));
        assert_eq!(processing.by_class("edge")[Class::Latency], None);
        assert_eq!(processing.by_class("cloud"), PerClass::default());
        assert_eq!(processing.by_controller("edge").get("shop", "job"), Some(&S(20)));
        assert_eq!(processing.by_controller("edge").get("else", "job"), None);

        // The first five weigh the same, later ones a fifth.
        let processing = observed(&[S(10), S(10), S(10), S(10), S(60), S(120)]);
        assert_eq!(processing.by_class("edge")[Class::Batch], Some(S(40)));
    }

    #[test]
    fn an_answer_is_shared_until_a_controller_is_observed() {
        let mut processing = observed(&[S(10); 5]);
        let first = processing.by_controller("edge");
        processing.observe("edge", Class::Batch, "shop", None, S(90));
        assert!(Arc::ptr_eq(&first, &processing.by_controller("edge")));
        processing.observe("edge", Class::Batch, "shop", Some("job"), S(20));
        assert_eq!(processing.by_controller("edge").get("shop", "job"), Some(&S(12)));
    }

    #[test]
    fn an_answer_is_shared_while_nothing_in_it_changes() {
        let mut processing = observed(&[S(10); 5]);
        let first = processing.by_controller("edge");
        processing.observe("edge", Class::Batch, "shop", Some("once"), S(90));
        processing.observe("edge", Class::Batch, "shop", Some("job"), S(10));
        assert!(Arc::ptr_eq(&first, &processing.by_controller("edge")));
        for i in 0..MAX_CONTROLLERS {
            processing.observe("edge", Class::Batch, "shop", Some(&i.to_string()), S(5));
        }
        assert!(processing.by_controller("edge").is_empty(), "forgotten");
    }

    #[test]
    fn a_mean_finer_than_the_clock_of_kubernetes_is_none() {
        assert_eq!(
            observed(&[S(0), S(1), S(1), S(1), S(1)]).by_class("edge")[Class::Batch],
            None
        );
        assert_eq!(observed(&[S(1); 5]).by_class("edge")[Class::Batch], Some(S(1)));
    }

    #[test]
    fn the_controller_observed_longest_ago_makes_room() {
        let mut processing = Processing::default();
        let mut observe = |uid: &str| processing.observe("edge", Class::Batch, "shop", Some(uid), S(5));
        for i in 0..MAX_CONTROLLERS {
            (0..ENOUGH).for_each(|_| observe(&i.to_string()));
        }
        observe("0");
        (0..ENOUGH).for_each(|_| observe("new"));
        let means = processing.by_controller("edge");
        assert_eq!(means.iter().count(), MAX_CONTROLLERS);
        assert!(means.get("shop", "1").is_none());
        assert!(means.get("shop", "0").is_some() && means.get("shop", "new").is_some());
    }

    proptest! {
        #[test]
        fn a_mean_lies_between_what_was_observed(times in vec(1_000_000..=u64::MAX, 5..40)) {
            let processing = observed(&times.iter().copied().map(Micros).collect::<Vec<_>>());
            let mean = processing.by_class("edge")[Class::Batch].unwrap().0;
            prop_assert!(times.iter().min().unwrap() <= &mean && &mean <= times.iter().max().unwrap());
        }

        #[test]
        fn a_mean_follows_what_changes(before in 1_000_000..1_000_000_000_u64, after in 1_000_000..1_000_000_000_u64) {
            let times: Vec<_> = [before; 20].into_iter().chain([after; 120]).map(Micros).collect();
            let mean = observed(&times).by_class("edge")[Class::Batch].unwrap().0;
            // A fifth of less than 5 µs is nothing.
            prop_assert!(mean.abs_diff(after) < WEIGHT, "{mean} after {before} and {after}");
        }
    }
}
