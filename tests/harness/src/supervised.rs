//! A program that is restarted when it ends for a known reason, as kubelet would do.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};

use crate::prelude::*;
use crate::process::tail;

const PERIOD: Duration = Duration::from_secs(1);

/// Dropping it ends the program for good.
pub(crate) struct Supervised {
    running: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    log: PathBuf,
}

impl Supervised {
    /// Starts `program`. Its logs are `<dir>/<name>.log`, `<dir>/<name>-1.log` and so on. When it ends, it is restarted if its
    /// log has a text of `known`; for any other reason it stays ended.
    pub(crate) fn start(
        name: &'static str,
        program: &Path,
        args: &[String],
        dir: &Path,
        known: &'static [&'static str],
    ) -> Result<Self> {
        let mut process = Process::start(name, program, args, dir)?;
        let first_log = dir.join(format!("{name}.log"));
        let (program, args, dir) = (program.to_owned(), args.to_owned(), dir.to_owned());
        let (running, dropped) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut restarts = 0;
            while dropped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                let Err(ended) = process.ensure_running() else {
                    continue;
                };
                eprintln!("{ended:#}\n{}", process.tail());
                if !known.iter().any(|text| process.has_logged(text)) {
                    return;
                }
                restarts += 1;
                match Process::start(&format!("{name}-{restarts}"), &program, &args, &dir) {
                    Ok(started) => process = started,
                    Err(error) => return eprintln!("{error:#}"),
                }
            }
        });
        Ok(Self {
            running: Some(running),
            thread: Some(thread),
            log: first_log,
        })
    }

    /// Fails if the program has ended and is not restarted.
    pub(crate) fn ensure_running(&self) -> Result<()> {
        let is_over = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
        ensure!(!is_over, "it has ended\n{}", self.tail());
        Ok(())
    }

    pub(crate) fn tail(&self) -> String {
        tail(&self.log)
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        drop(self.running.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            eprintln!("the thread of a supervised program has panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use anyhow::Context;
    use tempfile::TempDir;

    use super::*;
    use crate::wait::{BOUND, eventually};

    const KNOWN: &str = "a known reason";

    /// Supervises a shell that appends its process id to `runs` and then executes `rest`.
    fn supervised(dir: &TempDir, rest: &str) -> Result<Supervised> {
        let script = format!("echo $$ >> {}/runs; {rest}", dir.path().display());
        let args = ["-c".to_owned(), script];
        Supervised::start(
            "sh",
            Path::new("/bin/sh"),
            &args,
            dir.path(),
            &["another reason", KNOWN],
        )
    }

    fn runs(dir: &TempDir) -> Result<Vec<String>> {
        let runs = fs::read_to_string(dir.path().join("runs"))?;
        Ok(runs.lines().map(str::to_owned).collect())
    }

    #[test]
    fn started_again_for_the_known_reason_until_it_is_dropped() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let rest = format!(
            "[ $(wc -l < {}/runs) = 3 ] && exec sleep 600; echo {KNOWN}; exit 1",
            dir.path().display()
        );
        let supervised = supervised(&dir, &rest)?;
        eventually("it runs the third time", BOUND, || {
            ensure!(runs(&dir)?.len() == 3);
            Ok(())
        })?;
        supervised.ensure_running()?;
        let last = runs(&dir)?.pop().context("a run")?;
        assert!(Path::new("/proc").join(&last).exists());
        drop(supervised);
        assert!(!Path::new("/proc").join(&last).exists(), "{last}");
        Ok(())
    }

    #[test]
    fn not_started_again_for_another_reason() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let supervised = supervised(&dir, "echo another; exit 1")?;
        eventually("it is over", BOUND, || match supervised.ensure_running() {
            Ok(()) => anyhow::bail!("it runs"),
            Err(over) => Ok(over),
        })
        .map(|over| assert!(over.to_string().contains("another"), "{over}"))?;
        assert_eq!(runs(&dir)?.len(), 1);
        Ok(())
    }
}
