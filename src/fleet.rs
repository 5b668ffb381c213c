//! What exists: sites, their nodes and links, and the [`Snapshot`] of all of it that a decision reads.

mod claims;
pub mod definition;
pub mod file;
mod on_their_way;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use crate::resources::Amounts;
use crate::units::{Bytes, Micros, Millicores, Moment, Permille};
use crate::wan::{Endpoint, OwnThresholds, Thresholds};
use crate::workload::constraints::{Labels, NodeConstraints, Taint, Toleration};
use crate::workload::slo::{Class, PerClass};
use crate::workload::{Ties, Workload};

pub use claims::{ByNode, Claim, Claims, SetAside};
pub use on_their_way::OnTheirWay;

/// An immutable picture of all sites. Read by many reviews at once, written by none.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Counts publications.
    pub revision: u64,
    /// When the Kubernetes telemetry was true.
    pub kubernetes_as_of: Moment,
    /// The edge site first, then the cloud sites by name.
    pub sites: Vec<Site>,
    /// What is set aside for held pods.
    pub claims: Arc<Claims>,
    /// Controllers whose pods are left as they are for a while, and until when.
    pub paused: Arc<ByController<Moment>>,
}

impl Snapshot {
    /// Whether the pods of this one's controller are left as they are at this moment. Cost: a search.
    pub fn is_paused(&self, workload: &Workload<'_>, now: Moment) -> bool {
        let until = |uid: &str| self.paused.get(&workload.namespace, uid);
        workload
            .controller
            .as_deref()
            .and_then(until)
            .is_some_and(|until| now < *until)
    }

    /// Whether the Kubernetes telemetry is older than this.
    pub fn is_stale(&self, ttl: Micros, now: Moment) -> bool {
        now.since(self.kubernetes_as_of) > ttl
    }

    /// The same picture, every part of it `by` younger. Cost: does not copy nodes.
    pub fn younger(&self, by: Micros) -> Snapshot {
        let shift = |moment: Moment| moment.after(by);
        let mut snapshot = self.clone();
        snapshot.kubernetes_as_of = shift(self.kubernetes_as_of);
        for link in snapshot.sites.iter_mut().filter_map(|site| site.link.as_mut()) {
            link.as_of = shift(link.as_of);
        }
        snapshot
    }
}

/// Edge or cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SiteKind {
    /// The nodes of the local cluster.
    Edge,
    /// A remote cluster behind virtual nodes.
    Cloud,
}

impl SiteKind {
    /// The value of the `decision` annotation.
    pub const fn as_str(self) -> &'static str {
        match self {
            SiteKind::Edge => "edge",
            SiteKind::Cloud => "cloud",
        }
    }
}

/// A place where pods can run, as an operator defines it. What is seen of it is a [`Site`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteDefinition {
    /// Name, unique in the fleet.
    pub name: String,
    /// Edge or cloud.
    pub kind: SiteKind,
    /// What a placement adds to the pod's nodeSelector; never empty. A node is of this site when it carries all.
    pub selector: Vec<(String, String)>,
    /// What a placement adds to the pod's tolerations.
    pub tolerations: Vec<Toleration<'static>>,
    /// How fast its CPUs are: 1000 is the speed the models are stated for.
    pub speed: Permille,
    /// Ties to the local cluster that this cloud site can serve.
    pub supports: Ties,
    /// The RuntimeClass that a placement gives a pod that names none.
    pub runtime_class: Option<String>,
    /// From which numbers on its WAN is degraded, where it is not as the configuration says.
    pub thresholds: OwnThresholds,
    /// What the WAN towards a cloud site is measured by; none of a site in a fleet file, which states its link.
    pub probes: Vec<Endpoint>,
}

impl SiteDefinition {
    /// Whether both define the same, however the WAN towards it is measured.
    pub fn is_same_place(&self, other: &Self) -> bool {
        let placed = |site: &Self| Self {
            probes: vec![],
            ..site.clone()
        };
        placed(self) == placed(other)
    }

    /// The selector as pairs of strings.
    pub fn selector(&self) -> impl Iterator<Item = (&str, &str)> {
        self.selector.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

/// Whether both lists define the same sites, however the WAN towards them is measured.
pub fn are_same_places<'s>(
    some: impl ExactSizeIterator<Item = &'s Arc<SiteDefinition>>,
    others: &[Arc<SiteDefinition>],
) -> bool {
    some.len() == others.len() && some.zip(others).all(|(one, other)| one.is_same_place(other))
}

/// A place where pods can run, as it is.
#[derive(Debug, Clone)]
pub struct Site {
    /// What it is.
    pub definition: Arc<SiteDefinition>,
    /// Its nodes, shared between snapshots that do not differ in them.
    pub nodes: Arc<Vec<Arc<Node>>>,
    /// The WAN towards it; `None` at the edge, and at a cloud site nothing is known of.
    pub link: Option<Link>,
    /// Pods not yet running there.
    pub queues: Vec<QueueGroup>,
    /// Those that its nodes are charged for by guess.
    pub on_their_way: OnTheirWay,
    /// Mean processing time per class as observed there, where there were enough observations.
    pub observed: PerClass<Option<Micros>>,
    /// The same per controller, which knows better than its class.
    pub observed_of: Arc<ByController<Micros>>,
    /// What is free there as a whole by measurement: an upper bound beside what the nodes have.
    pub free: Free,
    /// Controllers to whose pods kube-scheduler closes the site, with the number of pods that wait there for something
    /// we do not evaluate.
    pub closed: Arc<ByController<u64>>,
}

impl Site {
    /// A site of which nothing is seen yet.
    pub fn new(definition: Arc<SiteDefinition>) -> Self {
        Self {
            definition,
            nodes: Arc::default(),
            link: None,
            queues: vec![],
            on_their_way: OnTheirWay::default(),
            observed: PerClass::default(),
            observed_of: Arc::default(),
            free: Free::default(),
            closed: Arc::default(),
        }
    }

    /// Its nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> + Clone {
        self.nodes.iter().map(|node| &**node)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.definition.name
    }

    /// Edge or cloud.
    pub fn kind(&self) -> SiteKind {
        self.definition.kind
    }
}

/// What is free at a site as a whole, as somebody measured it, less everything promised since; unbounded where nobody
/// did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Free {
    /// CPU.
    pub cpu: Option<Millicores>,
    /// Memory.
    pub memory: Option<Bytes>,
}

/// Something known of controllers. A pod names its controller's uid itself, so one counts within its namespace only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByController<T>(BTreeMap<Box<str>, BTreeMap<Box<str>, T>>);

impl<T> Default for ByController<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> ByController<T> {
    /// What is known of the controller with this uid. Cost: two searches.
    pub fn get(&self, namespace: &str, uid: &str) -> Option<&T> {
        self.0.get(namespace)?.get(uid)
    }

    /// The entry of the controller with this uid, made if it is missing.
    pub fn entry(&mut self, namespace: &str, uid: &str) -> std::collections::btree_map::Entry<'_, Box<str>, T> {
        self.0.entry(namespace.into()).or_default().entry(uid.into())
    }

    /// Forgets the controller with this uid.
    pub fn remove(&mut self, namespace: &str, uid: &str) {
        if let Some(uids) = self.0.get_mut(namespace) {
            uids.remove(uid);
            if uids.is_empty() {
                self.0.remove(namespace);
            }
        }
    }

    /// Namespace, uid and what is known, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, &T)> {
        self.0
            .iter()
            .flat_map(|(namespace, uids)| uids.iter().map(|(uid, known)| (&**namespace, &**uid, known)))
    }

    /// Whether nothing is known of any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Names a node in this process, also beyond the life of the snapshot it was read in. Never used again for another node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// A node, as far as fitting a pod on it goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// What reservations name it by.
    pub id: NodeId,
    /// Name.
    pub name: Arc<str>,
    /// Labels.
    pub labels: Labels,
    /// Taints.
    pub taints: Vec<Taint>,
    /// `status.allocatable` without pods.
    pub allocatable: Amounts,
    /// Pod slots: `status.allocatable.pods`.
    pub slots: i64,
    /// What charges have taken.
    pub used: Amounts,
    /// Pods charged to it.
    pub pods: i64,
    /// The part of `used` and `pods` charged by guess.
    pub on_their_way: OnTheirWay,
    /// The part of `used` and `pods` that goes when the pods that are terminating are gone, in the order of their times.
    pub leaving: Vec<Leaving>,
    /// The part of `used` and `pods` held by pods of a known priority, which preemption could free.
    pub by_priority: Vec<PriorityUse>,
    /// `spec.unschedulable`.
    pub cordoned: bool,
    /// Condition Ready.
    pub ready: bool,
}

static UNSCHEDULABLE: LazyLock<Taint> = LazyLock::new(Taint::unschedulable);

impl Node {
    /// Whether less of any resource is free than on `other`, the same node at another time, or more pods are on their way.
    pub fn has_less_than(&self, other: &Node) -> bool {
        let is_more = |some: &Amounts, others: &Amounts| some.named().any(|(name, amount)| amount > others.get(name));
        let (coming, others) = (&self.on_their_way, &other.on_their_way);
        (self.pods > other.pods || is_more(&self.used, &other.used))
            || (coming.pods > others.pods || is_more(&coming.amounts, &others.amounts))
    }

    /// Whether kube-scheduler's filters on readiness, cordon, taints, labels and name let a pod with these constraints
    /// and tolerations onto the node, if it has room.
    pub fn admits<'t>(
        &self,
        constraints: &NodeConstraints<'_>,
        tolerations: impl Iterator<Item = &'t Toleration<'t>> + Clone,
    ) -> bool {
        self.ready
            && self.is_tolerated(tolerations.clone())
            && (!self.cordoned || is_tolerated(&UNSCHEDULABLE, tolerations))
            && (constraints.is_empty() || constraints.allow(&self.name, &self.labels))
    }

    /// Whether these tolerations cover every taint that keeps pods away.
    pub fn is_tolerated<'t>(&self, tolerations: impl Iterator<Item = &'t Toleration<'t>> + Clone) -> bool {
        let mut hard = self.taints.iter().filter(|taint| taint.is_hard());
        hard.all(|taint| is_tolerated(taint, tolerations.clone()))
    }
}

fn is_tolerated<'t>(taint: &Taint, mut tolerations: impl Iterator<Item = &'t Toleration<'t>>) -> bool {
    tolerations.any(|toleration| toleration.tolerates(taint))
}

/// What some pods take from a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Share {
    /// Sum of their requests.
    pub amounts: Amounts,
    /// Their number.
    pub pods: i64,
}

/// What goes with pods that are terminating on a node and have the same time for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leaving {
    /// When they are to be gone: `metadata.deletionTimestamp`, which is when the grace ends. `None`: in time.
    pub by: Option<jiff::Timestamp>,
    /// What they take.
    pub share: Share,
}

/// For how long after its grace a pod may still be terminating: it is killed then, and its volumes are taken away.
const AFTER_GRACE: jiff::SignedDuration = jiff::SignedDuration::from_secs(10);

impl Leaving {
    /// Whether it is worth waiting for: these pods go within `wait`, and are not stuck.
    pub fn is_soon(&self, wait: Micros, now: jiff::Timestamp) -> bool {
        let wait = jiff::SignedDuration::from_micros(i64::try_from(wait.0).unwrap_or(i64::MAX));
        self.by.is_none_or(|by| {
            let remaining = by.duration_since(now);
            -AFTER_GRACE <= remaining && remaining <= wait
        })
    }
}

/// What pods of one priority take from a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PriorityUse {
    /// `spec.priority`.
    pub priority: i32,
    /// Sum of their requests.
    pub used: Amounts,
    /// Their number.
    pub pods: i64,
}

/// The WAN towards a cloud site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Health, hysteresis included.
    pub state: LinkState,
    /// Round-trip time; `None` where nothing was ever answered.
    pub rtt: Option<Micros>,
    /// Loss.
    pub loss: Option<Permille>,
    /// When this was measured.
    pub as_of: Moment,
}

/// Health of a link, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkState {
    /// Reachable, RTT and loss below their thresholds.
    Healthy,
    /// Reachable, but RTT or loss is not.
    Degraded,
    /// Nothing answers.
    Unreachable,
}

impl LinkState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Healthy, Self::Degraded, Self::Unreachable];

    /// The word for metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Unreachable => "unreachable",
        }
    }

    /// The state that these numbers stand for by the thresholds alone, without history. A number that is missing is
    /// never a good one.
    pub fn judge(reachable: bool, rtt: Option<Micros>, loss: Option<Permille>, thresholds: Thresholds) -> Self {
        let over_rtt = rtt.is_none_or(|rtt| rtt >= thresholds.rtt);
        let over_loss = loss.is_none_or(|loss| loss >= thresholds.loss);
        match (reachable, over_rtt || over_loss) {
            (false, _) => LinkState::Unreachable,
            (true, true) => LinkState::Degraded,
            (true, false) => LinkState::Healthy,
        }
    }
}

/// Pods of one class and priority that are not running yet at a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueGroup {
    /// Their class.
    pub class: Class,
    /// Their `spec.priority`.
    pub priority: i32,
    /// Their SLO priority.
    pub slo_priority: u8,
    /// How many wait for room.
    pub waiting: u64,
    /// How many are in phase Pending, those that wait included.
    pub pending: u64,
}
