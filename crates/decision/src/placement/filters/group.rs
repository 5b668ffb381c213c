//! The pod's group: how far a site is from the group's other pods, and the spread of a controller's pods over sites.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::config::OnNoCapacity;
use crate::model::group::{Membership, Within, limits};
use crate::model::snapshot::Site;
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
    if own.is_gang {
        return (away_from_gang(case, site), 0);
    }
    let (mut worst, mut missed) = (None::<Far>, 0);
    for (at, peer) in &case.peers {
        let rtt = delay(case, site, at);
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

fn delay(case: &Case<'_, '_>, one: &Site, other: &Site) -> Option<Micros> {
    let (ttl, now) = (case.config.telemetry_ttl, case.now.moment);
    case.room.snapshot.delay(one, other, ttl, now)
}

/// A gang is at one site. If its pods are at several, because they were placed without edgeward, each of these sites will do.
fn away_from_gang(case: &Case<'_, '_>, site: &Site) -> Option<Far> {
    let (at, _) = case.peers.first()?;
    let is_here = case.peers.iter().any(|(at, _)| at.name() == site.name());
    (!is_here).then(|| Far {
        component: Box::default(),
        at: at.name().into(),
        rtt: delay(case, site, at),
        limit: None,
    })
}

/// Whether a pod of the pod's component runs at the site, or the site is known to have the component.
pub(super) fn has_component(case: &Case<'_, '_>, site: &Site) -> bool {
    let component = case.workload.membership().map_or("", |own| &*own.component);
    let is_peer = |(at, peer): &Peer<'_>| at.name() == site.name() && *peer.component == *component;
    let mut known = site.components.iter();
    !component.is_empty() && (case.peers.iter().any(is_peer) || known.any(|known| *known.name == *component))
}

/// Refuses the sites other than the one where the release plan places the pod.
pub(super) fn elsewhere(case: &Case<'_, '_>, found: &Assessment<'_>) -> Option<Refusal> {
    let site = case.room.only.filter(|site| *site != found.site.name())?;
    Some(Refusal::new(RefusalCode::GroupElsewhere).with("at", site))
}

/// Whether the pod may wait for a site that suits its group: its limit, or the longest limit of the group's pods, is not over,
/// and it may be gated. It may not if a possible site would give it a RuntimeClass, which only a new pod can get. A gang waits
/// in any case.
pub(in crate::placement) fn may_wait(case: &Case<'_, '_>, sites: &[Assessment<'_>]) -> bool {
    let (gating, is_new) = (&case.config.gating, case.workload.gated_for.is_none());
    if case.workload.membership().is_some_and(|membership| membership.is_gang) {
        return gating.can_release;
    }
    let gives_class = |found: &Assessment<'_>| found.is_possible() && found.site.definition.runtime_class.is_some();
    let gets_class = is_new && !case.workload.runtime_class && sites.iter().any(gives_class);
    let own = gating.limits[case.slo().class];
    let longest = case.workload.membership().map_or(own, |membership| {
        let (snapshot, namespace) = (case.room.snapshot, &*case.workload.namespace);
        own.max(snapshot.longest_limit(namespace, &membership.group, &gating.limits))
    });
    let is_within = own > Micros(0) && case.gated_for() < longest;
    gating.on_no_capacity == OnNoCapacity::Hold && is_within && !gets_class
}

/// Refuses sites for the pod's group while the pod may wait: those that are too far from its pods, and those that have more
/// pods of the controller than the possible site with the fewest, if the controller spreads them. This compares sites, so it
/// runs after all filters. It does not count pods for a release at a site that the plan has chosen.
pub(super) fn refuse(case: &Case<'_, '_>, sites: &mut [Assessment<'_>]) {
    if case.workload.membership().is_none() && !case.intent.spreads || !may_wait(case, sites) {
        return;
    }
    let possible = || sites.iter().filter(|found| found.is_possible());
    let is_uneven = case.intent.spreads && case.room.only.is_none();
    let fewest = possible().map(|found| found.siblings).min().filter(|_| is_uneven);
    for found in sites.iter_mut().filter(|found| found.is_possible()) {
        let too_far = found.far.as_ref().map(|far| Refusal {
            code: RefusalCode::TooFar,
            numbers: far.numbers(),
        });
        found.refusals.extend(too_far);
        if let Some(fewest) = fewest.filter(|fewest| found.siblings > *fewest) {
            let refusal = Refusal::new(RefusalCode::Uneven).with("pods", found.siblings);
            found.refusals.push(refusal.with("fewestPods", fewest));
        }
    }
}
