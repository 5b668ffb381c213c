//! What a pod that exists says of its decision, for those who tell people.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use jiff::Timestamp;

use super::Pod;
use crate::fleet::SiteKind;
use crate::keys::Keys;
use crate::ledger::DecisionId;
use crate::resources::Amounts;
use crate::workload::slo::{Intent, Slo, SloFault};

/// The most bytes of an explanation that are kept; it may have any length, and anybody may write it.
const EXPLAIN_BYTES: usize = 4096;

/// The annotations of a decision, and the SLO it was made for. Anybody may write annotations, so where the pod runs is not
/// among them: that is in its spec.
#[derive(Debug, Clone)]
pub struct Decided {
    /// `metadata.name`.
    pub name: Box<str>,
    /// Id of the decision. A hold has none: a number that differs when the reason does stands for it.
    pub id: DecisionId,
    /// Reason code, as found.
    pub reason: Box<str>,
    /// When it was decided.
    pub at: Timestamp,
    /// RTT behind it in milliseconds, as found.
    pub rtt_ms: Option<Box<str>>,
    /// The numbers behind it, as found; `None` also where they are too long to be ours.
    pub explain: Option<Box<str>>,
    /// What the pod asks for, where it states an SLO.
    pub slo: Option<Slo>,
    /// What is wrong with its SLO.
    pub faults: Vec<SloFault>,
}

impl Decided {
    /// A number that differs when the pod says something else: another decision, or another reason for it.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.id.0, &self.reason).hash(&mut hasher);
        hasher.finish()
    }
}

/// A decision that was seen on a pod for the first time.
#[derive(Debug, Clone)]
pub struct Sighting {
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
    /// What it says of its decision.
    pub decided: Decided,
}

impl Pod<'_> {
    /// `None` without a whole decision: reason, time and, but for a hold, id.
    pub(super) fn decided(&self, intent: Option<&Intent>, keys: &Keys) -> Option<Decided> {
        let short = |key| self.annotation(key).filter(|text| text.len() <= 64);
        let explain = self.annotation(&keys.explain);
        let reason = short(&keys.reason)?;
        let id = match self.annotation(&keys.decision_id) {
            None if reason.starts_with("held_") => of_hold(reason),
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

/// What stands for the id of a hold for this reason; the same in every replica of a build.
fn of_hold(reason: &str) -> DecisionId {
    let mut hasher = DefaultHasher::new();
    reason.hash(&mut hasher);
    DecisionId(hasher.finish().into())
}
