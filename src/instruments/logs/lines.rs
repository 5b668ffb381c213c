//! The way of log lines to where they are read, which nobody who logs waits for.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::instruments::metrics::Metrics;

/// How many bytes of lines wait for a slow reader, some thousand lines; what comes on top of them is dropped.
pub(super) const BACKLOG: usize = 1024 * 1024;

/// The longest that the end of the process waits for the last lines to be read.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

/// Takes whole lines, one a `write`, at once and never fails: a thread of its own passes them on. A line that finds
/// the backlog full is dropped and counted, as is one that the sink refuses. Clones share the backlog.
#[derive(Debug, Clone)]
pub(super) struct Lines(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    backlog: Mutex<Backlog>,
    /// There is something to write.
    filled: Condvar,
    /// Everything has been written.
    emptied: Condvar,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct Backlog {
    waiting: Vec<u8>,
    /// The thread is writing what it took before.
    writing: bool,
}

impl Backlog {
    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && !self.writing
    }
}

impl Lines {
    /// Starts the thread that writes to `sink` for as long as the process lives.
    pub(super) fn start(sink: impl Write + Send + 'static, metrics: Arc<Metrics>) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            backlog: Mutex::default(),
            filled: Condvar::new(),
            emptied: Condvar::new(),
            metrics,
        });
        let lines = Self(Arc::clone(&shared));
        std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || shared.write_to(sink))?;
        Ok(lines)
    }

    /// Waits until every line has been written, or for [`FLUSH_LIMIT`].
    pub(super) fn settle(&self) {
        let backlog = self.0.lock();
        let unfinished = |backlog: &mut Backlog| !backlog.is_empty();
        drop(self.0.emptied.wait_timeout_while(backlog, FLUSH_LIMIT, unfinished));
    }
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut backlog = self.0.lock();
        if backlog.waiting.len() + line.len() <= BACKLOG {
            backlog.waiting.extend_from_slice(line);
            drop(backlog);
            self.0.filled.notify_one();
        } else {
            drop(backlog);
            self.0.metrics.log_lines_dropped(1);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    fn write_to(&self, mut sink: impl Write) {
        let mut batch = Vec::new();
        loop {
            {
                let mut backlog = self.lock();
                backlog.writing = false;
                while backlog.waiting.is_empty() {
                    self.emptied.notify_all();
                    backlog = self.filled.wait(backlog).unwrap_or_else(PoisonError::into_inner);
                }
                backlog.writing = true;
                std::mem::swap(&mut batch, &mut backlog.waiting);
            }
            if sink.write_all(&batch).is_err() {
                let lines = batch.iter().filter(|byte| **byte == b'\n').count();
                self.metrics.log_lines_dropped(lines);
            }
            batch.clear();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Backlog> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Passes every write on, and ends each only when the test says how.
    struct Slow {
        written: Sender<Vec<u8>>,
        end: Receiver<io::Result<()>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.written.send(bytes.to_vec());
            self.end.recv().unwrap_or(Ok(()))?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn slow(metrics: &Arc<Metrics>) -> (Lines, Receiver<Vec<u8>>, Sender<io::Result<()>>) {
        let ((written, see), (finish, end)) = (channel(), channel());
        let lines = Lines::start(Slow { written, end }, Arc::clone(metrics)).expect("started");
        (lines, see, finish)
    }

    fn dropped(metrics: &Metrics, lines: usize) -> bool {
        metrics
            .encode()
            .contains(&format!("edgeward_log_lines_dropped_total {lines}\n"))
    }

    #[test]
    fn what_a_slow_reader_cannot_take_is_dropped_and_counted() {
        let metrics = Arc::new(Metrics::new());
        let (mut lines, see, finish) = slow(&metrics);
        lines.write_all(b"first\n").expect("taken");
        assert_eq!(see.recv().expect("written"), b"first\n");
        let half = vec![b'x'; BACKLOG / 2];
        for _ in 0..5 {
            lines.write_all(&half).expect("never refused");
        }
        assert!(dropped(&metrics, 3), "{}", metrics.encode());
        finish.send(Ok(())).expect("waiting");
        assert_eq!(see.recv().expect("written").len(), BACKLOG);
        drop(finish);
        lines.settle();
        lines.write_all(b"again\n").expect("taken");
        assert_eq!(see.recv().expect("written"), b"again\n");
        assert!(dropped(&metrics, 3), "{}", metrics.encode());
    }

    #[test]
    fn what_the_sink_refuses_is_counted_and_the_next_line_is_tried() {
        let metrics = Arc::new(Metrics::new());
        let (mut lines, see, finish) = slow(&metrics);
        lines.write_all(b"one\n").expect("taken");
        see.recv().expect("tried");
        lines.write_all(b"two\n").expect("taken");
        lines.write_all(b"three\n").expect("taken");
        for _ in 0..2 {
            finish.send(Err(io::ErrorKind::BrokenPipe.into())).expect("waiting");
        }
        drop(finish);
        assert_eq!(see.recv().expect("tried"), b"two\nthree\n");
        lines.settle();
        assert!(dropped(&metrics, 3), "{}", metrics.encode());
    }
}
