//! How a report is printed.

use clap::ValueEnum;
use serde::Serialize;

/// The forms of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// For people.
    Text,
    /// One object.
    Json,
    /// One object.
    Yaml,
}

impl Output {
    pub(super) fn print<T: Serialize>(self, report: &T, text: impl FnOnce(&T) -> String) -> anyhow::Result<()> {
        super::print(&match self {
            Self::Text => text(report),
            Self::Json => serde_json::to_string_pretty(report)? + "\n",
            Self::Yaml => serde_saphyr::to_string(report)?,
        })
    }
}
