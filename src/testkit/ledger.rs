//! A plan or a decision that takes long.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use edgeward_cluster::engine::SharedState;
use tokio::sync::oneshot;

/// How long the other work may take to begin.
const BEGINNING: Duration = Duration::from_millis(300);

/// How long a turn is waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// Holds the lock of the ledger, which every plan and decision needs, until a task on this runtime had a turn, [`BEGINNING`]
/// after now. Returns whether it had one within [`PATIENCE`].
pub(crate) fn gate_ledger(shared: &Arc<SharedState>) -> oneshot::Receiver<bool> {
    let (give, turn) = mpsc::channel();
    let (lock, locked) = mpsc::channel();
    let (end, ended) = oneshot::channel();
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        let _ledger = shared.ledger();
        let _ = lock.send(());
        let _ = end.send(turn.recv_timeout(PATIENCE).is_ok());
    });
    locked.recv().unwrap();
    tokio::spawn(async move {
        tokio::time::sleep(BEGINNING).await;
        let _ = give.send(());
    });
    ended
}
