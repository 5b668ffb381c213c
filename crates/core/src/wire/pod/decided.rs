//! What a pod that exists says of its decision, for Events.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::keys::Keys;
use crate::model::decision_id::DecisionId;
use crate::model::pod_record::Decided;
use crate::model::site::SiteKind;
use crate::model::slo::Intent;
use crate::resources::Amounts;
use crate::wire::pod::Pod;

/// The most bytes of an explanation that are kept, twice what goes into an Event in words; it may have any length, and anybody may
/// write it.
const EXPLAIN_BYTES: usize = 2048;

/// A decision that was seen on a pod for the first time.
#[derive(Debug, Clone)]
pub struct ObservedDecision {
    /// Namespace of the pod.
    pub namespace: Box<str>,
    /// Uid of the pod.
    pub uid: Box<str>,
    /// The site of the pod by its spec.
    pub site: Option<(String, SiteKind)>,
    /// Whether a scheduling gate holds it.
    pub gated: bool,
    /// What the pod takes.
    pub request: Amounts,
    /// Whether the pod was seen with a gate before.
    pub was_gated: bool,
    /// What it says of its decision.
    pub decided: Decided,
}

impl Pod<'_> {
    /// `None` without a whole decision: reason, time and, except for a gated pod, id.
    pub(super) fn decided(&self, intent: Option<&Intent>, keys: &Keys) -> Option<Decided> {
        let short = |key| self.annotation(key).filter(|text| text.len() <= 64);
        let explain = self.annotation(&keys.explain);
        let reason = short(&keys.reason)?;
        let id = match self.annotation(&keys.decision_id) {
            None if reason.starts_with("held_") => of_gate(reason),
            _ => DecisionId::parse(short(&keys.decision_id)?)?,
        };
        Some(Decided {
            id,
            reason: reason.into(),
            at: short(&keys.timestamp)?.parse().ok()?,
            name: self.name().into(),
            rtt_ms: short(&keys.wan_rtt_ms).map(Box::from),
            explain: explain.filter(|text| text.len() <= EXPLAIN_BYTES).map(Box::from),
            slo: intent.map(|intent| intent.slo),
            faults: intent.map_or_else(Vec::new, |intent| intent.faults.clone()),
        })
    }
}

/// In place of an id, of a pod that is gated for this reason; the same in every replica of a build.
fn of_gate(reason: &str) -> DecisionId {
    let mut hasher = DefaultHasher::new();
    reason.hash(&mut hasher);
    DecisionId(hasher.finish().into())
}
