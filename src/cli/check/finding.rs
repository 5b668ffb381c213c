//! The findings of `check`: a documented format, and text for people.

use std::fmt::Write as _;

use serde::Serialize;

use crate::cli::review::report::harmless;
use crate::cli::sentence;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// No action is needed.
    Ok,
    /// It works, or may work, but needs attention.
    Warning,
    /// edgeward does not do its work, or not for all pods.
    Fault,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// The part of the installation.
    pub(super) area: &'static str,
    /// The result in words.
    pub(super) text: String,
    /// A command that fixes it.
    pub(super) fix: Option<String>,
}

impl Finding {
    pub(super) fn new(level: Level, area: &'static str, text: impl Into<String>) -> Self {
        Self {
            level,
            area,
            text: text.into(),
            fix: None,
        }
    }

    pub(super) fn ok(area: &'static str, text: impl Into<String>) -> Self {
        Self::new(Level::Ok, area, text)
    }

    pub(super) fn warning(area: &'static str, text: impl Into<String>) -> Self {
        Self::new(Level::Warning, area, text)
    }

    pub(super) fn fault(area: &'static str, text: impl Into<String>) -> Self {
        Self::new(Level::Fault, area, text)
    }

    /// Returns a warning that something could not be checked.
    pub(super) fn unknown(area: &'static str, error: &anyhow::Error) -> Self {
        Self::warning(area, format!("not checked: {}", sentence(error)))
    }

    /// Adds the command that fixes it.
    pub(super) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

/// The whole report.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    api_version: &'static str,
    kind: &'static str,
    pub(super) faults: usize,
    pub(super) warnings: usize,
    findings: Vec<Finding>,
}

impl Report {
    pub(super) fn new(findings: Vec<Finding>) -> Self {
        let count = |level| findings.iter().filter(|finding| finding.level == level).count();
        Self {
            api_version: "edgeward.io/v1alpha1",
            kind: "CheckReport",
            faults: count(Level::Fault),
            warnings: count(Level::Warning),
            findings,
        }
    }

    /// Formats the report for people.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            let level = match finding.level {
                Level::Ok => "ok",
                Level::Warning => "warning",
                Level::Fault => "FAULT",
            };
            let _ = writeln!(text, "{level:<8} {:<13} {}", finding.area, harmless(&finding.text));
            if let Some(fix) = &finding.fix {
                let _ = writeln!(text, "{:<22} fix: {}", "", harmless(fix));
            }
        }
        text + &format!("\nfaults: {}, warnings: {}\n", self.faults, self.warnings)
    }
}
