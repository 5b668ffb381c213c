//! Nodes and pods as they are in truth, and as kube-scheduler's cache has them.

use edgeward_core::model::node::Node;
use edgeward_core::resources::Amounts;
use edgeward_core::units::Micros;

/// A pod, by the order of creation.
pub(crate) type PodNumber = usize;

/// What a pod is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// One piece of work, by its number in the load.
    Task(usize),
    /// A replica of a service.
    Replica {
        /// The service.
        service: usize,
        /// Counts rollouts.
        revision: u32,
        /// Which place of the service it is the first in, by its number in the load.
        first_of: Option<usize>,
    },
    /// It runs from the beginning and does not end.
    Initial,
}

/// Where a pod is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// A scheduling gate keeps it from kube-scheduler.
    Gated,
    /// No node yet.
    Unbound,
    /// On a node, and not running yet.
    Starting,
    /// Running.
    Running,
    /// Its work is done.
    Finished,
    /// Deleted.
    Gone,
}

/// A pod.
#[derive(Debug, Clone)]
pub(crate) struct Pod {
    /// Its workload.
    pub(crate) workload: usize,
    /// What it is for.
    pub(crate) work: Work,
    /// Its Job, if it is of one.
    pub(crate) job: u64,
    /// When it was created.
    pub(crate) created: Micros,
    /// Where it is.
    pub(crate) phase: Phase,
    /// The site that it was placed at.
    pub(crate) site: Option<usize>,
    /// Its node.
    pub(crate) node: Option<usize>,
    /// The node that kube-scheduler makes free for it.
    pub(crate) nominated: Option<usize>,
    /// When it got its node.
    pub(crate) bound: Option<Micros>,
    /// When it began to run.
    pub(crate) started: Option<Micros>,
    /// When its work is done; where its node has failed, how much is left.
    pub(crate) ends: Micros,
    /// When its deletion began.
    pub(crate) deleted: Option<Micros>,
    /// Whether its work was done.
    pub(crate) finished: bool,
    /// Since when it is gated, if it is; it was gated for so long.
    pub(crate) gated: Micros,
    /// Why it is gated.
    pub(crate) reason: &'static str,
    /// Since when kube-scheduler finds no node for it.
    pub(crate) refused: Option<Micros>,
    /// How often kube-scheduler tried.
    pub(crate) attempts: u32,
    /// Which of its places in kube-scheduler's queue counts.
    pub(crate) queued: u32,
    /// The id of the decision that it carries.
    pub(crate) decision: Option<u128>,
    /// Its resource version.
    pub(crate) version: u32,
}

impl Pod {
    /// A pod that was just created.
    pub(crate) fn new(workload: usize, work: Work, created: Micros) -> Self {
        Self {
            workload,
            work,
            job: 0,
            created,
            phase: Phase::Unbound,
            site: None,
            node: None,
            nominated: None,
            bound: None,
            started: None,
            ends: Micros(0),
            deleted: None,
            finished: false,
            gated: Micros(0),
            reason: "",
            refused: None,
            attempts: 0,
            queued: 0,
            decision: None,
            version: 1,
        }
    }

    /// Whether it is on a node and takes something there.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Starting | Phase::Running)
    }

    /// Whether it may get a node.
    pub(crate) fn is_unbound(&self) -> bool {
        self.phase == Phase::Unbound
    }
}

/// A node.
#[derive(Debug, Clone)]
pub(crate) struct NodeState {
    /// What it is.
    pub(crate) node: Node,
    /// Its site.
    pub(crate) site: usize,
    /// What is taken of it, as kube-scheduler knows.
    pub(crate) used: Amounts,
    /// Pods that take it, those included that are about to be bound.
    pub(crate) pods: Vec<PodNumber>,
    /// Pods that kube-scheduler makes it free for.
    pub(crate) nominated: Vec<PodNumber>,
    /// Whether it has failed.
    pub(crate) failed: bool,
}

impl NodeState {
    /// An empty node of this site.
    pub(crate) fn new(node: Node, site: usize) -> Self {
        Self {
            node,
            site,
            used: Amounts::default(),
            pods: vec![],
            nominated: vec![],
            failed: false,
        }
    }

    /// Whether it is ready and has room for this.
    pub(crate) fn fits(&self, request: &Amounts) -> bool {
        self.node.ready
            && (self.pods.len() as i64) < self.node.slots
            && request.fits(&self.node.allocatable, &self.used)
    }

    /// A pod takes this of it.
    pub(crate) fn take(&mut self, pod: PodNumber, request: &Amounts) {
        self.used.add(request, 1);
        self.pods.push(pod);
    }

    /// The pod takes nothing any more.
    pub(crate) fn free(&mut self, pod: PodNumber, request: &Amounts) {
        if let Some(at) = self.pods.iter().position(|number| *number == pod) {
            self.pods.swap_remove(at);
            self.used = less(&self.used, request);
        }
    }
}

/// What is left of an amount.
pub(crate) fn less(from: &Amounts, part: &Amounts) -> Amounts {
    let mut left = from.clone();
    left.cpu.0 -= part.cpu.0;
    left.memory.0 -= part.memory.0;
    left.ephemeral_storage.0 -= part.ephemeral_storage.0;
    for (name, amount) in &part.scalars {
        if let Some((_, left)) = left.scalars.iter_mut().find(|(other, _)| other == name) {
            *left -= amount;
        }
    }
    left
}
