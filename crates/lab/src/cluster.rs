//! The true state of nodes and pods, and the state in kube-scheduler's cache.

use edgeward_kube::node::Node;
use edgeward_kube::resources::Amounts;
use edgeward_kube::units::Micros;

pub(crate) type PodNumber = usize;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Work {
    Task(usize),
    Replica {
        service: usize,
        revision: u32,
        /// The slot of the service that this pod is the first to fill, as an index into the load's slots.
        first_of: Option<usize>,
    },
    /// A pod that runs from the start of the scenario and does not end.
    #[default]
    Initial,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    Gated,
    #[default]
    Unbound,
    /// Bound to a node, but not running yet.
    Starting,
    Running,
    Finished,
    Gone,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Pod {
    pub(crate) workload: usize,
    pub(crate) work: Work,
    pub(crate) job: u64,
    pub(crate) created: Micros,
    pub(crate) phase: Phase,
    pub(crate) site: Option<usize>,
    pub(crate) node: Option<usize>,
    pub(crate) nominated: Option<usize>,
    pub(crate) bound: Option<Micros>,
    pub(crate) started: Option<Micros>,
    /// The time at which the work is done. While the pod's node is failed: the remaining work.
    pub(crate) ends: Micros,
    pub(crate) deleted: Option<Micros>,
    pub(crate) finished: bool,
    pub(crate) gated: Micros,
    pub(crate) reason: &'static str,
    pub(crate) refused: Option<Micros>,
    pub(crate) attempts: u32,
    pub(crate) queued: u32,
    pub(crate) decision: Option<u128>,
    pub(crate) version: u32,
}

impl Pod {
    pub(crate) fn new(workload: usize, work: Work, created: Micros) -> Self {
        Self {
            workload,
            work,
            created,
            version: 1,
            ..Self::default()
        }
    }

    pub(crate) fn is_active(&self) -> bool {
        matches!(self.phase, Phase::Starting | Phase::Running)
    }

    pub(crate) fn is_unbound(&self) -> bool {
        self.phase == Phase::Unbound
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct NodeState {
    pub(crate) node: Node,
    pub(crate) site: usize,
    pub(crate) used: Amounts,
    pub(crate) pods: Vec<PodNumber>,
    pub(crate) nominated: Vec<PodNumber>,
    pub(crate) failed: bool,
}

impl NodeState {
    pub(crate) fn new(node: Node, site: usize) -> Self {
        Self {
            node,
            site,
            ..Self::default()
        }
    }

    pub(crate) fn fits(&self, request: &Amounts) -> bool {
        self.node.state.ready
            && (self.pods.len() as i64) < self.node.slots
            && request.fits(&self.node.allocatable, &self.used)
    }

    pub(crate) fn take(&mut self, pod: PodNumber, request: &Amounts) {
        self.used.add(request, 1);
        self.pods.push(pod);
    }

    pub(crate) fn free(&mut self, pod: PodNumber, request: &Amounts) {
        if let Some(at) = self.pods.iter().position(|number| *number == pod) {
            self.pods.swap_remove(at);
            self.used = self.used.less(request);
        }
    }
}
