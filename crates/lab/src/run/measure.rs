//! The measurements of a run.

use std::collections::BTreeMap;

use edgeward_decision::model::slo::PerClass;
use edgeward_kube::resources::Amounts;
use edgeward_kube::units::Micros;

use super::{Event, Run};
use crate::cluster::{Phase, PodNumber, Work};
use crate::load::Load;
use crate::outcome::{Choice, Outcome, Pods, Share, Tick};
use crate::scenario::{Scenario, Slo};
use crate::units::{Unit, Units, is_met, request_id};
use crate::wan::round_trips;

/// Number of intervals into which the time lines divide a run.
const TICKS: u64 = 200;

/// Waits are kept for at most this many pods.
const MOST_WAITS: usize = 1_000_000;

#[derive(Debug)]
pub(super) struct Measure {
    units: Units,
    met: Vec<bool>,
    /// The pod that last served each unit.
    servers: Vec<PodNumber>,
    shares: Vec<Share>,
    window: (Micros, Micros),
    tick: Micros,
    /// For each site: CPU of bound pods, the time of the last change, and CPU time so far.
    cpu: Vec<(i64, Micros, u128)>,
    /// Requests of the pods that are placed at each site and have no node.
    unbound: Vec<Amounts>,
    bound: Vec<PerClass<u64>>,
    gated: u64,
    gated_seconds: f64,
    unschedulable: (u64, f64),
    waits: Vec<f64>,
    since_tick: [u64; 3],
    timeline: Vec<Tick>,
    /// Pods without a node at the last tick.
    waiting: Vec<PodNumber>,
    looked_at: usize,
    pub(super) created: u64,
    pub(super) blocked: u64,
    pub(super) decisions: u64,
    pub(super) preempted: u64,
    pub(super) moved: u64,
    pub(super) reasons: BTreeMap<&'static str, u64>,
    pub(super) choices: Vec<Choice>,
}

impl Measure {
    pub(super) fn new(scenario: &Scenario, load: &Load) -> Self {
        let units = Units::new(scenario, load);
        let sites = scenario.sites.len();
        Self {
            met: vec![false; units.list.len()],
            servers: vec![0; units.list.len()],
            shares: vec![],
            units,
            window: (scenario.warmup, scenario.end),
            tick: Micros((scenario.end.0 / TICKS).max(1_000_000)),
            cpu: vec![(0, Micros(0), 0); sites],
            unbound: vec![Amounts::default(); sites],
            bound: vec![PerClass::default(); sites],
            gated: 0,
            gated_seconds: 0.0,
            unschedulable: (0, 0.0),
            waits: vec![],
            since_tick: [0; 3],
            timeline: vec![],
            waiting: vec![],
            looked_at: 0,
            created: 0,
            blocked: 0,
            decisions: 0,
            preempted: 0,
            moved: 0,
            reasons: BTreeMap::new(),
            choices: vec![],
        }
    }

    pub(super) fn unbound_at(&self, site: usize) -> &Amounts {
        &self.unbound[site]
    }

    pub(super) fn placed(&mut self, site: usize, request: &Amounts) {
        self.unbound[site].add(request, 1);
        self.since_tick[usize::from(site > 0)] += 1;
    }

    /// Removes a placed pod that has got a node or is gone.
    pub(super) fn not_unbound(&mut self, site: usize, request: &Amounts) {
        self.unbound[site] = self.unbound[site].less(request);
    }

    pub(super) fn was_gated(&mut self) {
        self.since_tick[2] += 1;
    }

    pub(super) fn released(&mut self, gated: Micros, created: Micros) {
        if created >= self.window.0 {
            self.gated += 1;
            self.gated_seconds += gated.0 as f64 / 1e6;
        }
    }

    pub(super) fn interrupted(&mut self, task: usize) {
        if let Some(unit) = self.units.place(Unit::Task(task)) {
            self.met[unit] = false;
        }
    }

    fn serve(&mut self, unit: usize, pod: PodNumber, is_met: bool) {
        (self.met[unit], self.servers[unit]) = (is_met, pod);
    }

    /// Charges a pod the cost per microsecond from now to the end of the measured time.
    fn charge(&mut self, pod: PodNumber, cost: f64, now: Micros) {
        let (from, to) = self.window;
        if self.shares.len() <= pod {
            self.shares.resize(pod + 1, Share::default());
        }
        self.shares[pod].cost += cost * (to - now.clamp(from, to)).0 as f64;
    }

    /// Updates the waiting pods: checks those of the last tick and those created since. Cost: linear in their number.
    fn find_waiting(&mut self, waits: impl Fn(PodNumber) -> bool, created: usize) {
        self.waiting.extend(self.looked_at..created);
        self.looked_at = created;
        self.waiting.retain(|number| waits(*number));
    }

    fn use_cpu(&mut self, site: usize, change: i64, now: Micros) {
        let (from, to) = self.window;
        let (cpu, since, time) = &mut self.cpu[site];
        let counted = now.min(to) - (*since).max(from);
        *time += u128::from(counted.0) * u128::from(cpu.unsigned_abs());
        (*cpu, *since) = (*cpu + change, now);
    }
}

impl Run<'_> {
    pub(super) fn asked_at(&self, number: PodNumber) -> Micros {
        match self.pods[number].work {
            Work::Task(task) => self.load.tasks[task].at,
            Work::Replica {
                service,
                first_of: Some(slot),
                ..
            } => self.load.services[service].slots[slot].open,
            Work::Replica { .. } | Work::Initial => self.pods[number].created,
        }
    }

    pub(super) fn measure_initial(&mut self, number: PodNumber) {
        let Some(node) = self.pods[number].node else { return };
        self.measure.created += 1;
        self.use_cpu(number, self.nodes[node].site, 1);
    }

    /// Counts the CPU of a pod that starts (1) or ends (-1) its use of a site.
    fn use_cpu(&mut self, number: PodNumber, site: usize, sign: i64) {
        let cpu = sign * self.request_of(number).cpu.0;
        self.measure.use_cpu(site, cpu, self.now);
        let cost = cpu as f64 / 1_000.0 / 3.6e9 * self.scenario.sites[site].cost;
        self.measure.charge(number, cost, self.now);
    }

    /// Records that a pod has its node, and whether it meets its times.
    pub(super) fn measure_bound(&mut self, number: PodNumber) {
        let Some(node) = self.pods[number].node else { return };
        let site = self.nodes[node].site;
        let (request, asked_at) = (self.request_of(number), self.asked_at(number));
        let is_counted = asked_at >= self.scenario.warmup;
        let waited = self.now - asked_at;
        self.use_cpu(number, site, 1);
        if let Some(placed) = self.pods[number].site {
            self.measure.not_unbound(placed, request);
        }
        if let Some(refused) = self.pods[number].refused.filter(|_| is_counted) {
            self.measure.unschedulable.0 += 1;
            self.measure.unschedulable.1 += (self.now - refused).0 as f64 / 1e6;
        }
        let Some(slo) = self.slo_of(number) else { return };
        if is_counted {
            self.measure.bound[site][slo.class] += 1;
            if self.measure.waits.len() < MOST_WAITS {
                self.measure.waits.push(waited.0 as f64 / 1e6);
            }
        }
        let unit = match self.pods[number].work {
            Work::Task(task) => Unit::Task(task),
            Work::Replica {
                service,
                first_of: Some(slot),
                ..
            } => Unit::Request {
                service,
                slot,
                minute: 0,
            },
            Work::Replica { .. } | Work::Initial => return,
        };
        if let Some(place) = self.measure.units.place(unit) {
            let service = self.service_at(number, site);
            let is_met = is_met(&slo, waited, service, self.crossing(site, &slo, unit));
            self.measure.serve(place, number, is_met);
        }
    }

    pub(super) fn crossing(&self, site: usize, slo: &Slo, unit: Unit) -> Option<Micros> {
        match &self.paths[site] {
            None => Some(Micros(0)),
            Some(path) => path.crossing(self.now, round_trips(slo.class), self.seed, request_id(unit)),
        }
    }

    /// Records a request of a service, answered by this pod or not at all.
    pub(super) fn measure_request(&mut self, service: usize, slot: usize, minute: u64, pod: Option<PodNumber>) {
        let unit = Unit::Request { service, slot, minute };
        let Some(place) = self.measure.units.place(unit) else {
            return;
        };
        let slo = self.scenario.workloads[self.load.services[service].workload].slo;
        let (Some(pod), Some(slo)) = (pod, slo) else { return };
        let Some(node) = self.pods[pod].node else { return };
        let site = self.nodes[node].site;
        let time = self.request_time(service, Some(slot), minute);
        let time = self.scenario.sites[site].service(time, self.now);
        let slo = Slo { deadline: None, ..slo };
        let is_met = is_met(&slo, Micros(0), time, self.crossing(site, &slo, unit));
        self.measure.serve(place, pod, is_met);
    }

    pub(super) fn measure_freed(&mut self, number: PodNumber) {
        let Some(node) = self.pods[number].node else { return };
        self.use_cpu(number, self.nodes[node].site, -1);
    }

    /// Records that a pod is gone without having had a node.
    pub(super) fn measure_left(&mut self, number: PodNumber) {
        let request = self.request_of(number);
        if let Some(site) = self.pods[number].site {
            self.measure.not_unbound(site, request);
        }
    }

    pub(super) fn tick(&mut self) {
        self.events.schedule(self.now + self.measure.tick, Event::Tick);
        let mut tick = Tick {
            at: self.now.0 as f64 / 1e6,
            ..Tick::default()
        };
        for pod in self.waiting() {
            match (pod.phase, pod.site) {
                (Phase::Gated, _) => tick.gated += 1,
                (_, Some(0)) => tick.waiting_at_edge += 1,
                (_, Some(_)) => tick.waiting_in_clouds += 1,
                _ => {}
            }
        }
        tick.edge_used = self.measure.cpu[0].0 as f64 / self.cpu_at(0).max(1) as f64;
        let rtt = self
            .paths
            .iter()
            .flatten()
            .map(|path| path.rtt(self.now).map(|rtt| rtt.as_millis_f64()));
        tick.rtt = rtt.collect();
        [tick.to_edge, tick.to_clouds, tick.to_gate] = std::mem::take(&mut self.measure.since_tick);
        self.measure.timeline.push(tick);
    }

    fn waiting(&mut self) -> impl Iterator<Item = &crate::cluster::Pod> {
        let pods = &self.pods;
        self.measure.find_waiting(
            |number| matches!(pods[number].phase, Phase::Gated | Phase::Unbound),
            pods.len(),
        );
        self.measure.waiting.iter().map(|number| &self.pods[*number])
    }

    fn cpu_at(&self, site: usize) -> i64 {
        let nodes = self.nodes.iter().filter(|node| node.site == site);
        nodes.map(|node| node.node.allocatable.cpu.0).sum()
    }

    pub(super) fn finish(mut self) -> Outcome {
        let mut pods = Pods {
            created: self.measure.created,
            blocked: self.measure.blocked,
            ..Pods::default()
        };
        for number in 0..self.pods.len() {
            let pod = &self.pods[number];
            match pod.phase {
                Phase::Gated => pods.gated += 1,
                Phase::Unbound => pods.pending += 1,
                Phase::Starting | Phase::Running => pods.running += 1,
                Phase::Finished => pods.done += 1,
                Phase::Gone if pod.finished => pods.done += 1,
                Phase::Gone => pods.deleted += 1,
            }
            let is_waiting = matches!(pod.phase, Phase::Gated | Phase::Unbound);
            if is_waiting && self.asked_at(number) >= self.scenario.warmup {
                if let Some(refused) = pod.refused {
                    self.measure.unschedulable.0 += 1;
                    self.measure.unschedulable.1 += (self.now - refused).0 as f64 / 1e6;
                }
                if self.pods[number].phase == Phase::Gated {
                    let (gated, created) = (self.gated_for(number), self.pods[number].created);
                    self.measure.released(gated, created);
                }
            }
        }
        pods.deleted -= pods.blocked;
        let sites = self.scenario.sites.len();
        (0..sites).for_each(|site| self.measure.use_cpu(site, 0, self.now));
        let hours = |site: usize| self.measure.cpu[site].2 as f64 / 1_000.0 / 3.6e9;
        let cost = (0..sites)
            .map(|site| hours(site) * self.scenario.sites[site].cost)
            .sum();
        let window = (self.measure.window.1 - self.measure.window.0).0 as f64 / 3.6e9;
        let edge_utilisation = hours(0) / (window * self.cpu_at(0).max(1) as f64 / 1_000.0);
        let mut measure = self.measure;
        measure.shares.resize(self.pods.len(), Share::default());
        for (share, pod) in measure.shares.iter_mut().zip(&self.pods) {
            share.workload = pod.workload;
        }
        for (pod, _) in measure.servers.iter().zip(&measure.met).filter(|(_, met)| **met) {
            measure.shares[*pod].met += 1;
        }
        Outcome {
            shares: measure.shares,
            choices: measure.choices,
            attainment: measure.units.by_class(&measure.met),
            bound: measure.bound,
            cost,
            edge_utilisation,
            gated: measure.gated,
            gated_seconds: measure.gated_seconds,
            unschedulable: measure.unschedulable.0,
            unschedulable_seconds: measure.unschedulable.1,
            waits: measure.waits,
            reasons: measure.reasons,
            decisions: measure.decisions,
            preempted: measure.preempted,
            moved: measure.moved,
            pods,
            timeline: measure.timeline,
            units: measure.met,
        }
    }
}
