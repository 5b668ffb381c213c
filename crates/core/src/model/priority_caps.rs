//! Caps on the SLO priority of pods, by namespace.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::Decimal;

/// Key of the cap for all namespaces without an entry. It is not a valid namespace name.
pub const OTHERS: &str = "*";

/// The highest SLO priority that counts in each namespace. A namespace without a cap is not limited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(
    with = "BTreeMap<String, Decimal<0, 0, 10>>",
    extend("propertyNames" = {"title": "a namespace or `*`", "pattern": "^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?|[*])$"})
)]
pub struct PriorityCaps(BTreeMap<Box<str>, u8>);

impl PriorityCaps {
    /// Returns `priority`, lowered to the cap of the namespace if there is one.
    pub fn cap(&self, namespace: &str, priority: u8) -> u8 {
        let cap = self.0.get(namespace).or_else(|| self.0.get(OTHERS));
        cap.map_or(priority, |cap| priority.min(*cap))
    }
}

/// Builds the caps from pairs of a namespace, or [`OTHERS`], and its cap.
impl<T: Into<Box<str>>, const N: usize> From<[(T, u8); N]> for PriorityCaps {
    fn from(caps: [(T, u8); N]) -> Self {
        Self(
            caps.into_iter()
                .map(|(namespace, cap)| (namespace.into(), cap))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_that_is_not_listed_has_the_cap_of_the_others() {
        let uncapped = PriorityCaps::from([("shop", 3)]);
        assert_eq!((uncapped.cap("shop", 9), uncapped.cap("shop", 2)), (3, 2));
        assert_eq!(uncapped.cap("guests", 9), 9);
        let capped = PriorityCaps::from([("shop", 8), (OTHERS, 4)]);
        assert_eq!((capped.cap("shop", 9), capped.cap("shop", 6)), (8, 6));
        assert_eq!((capped.cap("guests", 9), capped.cap("guests", 2)), (4, 2));
    }
}
