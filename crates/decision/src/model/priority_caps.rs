//! Caps on the SLO priority of pods, by namespace.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::Decimal;

/// Key of the cap for all namespaces without an entry. It is not a valid namespace name.
const OTHERS: &str = "*";

/// The highest SLO priority that counts in each namespace. A namespace without a cap is not limited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(
    with = "BTreeMap<String, Decimal<0, 0, 10>>",
    extend("propertyNames" = {"title": "a namespace or `*`", "pattern": "^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?|[*])$"})
)]
pub struct PriorityCaps(pub BTreeMap<Box<str>, u8>);

impl PriorityCaps {
    /// Returns `priority`, lowered to the cap of the namespace if there is one.
    pub fn cap(&self, namespace: &str, priority: u8) -> u8 {
        let cap = self.0.get(namespace).or_else(|| self.0.get(OTHERS));
        cap.map_or(priority, |cap| priority.min(*cap))
    }
}
