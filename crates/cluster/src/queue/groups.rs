//! Groups that start together: one entry of the plan, placed whole or not at all.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::planning::{Planning, kind_of};
use super::{MAX_COMPARISONS, PlanAction, Planned, Together};
use edgeward_decision::model::group::{MAX_SIZE, Membership, Within, limits};
use edgeward_decision::model::queue_claims::{QueueClaim, QueueClaims};
use edgeward_decision::model::snapshot::{Site, Snapshot};
use edgeward_decision::model::workload::{QueueKey, Workload};
use edgeward_decision::placement::decide::{decide_with_scores, node_at};
use edgeward_decision::placement::located::located_beside;
use edgeward_decision::placement::room::Room;
use edgeward_decision::placement::verdict::{Reason, Standing};
use edgeward_kube::units::{Micros, Moment};

/// The most pods whose room is looked for at one site each, in one search.
const MAX_ASSESSMENTS: usize = 2_000;

/// The most distances between sites that are compared, in one search.
const MAX_DISTANCES: usize = 1_000_000;

/// How many comparisons of distances cost as much as one of a pod's constraints with a node.
const DISTANCES_PER_COMPARISON: usize = 16;

/// The comparisons that a purse has for each pod of a group of this size, in addition to its decision. A longer search uses up
/// the purse.
pub(super) fn search_cost(snapshot: &Snapshot, size: u32) -> usize {
    8 * (1 + nodes_of_site(snapshot)) + size.min(MAX_SIZE) as usize
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

/// What became of a group in a plan.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Placing {
    Placed,
    /// Not all of its pods have a place.
    NoPlace,
    /// The next plan looks for a place.
    Postponed,
}

/// Pods that are placed at one site together, because their distance to others matters, or one pod.
struct Unit<'a, 'p> {
    pods: Vec<&'a Planned<'p>>,
    membership: &'p Membership,
    /// The sites where the pods may be placed, best first, by their place in the snapshot.
    places: Vec<usize>,
    limits: Vec<Limit>,
}

impl Unit<'_, '_> {
    fn has_limit_with(&self, other: &Self) -> bool {
        self.membership.is_gang || limits(self.membership, other.membership).next().is_some()
    }
}

/// A limit on the distance between a unit and one before it, or between the pods of one unit.
struct Limit {
    /// The place of the other unit.
    other: usize,
    within: Within,
    is_optional: bool,
}

/// RTTs between pods at each two sites, by the places of the sites in the snapshot.
pub(super) struct Distances {
    sites: usize,
    delays: Vec<Option<Micros>>,
}

impl Distances {
    /// Cost: a computation for each two sites.
    fn of(snapshot: &Snapshot, ttl: Micros, now: Moment) -> Self {
        let sites = &snapshot.sites;
        let pairs = sites.iter().flat_map(|one| sites.iter().map(move |other| (one, other)));
        Self {
            sites: sites.len(),
            delays: pairs.map(|(one, other)| snapshot.delay(one, other, ttl, now)).collect(),
        }
    }

    fn are_within(&self, one: usize, other: usize, within: Within) -> bool {
        match within {
            Within::Site => one == other,
            Within::Rtt(limit) => self.delays[one * self.sites + other].is_some_and(|delay| delay <= limit),
        }
    }
}

/// A search for a place for every pod of a group.
struct Search<'a, 'p> {
    units: Vec<Unit<'a, 'p>>,
    /// Whether optional distances must be kept.
    keeps_optional: bool,
    queue_key: QueueKey,
    distances_between: Arc<Distances>,
    /// The site of each unit so far.
    sites: Vec<usize>,
    assessments: usize,
    /// Nodes that pods' constraints were compared with.
    comparisons: usize,
    distances: usize,
}

impl<'p> Planning<'p> {
    /// Decides about a group. Its pods keep waiting until as many exist as start together, and all of these have a place. Pods
    /// beyond that are decided on their own, and so are those of a group that has started or is past its limit. The limit is
    /// the longest of the gated pods' classes. A gang has none.
    pub(super) fn consider_group(&mut self, pods: Group<'_, 'p>) {
        let Some(first) = pods.first() else { return };
        let (namespace, group) = first.group().unwrap_or_default();
        let size = pods.iter().filter_map(|planned| planned.size).max().unwrap_or_default();
        let since = pods.iter().map(|planned| planned.entry.since).min().unwrap_or_default();
        let longest = pods.iter().map(|planned| planned.entry.pod.longest(self.config)).max();
        let due = since.after(longest.unwrap_or_default());
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
        let placing = match is_complete {
            true => self.place_group(&ready[..missing], since),
            false => Placing::NoPlace,
        };
        if placing == Placing::Placed {
            ready[missing..].iter().for_each(|planned| self.consider(planned));
        } else if is_overdue && !first.entry.pod.is_of_gang() {
            ready
                .iter()
                .for_each(|planned| self.consider(&planned.overdue_since(since)));
        } else if placed > 0 && !is_complete && !first.entry.pod.is_of_gang() {
            ready.iter().for_each(|planned| self.consider(planned));
        } else {
            self.groups.waiting += usize::from(is_complete);
            self.groups.incomplete += usize::from(!is_complete);
            let reasons = ready.iter().filter(|_| placing == Placing::NoPlace);
            reasons.for_each(|planned| self.update_reason(planned.entry, Reason::HeldGroup));
        }
    }

    /// Claims room for all these pods and releases them together.
    fn place_group(&mut self, pods: Group<'_, 'p>, since: Moment) -> Placing {
        let Some(first) = pods.first() else {
            return Placing::Placed;
        };
        let decisions: usize = pods.iter().map(|planned| planned.cost).sum();
        if self.is_earlier(first) {
            if !self.claim_again(pods) {
                return Placing::Postponed;
            }
        } else if !self.pay(first, pods.len().pow(2) + decisions) {
            return Placing::Postponed;
        } else if !self.search(pods, since) {
            return Placing::NoPlace;
        }
        let (namespace, group) = first.group().unwrap_or_default();
        let group: Arc<str> = format!("{namespace}/{group}").into();
        for planned in pods {
            let site = self
                .claims
                .of(&planned.entry.pod.uid)
                .map(|claim| Arc::clone(&claim.site));
            let together = site.map(|site| Together {
                group: Arc::clone(&group),
                site,
            });
            self.push(planned.entry, since, PlanAction::Release, together);
        }
        Placing::Placed
    }

    /// Claims the room of the last plan for all these pods, until the pods behind have been considered. False if one of them
    /// had none.
    fn claim_again(&mut self, pods: Group<'_, 'p>) -> bool {
        let claim = |planned: &&Planned<'_>| self.before.of(&planned.entry.pod.uid).filter(|claim| claim.has_room);
        let Some(claims) = pods.iter().map(claim).collect::<Option<Vec<_>>>() else {
            return false;
        };
        claims.into_iter().for_each(|claim| self.claims.add(claim.clone()));
        true
    }

    /// Looks for a place for each of these pods and adds their claims; false if not all have one. The first search keeps optional
    /// distances too.
    fn search(&mut self, pods: Group<'_, 'p>, since: Moment) -> bool {
        let Some(queue_key) = pods.first().map(|first| first.queue_key) else {
            return true;
        };
        let Some(units) = self.units(pods, queue_key, since) else {
            return false;
        };
        let (snapshot, ttl, now) = (self.snapshot, self.config.telemetry_ttl, self.now.moment);
        let distances = self
            .distances
            .get_or_insert_with(|| Arc::new(Distances::of(snapshot, ttl, now)));
        let mut search = Search {
            units,
            keeps_optional: true,
            queue_key,
            distances_between: Arc::clone(distances),
            sites: vec![],
            assessments: 0,
            comparisons: 0,
            distances: 0,
        };
        let mut limits = search.units.iter().flat_map(|unit| &unit.limits);
        let has_optional = limits.any(|limit| limit.is_optional);
        if search.run(self) {
            return true;
        }
        search.keeps_optional = false;
        has_optional && search.run(self)
    }

    /// The pods as units. `None` if a unit has no place.
    fn units<'a>(&mut self, pods: Group<'a, 'p>, queue_key: QueueKey, since: Moment) -> Option<Vec<Unit<'a, 'p>>> {
        let mut units = Vec::<Unit<'_, '_>>::new();
        let mut known = HashMap::<Workload<'static>, Vec<usize>>::new();
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
                    unit.places.retain(|site| places.contains(site));
                    unit.pods.push(planned);
                }
                None => units.push(Unit {
                    pods: vec![planned],
                    membership,
                    places: places.clone(),
                    limits: vec![],
                }),
            }
        }
        let mut units = in_turn(units);
        for at in 0..units.len() {
            units[at].limits = limits_between(&units[..=at]);
        }
        units.iter().all(|unit| !unit.places.is_empty()).then_some(units)
    }

    /// The sites where this pod alone may be placed, best first, by their place in the snapshot.
    fn places(&mut self, planned: &Planned<'p>, queue_key: QueueKey, since: Moment) -> Vec<usize> {
        self.decisions += 1;
        let workload = Workload {
            gated_for: Some(self.now.moment.since(since)),
            ..planned.workload.clone()
        };
        let room = Room::beside(self.snapshot, self.ledger, &self.claims, queue_key, &workload.namespace);
        let verdict = decide_with_scores(&workload, &room, self.config, self.now);
        let late = verdict.chosen().filter(|chosen| chosen.standing() == Standing::Late);
        let places = match late {
            Some(late) => vec![late.site],
            None => verdict.places,
        };
        let place = |site: &Site| self.snapshot.sites.iter().position(|other| other.name() == site.name());
        places.into_iter().filter_map(place).collect()
    }
}

/// Orders the units so that linked ones follow each other: each but the first of them comes after one with which it has a
/// limit. Wrong sites are then soon found.
fn in_turn<'a, 'p>(mut units: Vec<Unit<'a, 'p>>) -> Vec<Unit<'a, 'p>> {
    let (mut ordered, mut are_linked) = (vec![], vec![false; units.len()]);
    while !units.is_empty() {
        let next = are_linked.iter().position(|is_linked| *is_linked).unwrap_or(0);
        are_linked.remove(next);
        let unit = units.remove(next);
        for (is_linked, other) in are_linked.iter_mut().zip(&units) {
            *is_linked |= other.has_limit_with(&unit);
        }
        ordered.push(unit);
    }
    ordered
}

/// The limits between the last of these units and all of them.
fn limits_between(units: &[Unit<'_, '_>]) -> Vec<Limit> {
    let Some(last) = units.last() else { return vec![] };
    let mut all = vec![];
    for (other, unit) in units.iter().enumerate() {
        let of_gang = last.membership.is_gang.then_some((Within::Site, false));
        let stated = limits(last.membership, unit.membership);
        all.extend(stated.chain(of_gang).map(|(within, is_optional)| Limit {
            other,
            within,
            is_optional,
        }));
    }
    all
}

impl<'p> Search<'_, 'p> {
    /// Adds claims for the whole group, or none and returns false. The purse of the group pays.
    fn run(&mut self, planning: &mut Planning<'p>) -> bool {
        let mut claims = std::mem::take(&mut planning.claims);
        (self.assessments, self.comparisons, self.distances) = (0, 0, 0);
        self.sites.clear();
        let is_found = self.place(planning, &mut claims);
        planning.claims = claims;
        if let Some(first) = self.units.first().and_then(|unit| unit.pods.first()) {
            planning.charge(first, self.comparisons + self.distances / DISTANCES_PER_COMPARISON);
        }
        is_found
    }

    /// The sites where the unit may be placed, best first. Of a controller that spreads its pods, sites with fewer of the
    /// group's pods come first.
    fn places(&self, unit: &Unit<'_, '_>) -> Vec<usize> {
        let mut places = unit.places.clone();
        if unit.pods.iter().all(|planned| planned.spreads()) {
            let taken = |site: &usize| self.sites.iter().filter(|other| *other == site).count();
            places.sort_by_cached_key(taken);
        }
        places
    }

    /// Finds a place for every unit from the next one on, depth first, and adds its claims.
    fn place(&mut self, planning: &Planning<'p>, claims: &mut QueueClaims) -> bool {
        let at = self.sites.len();
        let Some(unit) = self.units.get(at) else { return true };
        for site in self.places(unit) {
            if self.is_over() {
                return false;
            }
            self.sites.push(site);
            if self.is_near_enough(at, site) {
                if self.claim(at, &planning.snapshot.sites[site], planning, claims) && self.place(planning, claims) {
                    return true;
                }
                let pods = self.units[at].pods.iter();
                pods.for_each(|planned| claims.remove(&planned.entry.pod.uid));
            }
            self.sites.pop();
        }
        false
    }

    /// Whether the search has used up its budget, which the last unit may exceed.
    fn is_over(&self) -> bool {
        self.assessments >= MAX_ASSESSMENTS || self.comparisons >= MAX_COMPARISONS || self.distances >= MAX_DISTANCES
    }

    /// Whether this unit would be near enough at this site to its own pods and to the units before it.
    fn is_near_enough(&mut self, unit: usize, site: usize) -> bool {
        let mut limits = self.units[unit].limits.iter();
        limits.all(|limit| {
            self.distances += 1;
            let is_left_out = limit.is_optional && !self.keeps_optional;
            is_left_out
                || self
                    .distances_between
                    .are_within(site, self.sites[limit.other], limit.within)
        })
    }

    /// Claims room at the site for every pod of the unit; false if one has none.
    fn claim(&mut self, unit: usize, site: &'p Site, planning: &Planning<'p>, claims: &mut QueueClaims) -> bool {
        for planned in &self.units[unit].pods {
            self.assessments += 1;
            self.comparisons += 1 + site.nodes.len();
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
            let reported = room.reported(site);
            let is_beyond_report = reported.is_some_and(|left| !left.fits(&workload.request));
            let is_beyond = is_beyond_measured || is_beyond_report || room.lacks_bandwidth(&workload.request, site);
            let Some(node) = node_at(&located, site, &room).filter(|_| !is_beyond) else {
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
