//! A pod as the controller of moves keeps it.

use std::sync::Arc;

use super::{MAX_ELEMENTS, MAX_RESOURCES, Phase, PodRecord};
use crate::moves::Blocker;
use edgeward_decision::keys::Keys;
use edgeward_decision::model::decision_id::DecisionId;
use edgeward_decision::model::slo::Management;
use edgeward_decision::model::workload::Workload;
use edgeward_decision::pod::Pod;
use edgeward_kube::excerpt::{LONGEST_NAME, excerpt};
use edgeward_kube::pod::MAX_CONSTRAINTS;
use edgeward_kube::pod::fields::{Condition, Status};

/// A pod that edgeward may decide about. A pod without an SLO has no workload.
#[derive(Debug, Clone)]
pub struct Member {
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.name`.
    pub name: Box<str>,
    /// Kind and name of the controller. For a ReplicaSet of a Deployment, the name is that of the Deployment. Empty without a
    /// controller.
    pub owner: Arc<str>,
    /// Whether the pod has a node and is Ready.
    pub is_ready: bool,
    /// What keeps the pod from ever being moved.
    pub blocker: Option<Blocker>,
    /// Id of the decision that the pod carries.
    pub decision: Option<DecisionId>,
    /// Reason code of the decision, by its annotation.
    pub reason: Option<Box<str>>,
    /// The pod as a workload, including the placement that it carries. Kept if the pod is Ready and has no blocker.
    pub workload: Option<Arc<Workload<'static>>>,
}

/// Labels with the end of a ReplicaSet's name, of Deployments and of Argo Rollouts.
const TEMPLATE_HASHES: [&str; 2] = ["pod-template-hash", "rollouts-pod-template-hash"];
const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";

/// Returns the member that this pod is. `None` if edgeward decides no such pod, even with an SLO, or if it has finished.
pub fn member(pod: &Pod<'_>, record: &PodRecord, status: &Status<'_>, keys: &Keys) -> Option<Member> {
    let (management, intent) = pod.slo(keys);
    if management == Management::OptedOut || pod.is_of_others() || record.phase == Phase::Finished {
        return None;
    }
    let movable = intent.as_ref().and_then(|intent| intent.movable);
    let is_true = |condition: &Condition<'_>| condition.kind == "Ready" && condition.status == "True";
    let is_ready = record.node.is_some() && status.conditions.iter().flatten().any(is_true);
    let reason = super::read::reason(pod, keys);
    let blocker = blocker(pod, movable);
    let workload = || {
        let workload = pod.workload((&*record.namespace).into(), keys);
        let constraints = &workload.constraints;
        let terms = constraints.affinity.as_ref().map_or(0, Vec::len);
        let elements = constraints.comparisons() + terms + workload.tolerations.len();
        let is_whole = elements <= MAX_ELEMENTS && workload.request.scalars.len() <= MAX_RESOURCES;
        is_whole.then(|| {
            Arc::new(Workload {
                bound: false,
                ..workload.into_owned()
            })
        })
    };
    let is_kept = is_ready && blocker.is_none() && intent.is_some();
    let workload = is_kept.then(workload).flatten();
    Some(Member {
        uid: (&*record.uid).into(),
        name: record.name.clone(),
        owner: owner(pod).unwrap_or_default().into(),
        is_ready,
        blocker: blocker.or_else(|| (is_kept && workload.is_none()).then_some(Blocker::LongConstraints)),
        decision: record.decision.as_deref().and_then(DecisionId::parse),
        reason,
        workload,
    })
}

fn owner(pod: &Pod<'_>) -> Option<String> {
    let controller = pod.controller()?;
    let (kind, name) = (&*controller.kind, &*controller.name);
    let hashes = TEMPLATE_HASHES.iter().filter_map(|label| pod.label(label));
    let deployment = |hash: &str| name.strip_suffix(hash)?.strip_suffix('-');
    let name = hashes.filter_map(deployment).next().unwrap_or(name);
    Some(excerpt(format_args!("{kind}/{name}"), LONGEST_NAME))
}

fn blocker(pod: &Pod<'_>, movable: Option<bool>) -> Option<Blocker> {
    let Some(controller) = pod.controller() else {
        return Some(Blocker::NoOwner);
    };
    if pod.has_volume_claims() {
        return Some(Blocker::VolumeClaims);
    }
    if pod.annotation(SAFE_TO_EVICT) == Some("false") {
        return Some(Blocker::SafeToEvict);
    }
    if pod.spec.constraints_length() > MAX_CONSTRAINTS {
        return Some(Blocker::LongConstraints);
    }
    match movable {
        Some(false) => Some(Blocker::NotMovable),
        None if controller.kind != "ReplicaSet" => Some(Blocker::OwnerKind),
        Some(true) if controller.kind == "Job" => Some(Blocker::OwnerKind),
        _ => None,
    }
}
