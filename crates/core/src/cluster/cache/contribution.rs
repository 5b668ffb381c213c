//! What one pod without a node adds to a snapshot, so that it can be left out.

use std::sync::Arc;

use crate::cluster::cache::Cache;
use crate::model::slo::Class;
use crate::model::snapshot::{QueueGroup, Snapshot};
use crate::model::workload::Workload;

/// What a pod that charges nothing, because kube-scheduler has refused it, adds to the queues of its site.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Contribution {
    /// The site whose selector it carries.
    pub site: Option<Box<str>>,
    /// Whether it fits a node by our arithmetic, so that it waits for something that we do not evaluate.
    pub fits: bool,
    /// Where it is counted: class, pod priority and SLO priority; `None` where it is not.
    group: Option<(Class, i32, u8)>,
}

impl Contribution {
    /// The same snapshot without this pod. Cost: does not copy nodes.
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
    /// What this pod adds to a snapshot; `None` unless kube-scheduler has refused it, and makes no room for it.
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
