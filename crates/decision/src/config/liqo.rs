//! Whether Liqo is in use, and what its sites are like.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use edgeward_kube::texts::{LabelKey, RuntimeClass};

/// How Liqo's objects are used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct LiqoSettings {
    /// Whether remote clusters become sites, and namespaces go where Liqo offloads them. `auto`: if its definitions are
    /// installed and may be read. `true`: always; if they are not, no pod goes to a virtual node
    pub enabled: Enabled,
    /// A RuntimeClass that pods which name none get at discovered sites; Liqo's own is `liqo`
    #[serde(rename = "runtimeClassName")]
    #[schemars(with = "Option<RuntimeClass>")]
    pub runtime_class: Option<String>,
    /// Keys of node labels that become labels of discovered sites. The provider of a cluster writes them
    #[serde(rename = "siteLabels")]
    #[schemars(with = "Option<Vec<LabelKey>>", length(max = 16))]
    pub site_labels: Vec<Box<str>>,
}

/// Whether something that need not be there is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "Value", into = "Value")]
#[schemars(with = "Value", title = "true, false or auto", extend("anyOf" = [{"type": "boolean"}, {"enum": ["auto"]}]))]
pub enum Enabled {
    /// Where it is there and may be read.
    #[default]
    Auto,
    /// Always: what is not known of it is not good.
    Always,
    /// Never.
    Never,
}

impl From<Value> for Enabled {
    fn from(stated: Value) -> Self {
        match stated {
            Value::Bool(true) => Self::Always,
            Value::Bool(false) => Self::Never,
            _ => Self::Auto,
        }
    }
}

impl From<Enabled> for Value {
    fn from(enabled: Enabled) -> Self {
        match enabled {
            Enabled::Auto => "auto".into(),
            Enabled::Always => true.into(),
            Enabled::Never => false.into(),
        }
    }
}
