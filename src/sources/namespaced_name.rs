//! Which object of a kind.

use std::fmt;

/// A namespace and the name of an object in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespacedName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl NamespacedName {
    /// Reads `[NAMESPACE/]NAME`.
    pub fn parse(text: &str, default_namespace: &str) -> Self {
        let (namespace, name) = text.split_once('/').unwrap_or((default_namespace, text));
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_named_with_or_without_its_namespace() {
        for (text, expected) in [("edgeward", "ours/edgeward"), ("theirs/edgeward", "theirs/edgeward")] {
            assert_eq!(NamespacedName::parse(text, "ours").to_string(), expected);
        }
    }
}
