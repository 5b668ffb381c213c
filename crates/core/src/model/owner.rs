//! The owner of pods: a controller or a namespace.

/// Maximum length in bytes of a uid with its revision. A uid from the API server has 36 bytes.
const MAX_UID_BYTES: usize = 81;

/// The creator of pods: a controller within its namespace, or a namespace as a whole.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    namespace: Box<str>,
    controller: Option<Box<str>>,
}

impl Owner {
    /// Builds the owner of a pod with this controller uid. A pod can state any text as the uid; a text that is too long
    /// counts as no controller.
    pub fn new(namespace: &str, controller: Option<&str>) -> Self {
        Self {
            namespace: namespace.into(),
            controller: controller.filter(|uid| uid.len() <= MAX_UID_BYTES).map(Into::into),
        }
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Uid of the controller. `None` for the namespace as a whole.
    pub fn controller(&self) -> Option<&str> {
        self.controller.as_deref()
    }
}
