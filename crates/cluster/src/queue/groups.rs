//! Groups that start together: one entry of the plan, placed whole or not at all.

use std::collections::HashMap;
use std::sync::Arc;

use super::planning::Planning;
use super::{PlanAction, Planned, Together};
use edgeward_decision::model::group::{Membership, Within, limits};
use edgeward_decision::model::queue_claims::{QueueClaim, QueueClaims};
use edgeward_decision::model::snapshot::Site;
use edgeward_decision::model::snapshot::delay;
use edgeward_decision::model::workload::{QueueKey, Workload};
use edgeward_decision::placement::decide::{decide, node_at};
use edgeward_decision::placement::located::located_beside;
use edgeward_decision::placement::room::Room;
use edgeward_decision::placement::verdict::{Reason, Standing};
use edgeward_kube::units::Moment;

/// The most pods whose room is looked for at one site each, for one group in one plan.
const MAX_ASSESSMENTS: usize = 2_000;

/// The most distances between sites that are compared, for one group in one plan.
const MAX_DISTANCES: usize = 200_000;

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
    /// Decides about a group. Its pods keep waiting until as many exist as start together, and all have a place. At the limit,
    /// which is the longest of the pods' classes, each pod is decided on its own. A gang has no limit.
    pub(super) fn consider_group(&mut self, pods: Group<'_, 'p>) {
        let Some(first) = pods.first() else { return };
        let Some(size) = pods.iter().filter_map(|planned| planned.size).max() else {
            return;
        };
        let (since, due) = self.times(pods);
        let is_overdue = due <= self.now.moment;
        if !is_overdue {
            self.due = Some(self.due.map_or(due, |before| before.min(due)));
        }
        let mut existing = self.placed(first);
        let mut ready = vec![];
        for planned in pods {
            if planned.known.is_some() {
                // Gates of others keep the pod, and so its group.
                self.consider(planned);
            } else {
                existing += 1;
                let is_releasing = self.ledger.releases(&planned.entry.pod.uid);
                ready.extend((!is_releasing).then_some(*planned));
            }
        }
        let is_complete = existing >= size as usize;
        if ready.is_empty() || is_complete && self.place_group(&ready, since) {
            return;
        }
        if is_overdue && !first.is_of_gang() {
            ready
                .iter()
                .for_each(|planned| self.consider(&planned.overdue_since(since)));
            return;
        }
        self.groups.waiting += usize::from(is_complete);
        self.groups.incomplete += usize::from(!is_complete);
        ready
            .iter()
            .for_each(|planned| self.update_reason(planned.entry, Reason::HeldGroup));
    }

    /// Since when the first pod of the group is gated, and when the group reaches its limit.
    fn times(&self, pods: Group<'_, 'p>) -> (Moment, Moment) {
        let since = pods.iter().map(|planned| planned.entry.since).min().unwrap_or_default();
        let longest = pods.iter().map(|planned| planned.entry.pod.longest(self.config)).max();
        (since, since.after(longest.unwrap_or_default()))
    }

    /// The number of pods of this pod's group that are at sites.
    fn placed(&self, planned: &Planned<'p>) -> usize {
        let Some((namespace, group)) = planned.group() else {
            return 0;
        };
        let sites = self.snapshot.sites.iter();
        let pods = sites
            .flat_map(|site| site.members.of(namespace, group))
            .map(|(_, pods)| pods);
        usize::try_from(pods.sum::<u64>()).unwrap_or(usize::MAX)
    }

    /// Claims room for all pods and releases them together, or leaves that to the next plan. False if not all have a place.
    fn place_group(&mut self, pods: Group<'_, 'p>, since: Moment) -> bool {
        let Some(first) = pods.first() else { return true };
        let cost = pods.iter().map(|planned| planned.cost).sum();
        if self.is_earlier(first) {
            pods.iter().for_each(|planned| self.keep_last(planned));
            return true;
        }
        if !self.pay(first, cost) {
            return true;
        }
        let Some(claims) = self.search(pods, since) else {
            self.claims.leave_waiting(first.queue_key);
            return false;
        };
        let (namespace, group) = first.group().unwrap_or_default();
        let group: Arc<str> = format!("{namespace}/{group}").into();
        for planned in pods {
            let Some(claim) = claims.of(&planned.entry.pod.uid) else {
                continue;
            };
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
        let mut claims = self.claims.clone();
        let mut is_found = search.place(self, &mut claims);
        if !is_found && has_optional {
            search.keeps_optional = false;
            search.sites.clear();
            claims = self.claims.clone();
            is_found = search.place(self, &mut claims);
        }
        let nodes = self.snapshot.node_count() / self.snapshot.sites.len().max(1);
        self.comparisons = self.comparisons.saturating_add(search.assessments * (1 + nodes));
        is_found.then_some(claims)
    }

    /// The pods as units. `None` if a unit has no place.
    fn units<'a>(&mut self, pods: Group<'a, 'p>, queue_key: QueueKey, since: Moment) -> Option<Vec<Unit<'a, 'p>>> {
        let mut units = Vec::<Unit<'_, '_>>::new();
        let mut known = HashMap::<Workload<'static>, Vec<&'p Site>>::new();
        let memberships: Vec<_> = pods
            .iter()
            .filter_map(|planned| planned.workload.membership())
            .collect();
        for planned in pods {
            let membership = planned.workload.membership()?;
            let kind = super::planning::kind_of(planned.workload, self.snapshot);
            let places = known
                .entry(kind)
                .or_insert_with(|| self.places(planned, queue_key, since));
            let is_tied = !planned.workload.intent.as_ref().is_some_and(|intent| intent.spreads)
                && memberships
                    .iter()
                    .any(|other| limits(membership, other).next().is_some());
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
    /// Finds a place for every unit from this one on, depth first, and adds its claims.
    fn place(&mut self, planning: &Planning<'p>, claims: &mut QueueClaims) -> bool {
        let at = self.sites.len();
        let Some(unit) = self.units.get(at) else { return true };
        for site in unit.places.clone() {
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
            if limits.peek().is_none() {
                continue;
            }
            let is_same = site.name() == at.name();
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
            let is_beyond_measured = !["cpu", "memory"]
                .iter()
                .all(|name| free.get(name).is_none_or(|free| workload.request.get(name) <= free));
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
