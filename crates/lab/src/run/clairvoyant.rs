//! The bound `clairvoyant`: a policy with edgeward's rules and actions and perfect knowledge. It knows the true state
//! of the cluster, the time of all work, the ends of running work, and the WAN. It does not know future arrivals.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use edgeward_decision::config::DegradedLinks;
use edgeward_kube::resources::Amounts;
use edgeward_kube::units::Micros;

use super::{Event, Placer, Run};
use crate::cluster::{Phase, PodNumber, Work};
use crate::scenario::Slo;
use crate::units::{MINUTE, Unit, is_met};

/// Interval at which gated pods are reconsidered if no event occurs.
pub(super) const PERIOD: Micros = Micros::from_secs(1);

/// After this many consecutive pods that stay gated, the remaining pods stay gated as well.
const MOST_WAITING: usize = 64;

/// The number of requests of a service, one each minute, whose p95 is known.
const REQUESTS: u64 = 60;

const BINDING: Micros = Micros::from_millis(12);

#[derive(Debug, Default)]
pub(super) struct Clairvoyant {
    gated: Vec<PodNumber>,
    placed: Vec<PodNumber>,
    is_looking: bool,
}

impl Clairvoyant {
    /// Whether a look at the gated pods must be scheduled. Marks it as scheduled.
    pub(super) fn wants_to_look(&mut self) -> bool {
        !self.gated.is_empty() && !std::mem::replace(&mut self.is_looking, true)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    Place(usize),
    Gate,
}

struct Future {
    now: Micros,
    at: Micros,
    free: Vec<(Amounts, i64)>,
    /// Work by the time of its end: time, node, and the index of its request.
    ends: BinaryHeap<Reverse<(Micros, usize, usize)>>,
    requests: Vec<Amounts>,
}

impl Future {
    fn has_room(&self, node: usize, request: &Amounts) -> bool {
        let (free, slots) = &self.free[node];
        *slots > 0 && request.fits(free, &Amounts::default())
    }

    /// Returns the earliest time at which one of these nodes has room, and the node. Time only moves forward: later
    /// calls start at this time.
    fn earliest(&mut self, nodes: &[usize], request: &Amounts) -> Option<(Micros, usize)> {
        if let Some(node) = nodes.iter().find(|node| self.has_room(**node, request)) {
            return Some((self.at, *node));
        }
        while let Some(Reverse((at, node, which))) = self.ends.pop() {
            self.at = self.at.max(at);
            let (free, slots) = &mut self.free[node];
            free.add(&self.requests[which], 1);
            *slots += 1;
            if nodes.contains(&node) && self.has_room(node, request) {
                return Some((self.at, node));
            }
        }
        None
    }

    fn take(&mut self, node: usize, from: Micros, request: &Amounts, service: Option<Micros>) {
        let (free, slots) = &mut self.free[node];
        *free = free.less(request);
        *slots -= 1;
        if let Some(service) = service {
            self.requests.push(request.clone());
            self.ends
                .push(Reverse((from.max(self.now) + service, node, self.requests.len() - 1)));
        }
    }
}

impl Run<'_> {
    fn clairvoyant(&mut self) -> Option<&mut Clairvoyant> {
        match &mut self.placer {
            Placer::Clairvoyant(clairvoyant) => Some(clairvoyant),
            _ => None,
        }
    }

    /// Returns the free and future room, after the pods already placed have taken theirs.
    fn future(&mut self) -> Future {
        let placed = self
            .clairvoyant()
            .map(|clairvoyant| std::mem::take(&mut clairvoyant.placed));
        let mut future = Future {
            now: self.now,
            at: self.now,
            free: vec![],
            ends: BinaryHeap::new(),
            requests: vec![],
        };
        for (number, node) in self.nodes.iter().enumerate() {
            let is_there = node.node.state.ready && !node.failed;
            let slots = node.node.slots - node.pods.len() as i64;
            future.free.push(match is_there {
                true => (node.node.allocatable.less(&node.used), slots),
                false => (Amounts::default(), 0),
            });
            // Pods wait for room at the edge only, so the ends of work in clouds do not matter.
            for pod in node.pods.iter().filter(|_| is_there && node.site == 0) {
                let state = &self.pods[*pod];
                let start = state.bound.unwrap_or(self.now) + self.mean_start();
                let ends = match (state.work, state.phase) {
                    (Work::Replica { .. } | Work::Initial, _) => continue,
                    (_, Phase::Running) => state.ends,
                    _ => start + self.service_at(*pod, node.site),
                };
                future.requests.push(self.request_of(*pod).clone());
                future.ends.push(Reverse((ends, number, future.requests.len() - 1)));
            }
        }
        let is_open = |number: &PodNumber| self.pods[*number].is_unbound() && self.pods[*number].node.is_none();
        let placed: Vec<_> = placed.unwrap_or_default().into_iter().filter(is_open).collect();
        for number in placed.iter().copied().take(4 * MOST_WAITING) {
            self.assign(&mut future, number, self.pods[number].site.unwrap_or(0));
        }
        if let Some(clairvoyant) = self.clairvoyant() {
            clairvoyant.placed = placed;
        }
        future
    }

    fn mean_start(&self) -> Micros {
        super::micros(self.scenario.delays.start.at(0.0))
    }

    fn assign(&self, future: &mut Future, number: PodNumber, site: usize) {
        let nodes = &self.allowed[self.pods[number].workload][site + 1];
        let request = self.request_of(number);
        if site > 0 {
            let node = nodes.iter().find(|node| future.has_room(**node, request));
            node.into_iter()
                .for_each(|node| future.take(*node, self.now, request, None));
        } else if let Some((at, node)) = future.earliest(nodes, request) {
            let is_task = matches!(self.pods[number].work, Work::Task(_));
            let service = is_task.then(|| self.mean_start() + self.service_at(number, site));
            future.take(node, at, request, service);
        }
    }

    pub(super) fn foresee(&mut self, number: PodNumber) {
        let mut future = self.future();
        let ahead = self.in_order();
        for other in ahead
            .into_iter()
            .filter(|other| self.order(*other) <= self.order(number))
            .take(MOST_WAITING)
        {
            self.assign(&mut future, other, 0);
        }
        match self.choose(number, &mut future) {
            Choice::Place(site) => {
                self.place(number, site);
                if let Some(clairvoyant) = self.clairvoyant() {
                    clairvoyant.placed.push(number);
                }
            }
            Choice::Gate => {
                self.hold(number, "gated");
                if let Some(clairvoyant) = self.clairvoyant() {
                    clairvoyant.gated.push(number);
                }
            }
        }
    }

    /// The order of gated pods: priority, SLO priority, pods that are late at the edge anyway last, then age.
    fn order(&self, number: PodNumber) -> (Reverse<i32>, Reverse<u8>, bool, PodNumber) {
        let workload = &self.scenario.workloads[self.pods[number].workload];
        let slo = workload.slo.map_or(5, |slo| slo.priority);
        let deadline = workload.slo.and_then(|slo| slo.deadline);
        let ends = self.now - self.asked_at(number) + self.service_at(number, 0);
        let is_late = deadline.is_some_and(|deadline| ends > deadline);
        (Reverse(workload.priority), Reverse(slo), is_late, number)
    }

    fn in_order(&mut self) -> Vec<PodNumber> {
        let mut gated = self
            .clairvoyant()
            .map(|clairvoyant| clairvoyant.gated.clone())
            .unwrap_or_default();
        gated.retain(|number| self.pods[*number].phase == Phase::Gated);
        gated.sort_by_key(|number| self.order(*number));
        gated
    }

    pub(super) fn reconsider_periodically(&mut self) {
        if self.now.0.is_multiple_of(PERIOD.0) {
            self.events.schedule(self.now + PERIOD, Event::Reconsider);
        }
        self.look();
    }

    /// Decides each gated pod again, in order, on the room that earlier pods leave.
    fn look(&mut self) {
        let Some(clairvoyant) = self.clairvoyant() else { return };
        clairvoyant.is_looking = false;
        if clairvoyant.gated.is_empty() {
            return;
        }
        let gated = self.in_order();
        let mut future = self.future();
        let (mut waiting, mut still) = (0, vec![]);
        for number in gated {
            if waiting >= MOST_WAITING && !self.is_overdue(number) {
                still.push(number);
                continue;
            }
            match self.choose(number, &mut future) {
                Choice::Gate => {
                    waiting += 1;
                    still.push(number);
                }
                Choice::Place(site) => {
                    self.release(number, Some(site));
                    if let Some(clairvoyant) = self.clairvoyant() {
                        clairvoyant.placed.push(number);
                    }
                }
            }
        }
        if let Some(clairvoyant) = self.clairvoyant() {
            clairvoyant.gated = still;
        }
    }

    fn is_overdue(&self, number: PodNumber) -> bool {
        let is_gated = self.pods[number].phase == Phase::Gated;
        let limits = &self.scenario.config.gating.limits;
        is_gated
            && self
                .slo_of(number)
                .is_some_and(|slo| self.gated_for(number) >= limits[slo.class])
    }

    /// Whether some cloud that could hold the pod will have a healthy WAN before the gating limit, and in time for the
    /// deadline.
    fn is_back_in_time(&self, number: PodNumber, slo: &Slo) -> bool {
        let limit = self.scenario.config.gating.limits[slo.class];
        let service = self.service_at(number, 0);
        let spare = slo
            .deadline
            .map(|deadline| Micros(deadline.0.saturating_sub(service.0)));
        let until = self.asked_at(number) + spare.map_or(limit, |spare| spare.min(limit));
        let mut moments = (0..)
            .map(|second| self.now + Micros::from_secs(second))
            .take_while(|at| *at <= until);
        moments.any(|at| {
            self.could_hold(number)
                .any(|site| site > 0 && self.can_use_wan(site, at))
        })
    }

    /// Whether pods may use the WAN towards a cloud by its true RTT and loss. The RTT is averaged over the window that edgeward
    /// averages over.
    fn can_use_wan(&self, site: usize, now: Micros) -> bool {
        let Some(path) = &self.paths[site] else { return true };
        let thresholds = self
            .scenario
            .config
            .thresholds(&self.scenario.sites[site].definition.name);
        let moments = (0..5).map(|probe| now - Micros::from_secs(2 * probe));
        let round_trips: Vec<_> = moments.filter_map(|at| path.rtt(at)).collect();
        let sum: u64 = round_trips.iter().map(|rtt| rtt.0).sum();
        let is_up = path.rtt(now).is_some();
        let is_within = sum < thresholds.rtt.0 * round_trips.len() as u64
            && path.loss(now) * 1_000.0 < f64::from(thresholds.loss.0);
        let is_estimated = self.scenario.config.degraded_links == DegradedLinks::Estimate && path.loss(now) < 0.5;
        is_up && (is_within || is_estimated)
    }

    /// The true times of the pod's work at a site and of crossing the WAN. Of a service with a latency target, those of the
    /// request that 19 of 20 do not exceed. `None` if the WAN stays down.
    fn times_at(&self, number: PodNumber, site: usize, slo: &Slo) -> Option<(Micros, Micros)> {
        let (service, slot) = match self.pods[number].work {
            Work::Replica { service, first_of, .. } => (service, first_of),
            Work::Task(task) => {
                let crossing = self.crossing(site, slo, Unit::Task(task))?;
                return Some((self.service_at(number, site), crossing));
            }
            Work::Initial => return Some(Default::default()),
        };
        let minutes = if slo.target.is_some() { REQUESTS } else { 1 };
        // A pod that replaces another one in a slot serves its requests from now on.
        let passed = if slot.is_none() { self.now.0 / MINUTE.0 } else { 0 };
        let requests = (passed..passed + minutes).map(|minute| {
            let time = self.request_time(service, slot, minute);
            let slot = slot.unwrap_or(0);
            let crossing = self.crossing(site, slo, Unit::Request { service, slot, minute })?;
            Some((self.scenario.sites[site].service(time, self.now), crossing))
        });
        let mut requests = requests.collect::<Option<Vec<_>>>()?;
        requests.sort_unstable_by_key(|(service, crossing)| *service + *crossing);
        Some(requests[(requests.len() * 19).div_ceil(20) - 1])
    }

    fn choose(&self, number: PodNumber, future: &mut Future) -> Choice {
        let Some(slo) = self.slo_of(number) else {
            return Choice::Place(0);
        };
        let pod = &self.pods[number];
        let (request, allowed) = (self.request_of(number), &self.allowed[pod.workload]);
        let asked_at = match pod.work {
            Work::Task(task) => self.load.tasks[task].at,
            Work::Replica { .. } => pod.created,
            Work::Initial => return Choice::Place(0),
        };
        let waited = self.now - asked_at + BINDING;
        // The room that is free now must be read before `earliest` advances the time.
        let clouds = self
            .could_hold(number)
            .filter(|site| *site > 0 && slo.offload && self.can_use_wan(*site, self.now));
        let clouds = clouds.filter(|site| {
            let mut nodes = allowed[site + 1].iter();
            nodes.any(|node| future.has_room(*node, request))
        });
        let clouds = clouds.filter_map(|site| {
            let (service, crossing) = self.times_at(number, site, &slo)?;
            Some((service + crossing, site, is_met(&slo, waited, service, Some(crossing))))
        });
        let clouds: Vec<_> = clouds.collect();
        let may_leave = slo.offload && self.could_hold(number).any(|site| site > 0);
        let service = self.times_at(number, 0, &slo).map_or(Micros(0), |(service, _)| service);
        let could_stay = self.could_hold(number).next() == Some(0);
        let starts = if could_stay {
            future.earliest(&allowed[1], request)
        } else {
            None
        };
        let meets = |at: Micros| is_met(&slo, waited + (at - self.now), service, Some(Micros(0)));
        let best_cloud = clouds
            .iter()
            .filter(|(.., is_met)| *is_met)
            .min()
            .map(|(_, site, _)| *site);
        let nearest_cloud = clouds.iter().min().copied();
        let is_timed = slo.deadline.is_some() || slo.target.is_some();
        let fits = starts.is_some_and(|(at, _)| at <= self.now);
        let choice = match starts {
            Some((at, _)) if fits && meets(at) => Choice::Place(0),
            Some((at, _)) if !fits && is_timed && meets(at) && may_leave => Choice::Gate,
            _ => match best_cloud {
                Some(site) => Choice::Place(site),
                None if !may_leave => Choice::Place(0),
                None if fits => match nearest_cloud {
                    Some((eta, site, _)) if slo.priority >= 7 && eta < service => Choice::Place(site),
                    _ => Choice::Place(0),
                },
                // Over its whole life, a service is served better at the edge.
                None => match nearest_cloud {
                    Some((eta, _, _)) if slo.deadline.is_none() && slo.target.is_some() && service < eta => {
                        Choice::Gate
                    }
                    Some((_, site, _)) if slo.priority >= 7 || !meets(self.now) => Choice::Place(site),
                    None if !self.is_back_in_time(number, &slo) => Choice::Place(0),
                    _ => Choice::Gate,
                },
            },
        };
        let choice = match choice {
            Choice::Gate if self.is_overdue(number) => Choice::Place(nearest_cloud.map_or(0, |(_, site, _)| site)),
            choice => choice,
        };
        if let (Choice::Gate | Choice::Place(0), Some((at, node))) = (choice, starts) {
            let is_task = matches!(pod.work, Work::Task(_));
            future.take(node, at, request, is_task.then(|| self.mean_start() + service));
        } else if let Choice::Place(site) = choice
            && site > 0
        {
            self.assign(future, number, site);
        }
        choice
    }
}
