//! The world into the snapshot: a live cluster, or a fleet file. And the configuration.
//!
//! [`Observer`] is the only writer of the snapshot that reviews read. Watches, probes and queries send it [`Change`]s; it
//! folds them into the index and publishes.

mod aftermath;
pub mod configuration;
mod connection;
mod dry_run;
mod fleet_file;
pub mod installation;
mod listing;
mod objects;
mod policies;
pub mod probe;
pub mod prometheus;
mod raw;
mod replicas;
pub mod secret;
mod sites;
mod strays;
mod watch;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::{mpsc, watch as channel};

use crate::backstop::Survey;
use crate::clock::Clock;
use crate::config::Config;
use crate::index::{Index, Kind, NodeFault};
use crate::ledger::Ledger;
use crate::loop_guard::Loop;
use crate::metrics::Metrics;
use crate::model::decision_id::DecisionId;
use crate::model::link::Link;
use crate::model::node::{Node, NodeId};
use crate::model::pod_record::{PodRecord, Stray};
use crate::model::site::are_same_places;
use crate::model::snapshot::Snapshot;
use crate::pod::Sighting;
use crate::telemetry::Telemetry;
use crate::units::{Micros, Moment};
use crate::waitlist::{Plan, Waitlist};
use aftermath::Aftermath;
use strays::Strays;

pub use connection::Connection;
pub use dry_run::{Answer, Refusal};
pub use fleet_file::FleetFile;
pub use listing::{Listing, list};
pub use policies::{SloPolicies, policies};
pub use sites::{Sites, site_specs, sites_in_use};
pub use watch::{Cluster, client};

/// The shortest time between two publications: a burst of events becomes one picture.
const COALESCE: Micros = Micros::from_millis(20);

/// How many changes may wait for the observer. Watches wait when it is full.
const BACKLOG: usize = 4096;

/// How many changes are folded before the clock is looked at again.
const BATCH: usize = 256;

/// How long ago a decision may have been made to be told of by a process that has just started; longer than it takes until
/// another replica leads. And how much older than its pod a decision may look.
const LATELY: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);

/// Something that was seen.
#[derive(Debug, Clone)]
pub enum Change {
    /// A node is there, or is another now.
    Node(Box<Node>),
    /// A node is gone.
    NodeGone(Box<str>),
    /// A pod is there, or is another now.
    Pod(Box<PodRecord>),
    /// The pod of this uid is gone.
    PodGone(Box<str>),
    /// A namespace is there, and whether it is opted in.
    Namespace(Box<str>, bool),
    /// The WAN towards a site, as probes have it.
    Link(String, Option<Link>),
    /// What a Prometheus server says.
    Telemetry(Box<Telemetry>),
    /// A newer configuration, whose sites may not be in use yet.
    Settings(Arc<Config>),
    /// Lists of everything are to follow, to be counted by the sites of this configuration; when all are complete and their
    /// WAN is known, they are those in use.
    Sites(Arc<Config>),
    /// The links of this configuration's sites are known and told.
    FirstRound(Arc<Config>),
    /// How many replicas of us are ready.
    Replicas(u32),
    /// A list of everything of this kind begins.
    ListBegan(Kind),
    /// That list is complete.
    ListEnded(Kind),
    /// The API server was heard about this kind.
    Heard(Kind),
    /// A watch of this kind is interrupted.
    Lost(Kind),
}

impl Change {
    /// What the API server was heard about by this.
    fn kind(&self) -> Option<Kind> {
        Some(match self {
            Change::Node(_) | Change::NodeGone(_) => Kind::Nodes,
            Change::Pod(_) | Change::PodGone(_) => Kind::Pods,
            Change::Namespace(..) => Kind::Namespaces,
            Change::ListBegan(kind) | Change::ListEnded(kind) | Change::Heard(kind) => *kind,
            Change::Link(..)
            | Change::Telemetry(_)
            | Change::Settings(_)
            | Change::Sites(_)
            | Change::FirstRound(_)
            | Change::Replicas(_)
            | Change::Lost(_) => return None,
        })
    }
}

/// Where changes are sent, each with the moment at which it was seen.
#[derive(Debug, Clone)]
pub struct Changes {
    sender: mpsc::Sender<(Moment, Change)>,
    clock: Clock,
}

impl Changes {
    /// Sends a change, and waits while the observer is behind.
    pub async fn send(&self, change: Change) {
        // Without an observer, the process is ending.
        let _ = self.sender.send((self.clock.moment(), change)).await;
    }

    /// Sends what may be left out when the observer is behind.
    pub fn hint(&self, change: Change) {
        let _ = self.sender.try_send((self.clock.moment(), change));
    }
}

/// Whether pods are seen as they are created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    Clear,
    /// Not before the API server is heard again.
    Lost,
    /// Not before the list is complete.
    Listing,
}

impl Sight {
    fn after(self, change: &Change) -> Self {
        match (self, change) {
            (_, Change::ListBegan(Kind::Pods)) => Sight::Listing,
            (_, Change::ListEnded(Kind::Pods)) => Sight::Clear,
            (Sight::Listing, _) => Sight::Listing,
            (_, Change::Lost(Kind::Pods)) => Sight::Lost,
            (Sight::Lost, change) if change.kind() != Some(Kind::Pods) => Sight::Lost,
            _ => Sight::Clear,
        }
    }
}

/// Folds changes into the index and publishes snapshots.
pub struct Observer {
    index: Index,
    waitlist: Waitlist,
    aftermath: Aftermath,
    /// What the held pods are decided by.
    config: Arc<Config>,
    plans: channel::Sender<Arc<Plan>>,
    /// How many reservations had come to nothing when the last plan was made.
    freed: u64,
    /// What takes its place when it is complete, and the configuration with its sites.
    next: Option<(Index, Arc<Config>)>,
    /// The links as told last, also of sites that are not in use yet.
    links: BTreeMap<String, Option<Link>>,
    /// The sites whose first round of probes was told last.
    probed: Option<Arc<Config>>,
    sight: Sight,
    changes: mpsc::Receiver<(Moment, Change)>,
    clock: Clock,
    metrics: Arc<Metrics>,
    fleet: Arc<ArcSwap<Snapshot>>,
    ledger: Arc<Mutex<Ledger>>,
    /// When the last snapshot was published.
    published: Option<Moment>,
    /// The faults of nodes that were logged last.
    faults: Vec<NodeFault>,
    /// Pods that other domains hold.
    strays: Strays,
    /// Told once when everything of a kind was listed for the first time and is published.
    listed: Vec<(Kind, Box<dyn FnOnce() + Send>)>,
    /// Told of each decision that is seen for the first time.
    decided: Option<Box<dyn Fn(Sighting) + Send>>,
}

impl Observer {
    /// An observer that has seen nothing and confirms the reservations of this ledger, and where to send it changes.
    pub fn new(ledger: Arc<Mutex<Ledger>>, clock: Clock, metrics: Arc<Metrics>) -> (Self, Changes) {
        let (sender, changes) = mpsc::channel(BACKLOG);
        let fleet = Arc::<ArcSwap<Snapshot>>::default();
        metrics.view().follow(Arc::clone(&fleet));
        let observer = Self {
            index: Index::new(&Config::default()),
            waitlist: Waitlist::default(),
            aftermath: Aftermath::default(),
            config: Arc::default(),
            plans: channel::Sender::default(),
            freed: 0,
            next: None,
            links: BTreeMap::new(),
            probed: None,
            sight: Sight::Clear,
            changes,
            clock,
            metrics,
            fleet,
            ledger,
            published: None,
            faults: vec![],
            strays: Strays::default(),
            listed: vec![],
            decided: None,
        };
        (observer, Changes { sender, clock })
    }

    /// The published snapshot, always the newest. Before the first it is empty.
    pub fn fleet(&self) -> Arc<ArcSwap<Snapshot>> {
        Arc::clone(&self.fleet)
    }

    /// What is to be done about held pods, always the newest.
    pub fn plans(&self) -> channel::Receiver<Arc<Plan>> {
        self.plans.subscribe()
    }

    /// What there is for the backstop to look at, always the newest.
    pub fn surveys(&self) -> channel::Receiver<Arc<Survey>> {
        self.aftermath.surveys()
    }

    /// Calls `then`, which must not block, with each controller whose pods begin to be left as they are.
    pub fn when_looping(&mut self, then: impl Fn(Loop) + Send + 'static) {
        self.aftermath.when_looping(then);
    }

    /// Calls `then` once a snapshot is published for which everything of this kind was listed.
    pub fn when_listed(&mut self, kind: Kind, then: impl FnOnce() + Send + 'static) {
        self.listed.push((kind, Box::new(then)));
    }

    /// Calls `then`, which must not block, with each decision that is seen on a pod for the first time.
    pub fn when_decided(&mut self, then: impl Fn(Sighting) + Send + 'static) {
        self.decided = Some(Box::new(then));
    }

    /// Calls `then`, which must not block, with each pod that is seen behind the gate of another domain.
    pub fn when_astray(&mut self, then: impl Fn(Stray) + Send + 'static) {
        self.strays.tell(then);
    }

    /// Folds changes into `index` and publishes it, until nobody sends changes any more.
    pub async fn run(mut self, index: Index) {
        self.index = index;
        let mut batch = Vec::with_capacity(BATCH);
        let mut is_due = false;
        loop {
            let due_at = if is_due {
                Some(self.published.map_or(Moment(i64::MIN), |at| at.after(COALESCE)))
            } else {
                self.next_change()
            };
            // A timer never fires at once, and changes may always be there.
            if due_at.is_some_and(|at| at <= self.clock.moment()) {
                self.catch_up();
                self.publish();
                is_due = false;
                continue;
            }
            tokio::select! {
                () = self.clock.reach(due_at) => {}
                received = self.changes.recv_many(&mut batch, BATCH) => {
                    if received == 0 {
                        return;
                    }
                    for (at, change) in batch.drain(..) {
                        self.fold(at, &change);
                    }
                    is_due = true;
                }
            }
        }
    }

    /// Folds what waits to be folded: a plan takes time, and what is seen meanwhile must not wait for two.
    fn catch_up(&mut self) {
        for _ in 0..BACKLOG {
            let Ok((at, change)) = self.changes.try_recv() else {
                return;
            };
            self.fold(at, &change);
        }
    }

    /// When something changes by the mere passing of time.
    fn next_change(&self) -> Option<Moment> {
        let expiry = || self.ledger().next_expiry();
        let of_waitlist = self.is_listed().then(|| self.waitlist.next_change()).flatten();
        let of_ledger = (!self.waitlist.is_empty()).then(expiry).flatten();
        let others = [self.index.next_change(), self.aftermath.next_change()];
        [of_waitlist, of_ledger].into_iter().chain(others).flatten().min()
    }

    /// Whether everything was listed once.
    fn is_listed(&self) -> bool {
        Kind::ALL.into_iter().all(|kind| self.index.is_listed(kind))
    }

    fn fold(&mut self, at: Moment, change: &Change) {
        let sight = self.sight.after(change);
        if std::mem::replace(&mut self.sight, sight) != sight {
            self.ledger().set_sight((sight == Sight::Clear).then_some(at));
        }
        let mut inherited = None;
        match change {
            Change::Pod(pod) => {
                inherited = self.confirm(pod);
                self.tell(pod);
                self.strays.apply(pod);
                let is_new = self.sight != Sight::Listing && !self.index.has_seen(&pod.uid);
                let guard = self.config.loop_guard;
                self.aftermath.apply(pod, is_new, guard, &self.metrics, at);
                match &pod.held {
                    // As of when it was seen, however late it is folded.
                    Some(held) => self.waitlist.apply(Arc::clone(held), self.clock.now().at(at)),
                    None => self.waitlist.delete(&pod.uid),
                }
            }
            Change::PodGone(uid) => {
                self.waitlist.delete(uid);
                self.strays.delete(uid);
                self.aftermath.delete(uid, self.config.loop_guard, at);
                self.ledger().withdraw_release(uid);
            }
            Change::Namespace(name, false) => self.aftermath.opted_out(name),
            Change::Settings(config) => {
                self.config = Arc::clone(config);
                self.waitlist.start_anew();
            }
            Change::Sites(config) => self.begin(config),
            Change::FirstRound(config) => self.probed = Some(Arc::clone(config)),
            Change::Link(site, link) => drop(self.links.insert(site.clone(), *link)),
            Change::Replicas(ready) => {
                self.metrics.view().replicas(*ready);
                self.ledger().set_replicas(*ready);
            }
            _ => {}
        }
        if let Some((next, _)) = &mut self.next {
            let inherited = inherited.and_then(|id| next.node_named(self.index.node_name(id)?));
            fold(next, at, change, inherited);
        }
        let is_listed = matches!(change, Change::ListEnded(_));
        fold(&mut self.index, at, change, inherited);
        if is_listed {
            self.waitlist.retain(|uid| self.index.has_seen(uid));
            self.strays.retain(|uid| self.index.has_seen(uid));
            self.aftermath.retain(|uid| self.index.has_seen(uid));
        }
    }

    /// Other sites are to be used. Until everything was counted by them, the picture is that of the old ones.
    fn begin(&mut self, config: &Arc<Config>) {
        self.next = (!self.index.is_of(config)).then(|| {
            let mut next = self.index.successor(config);
            for (site, link) in &self.links {
                next.set_link(site, *link);
            }
            (next, Arc::clone(config))
        });
    }

    /// Puts the next index in the place of the one in use, if it is complete, and returns that.
    fn change_over(&mut self) -> Option<Index> {
        let is_complete = |(next, config): &(Index, Arc<Config>)| {
            let probed = self.probed.as_ref().map_or(&[][..], |probed| &probed.sites);
            Kind::ALL.into_iter().all(|kind| next.is_listed(kind)) && are_same_places(config.sites.iter(), probed)
        };
        let (mut next, config) = self.next.take_if(|next| is_complete(next))?;
        next.replace(&self.index);
        self.links
            .retain(|link, _| config.sites.iter().any(|site| site.name == *link));
        let sites: Vec<_> = config.sites.iter().map(|site| &*site.name).collect();
        tracing::info!(sites = sites.join(" "), "other sites are in use");
        Some(std::mem::replace(&mut self.index, next))
    }

    /// The first event of a pod that was decided, or of one that was released, confirms its reservation, and gives it the node
    /// that was charged.
    fn confirm(&mut self, pod: &PodRecord) -> Option<NodeId> {
        if self.index.has_seen(&pod.uid) && (pod.gated || !self.index.is_gated(&pod.uid)) {
            return None;
        }
        let mut ledger = self.ledger();
        if let Some(created) = pod.created {
            ledger.seen(&pod.namespace, pod.controller.as_deref(), created);
        }
        let decision = pod.decision.as_deref().and_then(DecisionId::parse);
        let confirmed = decision.zip(self.index.site_of(pod)).and_then(|(id, site)| {
            let revision = self.index.next_revision();
            ledger.confirm(id, &pod.namespace, &site.name, revision)
        });
        if !pod.gated {
            ledger.withdraw_release(&pod.uid);
        }
        confirmed
    }

    /// Tells of a decision that is seen for the first time. Of what the first list shows, which was there before us, only
    /// what was decided lately; and nothing of what was copied with a manifest.
    fn tell(&self, pod: &PodRecord) {
        let Some((tell, decided)) = self.decided.as_ref().zip(pod.decided.as_ref()) else {
            return;
        };
        let is_copied = pod
            .created
            .is_some_and(|created| created.duration_since(decided.at) > LATELY);
        let is_old = !self.index.is_listed(Kind::Pods) && self.clock.wall().duration_since(decided.at) > LATELY;
        if is_copied || is_old || !self.index.is_decided_anew(pod) {
            return;
        }
        tell(Sighting {
            namespace: pod.namespace.clone(),
            uid: pod.uid.clone(),
            site: self.index.site_of(pod).map(|site| (site.name.clone(), site.kind)),
            gated: pod.gated,
            request: pod.request.clone(),
            decided: (**decided).clone(),
        });
    }

    /// Confirmed reservations are marked with the revision that shows their pods, so that a review never counts both and
    /// never neither; they are dropped once it is published.
    fn publish(&mut self) {
        let now = self.clock.moment();
        let replaced = self.change_over();
        let mut snapshot = self.index.publish(now);
        let before = self.fleet.load();
        let guard = self.config.loop_guard;
        let is_paused = self
            .aftermath
            .publish(&self.index, &mut snapshot, &before, guard, &self.metrics, now);
        if is_paused {
            self.waitlist.reconsider();
        }
        let expired = self.ledger().expire(self.clock.now());
        let plan = self.plan(&mut snapshot, replaced.as_ref());
        let revision = snapshot.revision;
        self.published = Some(now);
        let mut ledger = self.ledger();
        // No review comes between: it decides and reserves under this lock.
        self.fleet.store(Arc::new(snapshot));
        if let Some(old) = &replaced {
            self.renumber(&mut ledger, old);
        }
        if let Some(plan) = plan {
            self.plans.send_replace(Arc::new(plan));
        }
        ledger.published(revision);
        self.metrics.reservations(&ledger, expired);
        drop(ledger);
        self.measure(now);
        self.report_faults();
        self.strays.report(&self.config.keys, &self.metrics);
        for (kind, then) in std::mem::take(&mut self.listed) {
            match self.index.is_listed(kind) {
                true => then(),
                false => self.listed.push((kind, then)),
            }
        }
    }

    /// Gives reservations the ids that their nodes have since this index was replaced.
    fn renumber(&self, ledger: &mut Ledger, old: &Index) {
        ledger.renumber(|id| self.index.node_named(old.node_name(id)?));
    }

    /// Sets aside in this snapshot what is for held pods, and says what is to be done about them, if that may have changed. Not
    /// before everything was listed: a namespace that is not known yet is not known to have opted out. `replaced` is the index that
    /// the reservations speak of, if it is another.
    fn plan(&mut self, snapshot: &mut Snapshot, replaced: Option<&Index>) -> Option<Plan> {
        if !self.is_listed() {
            return None;
        }
        let news = self.index.take_news();
        let now = self.clock.now();
        let ledger = {
            let ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
            let freed = std::mem::replace(&mut self.freed, ledger.freed());
            if replaced.is_some() {
                self.waitlist.start_anew();
            }
            if news.other || freed != self.freed {
                self.waitlist.reconsider();
            }
            let (gained, lost) = (&news.gained, &news.lost);
            self.waitlist.hear(gained, lost, snapshot, &self.config, now.moment);
            self.waitlist.wants_plan(now.moment).then(|| ledger.clone())
        };
        let plan = ledger.map(|mut ledger| {
            if let Some(old) = replaced {
                self.renumber(&mut ledger, old);
            }
            let is_managed = |namespace: &str| self.index.is_managed(namespace);
            let plan = self.waitlist.plan(snapshot, &ledger, &self.config, is_managed, now);
            self.waitlist.rest(now.moment, self.clock.moment());
            plan
        });
        snapshot.claims = self.waitlist.claims();
        if let Some(plan) = &plan {
            let age = plan.oldest.map(|since| now.moment.since(since).0 / 1_000_000);
            let age = age.and_then(|age| i64::try_from(age).ok());
            let since = age.map(|age| now.wall.as_second() - age);
            self.metrics.waitlist().held(plan.held, since);
        }
        plan
    }

    /// Logs each fault of a node once.
    fn report_faults(&mut self) {
        if self.index.faults().eq(&self.faults) {
            return;
        }
        let faults: Vec<_> = self.index.faults().cloned().collect();
        for fault in faults.iter().filter(|fault| !self.faults.contains(fault)) {
            let (node, sites) = (&*fault.node, fault.sites.join(" "));
            tracing::warn!(
                node,
                sites,
                "carries the selectors of several sites; it counts to the first cloud of them"
            );
        }
        self.faults = faults;
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn measure(&self, now: Moment) {
        self.metrics.fleet_revision(self.fleet.load().revision);
        let view = self.metrics.view();
        view.cache(self.index.pods(), self.index.faults().count());
        let wall = self.clock.wall().as_second();
        for kind in Kind::ALL {
            if let Some(heard) = self.index.last_heard(kind) {
                let age = now.since(heard).0 / 1_000_000;
                view.heard(kind, wall - i64::try_from(age).unwrap_or(0));
            }
        }
    }
}

fn fold(index: &mut Index, at: Moment, change: &Change, inherited: Option<NodeId>) {
    if let Some(kind) = change.kind() {
        index.heard(kind, at);
    }
    match change {
        Change::Node(node) => index.apply_node((**node).clone(), at),
        Change::NodeGone(name) => index.delete_node(name),
        Change::Pod(pod) => index.apply_pod(pod, inherited, at),
        Change::PodGone(uid) => index.delete_pod(uid),
        Change::Namespace(name, is_managed) => index.apply_namespace(name, *is_managed),
        Change::Link(site, link) => index.set_link(site, *link),
        Change::Telemetry(telemetry) => index.set_telemetry((**telemetry).clone()),
        Change::Settings(config) => index.configure(config),
        Change::ListBegan(kind) => index.list_began(*kind),
        Change::ListEnded(kind) => index.list_ended(*kind),
        Change::Sites(_) | Change::FirstRound(_) | Change::Replicas(_) | Change::Heard(_) | Change::Lost(_) => {}
    }
}

#[cfg(test)]
mod tests;
