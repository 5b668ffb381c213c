//! The part of a snapshot that comes from one pod without a node, so that the pod can be left out.

use std::sync::Arc;

use crate::cache::Cache;
use edgeward_decision::model::slo::Class;
use edgeward_decision::model::snapshot::{QueueGroup, Snapshot};
use edgeward_decision::model::workload::Workload;

/// The part of a site's queues that comes from a pod that kube-scheduler has refused. Such a pod charges no node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Contribution {
    /// The site whose selector the pod carries.
    pub site: Option<Box<str>>,
    /// Whether the pod fits a node by edgeward's arithmetic. If so, it waits for something that edgeward does not evaluate.
    pub fits: bool,
    /// The queue group that counts the pod: class, pod priority and SLO priority; `None` if there is none.
    group: Option<(Class, i32, u8)>,
}

impl Contribution {
    /// Returns the snapshot without this pod. Cost: a copy, without the nodes.
    pub fn removed_from(&self, snapshot: &Snapshot, workload: &Workload<'_>) -> Snapshot {
        let mut snapshot = snapshot.clone();
        let is_its = |name: &str| self.site.as_deref() == Some(name);
        let Some(site) = snapshot.sites.iter_mut().find(|site| is_its(site.name())) else {
            return snapshot;
        };
        let mut queues = site.queues.iter_mut();
        let is_its = |queue: &&mut QueueGroup| Some((queue.class, queue.priority, queue.slo_priority)) == self.group;
        if let Some(queue) = queues.find(is_its) {
            queue.waiting = queue.waiting.saturating_sub(1);
        }
        if let (true, Some(uid)) = (self.fits, workload.controller.as_deref()) {
            Arc::make_mut(&mut site.closed).change(&workload.namespace, uid, -1);
        }
        snapshot
    }
}

impl Cache {
    /// The part of a snapshot that comes from this pod. `None` unless kube-scheduler has refused the pod and makes no room
    /// for it.
    pub fn contribution(&self, uid: &str) -> Option<Contribution> {
        let pod = self.pods.get(uid)?;
        let unbound = pod.unbound.as_deref().filter(|unbound| unbound.is_refused())?;
        Some(Contribution {
            site: unbound.site.map(|at| self.sites[at].site.name().into()),
            fits: unbound.closes_site(),
            group: pod
                .counted
                .group
                .map(|(_, class, priority, slo)| (class, priority, slo)),
        })
    }
}
