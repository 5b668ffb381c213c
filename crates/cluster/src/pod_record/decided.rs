//! Reads the annotated decision of a pod that exists, for Events.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::pod_record::Decided;
use edgeward_decision::keys::Keys;
use edgeward_decision::model::decision_id::DecisionId;
use edgeward_decision::model::site::SiteKind;
use edgeward_decision::model::slo::Intent;
use edgeward_decision::pod::Pod;
use edgeward_kube::resources::Amounts;

/// Maximum length of an explanation that is kept, in bytes. This is twice what an Event shows in words. Any user can
/// write an explanation of any length.
const EXPLAIN_BYTES: usize = 2048;

/// A decision that was seen on a pod for the first time.
#[derive(Debug, Clone)]
pub struct ObservedDecision {
    /// Namespace of the pod.
    pub namespace: Box<str>,
    /// Uid of the pod.
    pub uid: Box<str>,
    /// Site of the pod by its spec.
    pub site: Option<(String, SiteKind)>,
    /// Whether a scheduling gate keeps the pod from kube-scheduler.
    pub gated: bool,
    /// Resources that the pod takes.
    pub request: Amounts,
    /// Whether the pod was seen with a gate before.
    pub was_gated: bool,
    /// The annotated decision.
    pub decided: Decided,
}

/// Reads the annotated decision. `None` unless it has a reason, a time and, except on a gated pod, an id.
pub(super) fn decided(pod: &Pod<'_>, intent: Option<&Intent>, keys: &Keys) -> Option<Decided> {
    let short = |key| pod.annotation(key).filter(|text| text.len() <= 64);
    let explain = pod.annotation(&keys.explain);
    let reason = short(&keys.reason)?;
    let id = match pod.annotation(&keys.decision_id) {
        None if reason.starts_with("held_") => of_gate(reason),
        _ => DecisionId::parse(short(&keys.decision_id)?)?,
    };
    Some(Decided {
        id,
        reason: reason.into(),
        at: short(&keys.timestamp)?.parse().ok()?,
        name: pod.name().into(),
        rtt_ms: short(&keys.wan_rtt_ms).map(Box::from),
        explain: explain.filter(|text| text.len() <= EXPLAIN_BYTES).map(Box::from),
        slo: intent.map(|intent| intent.slo),
        faults: intent.map_or_else(Vec::new, |intent| intent.faults.clone()),
    })
}

/// Stands in for the id of a pod that is gated for this reason. It is equal in every replica of a build.
fn of_gate(reason: &str) -> DecisionId {
    let mut hasher = DefaultHasher::new();
    reason.hash(&mut hasher);
    DecisionId(hasher.finish().into())
}
