//! The pod's group: how far a site is from the group's other pods, and the spread of a controller's pods over sites.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::model::group::{Membership, Within, limits};
use crate::model::snapshot::{Site, delay};
use crate::placement::filters::Case;
use crate::placement::verdict::{Assessment, Refusal, RefusalCode};
use edgeward_kube::units::Micros;

/// A live pod of the group, or several with the same membership, and its site.
pub(in crate::placement) type Peer<'s> = (&'s Site, Arc<Membership>);

/// The most exceeded of the distances that must be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Far {
    /// The component that is too far away.
    component: Box<str>,
    /// Its site.
    at: Box<str>,
    /// RTT to it; `None` if it is unknown.
    rtt: Option<Micros>,
    /// The largest RTT; `None` if the component must be at the same site.
    limit: Option<Micros>,
}

impl Far {
    /// The time by which the limit is exceeded. An unknown RTT exceeds every limit the most.
    pub fn excess(&self) -> Micros {
        let rtt = self.rtt.unwrap_or(Micros(u64::MAX));
        Micros(rtt.0.saturating_sub(self.limit.unwrap_or_default().0))
    }

    /// The numbers by name, as in a [`Refusal`].
    pub fn numbers(&self) -> Map<String, Value> {
        let mut numbers = Map::new();
        numbers.insert("component".into(), (&*self.component).into());
        numbers.insert("at".into(), (&*self.at).into());
        numbers.insert("rttMs".into(), self.rtt.into());
        if let Some(limit) = self.limit {
            numbers.insert("limitMs".into(), limit.into());
        }
        numbers
    }
}

/// The distance of a site from the group's pods: the required limit that is exceeded the most, and the number of optional
/// limits that are exceeded. Both the pod's own limits count and those of its peers. Cost: a pass over the peers.
pub(super) fn distance(case: &Case<'_, '_>, site: &Site) -> (Option<Far>, usize) {
    let Some(own) = case.workload.membership() else {
        return (None, 0);
    };
    let (mut worst, mut missed) = (None::<Far>, 0);
    for (at, peer) in &case.peers {
        let rtt = delay(site, at, case.config.telemetry_ttl, case.now.moment);
        for (within, is_optional) in limits(own, peer) {
            let is_same_site = at.name() == site.name();
            let limit = match within {
                Within::Site if is_same_site => continue,
                Within::Site => None,
                Within::Rtt(limit) if rtt.is_some_and(|rtt| rtt <= limit) => continue,
                Within::Rtt(limit) => Some(limit),
            };
            if is_optional {
                missed += 1;
                continue;
            }
            let far = Far {
                component: peer.component.clone(),
                at: at.name().into(),
                rtt,
                limit,
            };
            if worst.as_ref().is_none_or(|worst| far.excess() > worst.excess()) {
                worst = Some(far);
            }
        }
    }
    (worst, missed)
}

/// Refuses the sites other than the one where the release plan places the pod.
pub(super) fn elsewhere(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let site = case.room.only.filter(|site| *site != found.site.name())?;
    Some(Refusal::new(RefusalCode::GroupElsewhere).with("at", site))
}

/// Refuses a site that is too far from pods of the group, while the pod may wait.
pub(super) fn too_far(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let far = found.far.as_ref().filter(|_| case.may_wait_for_group)?;
    Some(Refusal {
        code: RefusalCode::TooFar,
        numbers: far.numbers(),
    })
}

/// Refuses the sites that have more pods of the controller than the possible site with the fewest, if the controller
/// spreads its pods. This compares sites, so it runs after all other filters.
pub(super) fn refuse_uneven(case: &Case<'_, '_>, sites: &mut [Assessment<'_>]) {
    if !case.intent.spreads || !case.may_wait_for_group {
        return;
    }
    let possible = sites.iter().filter(|found| found.is_possible());
    let Some(fewest) = possible.map(|found| found.siblings).min() else {
        return;
    };
    for found in sites
        .iter_mut()
        .filter(|found| found.is_possible() && found.siblings > fewest)
    {
        let refusal = Refusal::new(RefusalCode::Uneven).with("pods", found.siblings);
        found.refusals.push(refusal.with("fewestPods", fewest));
    }
}
