//! Required affinity to other pods ("Affinity and anti-affinity" in docs/guide/decide.md).

use crate::selector::Selector;

/// A term of a pod's required affinity to other pods.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AffinityTerm {
    /// Namespaces of the selected pods.
    pub namespaces: Vec<Box<str>>,
    /// Selector on the labels of these pods.
    pub selector: Selector,
    /// Key of the node label whose value names a topology domain.
    pub topology_key: Box<str>,
}

impl AffinityTerm {
    /// Whether the term selects pods of this namespace with these labels, given as `key=value,key=value`. Cost: a pass
    /// over the text for each expression.
    pub fn selects(&self, namespace: &str, labels: &str) -> bool {
        let label = |key: &str| {
            labels
                .split(',')
                .find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))
        };
        self.namespaces.iter().any(|stated| **stated == *namespace) && self.selector.matches(label)
    }

    /// Total number of namespaces, expressions and values.
    pub fn parts(&self) -> usize {
        let expressions = self.selector.0.iter();
        self.namespaces.len() + expressions.map(|(_, _, values)| 1 + values.len()).sum::<usize>()
    }
}
