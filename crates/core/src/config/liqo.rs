//! Whether Liqo is in use, and what its sites are like.

use serde::Deserialize;
use serde_json::Value;

/// What is made of Liqo's objects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct LiqoSettings {
    /// Whether they count.
    pub enabled: Enabled,
    /// The RuntimeClass that a placement at a discovered site gives a pod that names none.
    #[serde(rename = "runtimeClassName")]
    pub runtime_class: Option<RuntimeClassName>,
}

/// Whether something that need not be there is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Value")]
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct RuntimeClassName(pub String);

impl From<Value> for Enabled {
    fn from(stated: Value) -> Self {
        match stated {
            Value::Bool(true) => Self::Always,
            Value::Bool(false) => Self::Never,
            _ => Self::Auto,
        }
    }
}
