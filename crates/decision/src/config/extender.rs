//! The section `extender`: kube-scheduler may ask where pods run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether edgeward is an extender of kube-scheduler.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Extender {
    /// Whether `/extender/filter` and `/extender/prioritize` are served on the port of the webhook
    pub enabled: bool,
}
