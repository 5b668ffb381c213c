//! The section `scorer`: a trained network that ranks clouds.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::texts::ConfigMapName;
use crate::document::{Checks, Fault};
use edgeward_kube::words;

/// The learned scorer, and whether it decides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
pub struct ScorerSettings {
    /// `active`: the scorer ranks the good clouds, and `sitePolicy` counts where it is undecided. `shadow`: its choices are
    /// compared with those of `sitePolicy`, in the metric `edgeward_scorer_choices_total` and in the log, and change nothing
    pub mode: ScorerMode,
    /// File with the scorer, read again when it changes
    #[schemars(title = "a path", with = "Option<String>", length(min = 1))]
    pub file: Option<PathBuf>,
    /// ConfigMap of edgeward's namespace with the scorer under the key `scorer.json`, in place of `file`
    #[schemars(with = "Option<ConfigMapName>")]
    pub config_map: Option<String>,
}

words! {
    /// The mode of the learned scorer.
    pub enum ScorerMode {
        /// Nothing.
        Off = "off",
        /// Its choices are counted.
        Shadow = "shadow",
        /// It ranks good clouds.
        Active = "active",
    }
}

impl Default for ScorerSettings {
    fn default() -> Self {
        Self {
            mode: ScorerMode::Off,
            file: None,
            config_map: None,
        }
    }
}

impl ScorerSettings {
    /// Whether choices of the scorer are computed.
    pub fn is_on(&self) -> bool {
        self.mode != ScorerMode::Off
    }

    /// Checks that a scorer in use has one source.
    pub(super) fn check(&self, faults: &mut Vec<Fault>) {
        let mut checks = Checks { at: "scorer", faults };
        match (&self.file, &self.config_map) {
            (Some(_), Some(name)) => checks.fault("configMap", format_args!("{name:?} is stated in addition to file")),
            (None, None) if self.is_on() => {
                let mode = self.mode.as_str();
                checks.fault("mode", format_args!("{mode:?} needs a file or a configMap"));
            }
            _ => {}
        }
    }
}
