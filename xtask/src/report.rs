//! Duration and result of each stage of a command. Each is printed when the stage ends, and again in a table at the end.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

#[derive(Debug)]
pub(crate) struct Stage {
    name: String,
    took: Duration,
    is_ok: bool,
    pub(crate) ended: String,
    /// Lines repeated below the table: tests that failed or were inconclusive.
    pub(crate) notes: Vec<String>,
}

impl Stage {
    pub(crate) fn done<T>(name: &str, stage: impl FnOnce() -> Result<T>) -> (Self, Result<T>) {
        let started = Instant::now();
        let result = stage();
        let stage = Self {
            name: name.to_owned(),
            took: started.elapsed(),
            is_ok: result.is_ok(),
            ended: match &result {
                Ok(_) => "ok".to_owned(),
                Err(error) => format!("FAILED: {error:#}"),
            },
            notes: vec![],
        };
        (stage, result)
    }

    pub(crate) fn say(&self) {
        eprintln!("{}: {:.1} s, {}", self.name, self.took.as_secs_f64(), self.ended);
    }
}

pub(crate) fn timed<T>(name: &str, stage: impl FnOnce() -> Result<T>) -> (Stage, Result<T>) {
    let (stage, result) = Stage::done(name, stage);
    stage.say();
    (stage, result)
}

pub(crate) struct Report {
    started: Instant,
    stages: Vec<Stage>,
}

impl Report {
    /// Runs a command in stages and prints the table.
    pub(crate) fn of(command: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let mut report = Self {
            started: Instant::now(),
            stages: vec![],
        };
        let result = command(&mut report);
        println!("{report}");
        result
    }

    pub(crate) fn stage<T>(&mut self, name: &str, stage: impl FnOnce() -> Result<T>) -> Result<T> {
        let (stage, result) = timed(name, stage);
        self.stages.push(stage);
        result
    }

    pub(crate) fn add(&mut self, stages: impl IntoIterator<Item = Stage>) {
        self.stages.extend(stages);
    }

    /// An error that names the failed stages, if there are any.
    pub(crate) fn verdict(&self) -> Result<()> {
        let failed = self.stages.iter().filter(|stage| !stage.is_ok);
        let failed: Vec<_> = failed.map(|stage| stage.name.as_str()).collect();
        ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.stages.iter().map(|stage| stage.name.len()).max().unwrap_or(0);
        writeln!(f, "\n{:<width$}  seconds", "stage")?;
        for Stage { name, took, ended, .. } in &self.stages {
            writeln!(f, "{name:<width$}  {:7.1}  {ended}", took.as_secs_f64())?;
        }
        writeln!(f, "{:<width$}  {:7.1}", "all", self.started.elapsed().as_secs_f64())?;
        for Stage { name, notes, .. } in &self.stages {
            notes.iter().try_for_each(|note| writeln!(f, "{name}: {note}"))?;
        }
        Ok(())
    }
}
