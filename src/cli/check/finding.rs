//! What a check finds, as an interface and for people.

use std::fmt::Write as _;

use serde::Serialize;

use crate::cli::review::report::harmless;
use crate::cli::sentence;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// As it should be.
    Ok,
    /// It works, or may; somebody should look at it.
    Warning,
    /// edgeward does not do what it is there for, or not for everybody.
    Fault,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// What it is about.
    pub(super) area: &'static str,
    /// What was found.
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

    /// A warning that it could not be looked at.
    pub(super) fn unknown(area: &'static str, error: &anyhow::Error) -> Self {
        Self::warning(area, format!("not checked: {}", sentence(error)))
    }

    /// With the command that fixes it.
    pub(super) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }
}

/// Everything that is printed.
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

    /// For people.
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
        let many = |count: usize, what: &str| match count {
            0 => format!("no {what}"),
            1 => format!("1 {what}"),
            count => format!("{count} {what}s"),
        };
        let (faults, warnings) = (many(self.faults, "fault"), many(self.warnings, "warning"));
        text + &format!("\n{faults}, {warnings}\n")
    }
}
