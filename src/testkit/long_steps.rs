//! Work of the engine that takes long.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use edgeward_core::engine::{Journal, Step};
use tokio::sync::mpsc;

/// How long a step waits for a turn of others; who waits for ever would keep a test from failing.
const PATIENCE: Duration = Duration::from_secs(20);

/// Makes each step of a kind take until a task that was spawned on the runtime had a turn, and a timer on it.
#[derive(Debug)]
pub(crate) struct LongSteps {
    is_long: fn(&Step<'_>) -> bool,
    begun: mpsc::UnboundedSender<()>,
    turn: Mutex<Receiver<()>>,
    ended: mpsc::UnboundedSender<Result<(), RecvTimeoutError>>,
}

impl LongSteps {
    /// Those of this kind; with whether others had a turn in each.
    pub(crate) fn new(
        is_long: fn(&Step<'_>) -> bool,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Result<(), RecvTimeoutError>>) {
        let (begun, mut steps) = mpsc::unbounded_channel();
        let (give, turn) = channel();
        let (ended, ends) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while steps.recv().await.is_some() {
                tokio::time::sleep(Duration::from_millis(1)).await;
                // The step has ended already where it lost its patience.
                let _ = give.send(());
            }
        });
        let turn = Mutex::new(turn);
        let long_steps = Self {
            is_long,
            begun,
            turn,
            ended,
        };
        (Arc::new(long_steps), ends)
    }
}

impl Journal for LongSteps {
    fn record(&self, step: Step<'_>) {
        if (self.is_long)(&step) {
            let _ = self.begun.send(());
            let turn = self.turn.lock().unwrap().recv_timeout(PATIENCE);
            let _ = self.ended.send(turn);
        }
    }
}
