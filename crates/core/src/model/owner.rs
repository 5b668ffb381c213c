//! Who creates pods.

/// The longest uid that is kept, with a revision; those of the API server have 36 bytes.
const MAX_UID_BYTES: usize = 81;

/// Who creates pods: a controller, within the namespace that names it; else the namespace.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    namespace: Box<str>,
    controller: Option<Box<str>>,
}

impl Owner {
    /// The owner of a pod with this controller's uid. A pod can name any text as one: what is too long for a uid counts
    /// as none.
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

    /// The uid of the controller; `None` for the namespace as a whole.
    pub fn controller(&self) -> Option<&str> {
        self.controller.as_deref()
    }
}
