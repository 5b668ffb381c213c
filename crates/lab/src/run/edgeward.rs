//! edgeward: replicas of the production engine, each with its own watches and probes. Admission reviews go to the
//! replicas in turn. The first replica holds the Lease and carries out the plan for gated pods.

mod executor;
mod records;
mod request_times;

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::sync::Arc;

use edgeward_cluster::cache::Kind;
use edgeward_cluster::engine::{Change, DecisionContext, Engine, SharedState};
use edgeward_cluster::moves::{Memory, MovesReport, View};
use edgeward_cluster::wan::{CONFIRMATION_STEP, LinkHealth, RUN};
use edgeward_decision::config::{Config, ScorerMode, SitePolicy};
use edgeward_decision::model::decision_id::DecisionId;
use edgeward_decision::model::scores::ProfileScores;
use edgeward_decision::model::site::SiteKind;
use edgeward_decision::model::snapshot::Snapshot;
use edgeward_decision::model::workload::Workload;
use edgeward_decision::placement::features::features;
use edgeward_decision::placement::verdict::{Action, Assessment, Verdict};
use edgeward_kube::node::Node;
use edgeward_kube::units::{Micros, Moment, Now};

use edgeward_profiles::Preference;

use super::{Event, Placer, Run, micros};
use crate::cluster::{Phase, PodNumber};
use crate::outcome::Choice;
use crate::policy::Policy;
use crate::random::{Purpose, Stream, unit};
use crate::scenario::{Scenario, SimulatedProfile, profile};
use executor::Executor;
use records::Records;

/// The shortest time between two publications, as in the observer of `edgeward serve`.
const COALESCE: Micros = Micros::from_millis(20);

const WATCH_LASTS: Micros = Micros::from_secs(25);

pub(super) struct Edgeward {
    config: Arc<Config>,
    replicas: Vec<Replica>,
    next: usize,
    records: Records,
    executor: Executor,
    profile: Option<(SimulatedProfile, Preference)>,
    /// What the leader remembers of moves.
    moves: Memory,
}

struct Replica {
    engine: Engine,
    shared: Arc<SharedState>,
    inbox: VecDeque<(Micros, Arc<Change>)>,
    delays: Stream,
    ids: Stream,
    published: Micros,
    has_changes: bool,
    due: Option<Micros>,
    links: Vec<Option<LinkHealth>>,
}

/// Simulated time starts one second after the start of the process, at a full minute of the wall clock.
const START: Now = Now {
    moment: Moment(1_000_000),
    wall: jiff::Timestamp::constant(1_767_225_600, 0),
};

fn clock(now: Micros) -> Now {
    START.at(START.moment.after(now))
}

impl Edgeward {
    pub(super) fn new(scenario: &Scenario, policy: Policy) -> Self {
        let can_move = policy == Policy::EdgewardMoves;
        let profile = scenario.profile.as_ref().filter(|_| policy == Policy::EdgewardProfile);
        let mut config = Config::clone(&scenario.config);
        config.moves.enabled = can_move;
        match policy {
            Policy::EdgewardLowestCost => config.site_policy = SitePolicy::LowestCost,
            Policy::EdgewardLearned => config.scorer.mode = ScorerMode::Active,
            _ => {}
        }
        let config = Arc::new(config);
        let replica = |number: u32| {
            let shared = Arc::new(SharedState::new(Arc::default(), config.reservation_ttl));
            let links = scenario
                .sites
                .iter()
                .map(|site| (!site.is_edge()).then(|| LinkHealth::new(1)));
            Replica {
                engine: Engine::new(Arc::clone(&config), Arc::clone(&shared)),
                shared,
                inbox: VecDeque::new(),
                delays: Stream::new(0, Purpose::Watch, number.into(), 0),
                ids: Stream::new(0, Purpose::Decision, number.into(), 0),
                published: Micros(0),
                has_changes: false,
                due: None,
                links: links.collect(),
            }
        };
        Self {
            replicas: (0..scenario.replicas).map(replica).collect(),
            next: 0,
            records: Records::new(scenario, profile.map(|_| profile::NAME), can_move),
            profile: profile.map(|profile| (profile.clone(), Preference::default())),
            executor: Executor::default(),
            moves: Memory::default(),
            config,
        }
    }
}

/// The choice of the learned scorer. `None` if there was nothing to choose.
fn learned(
    pod: PodNumber,
    workload: &Workload<'_>,
    verdict: &Verdict<'_>,
    snapshot: Option<&Arc<Snapshot>>,
    context: DecisionContext<'_>,
) -> Option<Choice> {
    verdict.learned.as_ref()?;
    let clouds = verdict.sites.iter().filter(|site| site.site.kind() == SiteKind::Cloud);
    let chosen = clouds
        .clone()
        .position(|cloud| verdict.site().is_some_and(|site| std::ptr::eq(site, cloud.site)))?;
    Some(Choice {
        pod,
        clouds: features(workload, snapshot?, context.config, context.now.moment)?,
        good: clouds.map(Assessment::is_good).collect(),
        chosen,
    })
}

impl Replica {
    fn apply(&mut self, change: &Change, now: Micros) {
        self.engine.apply(change, clock(now));
    }

    /// Returns the time of the next publication: soon after a change, otherwise when the passage of time changes
    /// something.
    fn next_due(&self, now: Micros) -> Option<Micros> {
        if self.has_changes {
            return Some((self.published + COALESCE).max(now));
        }
        let at = self.engine.next_change()?;
        Some(at.since(START.moment).max(now + Micros(1)))
    }
}

impl Run<'_> {
    fn edgeward(&mut self) -> Option<&mut Edgeward> {
        match &mut self.placer {
            Placer::Edgeward(edgeward) => Some(edgeward),
            _ => None,
        }
    }

    /// Starts the replicas: they have listed the initial cluster, probed the WAN, and are ready.
    pub(super) fn begin_edgeward(&mut self) {
        let Self {
            placer: Placer::Edgeward(edgeward),
            scenario,
            nodes,
            pods,
            seed,
            events,
            paths,
            ..
        } = self
        else {
            return;
        };
        let (seed, probing) = (*seed, &edgeward.config.probing);
        let initial = pods.iter().enumerate().map(|(number, pod)| {
            let node = pod.node.map(|node| &*nodes[node].node.name);
            Change::Pod(Box::new(edgeward.records.record(number, pod, node, None, Micros(0))))
        });
        let initial: Vec<_> = initial.collect();
        if edgeward.profile.is_some() {
            events.schedule(Micros(0), Event::ProfileRound);
        }
        if let Some(prometheus) = request_times::queried(&edgeward.config) {
            events.schedule(prometheus.period, Event::RequestTimes);
        }
        for (number, replica) in edgeward.replicas.iter_mut().enumerate() {
            replica.delays = Stream::new(seed, Purpose::Watch, number as u64, 0);
            replica.ids = Stream::new(seed, Purpose::Decision, number as u64, 0);
            for node in nodes.iter() {
                replica.apply(&Change::Node(Box::new(node.node.clone())), Micros(0));
            }
            for workload in &scenario.workloads {
                replica.apply(&Change::Namespace((*workload.namespace).into(), true), Micros(0));
            }
            for pod in &initial {
                replica.apply(pod, Micros(0));
            }
            replica.apply(&Change::Replicas(scenario.replicas), Micros(0));
            if edgeward.config.scorer.is_on() {
                replica.apply(&Change::Scorer(scenario.scorer.clone()), Micros(0));
            }
            for kind in Kind::REQUIRED {
                replica.apply(&Change::ListEnded(kind), Micros(0));
            }
            for (site, path) in paths.iter().enumerate() {
                let (Some(path), Some(health)) = (path, &mut replica.links[site]) else {
                    continue;
                };
                let name = &scenario.sites[site].definition.name;
                let thresholds = edgeward.config.thresholds(name);
                for probe in 0..5 {
                    health.record(0, path.rtt(Micros(0)), false, clock(Micros(probe)).moment, thresholds);
                }
                let link = health.link();
                replica.apply(&Change::Link(name.clone(), link), Micros(0));
                events.schedule(probe_at(probing, seed, number, site, 1), Event::Probe(number, site, 1));
            }
            replica.engine.publish(clock(Micros(0)));
            let first = WATCH_LASTS.0 * (number as u64 + 1) / (scenario.replicas as u64 + 1);
            events.schedule(Micros(first), Event::WatchAlive(number));
        }
    }

    pub(super) fn review(&mut self, number: PodNumber) {
        let now = clock(self.now);
        let pod = &self.pods[number];
        let Placer::Edgeward(edgeward) = &mut self.placer else {
            return;
        };
        edgeward.next = (edgeward.next + 1) % edgeward.replicas.len();
        let replica = &mut edgeward.replicas[edgeward.next];
        let id = replica.ids.bits();
        let context = DecisionContext {
            config: &edgeward.config,
            id: DecisionId(id),
            now,
        };
        let workload = edgeward.records.workload(pod);
        let read = OnceCell::new();
        let verdict = replica.shared.review(&read, &workload, context, || true);
        let choice = learned(number, &workload, &verdict, read.get(), context);
        self.measure.choices.extend(choice);
        let reason = verdict.reason.as_str();
        let action = match verdict.action {
            Action::Place(site) => {
                let sites = &self.scenario.sites;
                Some(sites.iter().position(|known| known.definition.name == site.name()))
            }
            Action::Gate => Some(None),
            Action::PassThrough | Action::Deny => None,
        };
        *self.measure.reasons.entry(reason).or_default() += 1;
        match action {
            Some(Some(site)) => {
                self.pods[number].decision = Some(id);
                self.pods[number].reason = reason;
                self.place(number, site);
            }
            Some(None) => self.hold(number, reason),
            None => {}
        }
    }

    pub(super) fn emit(&mut self, number: PodNumber) {
        let Placer::Edgeward(edgeward) = &mut self.placer else {
            return;
        };
        let pod = &self.pods[number];
        let change = match pod.phase {
            Phase::Gone => Change::PodGone(records::uid(number).into()),
            _ => {
                let node = pod
                    .node
                    .filter(|_| pod.bound.is_some())
                    .map(|node| &*self.nodes[node].node.name);
                let nominated = pod.nominated.map(|node| &*self.nodes[node].node.name);
                Change::Pod(Box::new(
                    edgeward.records.record(number, pod, node, nominated, self.now),
                ))
            }
        };
        let at = match pod.version {
            1 => self.now + micros(self.scenario.delays.persist),
            _ => self.now,
        };
        self.send(&Arc::new(change), at);
    }

    pub(super) fn emit_node(&mut self, node: Node) {
        self.send(&Arc::new(Change::Node(Box::new(node))), self.now);
    }

    fn send(&mut self, change: &Arc<Change>, at: Micros) {
        let delay = self.scenario.delays.watch;
        let Placer::Edgeward(edgeward) = &mut self.placer else {
            return;
        };
        for (number, replica) in edgeward.replicas.iter_mut().enumerate() {
            // A watch delivers changes in order.
            let last = replica.inbox.back().map_or(Micros(0), |(at, _)| *at);
            let arrives = (at + micros(delay.draw(&mut replica.delays))).max(last);
            if replica.inbox.is_empty() {
                self.events.schedule(arrives, Event::Deliver(number));
            }
            replica.inbox.push_back((arrives, Arc::clone(change)));
        }
    }

    pub(super) fn deliver(&mut self, number: usize) {
        let now = self.now;
        let Some(edgeward) = self.edgeward() else { return };
        let replica = &mut edgeward.replicas[number];
        while let Some((_, change)) = replica.inbox.pop_front_if(|(at, _)| *at <= now) {
            replica.apply(&change, now);
        }
        let next = replica.inbox.front().map(|(at, _)| *at);
        if let Some(at) = next {
            self.events.schedule(at, Event::Deliver(number));
        }
        self.changed(number);
    }

    fn changed(&mut self, number: usize) {
        let Some(edgeward) = self.edgeward() else { return };
        let replica = &mut edgeward.replicas[number];
        if !std::mem::replace(&mut replica.has_changes, true) {
            self.publish_when_due(number);
        }
    }

    fn publish_when_due(&mut self, number: usize) {
        let now = self.now;
        let Some(edgeward) = self.edgeward() else { return };
        let replica = &mut edgeward.replicas[number];
        let due = replica.next_due(now);
        replica.due = due;
        if let Some(at) = due {
            self.events.schedule(at, Event::Publish(number, at));
        }
    }

    pub(super) fn publish(&mut self, number: usize, due: Micros) {
        let now = self.now;
        let Some(edgeward) = self.edgeward() else { return };
        let replica = &mut edgeward.replicas[number];
        if replica.due != Some(due) {
            return;
        }
        (replica.published, replica.has_changes) = (now, false);
        let publication = replica.engine.publish(clock(now));
        if let Some(plan) = publication.plan.filter(|_| number == 0) {
            edgeward.executor.plan = plan;
            self.execute();
        }
        if let Some(report) = publication.moves.filter(|_| number == 0) {
            self.move_pod(&report);
        }
        self.publish_when_due(number);
    }

    /// Evicts the pod that the leader's rule chooses, if any.
    fn move_pod(&mut self, report: &MovesReport) {
        let now = clock(self.now);
        let Some(edgeward) = self.edgeward() else { return };
        let shared = &edgeward.replicas[0].shared;
        let (snapshot, ledger) = (shared.snapshot(), shared.ledger().clone());
        let view = View {
            snapshot: &snapshot,
            ledger: &ledger,
            config: &edgeward.config,
            now,
        };
        let evaluation = edgeward.moves.evaluate(report, view);
        let Some(outlook) = evaluation.next.map(|at| &evaluation.outlooks[at]) else {
            return;
        };
        edgeward.moves.evicted(outlook, report, now.moment);
        if let Some(pod) = records::number(&outlook.pod.member.uid) {
            self.measure.moved += 1;
            self.delete(pod);
        }
    }

    pub(super) fn watch_alive(&mut self, number: usize) {
        let now = self.now;
        let Some(edgeward) = self.edgeward() else { return };
        for kind in Kind::REQUIRED {
            edgeward.replicas[number].apply(&Change::WatchAlive(kind), now);
        }
        self.events.schedule(now + WATCH_LASTS, Event::WatchAlive(number));
        self.changed(number);
    }

    /// Each replica evaluates the profile on its own snapshot. The first replica leads: all replicas use its preferred
    /// site.
    pub(super) fn profile_round(&mut self) {
        let now = self.now;
        let Some(edgeward) = self.edgeward() else { return };
        let Some((simulated, preference)) = &mut edgeward.profile else {
            return;
        };
        let at = clock(now).moment;
        if let Some(leader) = edgeward.replicas.first() {
            let snapshot = leader.shared.snapshot();
            for site in &snapshot.sites {
                let cores = site.uncharged(|amounts| amounts.cpu.0) as f64 / 1_000.0;
                simulated.scrape(now, site.name(), cores);
            }
        }
        let answers = simulated.answers(now, at);
        let profile = &simulated.profile;
        let edge = edgeward.config.sites.iter().find(|site| site.kind == SiteKind::Edge);
        let edge = edge.map_or("", |edge| &*edge.name);
        let mut scores = vec![];
        for replica in &edgeward.replicas {
            let snapshot = replica.shared.snapshot();
            let answer = |query: &str| answers.get(query).map(|series| (&**series, None));
            let evaluation = edgeward_profiles::score(profile, &snapshot, &edgeward.config, answer, at);
            scores.push(ProfileScores {
                better: profile.better,
                margin: profile.margin,
                staleness: profile.staleness,
                preferred: None,
                sites: evaluation.scores,
            });
        }
        if let Some(scores) = scores.first() {
            preference.observe(scores, profile.dwell, edge, at);
        }
        let preferred: Option<Box<str>> = preference.site().map(Box::from);
        let period = profile.period;
        for (replica, mut scores) in edgeward.replicas.iter_mut().zip(scores) {
            scores.preferred = preferred.clone();
            let profiles = [(Box::from(profile::NAME), Arc::new(scores))].into();
            replica.apply(&Change::Profiles(Arc::new(profiles)), now);
        }
        for number in 0..self.scenario.replicas as usize {
            self.changed(number);
        }
        self.events.schedule(now + period, Event::ProfileRound);
    }

    /// Handles a probe that is answered, or lost after its timeout.
    pub(super) fn probed(&mut self, number: usize, site: usize, probe: u64) {
        let (now, seed) = (self.now, self.seed);
        let Some(path) = &self.paths[site] else { return };
        let name = self.scenario.sites[site].definition.name.clone();
        let lot = unit(seed, Purpose::Probe, ((number as u64) << 32) | site as u64, probe);
        let outcome = path.rtt(now).filter(|_| lot >= path.loss(now));
        let Some(edgeward) = self.edgeward() else { return };
        let probing = edgeward.config.probing;
        // The result is known when the probe ends.
        let known = now + outcome.unwrap_or(probing.timeout);
        let thresholds = edgeward.config.thresholds(&name);
        let replica = &mut edgeward.replicas[number];
        let mut confirms = false;
        if let Some(health) = &mut replica.links[site] {
            let (moment, is_confirming) = (clock(known).moment, probe & CONFIRMING != 0);
            health.record(0, outcome, is_confirming, moment, thresholds);
            confirms = !is_confirming && health.begins_confirmation(0, moment, probing.timeout);
            let change = Change::Link(name, health.link());
            let last = replica.inbox.back().map_or(Micros(0), |(at, _)| *at);
            let is_first = replica.inbox.is_empty();
            // Link states and watch events reach the engine through one queue.
            let arrives = known.max(last);
            replica.inbox.push_back((arrives, Arc::new(change)));
            if is_first {
                self.events.schedule(arrives, Event::Deliver(number));
            }
        }
        for step in (1..RUN as u64).filter(|_| confirms) {
            let confirming = CONFIRMING | (probe * RUN as u64 + step);
            let at = known + CONFIRMATION_STEP.times(step);
            self.events.schedule(at, Event::Probe(number, site, confirming));
        }
        if probe & CONFIRMING != 0 {
            return;
        }
        let next = probe_at(&probing, seed, number, site, probe + 1).max(now + Micros(1));
        self.events.schedule(next, Event::Probe(number, site, probe + 1));
    }
}

/// In the number of a probe: it confirms the outcome of another one.
const CONFIRMING: u64 = 1 << 40;

fn probe_at(
    probing: &edgeward_decision::config::Probing,
    seed: u64,
    replica: usize,
    site: usize,
    probe: u64,
) -> Micros {
    let random = |which: u64| {
        let name = ((replica as u64) << 40) | ((site as u64) << 32) | (1 << 60);
        Stream::new(seed, Purpose::Probe, name, which).bits() as u64
    };
    probing.start(probe, random(0), random(probe))
}
