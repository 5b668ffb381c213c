//! Names of namespaced objects.

use std::fmt;

/// Namespace and name of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespacedName {
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
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
    fn object_name_is_parsed_with_or_without_namespace() {
        for (text, expected) in [("edgeward", "ours/edgeward"), ("theirs/edgeward", "theirs/edgeward")] {
            assert_eq!(NamespacedName::parse(text, "ours").to_string(), expected);
        }
    }
}
