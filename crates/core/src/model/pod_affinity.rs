//! Required affinity to other pods ("Affinity and anti-affinity" in docs/guide/decide.md).

use crate::model::selector::Selector;

/// A term of a pod's required affinity to other pods.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AffinityTerm {
    /// The namespaces of these pods.
    pub namespaces: Vec<Box<str>>,
    /// Their labels.
    pub selector: Selector,
    /// The label whose value names a topology domain.
    pub topology_key: Box<str>,
}

impl AffinityTerm {
    /// Whether it selects pods of this namespace that have these labels, as `key=value,key=value`. Cost: a pass over the text for
    /// each expression.
    pub fn selects(&self, namespace: &str, labels: &str) -> bool {
        let label = |key: &str| {
            labels
                .split(',')
                .find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))
        };
        self.namespaces.iter().any(|stated| **stated == *namespace) && self.selector.matches(label)
    }

    /// How many namespaces, expressions and values it has.
    pub fn parts(&self) -> usize {
        let expressions = self.selector.0.iter();
        self.namespaces.len() + expressions.map(|(_, _, values)| 1 + values.len()).sum::<usize>()
    }
}
