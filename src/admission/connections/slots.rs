//! Who is connected to a port, and whose connection is closed when it is full.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use axum::response::Response;
use tokio::sync::{Notify, watch};

use crate::admission::connections::{ADMISSION, Port};
use crate::instruments::metrics::Metrics;
use crate::platform::clock::Clock;

/// The connections of a port. Clones share them.
///
/// A connection that was never answered with success is *unproven*; on the health port, every one is. When all slots are
/// taken, an unproven connection is closed for a new one: the oldest of those without a review in progress, as counted from
/// the end of their handshake, if they got so far. Where there is none, the new one is refused.
#[derive(Debug, Clone)]
pub struct Connections(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    port: Port,
    clock: Clock,
    metrics: Arc<Metrics>,
    slots: Mutex<Slots>,
    in_flight: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Slots {
    taken: HashMap<u64, Taken>,
    /// Counts what makes a connection younger than all others.
    next: u64,
}

/// A slot as the others see it.
#[derive(Debug)]
struct Taken {
    /// Told when the connection is to be closed.
    closed: Arc<Notify>,
    /// The least is the oldest.
    since: u64,
    is_proven: bool,
    has_review: bool,
}

impl Slots {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Closes the oldest connection that may be closed, whose slot is free from now on, though its task has yet to hear of it.
    /// Whether there is one.
    fn make_room(&mut self) -> bool {
        let unproven = self
            .taken
            .iter()
            .filter(|(_, slot)| !slot.is_proven && !slot.has_review);
        let oldest = unproven.min_by_key(|(_, slot)| slot.since).map(|(id, _)| *id);
        let closed = oldest.and_then(|id| self.taken.remove(&id));
        closed.inspect(|slot| slot.closed.notify_one()).is_some()
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
            in_flight: watch::Sender::new(0),
        }))
    }

    /// Of the admission port.
    #[must_use]
    pub fn of_admission(clock: Clock, metrics: Arc<Metrics>) -> Self {
        Self::new(ADMISSION, clock, metrics)
    }

    /// How many requests are in flight: from the first byte of the head until the answer has left.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        *self.0.in_flight.borrow()
    }

    /// Waits for a moment in which no request is in flight. Cancel-safe.
    pub async fn at_rest(&self) {
        // Cannot fail: the sender is ours.
        let _ = self.0.in_flight.subscribe().wait_for(|requests| *requests == 0).await;
    }

    /// A slot for a new connection, perhaps that of another, which is closed for it. `None` where there is none. Either way to
    /// be full is counted.
    pub(in crate::admission) fn open(&self) -> Option<Slot> {
        let shared = &self.0;
        let mut slots = shared.lock();
        if slots.taken.len() >= shared.port.connections {
            shared.metrics.connection_refused(shared.port.name);
            if !slots.make_room() {
                return None;
            }
        }
        let (id, closed) = (slots.number(), Arc::<Notify>::default());
        let taken = Taken {
            closed: Arc::clone(&closed),
            since: id,
            is_proven: false,
            has_review: false,
        };
        slots.taken.insert(id, taken);
        let age = u64::try_from(shared.port.age.as_micros()).unwrap_or(u64::MAX);
        let jitter = uuid::Uuid::new_v4().as_u64_pair().0 % age.max(1);
        Some(Slot {
            shared: Arc::clone(shared),
            id,
            old_at_us: shared.clock.monotonic_us().saturating_add(age + jitter),
            stage: watch::Sender::new(Stage::Handshake),
            closed,
        })
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The end of its handshake, for which the acceptor has a limit.
    Handshake,
    /// Its first request.
    New,
    /// The rest of a request's head.
    Head,
    /// The body, and the answer: as long as the handler allows.
    Request,
    /// The client to take the answer.
    Answer,
    /// Another request.
    Idle,
}

impl Stage {
    fn is_in_flight(self) -> bool {
        matches!(self, Self::Head | Self::Request | Self::Answer)
    }

    /// How long it may last; `None` where the handler knows.
    fn limit(self, port: &Port) -> Option<Duration> {
        match self {
            Self::Handshake | Self::New => Some(port.first_request),
            Self::Head | Self::Answer => Some(port.head),
            Self::Request => None,
            Self::Idle => Some(port.idle),
        }
    }
}

/// One connection's place. Dropped, it is free.
#[derive(Debug)]
pub(in crate::admission) struct Slot {
    shared: Arc<Shared>,
    id: u64,
    old_at_us: u64,
    stage: watch::Sender<Stage>,
    closed: Arc<Notify>,
}

impl Slot {
    pub(super) fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    pub(super) fn enter(&self, stage: Stage) {
        let before = self.stage.send_replace(stage);
        match (before.is_in_flight(), stage.is_in_flight()) {
            (false, true) => self.shared.in_flight.send_modify(|requests| *requests += 1),
            (true, false) => self.shared.in_flight.send_modify(|requests| *requests -= 1),
            _ => {}
        }
        if stage == Stage::New {
            // A handshake is work for whoever makes it, too.
            let mut slots = self.shared.lock();
            let now = slots.number();
            slots.taken.entry(self.id).and_modify(|slot| slot.since = now);
        }
    }

    /// Resolves when a stage has lasted too long, or another connection has the slot.
    pub(in crate::admission) async fn over(&self) {
        let mut stage = self.stage.subscribe();
        loop {
            let limit = stage.borrow_and_update().limit(&self.shared.port);
            tokio::select! {
                // Another stage first: the time of the one before it does not count any more.
                biased;
                // Cannot fail: the sender is ours.
                _ = stage.changed() => {}
                () = tokio::time::sleep(limit.unwrap_or_default()), if limit.is_some() => return,
                () = self.closed.notified() => return,
            }
        }
    }

    /// A review has arrived whole: its connection is not closed for another before it was answered.
    pub(in crate::admission) fn review_arrived(&self) {
        self.change(|slot| slot.has_review = true);
    }

    /// This is the answer to its request. One with success proves the connection, where that counts.
    pub(super) fn answered(&self, answer: &mut Response) {
        let proves = answer.status().is_success() && self.shared.port.keeps_answered;
        self.change(|slot| {
            slot.is_proven |= proves;
            slot.has_review = false;
        });
        if self.shared.clock.monotonic_us() >= self.old_at_us {
            let close = HeaderValue::from_static("close");
            answer.headers_mut().insert(CONNECTION, close);
        }
        self.enter(Stage::Answer);
    }

    /// Unless it is being closed.
    fn change(&self, change: impl FnOnce(&mut Taken)) {
        self.shared.lock().taken.entry(self.id).and_modify(change);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.enter(Stage::Idle);
        self.shared.lock().taken.remove(&self.id);
    }
}
