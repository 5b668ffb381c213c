//! Components of applications that run at a site, and the clients that they take ("OAM applications" in docs/guide/groups.md).

use crate::model::traits::Traits;

/// A component that runs at a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    /// Name of the component.
    pub name: Box<str>,
    /// The traits with which it runs. `None` if only its name is known, from the report of a cluster.
    pub traits: Option<Traits>,
    /// The number of its clients.
    pub clients: u32,
    /// Maximum number of its clients. `None` if there is none.
    pub clients_max: Option<u32>,
}

impl Component {
    /// A component that is known by name alone.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.into(),
            traits: None,
            clients: 0,
            clients_max: None,
        }
    }

    /// Whether it can take a client that needs a component of this name and these traits.
    pub fn serves(&self, name: &str, traits: &Traits) -> bool {
        *self.name == *name
            && self.traits.as_ref() == Some(traits)
            && self.clients_max.is_none_or(|most| self.clients < most)
    }
}
