//! Whether Liqo is in use, and what its sites are like.

use crate::config::declaration::{Kind, Read};
use crate::config::site_definition::not_a_class;
use crate::document::Field;
use crate::model::constraints::is_subdomain;

/// What is made of Liqo's objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LiqoSettings {
    /// Whether they count.
    pub enabled: Enabled,
    /// The RuntimeClass that a placement at a discovered site gives a pod that names none.
    pub runtime_class: Option<RuntimeClassName>,
}

/// Whether something that need not be there is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Enabled {
    /// Where it is there and may be read.
    #[default]
    Auto,
    /// Always: what is not known of it is not good.
    Always,
    /// Never.
    Never,
}

/// The name of a RuntimeClass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuntimeClassName(pub String);

impl Read for Enabled {
    fn read(&mut self, field: &Field<'_>, _: &Kind) {
        let read = field.typed("auto, true or false", |value| match value.as_bool() {
            Some(true) => Some(Self::Always),
            Some(false) => Some(Self::Never),
            None => (value == "auto").then_some(Self::Auto),
        });
        *self = read.unwrap_or(*self);
    }
}

impl Read for RuntimeClassName {
    fn read(&mut self, field: &Field<'_>, _: &Kind) {
        if let Some(name) = field.string() {
            if !is_subdomain(name) {
                field.fault(not_a_class("RuntimeClass", name));
            }
            name.clone_into(&mut self.0);
        }
    }
}
