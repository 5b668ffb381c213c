//! Who is connected to a port, and who has to leave when it is full.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use crate::admission::connections::{ADMISSION, Port};
use crate::instruments::metrics::Metrics;
use crate::platform::clock::Clock;

/// The connections of a port. Clones share them.
///
/// A connection that was never answered with success is a *stranger*; on the health port, every one is. When all seats are taken, a stranger gives up its
/// own for a newcomer: the oldest of those that wait for the same, in the stage in which the most do. Whoever
/// floods the port waits somewhere; the API server goes through all stages in milliseconds. Where there is no stranger, the
/// newcomer is refused.
#[derive(Debug, Clone)]
pub struct Connections(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    port: Port,
    clock: Clock,
    metrics: Arc<Metrics>,
    seats: Mutex<Seats>,
    in_flight: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Seats {
    taken: usize,
    next: u64,
    /// By stage, and by age; to send is to evict.
    strangers: [BTreeMap<u64, oneshot::Sender<()>>; Stage::ALL.len()],
}

impl Seats {
    fn oldest_of_the_largest_crowd(&mut self) -> Option<oneshot::Sender<()>> {
        let crowd = self.strangers.iter_mut().max_by_key(|crowd| crowd.len())?;
        crowd.pop_first().map(|(_, oldest)| oldest)
    }
}

impl Connections {
    /// None yet.
    pub(crate) fn new(port: Port, clock: Clock, metrics: Arc<Metrics>) -> Self {
        Self(Arc::new(Shared {
            port,
            clock,
            metrics,
            seats: Mutex::default(),
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

    /// A seat for a newcomer, whoever has to leave for it, which is counted. `None` where nobody has to.
    pub(super) fn seat(&self) -> Option<(Seat, Eviction)> {
        let mut seats = self.0.lock();
        if seats.taken >= self.0.port.connections {
            self.0.metrics.connection_refused(self.0.port.name);
            let oldest = seats.oldest_of_the_largest_crowd()?;
            // Its seat is free from now on, though its task has yet to hear of it.
            seats.taken -= 1;
            let _ = oldest.send(());
        }
        seats.taken += 1;
        let id = seats.next;
        seats.next += 1;
        let (evict, evicted) = oneshot::channel();
        seats.strangers[Stage::Handshake as usize].insert(id, evict);
        drop(seats);
        let shared = Arc::clone(&self.0);
        let age = us(shared.port.age);
        let jitter = uuid::Uuid::new_v4().as_u64_pair().0 % age.max(1);
        let old_at_us = shared.clock.monotonic_us().saturating_add(age + jitter);
        let seat = Seat {
            shared,
            id,
            old_at_us,
            stage: AtomicU8::new(Stage::Handshake as u8),
            has_had_an_answer: AtomicBool::new(false),
            is_last: AtomicBool::new(false),
        };
        Some((seat, Eviction::Possible(evicted)))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
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
    const ALL: [Self; 6] = [
        Self::Handshake,
        Self::New,
        Self::Head,
        Self::Request,
        Self::Answer,
        Self::Idle,
    ];

    fn is_in_flight(self) -> bool {
        matches!(self, Self::Head | Self::Request | Self::Answer)
    }
}

/// One connection's place. Dropped, it is free.
#[derive(Debug)]
pub(super) struct Seat {
    shared: Arc<Shared>,
    id: u64,
    old_at_us: u64,
    /// A [`Stage`]; only the connection's own task changes it.
    stage: AtomicU8,
    /// One with success, where that counts.
    has_had_an_answer: AtomicBool,
    /// That answer came when it was evicted already.
    is_last: AtomicBool,
}

impl Seat {
    pub(super) fn stage(&self) -> Stage {
        Stage::ALL[usize::from(self.stage.load(Ordering::Relaxed))]
    }

    /// How long this stage may last; `None` where the handler knows.
    pub(super) fn limit(&self, stage: Stage) -> Option<Duration> {
        let port = &self.shared.port;
        match stage {
            Stage::Handshake | Stage::New => Some(port.first_request),
            Stage::Head | Stage::Answer => Some(port.head),
            Stage::Request => None,
            Stage::Idle => Some(port.idle),
        }
    }

    pub(super) fn enter(&self, stage: Stage) {
        let before = self.stage();
        self.stage.store(stage as u8, Ordering::Relaxed);
        if self.is_stranger() {
            let mut seats = self.shared.lock();
            if let Some(evict) = seats.strangers[before as usize].remove(&self.id) {
                seats.strangers[stage as usize].insert(self.id, evict);
            }
        }
        match (before.is_in_flight(), stage.is_in_flight()) {
            (false, true) => self.shared.in_flight.send_modify(|requests| *requests += 1),
            (true, false) => self.shared.in_flight.send_modify(|requests| *requests -= 1),
            _ => {}
        }
    }

    /// It is answered with success, and not cut from then on. Whether it stays: one that was evicted before ends behind this
    /// answer.
    pub(super) fn is_no_stranger(&self) -> bool {
        if self.shared.port.keeps_answered && !self.has_had_an_answer.swap(true, Ordering::Relaxed) {
            self.is_last.store(!self.leave_the_strangers(), Ordering::Relaxed);
        }
        !self.is_last.load(Ordering::Relaxed)
    }

    /// Whether an eviction cuts it.
    pub(super) fn is_stranger(&self) -> bool {
        !self.has_had_an_answer.load(Ordering::Relaxed)
    }

    /// Whether it was one of them.
    fn leave_the_strangers(&self) -> bool {
        let stage = self.stage() as usize;
        self.shared.lock().strangers[stage].remove(&self.id).is_some()
    }

    /// Whether its next answer is to be its last.
    pub(super) fn is_old(&self) -> bool {
        self.shared.clock.monotonic_us() >= self.old_at_us
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.enter(Stage::Idle);
        let was_evicted = match self.is_stranger() {
            true => !self.leave_the_strangers(),
            false => *self.is_last.get_mut(),
        };
        if !was_evicted {
            self.shared.lock().taken -= 1;
        }
    }
}

/// How a stranger hears that it has to leave.
#[derive(Debug)]
pub(super) enum Eviction {
    Possible(oneshot::Receiver<()>),
    Due,
    /// It is no stranger any more.
    Never,
}

impl Eviction {
    /// Whether it has to, from then on for good; wakes the task when it has.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Self::Possible(evicted) = self
            && let Poll::Ready(evicted) = Pin::new(evicted).poll(cx)
        {
            *self = evicted.map_or(Self::Never, |()| Self::Due);
        }
        match self {
            Self::Due => Poll::Ready(()),
            Self::Possible(_) | Self::Never => Poll::Pending,
        }
    }

    /// Resolves when it has to leave.
    pub(super) async fn evicted(&mut self) {
        std::future::poll_fn(|cx| self.poll(cx)).await;
    }
}

pub(super) fn evicted() -> io::Error {
    io::Error::new(
        io::ErrorKind::ConnectionAborted,
        "too many connections, and this one had no answer yet",
    )
}
