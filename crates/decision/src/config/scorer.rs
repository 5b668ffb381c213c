//! The section `scorer`: a trained network that ranks clouds.

use std::path::{Path, PathBuf};

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
    /// `active`: the scorer chooses among good clouds, and `sitePolicy` decides if no cloud leads by the scorer's margin. `shadow`:
    /// its choices are compared with those of `sitePolicy`, in the metric `edgeward_scorer_choices_total` and in the log, and change
    /// nothing
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
        /// The scorer is not read.
        Off = "off",
        /// The scorer's choices are counted and logged.
        Shadow = "shadow",
        /// The scorer chooses among good clouds.
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

/// Where a scorer is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source<'s> {
    /// A file.
    File(&'s Path),
    /// The key `scorer.json` of the ConfigMap with this name, in edgeward's namespace.
    ConfigMap(&'s str),
}

impl ScorerSettings {
    /// Where the scorer is read. `None` while the mode is `off`.
    pub fn source(&self) -> Option<Source<'_>> {
        let file = self.file.as_deref().map(Source::File);
        let source = file.or(self.config_map.as_deref().map(Source::ConfigMap));
        source.filter(|_| self.is_on())
    }

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
