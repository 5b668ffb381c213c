//! Groups that start together: one entry of the plan, placed whole or not at all.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::planning::{Planning, kind_of};
use super::{PlanAction, Planned, Together};
use edgeward_decision::model::group::{Membership, Within, limits};
use edgeward_decision::model::queue_claims::{QueueClaim, QueueClaims};
use edgeward_decision::model::snapshot::{Site, Snapshot, delay};
use edgeward_decision::model::workload::{QueueKey, Workload};
use edgeward_decision::placement::decide::{decide, node_at};
use edgeward_decision::placement::located::located_beside;
use edgeward_decision::placement::room::Room;
use edgeward_decision::placement::verdict::{Reason, Standing};
use edgeward_kube::units::Moment;

/// The most pods whose room is looked for at one site each, in one search.
const MAX_ASSESSMENTS: usize = 2_000;

/// The most distances between sites that are compared, in one search.
const MAX_DISTANCES: usize = 100_000;

/// How many comparisons of distances cost as much as one of a pod's constraints with a node.
const DISTANCES_PER_COMPARISON: usize = 4;

/// The comparisons that a purse has for each pod of a group, in addition to its decision. A longer search uses up the purse.
pub(super) fn search_cost(snapshot: &Snapshot) -> usize {
    8 * (1 + nodes_of_site(snapshot))
}

/// The mean number of nodes of a site.
fn nodes_of_site(snapshot: &Snapshot) -> usize {
    snapshot.node_count() / snapshot.sites.len().max(1)
}

/// The gated pods of a group that starts together, in the order of the queue.
pub(super) type Group<'a, 'p> = &'a [&'a Planned<'p>];

/// The namespace and name of a group.
pub(super) type GroupKey<'p> = (&'p str, &'p str);

/// The gated pods of each group that starts together.
pub(super) fn groups<'a, 'p>(in_order: &'a [Planned<'p>]) -> HashMap<GroupKey<'p>, Vec<&'a Planned<'p>>> {
    let mut groups = HashMap::<_, Vec<_>>::new();
    for planned in in_order {
        if let Some(key) = planned.group() {
            groups.entry(key).or_default().push(planned);
        }
    }
    groups
}

/// Pods that are placed at one site together, because their distance to others matters, or one pod.
struct Unit<'a, 'p> {
    pods: Vec<&'a Planned<'p>>,
    membership: &'p Membership,
    /// The sites where the pods may be placed, best first.
    places: Vec<&'p Site>,
}

/// A search for a place for every pod of a group.
struct Search<'a, 'p> {
    units: Vec<Unit<'a, 'p>>,
    /// Whether optional distances must be kept.
    keeps_optional: bool,
    queue_key: QueueKey,
    /// The site of each unit so far.
    sites: Vec<&'p Site>,
    assessments: usize,
    distances: usize,
}

impl<'p> Planning<'p> {
    /// Decides about a group. Its pods keep waiting until as many exist as start together, and all of these have a place. Pods
    /// beyond that are decided on their own, and so are those of a group that has started or is past its limit. The limit is
    /// the longest of the pods' classes. A gang has none.
    pub(super) fn consider_group(&mut self, pods: Group<'_, 'p>) {
        let Some(first) = pods.first() else { return };
        let (namespace, group) = first.group().unwrap_or_default();
        let size = pods.iter().filter_map(|planned| planned.size).max().unwrap_or_default();
        let (since, due) = self.times(pods);
        let is_overdue = due <= self.now.moment;
        if !is_overdue {
            self.due = Some(self.due.map_or(due, |before| before.min(due)));
        }
        let (others, pods): (Vec<_>, Vec<_>) = pods.iter().partition(|planned| planned.known.is_some());
        // Gates of others keep a pod.
        others.into_iter().for_each(|planned| self.consider(planned));
        let (releasing, ready): (Vec<_>, Vec<_>) = pods
            .iter()
            .partition(|planned| self.ledger.releases(&planned.entry.pod.uid));
        let placed = usize::try_from(self.snapshot.placed(namespace, group)).unwrap_or(usize::MAX);
        let placed = placed.saturating_add(releasing.len());
        let missing = (size as usize).saturating_sub(placed);
        if ready.is_empty() {
            return;
        }
        let is_complete = missing <= ready.len();
        if is_complete && self.place_group(&ready[..missing], since) {
            ready[missing..].iter().for_each(|planned| self.consider(planned));
        } else if is_overdue && !first.is_of_gang() {
            ready
                .iter()
                .for_each(|planned| self.consider(&planned.overdue_since(since)));
        } else if placed > 0 && !is_complete && !first.is_of_gang() {
            ready.iter().for_each(|planned| self.consider(planned));
        } else {
            self.groups.waiting += usize::from(is_complete);
            self.groups.incomplete += usize::from(!is_complete);
            ready
                .iter()
                .for_each(|planned| self.update_reason(planned.entry, Reason::HeldGroup));
        }
    }

    /// Since when the first pod of the group is gated, and when the group reaches its limit.
    fn times(&self, pods: Group<'_, 'p>) -> (Moment, Moment) {
        let since = pods.iter().map(|planned| planned.entry.since).min().unwrap_or_default();
        let longest = pods.iter().map(|planned| planned.entry.pod.longest(self.config)).max();
        (since, since.after(longest.unwrap_or_default()))
    }

    /// Claims room for all these pods and releases them together, or leaves that to the next plan. False if not all have a
    /// place.
    fn place_group(&mut self, pods: Group<'_, 'p>, since: Moment) -> bool {
        let Some(first) = pods.first() else { return true };
        let claims = if self.is_earlier(first) {
            // As in the last plan, until the pods behind have been considered.
            Some(self.before.clone())
        } else if self.pay(
            first,
            pods.iter()
                .map(|planned| planned.cost.saturating_sub(search_cost(self.snapshot)))
                .sum(),
        ) {
            self.search(pods, since)
        } else {
            return true;
        };
        let Some(claims) = claims else { return false };
        let (namespace, group) = first.group().unwrap_or_default();
        let group: Arc<str> = format!("{namespace}/{group}").into();
        for planned in pods {
            let claim = claims.of(&planned.entry.pod.uid).filter(|claim| claim.has_room);
            let Some(claim) = claim else { continue };
            self.claims.add(claim.clone());
            let together = Together {
                group: Arc::clone(&group),
                site: Arc::clone(&claim.site),
            };
            self.push(planned.entry, since, PlanAction::Release, Some(together));
        }
        true
    }

    /// The claims of the plan so far and those of the group. `None` if not all of its pods have a place. The first search keeps
    /// optional distances too.
    fn search(&mut self, pods: Group<'_, 'p>, since: Moment) -> Option<QueueClaims> {
        let queue_key = pods.first()?.queue_key;
        let units = self.units(pods, queue_key, since)?;
        let mut search = Search {
            units,
            keeps_optional: true,
            queue_key,
            sites: vec![],
            assessments: 0,
            distances: 0,
        };
        let has_optional = search
            .units
            .iter()
            .any(|unit| unit.membership.near.iter().any(|near| near.is_optional));
        let mut found = search.run(self);
        if found.is_none() && has_optional {
            search.keeps_optional = false;
            found = search.run(self);
        }
        found
    }

    /// The pods as units. `None` if a unit has no place.
    fn units<'a>(&mut self, pods: Group<'a, 'p>, queue_key: QueueKey, since: Moment) -> Option<Vec<Unit<'a, 'p>>> {
        let mut units = Vec::<Unit<'_, '_>>::new();
        let mut known = HashMap::<Workload<'static>, Vec<&'p Site>>::new();
        let memberships = pods.iter().filter_map(|planned| planned.workload.membership());
        let memberships: BTreeSet<_> = memberships.collect();
        for planned in pods {
            let membership = planned.workload.membership()?;
            let kind = kind_of(planned.workload, self.snapshot);
            let places = known
                .entry(kind)
                .or_insert_with(|| self.places(planned, queue_key, since));
            let has_limits = memberships
                .iter()
                .any(|other| limits(membership, other).next().is_some());
            let is_tied = !planned.spreads() && (membership.is_gang || has_limits);
            let unit = units
                .iter_mut()
                .find(|unit| is_tied && *unit.membership == **membership);
            match unit {
                Some(unit) => {
                    unit.places
                        .retain(|site| places.iter().any(|place| place.name() == site.name()));
                    unit.pods.push(planned);
                }
                None => units.push(Unit {
                    pods: vec![planned],
                    membership,
                    places: places.clone(),
                }),
            }
        }
        units.iter().all(|unit| !unit.places.is_empty()).then_some(units)
    }

    /// The sites where this pod alone may be placed, best first.
    fn places(&mut self, planned: &Planned<'p>, queue_key: QueueKey, since: Moment) -> Vec<&'p Site> {
        self.decisions += 1;
        let workload = Workload {
            gated_for: Some(self.now.moment.since(since)),
            ..planned.workload.clone()
        };
        let room = Room::beside(self.snapshot, self.ledger, &self.claims, queue_key, &workload.namespace);
        let verdict = decide(&workload, &room, self.config, self.now);
        let late = verdict.chosen().filter(|chosen| chosen.standing() == Standing::Late);
        match late {
            Some(late) => vec![late.site],
            None => verdict.places,
        }
    }
}

impl<'p> Search<'_, 'p> {
    /// The plan's claims with those of the whole group. `None` if no place for all of it is found. The purse of the group pays.
    fn run(&mut self, planning: &mut Planning<'p>) -> Option<QueueClaims> {
        let mut claims = planning.claims.clone();
        (self.assessments, self.distances) = (0, 0);
        self.sites.clear();
        let is_found = self.place(planning, &mut claims);
        let nodes = nodes_of_site(planning.snapshot);
        let cost = self.assessments * (1 + nodes) + self.distances / DISTANCES_PER_COMPARISON;
        if let Some(first) = self.units.first().and_then(|unit| unit.pods.first()) {
            planning.charge(first, cost);
        }
        is_found.then_some(claims)
    }

    /// The sites where the unit may be placed, best first. Of a controller that spreads its pods, sites with fewer of the
    /// group's pods come first.
    fn places(&self, unit: usize) -> Vec<&'p Site> {
        let mut places = self.units[unit].places.clone();
        let spreads = |unit: &Unit<'_, '_>| unit.pods.iter().all(|planned| planned.spreads());
        if spreads(&self.units[unit]) {
            let taken = |site: &Site| self.sites.iter().filter(|other| other.name() == site.name()).count();
            places.sort_by_key(|site| taken(site));
        }
        places
    }

    /// Finds a place for every unit from this one on, depth first, and adds its claims.
    fn place(&mut self, planning: &Planning<'p>, claims: &mut QueueClaims) -> bool {
        let at = self.sites.len();
        if at == self.units.len() {
            return true;
        }
        for site in self.places(at) {
            if self.assessments >= MAX_ASSESSMENTS || self.distances >= MAX_DISTANCES {
                return false;
            }
            self.sites.push(site);
            let is_placed = self.is_near_enough(planning) && self.claim(at, site, planning, claims);
            if is_placed && self.place(planning, claims) {
                return true;
            }
            self.sites.pop();
            self.units[at]
                .pods
                .iter()
                .for_each(|planned| claims.remove(&planned.entry.pod.uid));
        }
        false
    }

    /// Whether the last placed unit is near enough to itself and to those before it.
    fn is_near_enough(&mut self, planning: &Planning<'_>) -> bool {
        let Some((site, unit)) = self.sites.last().zip(self.units.get(self.sites.len() - 1)) else {
            return true;
        };
        let ttl = planning.config.telemetry_ttl;
        for (other, at) in self.units.iter().zip(&self.sites) {
            self.distances += 1;
            let mut limits = limits(unit.membership, other.membership)
                .filter(|(_, is_optional)| self.keeps_optional || !is_optional)
                .peekable();
            let is_same = site.name() == at.name();
            if unit.membership.is_gang && !is_same {
                return false;
            }
            if limits.peek().is_none() {
                continue;
            }
            let delay = delay(site, at, ttl, planning.now.moment);
            let is_kept = |within| match within {
                Within::Site => is_same,
                Within::Rtt(limit) => delay.is_some_and(|delay| delay <= limit),
            };
            if !limits.all(|(within, _)| is_kept(within)) {
                return false;
            }
        }
        true
    }

    /// Claims room at the site for every pod of the unit; false if one has none.
    fn claim(&mut self, unit: usize, site: &'p Site, planning: &Planning<'p>, claims: &mut QueueClaims) -> bool {
        for planned in &self.units[unit].pods {
            self.assessments += 1;
            let workload = planned.workload;
            // Behind its own key, a pod sees the claims of its group.
            let key = self.queue_key.behind();
            let room = Room::beside(planning.snapshot, planning.ledger, claims, key, &workload.namespace);
            let room = room.with_headroom(workload, planning.config);
            let located = located_beside(workload, planning.snapshot, planning.ledger, planning.now.moment);
            let free = room.free(site);
            let is_beyond_measured = !["cpu", "memory"].iter().all(|name| {
                free.get(name)
                    .is_none_or(|free| workload.request.get(name) <= free.max(0))
            });
            let Some(node) = node_at(&located, site, &room).filter(|_| !is_beyond_measured) else {
                return false;
            };
            claims.add(QueueClaim {
                uid: Arc::clone(&planned.entry.pod.uid),
                queue_key: self.queue_key,
                node,
                site: site.name().into(),
                amount: workload.request.clone(),
                membership: planned.member(),
                has_room: true,
            });
        }
        true
    }
}

/// Numbers of groups that start together and wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupCounts {
    /// Groups of which pods are missing.
    pub incomplete: usize,
    /// Groups without a place for all pods.
    pub waiting: usize,
}
