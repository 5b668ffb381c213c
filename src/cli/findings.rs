//! Findings of commands that convert files.

use std::process::ExitCode;

/// Parts of a file that a conversion could not carry over as they are written.
#[derive(Debug)]
pub(super) struct Findings {
    /// Whether to correct and guess.
    fix: bool,
    lines: Vec<String>,
    /// Whether a finding was not corrected.
    remain: bool,
}

impl Findings {
    pub(super) fn new(fix: bool) -> Self {
        Self {
            fix,
            lines: vec![],
            remain: false,
        }
    }

    /// Adds a finding that only the user can settle.
    pub(super) fn lost(&mut self, finding: &str) {
        self.lines.push(finding.to_owned());
        self.remain = true;
    }

    /// Adds a finding that `--fix` settles. Returns whether to settle it.
    pub(super) fn fixable(&mut self, finding: &str) -> bool {
        if self.fix {
            self.lines.push(format!("{finding} (fixed)"));
        } else {
            self.lost(finding);
        }
        self.fix
    }

    /// Writes the findings to standard error. Returns exit code 3 if one remains.
    pub(super) fn report(&self) -> ExitCode {
        for line in &self.lines {
            super::note(line);
        }
        if self.remain { 3.into() } else { ExitCode::SUCCESS }
    }

    #[cfg(test)]
    pub(super) fn text(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }
}
