//! What the engine and its shared state are asked, for whoever keeps it: the same steps in the same order give the same
//! verdicts.

use std::fmt::Debug;

use serde_json::{Value, json};

use super::change::Change;
use crate::config::Explain;
use crate::model::decision_id::DecisionId;
use crate::placement::explain;
use crate::placement::verdict::Verdict;
use crate::units::{Micros, Now};

/// Takes each step, in the order in which it counts.
pub trait Journal: Debug + Send + Sync {
    /// Takes a step. Called under the ledger's lock where the step touches reservations: it must not block for long.
    fn record(&self, step: Step<'_>);
}

/// One call of the engine or of its shared state.
#[derive(Debug, Clone, Copy)]
pub enum Step<'s> {
    /// A change is applied.
    Apply(&'s Change, Now),
    /// A snapshot is prepared.
    Prepare(Now),
    /// It is published.
    Commit,
    /// A pod is created.
    Review {
        /// The id of the decision.
        id: DecisionId,
        /// The time.
        now: Now,
        /// Whether its room may be reserved.
        is_wanted: bool,
        /// What was decided.
        verdict: &'s Verdict<'s>,
    },
    /// A held pod is decided about.
    Release {
        /// The id of the decision.
        id: DecisionId,
        /// The time.
        now: Now,
        /// Its uid.
        uid: &'s str,
        /// For how long it was held.
        waited: Micros,
        /// What was decided.
        verdict: &'s Verdict<'s>,
    },
    /// A reservation is forgotten.
    Forget(DecisionId, &'s str),
}

/// All that a verdict says, but for its warnings and node: what a recorded step and its repetition are compared by.
pub fn account(verdict: &Verdict<'_>) -> Value {
    json!({
        "verdict": verdict.action.as_str(),
        "reason": verdict.reason.as_str(),
        "site": verdict.site().map(|site| site.name()),
        "explain": explain::explain(verdict, Explain::Full),
    })
}
