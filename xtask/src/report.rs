//! How long each stage of a command took and how it ended, said when it ends and once more, together, at the end.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::test_output::{LONG, TestOutput};

/// A stage that is over.
#[derive(Debug)]
pub(crate) struct Stage {
    name: String,
    took: Duration,
    is_ok: bool,
    /// How it ended, in a few words.
    pub(crate) ended: String,
    /// What its tests said, if it had any.
    pub(crate) output: TestOutput,
}

impl Stage {
    /// Does the stage and takes its time.
    pub(crate) fn done<T>(name: &str, stage: impl FnOnce() -> Result<T>) -> (Self, Result<T>) {
        let started = Instant::now();
        let result = stage();
        let took = started.elapsed();
        let is_ok = result.is_ok();
        let stage = Self {
            name: name.to_owned(),
            took,
            is_ok,
            ended: if is_ok { "ok" } else { "FAILED" }.to_owned(),
            output: TestOutput::default(),
        };
        (stage, result)
    }

    /// Says how long it took and how it ended.
    pub(crate) fn say(&self) {
        eprintln!("{}: {:.1} s, {}", self.name, self.took.as_secs_f64(), self.ended);
    }
}

/// Does the stage and says how long it took.
pub(crate) fn timed<T>(name: &str, stage: impl FnOnce() -> Result<T>) -> (Stage, Result<T>) {
    let (stage, result) = Stage::done(name, stage);
    stage.say();
    (stage, result)
}

/// The stages of a command so far.
pub(crate) struct Report {
    started: Instant,
    stages: Vec<Stage>,
}

impl Report {
    pub(crate) fn new() -> Self {
        let started = Instant::now();
        let stages = Vec::new();
        Self { started, stages }
    }

    /// The next stage, one of those that follow each other.
    pub(crate) fn stage<T>(&mut self, name: &str, stage: impl FnOnce() -> Result<T>) -> Result<T> {
        let (stage, result) = timed(name, stage);
        self.stages.push(stage);
        result
    }

    /// Takes up what went on beside.
    pub(crate) fn add(&mut self, stages: impl IntoIterator<Item = Stage>) {
        self.stages.extend(stages);
    }

    /// An error that names the stages that failed, if any did.
    pub(crate) fn verdict(&self) -> Result<()> {
        let failed = self.stages.iter().filter(|stage| !stage.is_ok);
        let failed: Vec<_> = failed.map(|stage| stage.name.as_str()).collect();
        ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
        Ok(())
    }

    /// Every stage's items of what its tests said, each with the name of its stage.
    fn all<'a, T>(&'a self, of: impl Fn(&'a TestOutput) -> &'a [T]) -> Vec<(&'a str, &'a T)> {
        let stages = self.stages.iter();
        stages
            .flat_map(|stage| of(&stage.output).iter().map(|item| (stage.name.as_str(), item)))
            .collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self
            .stages
            .iter()
            .map(|stage| stage.name.len())
            .max()
            .unwrap_or(0)
            .max(5);
        writeln!(f, "\n{:<width$}  seconds", "stage")?;
        for Stage { name, took, ended, .. } in &self.stages {
            writeln!(f, "{name:<width$}  {:7.1}  {ended}", took.as_secs_f64())?;
        }
        writeln!(f, "{:<width$}  {:7.1}", "all", self.started.elapsed().as_secs_f64())?;

        let mut long = self.all(|output| &output.long);
        long.sort_by(|(_, (a, _)), (_, (b, _))| b.total_cmp(a));
        if !long.is_empty() {
            writeln!(f, "\ntests of {LONG} s and longer:")?;
        }
        for (target, (seconds, test)) in long {
            writeln!(f, "{seconds:7.1} s  {target}: {test}")?;
        }
        for (heading, tests) in [
            (
                "too busy to tell, neither passed nor failed",
                self.all(|output| &output.too_busy),
            ),
            ("failed", self.all(|output| &output.failed)),
        ] {
            if !tests.is_empty() {
                writeln!(f, "\n{heading}:")?;
            }
            for (target, test) in tests {
                writeln!(f, "  {target}: {test}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn stages_come_in_their_order_and_long_tests_by_their_time() {
        let mut report = Report::new();
        report.stage("fmt", || Ok(())).unwrap();
        report
            .stage::<()>("clippy of the core", || bail!("a warning"))
            .unwrap_err();
        let (mut stage, _) = timed("e2e", || Ok(()));
        for line in ["time: a 12.34 s", "time: b 100 s", "too busy to tell: c: 17 % idle"] {
            stage.output.read(line);
        }
        report.add([stage]);
        let (mut stage, _) = timed("it", || Ok(()));
        for line in ["test d ... ok <50.000s>", "failures:", "    e"] {
            stage.output.read(line);
        }
        report.add([stage]);
        for stage in &mut report.stages {
            stage.took = Duration::from_millis(1250);
        }

        let verdict = report.verdict().unwrap_err().to_string();
        assert_eq!(verdict, "failed: clippy of the core");
        let text = report.to_string();
        let (table, rest) = text.split_once("all ").unwrap();
        assert_eq!(
            table,
            "\nstage               seconds\n\
             fmt                     1.2  ok\n\
             clippy of the core      1.2  FAILED\n\
             e2e                     1.2  ok\n\
             it                      1.2  ok\n"
        );
        assert_eq!(
            rest.split_once('\n').unwrap().1,
            "\ntests of 10 s and longer:\n\
             \x20 100.0 s  e2e: b\n\
             \x20  50.0 s  it: d\n\
             \x20  12.3 s  e2e: a\n\
             \ntoo busy to tell, neither passed nor failed:\n\
             \x20 e2e: c: 17 % idle\n\
             \nfailed:\n\
             \x20 it: e\n"
        );
    }
}
