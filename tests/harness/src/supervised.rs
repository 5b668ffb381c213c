//! A program that is started again when it ends, as its kubelet would.

use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Result;

use crate::process::Process;

/// How often it is looked at.
const PERIOD: Duration = Duration::from_secs(1);

/// Dropped, the program is ended and not started again.
pub(crate) struct Supervised {
    /// Dropped before the thread is waited for, which ends it.
    running: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Supervised {
    /// Starts `program`; its logs are `<dir>/<name>.log`, `<dir>/<name>-1.log` and so on.
    pub(crate) fn start(name: &'static str, program: &Path, args: &[String], dir: &Path) -> Result<Self> {
        let mut process = Process::start(name, program, args, dir)?;
        let (program, args, dir) = (program.to_owned(), args.to_owned(), dir.to_owned());
        let (running, dropped) = mpsc::channel();
        let thread = thread::spawn(move || {
            let mut restarts = 0;
            while dropped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                let Err(ended) = process.ensure_running() else {
                    continue;
                };
                restarts += 1;
                eprintln!("{ended:#}; it is started again\n{}", process.tail());
                match Process::start(&format!("{name}-{restarts}"), &program, &args, &dir) {
                    Ok(started) => process = started,
                    Err(error) => eprintln!("{error:#}"),
                }
            }
        });
        Ok(Self {
            running: Some(running),
            thread: Some(thread),
        })
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
    use std::fs::{self, DirEntry};

    use anyhow::ensure;

    use super::*;
    use crate::wait::{BOUND, eventually};

    /// Each run leaves a file of its own, by its process id, and ends.
    #[test]
    fn started_again_when_it_ends() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let script = format!("touch {}/run-$$; exit 1", dir.path().display());
        let args = ["-c".to_owned(), script];
        let _supervised = Supervised::start("sh", Path::new("/bin/sh"), &args, dir.path())?;
        eventually("it has run three times", BOUND, || {
            let files = fs::read_dir(dir.path())?.collect::<Result<Vec<_>, _>>()?;
            let is_of_run = |file: &&DirEntry| file.file_name().to_string_lossy().starts_with("run-");
            let runs = files.iter().filter(is_of_run).count();
            ensure!(runs >= 3, "{runs}");
            Ok(())
        })
    }
}
