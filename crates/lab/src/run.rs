//! One run: a scenario, a seed and a policy in virtual time.

mod clairvoyant;
mod deployments;
mod edgeward;
mod measure;
mod placing;
mod scheduling;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use edgeward_kube::node::Node;
use edgeward_kube::resources::Amounts;
use edgeward_kube::units::Micros;

use crate::cluster::{NodeState, Phase, Pod, PodNumber, Work};
use crate::events::Events;
use crate::kube_scheduler::Queue;
use crate::load::{Load, Task};
use crate::outcome::Outcome;
use crate::policy::Policy;
use crate::random::{Distribution, Purpose, Stream};
use crate::scenario::{Scenario, WorkloadKind};
use crate::wan::Path;
use deployments::Deployment;
use edgeward::Edgeward;
use measure::Measure;

/// Delay of the watches of kube-scheduler and of the other controllers.
const INFORMER: Micros = Micros::from_millis(2);

const FINISHED_KEPT: Micros = Micros::from_secs(60);

/// A node is marked not ready when its kubelet has been silent for this long.
const NODE_MONITOR_GRACE: Micros = Micros::from_secs(50);

/// Pods are evicted from a node that has been not ready for this long.
const NODE_EVICTION: Micros = Micros::from_secs(300);

#[derive(Debug, Clone, Copy)]
enum Event {
    /// Create this task of the load and all tasks of the same time.
    Tasks(usize),
    Replicas(usize, usize),
    Rollout(usize),
    Reconcile(usize),
    /// A request to a slot of a service: service, slot, and minutes since the slot opened.
    Request(usize, usize, u64),
    Queued(PodNumber),
    Cycle,
    /// A scheduling cycle ends for this pod, with its node if one was found.
    CycleEnds(PodNumber, Option<usize>),
    Bound(PodNumber),
    Started(PodNumber),
    /// The work of a pod ends at this time, unless its node failed in between.
    Ends(PodNumber, Micros),
    Gone(PodNumber),
    Freed(PodNumber, usize),
    FlushBackoff,
    /// Retry pods that have waited long without an event; every 30 s.
    FlushLeftOver,
    Fails(usize),
    /// The failure's nodes become not ready.
    NotReady(usize),
    Evict(usize),
    Recovers(usize),
    ProfileRound,
    /// The requests of services of the last minutes are queried.
    RequestTimes,
    Deliver(usize),
    Publish(usize, Micros),
    WatchAlive(usize),
    /// A probe of a site by a replica is answered or lost: replica, site, probe number.
    Probe(usize, usize, u64),
    Patch(u64),
    Execute,
    Reconsider,
    Tick,
}

enum Placer {
    Edge,
    Cloud,
    LeastLoaded,
    Edgeward(Box<Edgeward>),
    Clairvoyant(clairvoyant::Clairvoyant),
}

struct Run<'s> {
    scenario: &'s Scenario,
    load: &'s Load,
    seed: u64,
    now: Micros,
    until: Micros,
    events: Events<Event>,
    nodes: Vec<NodeState>,
    pods: Vec<Pod>,
    /// For each workload and each placement (first entry: no placement), the nodes that it may use, ready or not.
    allowed: Vec<Vec<Arc<[usize]>>>,
    /// The WAN towards each site; `None` for the edge.
    paths: &'s [Option<Path>],
    queue: Queue,
    /// Whether the start or the end of a scheduling cycle is scheduled.
    is_cycle_scheduled: bool,
    helps: u64,
    next_node: usize,
    has_priorities: bool,
    deployments: Vec<Deployment>,
    placer: Placer,
    measure: Measure,
}

pub fn paths(scenario: &Scenario, seed: u64) -> Vec<Option<Path>> {
    let sites = scenario.sites.iter().enumerate();
    let lasts = scenario.end + scenario.drain;
    let path = |(number, site): (usize, &crate::scenario::Site)| {
        let failures = scenario.failures.iter().filter(|failure| failure.site == Some(number));
        let outages: Vec<_> = failures.map(|failure| (failure.at, failure.lasts)).collect();
        let wan = site.wan.as_ref()?;
        Some(Path::new(wan, seed, number, lasts, &outages))
    };
    sites.map(path).collect()
}

/// Runs a scenario. Returns `None` if `stop` was set.
pub fn run(
    scenario: &Scenario,
    load: &Load,
    paths: &[Option<Path>],
    seed: u64,
    policy: Policy,
    stop: &AtomicBool,
) -> Option<Outcome> {
    let mut run = Run::new(scenario, load, paths, seed, policy);
    run.begin();
    let mut count = 0_u64;
    while let Some((at, event)) = run.events.next() {
        if at > run.until {
            break;
        }
        run.now = at;
        run.happens(event);
        count += 1;
        if count.is_multiple_of(256) && stop.load(Ordering::Relaxed) {
            return None;
        }
    }
    run.now = run.until;
    Some(run.finish())
}

impl<'s> Run<'s> {
    fn new(scenario: &'s Scenario, load: &'s Load, paths: &'s [Option<Path>], seed: u64, policy: Policy) -> Self {
        let sites = scenario.sites.iter().enumerate();
        let nodes: Vec<_> = sites
            .flat_map(|(number, site)| site.nodes.iter().map(move |node| NodeState::new(node.clone(), number)))
            .collect();
        let priorities = scenario.workloads.iter().map(|workload| workload.priority);
        let has_priorities = priorities.clone().max() != priorities.min();
        let placer = match policy {
            Policy::EdgeOnly => Placer::Edge,
            Policy::CloudOnly => Placer::Cloud,
            Policy::LeastLoaded => Placer::LeastLoaded,
            Policy::Clairvoyant => Placer::Clairvoyant(clairvoyant::Clairvoyant::default()),
            Policy::Edgeward
            | Policy::EdgewardProfile
            | Policy::EdgewardMoves
            | Policy::EdgewardLowestCost
            | Policy::EdgewardLearned => Placer::Edgeward(Box::new(Edgeward::new(scenario, policy))),
        };
        Self {
            allowed: placing::allowed(scenario, &nodes),
            measure: Measure::new(scenario, load),
            deployments: load.services.iter().map(|_| Deployment::default()).collect(),
            scenario,
            load,
            seed,
            now: Micros(0),
            until: scenario.end + scenario.drain,
            events: Events::default(),
            nodes,
            pods: vec![],
            paths,
            queue: Queue::default(),
            is_cycle_scheduled: false,
            helps: 0,
            next_node: 0,
            has_priorities,
            placer,
        }
    }

    fn begin(&mut self) {
        self.begin_pods();
        self.begin_edgeward();
        if let Placer::Clairvoyant(_) = self.placer {
            self.events.schedule(clairvoyant::PERIOD, Event::Reconsider);
        }
        if !self.load.tasks.is_empty() {
            self.events.schedule(self.load.tasks[0].at, Event::Tasks(0));
        }
        for (number, service) in self.load.services.iter().enumerate() {
            for (change, (at, _)) in service.replicas.iter().enumerate() {
                self.events.schedule(*at, Event::Replicas(number, change));
            }
            for at in &service.rollouts {
                self.events.schedule(*at, Event::Rollout(number));
            }
        }
        self.begin_requests();
        for (number, failure) in self.scenario.failures.iter().enumerate() {
            self.events.schedule(failure.at, Event::Fails(number));
        }
        self.events.schedule(Micros::from_secs(1), Event::FlushBackoff);
        self.events.schedule(Micros::from_secs(30), Event::FlushLeftOver);
        self.events.schedule(Micros(0), Event::Tick);
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Tasks(first) => self.create_tasks(first),
            Event::Replicas(service, change) => self.set_replicas(service, change),
            Event::Rollout(service) => self.roll_out(service),
            Event::Reconcile(service) => self.reconcile(service),
            Event::Request(service, slot, minute) => self.request(service, slot, minute),
            Event::Queued(pod) => self.queued(pod),
            Event::Cycle => self.cycle(),
            Event::CycleEnds(pod, node) => self.cycle_ends(pod, node),
            Event::Bound(pod) => self.bound(pod),
            Event::Started(pod) => self.started(pod),
            Event::Ends(pod, at) => self.ends(pod, at),
            Event::Gone(pod) => self.gone(pod),
            Event::Freed(pod, node) => self.freed(pod, node),
            Event::FlushBackoff => {
                self.queue.flush_backoff(self.now);
                self.wake_scheduler();
                self.events.schedule(self.now + Micros::from_secs(1), event);
            }
            Event::FlushLeftOver => {
                self.queue.flush_left_over(self.now);
                self.wake_scheduler();
                self.events.schedule(self.now + Micros::from_secs(30), event);
            }
            Event::Fails(failure) => self.fails(failure),
            Event::NotReady(failure) => self.set_ready(failure, false),
            Event::Evict(failure) => self.evict(failure),
            Event::Recovers(failure) => self.recovers(failure),
            Event::Deliver(replica) => self.deliver(replica),
            Event::Publish(replica, due) => self.publish(replica, due),
            Event::WatchAlive(replica) => self.watch_alive(replica),
            Event::ProfileRound => self.profile_round(),
            Event::RequestTimes => self.query_request_times(),
            Event::Probe(replica, site, number) => self.probed(replica, site, number),
            Event::Patch(number) => self.patched(number),
            Event::Execute => self.execute(),
            Event::Reconsider => self.reconsider_periodically(),
            Event::Tick => self.tick(),
        }
    }

    fn request_of(&self, pod: PodNumber) -> &'s Amounts {
        &self.scenario.workloads[self.pods[pod].workload].request
    }

    fn draw(&self, distribution: Distribution, purpose: Purpose, pod: PodNumber) -> Micros {
        let ms = match distribution {
            Distribution::Constant(ms) => ms,
            drawn => drawn.draw(&mut Stream::new(self.seed, purpose, pod as u64, 0)),
        };
        micros(ms)
    }

    fn create_tasks(&mut self, first: usize) {
        let mut next = first;
        while self.load.tasks.get(next).is_some_and(|task| task.at <= self.now) {
            self.create_for(next);
            next += 1;
        }
        if let Some(task) = self.load.tasks.get(next) {
            self.events.schedule(task.at, Event::Tasks(next));
        }
    }

    fn create_for(&mut self, task: usize) {
        let Task { workload, job, .. } = self.load.tasks[task];
        let pod = Pod::new(workload, Work::Task(task), self.now);
        self.create(Pod { job, ..pod });
    }

    fn begin_pods(&mut self) {
        for (workload, of) in self.scenario.workloads.iter().enumerate() {
            let WorkloadKind::Initial { node, pods } = of.kind else {
                continue;
            };
            for _ in 0..pods {
                let number = self.pods.len();
                self.pods.push(Pod {
                    phase: Phase::Running,
                    node: Some(node),
                    bound: Some(self.now),
                    started: Some(self.now),
                    ..Pod::new(workload, Work::Initial, self.now)
                });
                self.nodes[node].take(number, &of.request);
                self.measure_initial(number);
            }
        }
    }

    /// Creates a pod and asks the policy where to place it. A quota may refuse the pod afterwards.
    fn create(&mut self, pod: Pod) {
        let workload = &self.scenario.workloads[pod.workload];
        let (is_blocked, is_unscheduled) = (workload.is_quota_blocked, workload.is_unscheduled);
        let number = self.pods.len();
        self.pods.push(pod);
        self.admit(number);
        if is_blocked {
            self.measure_left(number);
            self.pods[number].phase = Phase::Gone;
            self.measure.blocked += 1;
            return;
        }
        self.emit(number);
        if self.pods[number].is_unbound() && !is_unscheduled {
            let at = self.now + micros(self.scenario.delays.persist) + INFORMER;
            self.events.schedule(at, Event::Queued(number));
        }
    }

    fn bound(&mut self, number: PodNumber) {
        let pod = &mut self.pods[number];
        if pod.deleted.is_some() || !pod.is_unbound() {
            // The pod was deleted in the meantime, so it never runs.
            if let Some(node) = pod.node {
                self.freed(number, node);
            }
            return;
        }
        pod.phase = Phase::Starting;
        pod.bound = Some(self.now);
        pod.version += 1;
        self.measure_bound(number);
        self.emit(number);
        let start = self.draw(self.scenario.delays.start, Purpose::Bind, number + (1 << 48));
        self.events.schedule(self.now + start, Event::Started(number));
    }

    fn started(&mut self, number: PodNumber) {
        let Some(node) = self.pods[number].node else { return };
        if self.pods[number].phase != Phase::Starting || self.pods[number].deleted.is_some() {
            return;
        }
        if self.nodes[node].failed {
            // The kubelet is down with its node: try again in a second.
            self.events
                .schedule(self.now + Micros::from_secs(1), Event::Started(number));
            return;
        }
        let service = self.service_at(number, self.nodes[node].site);
        let pod = &mut self.pods[number];
        pod.phase = Phase::Running;
        pod.started = Some(self.now);
        pod.version += 1;
        if let Work::Task(_) = pod.work {
            pod.ends = self.now + service;
            self.events.schedule(pod.ends, Event::Ends(number, pod.ends));
        }
        self.emit(number);
        self.reconcile_soon(number);
    }

    /// Finishes a task, unless it was interrupted.
    fn ends(&mut self, number: PodNumber, at: Micros) {
        let pod = &mut self.pods[number];
        let Some(node) = pod.node else { return };
        if pod.phase != Phase::Running || pod.ends != at || self.nodes[node].failed {
            return;
        }
        pod.phase = Phase::Finished;
        pod.finished = true;
        pod.version += 1;
        self.measure_freed(number);
        self.emit(number);
        self.events.schedule(self.now + INFORMER, Event::Freed(number, node));
        self.events.schedule(self.now + FINISHED_KEPT, Event::Gone(number));
    }

    /// Deletes a pod. A pod on a node takes its termination time.
    fn delete(&mut self, number: PodNumber) {
        let pod = &mut self.pods[number];
        if pod.deleted.is_some() || matches!(pod.phase, Phase::Finished | Phase::Gone) {
            return;
        }
        pod.deleted = Some(self.now);
        pod.version += 1;
        let is_active = pod.is_active();
        let is_cut_off = pod.node.is_some_and(|node| self.nodes[node].failed);
        if !is_active {
            self.gone(number);
            return;
        }
        self.emit(number);
        self.replace(number);
        if !is_cut_off {
            let workload = &self.scenario.workloads[self.pods[number].workload];
            let time = self.draw(workload.termination, Purpose::Termination, number);
            self.events.schedule(self.now + time, Event::Gone(number));
        }
    }

    fn gone(&mut self, number: PodNumber) {
        let pod = &mut self.pods[number];
        let was = std::mem::replace(&mut pod.phase, Phase::Gone);
        if was == Phase::Gone {
            return;
        }
        pod.queued += 1;
        let (is_active, node) = (matches!(was, Phase::Starting | Phase::Running), pod.node);
        if is_active {
            self.measure_freed(number);
            if let Some(node) = node {
                self.events.schedule(self.now + INFORMER, Event::Freed(number, node));
            }
        } else if was != Phase::Finished {
            self.measure_left(number);
            if let Some(node) = self.pods[number].nominated {
                self.nodes[node].nominated.retain(|other| *other != number);
            }
            self.replace(number);
        }
        self.emit(number);
        self.reconcile_soon(number);
    }

    fn replace(&mut self, number: PodNumber) {
        let pod = &self.pods[number];
        if let Work::Task(task) = pod.work {
            self.measure.interrupted(task);
            self.create_for(task);
        } else {
            self.reconcile_soon(number);
        }
    }

    fn fails(&mut self, failure: usize) {
        let Failure { lasts, nodes } = self.failure(failure);
        for node in nodes {
            self.nodes[*node].failed = true;
            for pod in self.nodes[*node].pods.clone() {
                let pod = &mut self.pods[pod];
                if pod.phase == Phase::Running {
                    pod.ends = pod.ends - self.now;
                }
            }
        }
        self.events.schedule(self.now + lasts, Event::Recovers(failure));
        if lasts > NODE_MONITOR_GRACE {
            self.events
                .schedule(self.now + NODE_MONITOR_GRACE, Event::NotReady(failure));
        }
        if lasts > NODE_MONITOR_GRACE + NODE_EVICTION {
            self.events
                .schedule(self.now + NODE_MONITOR_GRACE + NODE_EVICTION, Event::Evict(failure));
        }
    }

    fn set_ready(&mut self, failure: usize, is_ready: bool) {
        for node in self.failure(failure).nodes {
            if self.nodes[*node].node.state.ready != is_ready {
                self.nodes[*node].node.state.ready = is_ready;
                let changed: Node = self.nodes[*node].node.clone();
                self.emit_node(changed);
                if is_ready {
                    self.node_helps(*node);
                }
            }
        }
    }

    fn evict(&mut self, failure: usize) {
        for node in self.failure(failure).nodes {
            for pod in self.nodes[*node].pods.clone() {
                self.delete(pod);
            }
        }
    }

    fn recovers(&mut self, failure: usize) {
        for node in self.failure(failure).nodes {
            self.nodes[*node].failed = false;
            for number in self.nodes[*node].pods.clone() {
                let pod = &mut self.pods[number];
                if pod.deleted.is_some() {
                    self.events.schedule(self.now + INFORMER, Event::Gone(number));
                } else if pod.phase == Phase::Running && matches!(pod.work, Work::Task(_)) {
                    pod.ends = self.now + pod.ends;
                    self.events.schedule(pod.ends, Event::Ends(number, pod.ends));
                }
            }
        }
        self.set_ready(failure, true);
    }

    fn failure(&self, number: usize) -> Failure<'s> {
        let failure = &self.scenario.failures[number];
        Failure {
            lasts: failure.lasts,
            nodes: &failure.nodes,
        }
    }
}

struct Failure<'s> {
    lasts: Micros,
    nodes: &'s [usize],
}

/// Converts milliseconds; returns at least one microsecond.
fn micros(ms: f64) -> Micros {
    Micros((ms * 1_000.0).round().max(1.0) as u64)
}
