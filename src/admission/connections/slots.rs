//! Which connections a port has, and which one is closed when it is full.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use axum::response::Response;
use axum_server::Handle;
use futures::channel::oneshot;

use crate::admission::connections::{AGE_LIMIT, Port};
use crate::instruments::metrics::Metrics;
use crate::platform::clock::Clock;
use crate::platform::random;

/// The connections of a port. Clones share them.
///
/// When all slots are taken, a connection is closed for a new one: first those that were never answered with success, the
/// oldest first, then the one of the peer address with the most connections that has idled longest. One with a review in
/// progress is never closed; if all have one, the new connection is refused.
#[derive(Debug, Clone)]
pub struct Connections(pub(super) Arc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) port: Port,
    clock: Clock,
    metrics: Arc<Metrics>,
    slots: Mutex<Slots>,
    pub(super) handle: Handle<SocketAddr>,
}

#[derive(Debug, Default)]
struct Slots {
    taken: HashMap<u64, Taken>,
    /// Numbers events; the least is the oldest.
    next: u64,
}

#[derive(Debug)]
struct Taken {
    peer: IpAddr,
    stage: Stage,
    /// Whether it was ever answered with success.
    is_proven: bool,
    /// When its handshake ended, or when a proven one was last used.
    since: u64,
    /// Dropped, it closes the connection.
    _open: oneshot::Sender<()>,
}

/// What a connection does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::admission) enum Stage {
    Handshake,
    /// No request has begun.
    New,
    /// A request has begun.
    Used,
    /// A review has arrived whole and is not answered yet.
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
    /// None yet.
    pub(crate) fn new(port: Port, clock: Clock, metrics: Arc<Metrics>) -> Self {
        Self(Arc::new(Shared {
            port,
            clock,
            metrics,
            slots: Mutex::default(),
            handle: Handle::new(),
        }))
    }

    /// Stops accepting, closes connections without a request and lets the others end after their answer. A request whose first
    /// bytes have arrived is answered.
    pub(crate) fn drain(&self) {
        self.0.handle.graceful_shutdown(None);
    }

    /// Closes every connection, and returns how many there were.
    pub(crate) fn cut(&self) -> usize {
        self.0.handle.shutdown();
        self.0.handle.connection_count()
    }

    #[cfg(test)]
    pub(super) fn count(&self, stage: Stage) -> usize {
        self.0.lock().taken.values().filter(|slot| slot.stage == stage).count()
    }

    /// A slot for a new connection, perhaps that of another, which is closed for it, and what is open until the new one has to
    /// close. `None` where there is no slot. Either way to be full is counted.
    pub(in crate::admission) fn open(&self, peer: IpAddr) -> Option<(Slot, oneshot::Receiver<()>)> {
        let (shared, port) = (&self.0, self.0.port);
        let mut slots = shared.lock();
        let handshakes = slots.taken.values().filter(|slot| slot.stage == Stage::Handshake);
        let in_the_way = if slots.taken.len() >= port.connections {
            Some(slots.least_missed())
        } else if handshakes.count() >= port.handshakes {
            Some(slots.oldest(|slot| slot.stage == Stage::Handshake))
        } else {
            None
        };
        if let Some(closed) = in_the_way {
            shared.metrics.connections_refused.at([port.name]).inc();
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
        let age = u64::try_from(AGE_LIMIT.as_micros()).unwrap_or(u64::MAX);
        let jitter = random() % age;
        let slot = Slot {
            shared: Arc::clone(shared),
            id,
            peer,
            old_at_us: shared.clock.monotonic_us().saturating_add(age + jitter),
        };
        Some((slot, open))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One connection's place. Dropped, it is free.
#[derive(Debug)]
pub(in crate::admission) struct Slot {
    shared: Arc<Shared>,
    id: u64,
    pub(in crate::admission) peer: IpAddr,
    old_at_us: u64,
}

impl Slot {
    /// Does nothing to a connection that is being closed.
    pub(in crate::admission) fn enter(&self, stage: Stage) {
        let mut slots = self.shared.lock();
        let now = slots.number();
        if let Some(slot) = slots.taken.get_mut(&self.id) {
            slot.stage = stage;
            if slot.is_proven || stage == Stage::New {
                slot.since = now;
            }
        }
    }

    /// This is the answer to its request.
    pub(super) fn answered(&self, answer: &mut Response) {
        if answer.status().is_success() {
            let mut slots = self.shared.lock();
            slots.taken.entry(self.id).and_modify(|slot| slot.is_proven = true);
        }
        self.enter(Stage::Used);
        if self.shared.clock.monotonic_us() >= self.old_at_us {
            let close = HeaderValue::from_static("close");
            answer.headers_mut().insert(CONNECTION, close);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.shared.lock().taken.remove(&self.id);
    }
}
