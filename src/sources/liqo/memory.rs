//! Discovered sites that are gone: they are remembered for as long as their nodes are, since pods wait for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use edgeward_core::model::site::SiteDefinition;
use edgeward_core::units::{Micros, Moment};
use edgeward_core::wire::liqo_objects::MAX_DISCOVERED;

/// Sites that were discovered, by name, and since when those are gone that are.
#[derive(Debug, Default)]
pub(super) struct DiscoveredSites(BTreeMap<String, (Arc<SiteDefinition>, Option<Moment>)>);

impl DiscoveredSites {
    /// The sites there are now, and those that were there less than `memory` ago; at most [`MAX_DISCOVERED`], of which those that
    /// are gone longest are forgotten first.
    pub(super) fn update(
        &mut self,
        sites: Vec<Arc<SiteDefinition>>,
        memory: Micros,
        now: Moment,
    ) -> Vec<Arc<SiteDefinition>> {
        for (_, gone_since) in self.0.values_mut() {
            gone_since.get_or_insert(now);
        }
        let there = sites.into_iter().map(|site| (site.name.clone(), (site, None)));
        self.0.extend(there);
        self.forget(memory, now);
        while self.0.len() > MAX_DISCOVERED {
            let gone = self
                .0
                .iter()
                .filter_map(|(name, (_, since))| Some((*since.as_ref()?, name)));
            let Some(name) = gone.min().map(|(_, name)| name.clone()) else {
                break;
            };
            self.0.remove(&name);
        }
        self.0.values().map(|(site, _)| Arc::clone(site)).collect()
    }

    /// Those that were there less than `memory` ago are left.
    pub(super) fn forget(&mut self, memory: Micros, now: Moment) {
        self.0
            .retain(|_, (_, gone_since)| gone_since.is_none_or(|since| now.since(since) < memory));
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// When the next of those that are gone is forgotten.
    pub(super) fn next_change(&self, memory: Micros) -> Option<Moment> {
        let gone = self.0.values().filter_map(|(_, gone_since)| *gone_since);
        gone.min().map(|since| since.after(memory))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Micros = Micros::from_secs(3_600);

    fn at(seconds: u64) -> Moment {
        Moment(0).after(Micros::from_secs(seconds))
    }

    fn update(known: &mut DiscoveredSites, ids: &[String], seconds: u64) -> Vec<String> {
        let sites = ids.iter().map(|id| Arc::new(SiteDefinition::of_cluster(id)));
        let sites = known.update(sites.collect(), HOUR, at(seconds));
        sites.iter().map(|site| site.name.clone()).collect()
    }

    #[test]
    fn a_site_that_is_gone_is_remembered_for_a_while() {
        let mut known = DiscoveredSites::default();
        let [far, near] = ["far", "near"].map(str::to_owned);
        assert_eq!(update(&mut known, &[far.clone(), near.clone()], 0), ["far", "near"]);
        assert_eq!(known.next_change(HOUR), None);
        assert_eq!(update(&mut known, std::slice::from_ref(&near), 10), ["far", "near"]);
        assert_eq!(known.next_change(HOUR), Some(at(3_610)));
        // Its time does not begin anew, unless it was back.
        assert_eq!(update(&mut known, &[], 20), ["far", "near"]);
        assert_eq!(known.next_change(HOUR), Some(at(3_610)));
        assert_eq!(update(&mut known, std::slice::from_ref(&near), 3_610), ["near"]);
        assert_eq!(known.next_change(HOUR), None);
        assert_eq!(update(&mut known, &[far], 3_700), ["far", "near"]);
        assert_eq!(known.next_change(HOUR), Some(at(7_300)));
    }

    #[test]
    fn as_many_are_known_as_may_be_there() {
        let mut known = DiscoveredSites::default();
        let ids = |kind: &str| (0..MAX_DISCOVERED).map(|i| format!("{kind}-{i}")).collect::<Vec<_>>();
        update(&mut known, &ids("old"), 0);
        let sites = update(&mut known, &ids("new"), 1);
        assert_eq!(sites.len(), MAX_DISCOVERED);
        assert!(sites.iter().all(|name| name.starts_with("new")));
    }
}
