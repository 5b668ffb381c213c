//! The connections of a port, and which one is closed when the port is full.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use axum::response::Response;
use axum_server::Handle;
use futures::channel::oneshot;
use tokio::time::Instant;

use crate::admission::connections::{AGE_LIMIT, Port};
use crate::instruments::metrics::Metrics;
use crate::platform::random;

/// The connections of a port. Clones share them.
///
/// When all slots are taken, a new connection replaces an old one. Connections that were never answered with success go
/// first, the oldest first. After them goes the longest-idle connection of the peer address with the most connections.
/// A connection with a review in progress is never closed; if all have one, the new connection is refused.
#[derive(Debug, Clone)]
pub struct Connections {
    pub(super) port: Port,
    metrics: Arc<Metrics>,
    slots: Arc<Mutex<Slots>>,
    pub(super) handle: Handle<SocketAddr>,
}

#[derive(Debug, Default)]
struct Slots {
    taken: HashMap<u64, Taken>,
    /// Counter of events; the lowest number is the oldest event.
    next: u64,
}

#[derive(Debug)]
struct Taken {
    peer: IpAddr,
    stage: Stage,
    /// Whether a request was ever answered with success.
    is_proven: bool,
    /// Event number of the end of its handshake, or of the last use of a proven connection.
    since: u64,
    /// Closes the connection when dropped.
    _open: oneshot::Sender<()>,
}

/// The state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::admission) enum Stage {
    Handshake,
    /// No request has started.
    New,
    /// A request has started.
    Used,
    /// A whole review has arrived and is not answered yet.
    Review,
}

impl Slots {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn oldest(&self, may_go: impl Fn(&Taken) -> bool) -> Option<u64> {
        let idle = self
            .taken
            .iter()
            .filter(|(_, slot)| slot.stage != Stage::Review && may_go(slot));
        idle.min_by_key(|(_, slot)| slot.since).map(|(id, _)| *id)
    }

    fn least_missed(&self) -> Option<u64> {
        self.oldest(|slot| !slot.is_proven).or_else(|| {
            let mut peers = BTreeMap::<IpAddr, usize>::new();
            let idle = self.taken.values().filter(|slot| slot.stage != Stage::Review);
            idle.for_each(|slot| *peers.entry(slot.peer).or_default() += 1);
            let (busiest, _) = peers.into_iter().max_by_key(|(_, count)| *count)?;
            self.oldest(|slot| slot.peer == busiest)
        })
    }
}

impl Connections {
    /// A port without connections.
    pub(crate) fn new(port: Port, metrics: Arc<Metrics>) -> Self {
        Self {
            port,
            metrics,
            slots: Arc::default(),
            handle: Handle::new(),
        }
    }

    /// Stops accepting, closes connections without a request, and lets the others end after their answer. A request
    /// whose first bytes have arrived is answered.
    pub(crate) fn drain(&self) {
        self.handle.graceful_shutdown(None);
    }

    /// Closes every connection and returns how many there were.
    pub(crate) fn cut(&self) -> usize {
        self.handle.shutdown();
        self.handle.connection_count()
    }

    #[cfg(test)]
    pub(super) fn count(&self, stage: Stage) -> usize {
        lock(&self.slots)
            .taken
            .values()
            .filter(|slot| slot.stage == stage)
            .count()
    }

    /// Takes a slot for a new connection, if necessary by closing another connection. The returned receiver fires when
    /// the new connection must close. Returns `None` if no slot can be freed. A full port is counted in both cases.
    pub(in crate::admission) fn open(&self, peer: IpAddr) -> Option<(Slot, oneshot::Receiver<()>)> {
        let (port, mut slots) = (self.port, lock(&self.slots));
        let handshakes = slots.taken.values().filter(|slot| slot.stage == Stage::Handshake);
        let in_the_way = if slots.taken.len() >= port.connections {
            Some(slots.least_missed())
        } else if handshakes.count() >= port.handshakes {
            Some(slots.oldest(|slot| slot.stage == Stage::Handshake))
        } else {
            None
        };
        if let Some(closed) = in_the_way {
            self.metrics.connections_refused.at([port.name]).inc();
            slots.taken.remove(&closed?);
        }
        let (id, (_open, open)) = (slots.number(), oneshot::channel());
        let taken = Taken {
            peer,
            stage: Stage::Handshake,
            is_proven: false,
            since: id,
            _open,
        };
        slots.taken.insert(id, taken);
        let jitter = Duration::from_secs(random() % AGE_LIMIT.as_secs());
        let slot = Slot {
            slots: Arc::clone(&self.slots),
            id,
            peer,
            old_at: Instant::now() + AGE_LIMIT + jitter,
        };
        Some((slot, open))
    }
}

fn lock(slots: &Mutex<Slots>) -> MutexGuard<'_, Slots> {
    slots.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The slot of one connection; dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Arc<Mutex<Slots>>,
    id: u64,
    pub(crate) peer: IpAddr,
    old_at: Instant,
}

impl Slot {
    /// Sets the stage. Has no effect on a connection that is being closed.
    pub(in crate::admission) fn enter(&self, stage: Stage) {
        let mut slots = lock(&self.slots);
        let now = slots.number();
        if let Some(slot) = slots.taken.get_mut(&self.id) {
            slot.stage = stage;
            if slot.is_proven || stage == Stage::New {
                slot.since = now;
            }
        }
    }

    /// Records the answer to a request, and adds `Connection: close` if the connection is old and `may_close` so.
    pub(super) fn answered(&self, answer: &mut Response, may_close: bool) {
        if answer.status().is_success() {
            let mut slots = lock(&self.slots);
            slots.taken.entry(self.id).and_modify(|slot| slot.is_proven = true);
        }
        self.enter(Stage::Used);
        if may_close && Instant::now() >= self.old_at {
            let close = HeaderValue::from_static("close");
            answer.headers_mut().insert(CONNECTION, close);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        lock(&self.slots).taken.remove(&self.id);
    }
}
