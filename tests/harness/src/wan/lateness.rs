//! Measures scheduling delay. Programs that wait longer for a processor than the link's milliseconds cannot judge the link.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crate::prelude::*;

/// From this delay on, a probe may look like one over a slower link.
pub const TOO_LATE: Duration = Duration::from_millis(40);

const SLEEP: Duration = Duration::from_millis(5);

pub struct Lateness {
    ended: Arc<AtomicBool>,
    sleeper: JoinHandle<Duration>,
}

impl Lateness {
    pub fn measure() -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let sleeper = thread::spawn({
            let ended = Arc::clone(&ended);
            move || {
                let mut most = Duration::ZERO;
                while !ended.load(Ordering::Relaxed) {
                    let asleep = Instant::now();
                    thread::sleep(SLEEP);
                    most = most.max(asleep.elapsed().saturating_sub(SLEEP));
                }
                most
            }
        });
        Self { ended, sleeper }
    }

    pub fn most(self) -> Duration {
        self.ended.store(true, Ordering::Relaxed);
        self.sleeper.join().unwrap_or_default()
    }
}
