//! A request's body in memory, of which there is only so much.

use std::ops::Deref;
use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The largest request body in bytes. A review can hold a pod twice and the API server takes objects of 3 MiB, so
/// this is what webhooks commonly accept.
pub const BODY_LIMIT: usize = 7 * 1024 * 1024;

/// How many bytes of large bodies are held at the same time, in all requests together. A body counts as it arrives, with the
/// memory that is set aside for it, so that a client which only announces one takes nothing from the others.
pub const BODIES_LIMIT: usize = 26 * 1024 * 1024;

/// So many bytes of a body in bytes never count: the review of an ordinary pod is a few KiB, and is taken whatever others
/// send. What they cost is bounded by the number of connections.
pub const ORDINARY_BODY: usize = 64 * 1024;

/// A complete body. Its bytes count until it is dropped.
pub(super) struct Buffered {
    bytes: Vec<u8>,
    _room: Option<OwnedSemaphorePermit>,
}

/// Why there is no complete body.
#[derive(Debug)]
pub(super) enum Fault {
    /// Larger than [`BODY_LIMIT`].
    TooLarge,
    /// Large bodies together exceed [`BODIES_LIMIT`].
    NoRoom,
    /// The client broke off, or what it sends is no HTTP.
    Broken(axum::BoxError),
}

/// Room for [`BODIES_LIMIT`].
pub(super) fn room() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(BODIES_LIMIT))
}

/// Collects a body, in `room` that is shared by all.
pub(super) async fn read(body: Body, room: &Arc<Semaphore>) -> Result<Buffered, Fault> {
    if body.size_hint().lower() > BODY_LIMIT as u64 {
        return Err(Fault::TooLarge);
    }
    let mut body = Limited::new(body, BODY_LIMIT);
    let mut bytes: Vec<u8> = Vec::new();
    let mut held: Option<OwnedSemaphorePermit> = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| match error {
            error if error.is::<LengthLimitError>() => Fault::TooLarge,
            error => Fault::Broken(error),
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let capacity = capacity(bytes.capacity(), bytes.len() + data.len());
        let counted = |capacity: usize| capacity.saturating_sub(ORDINARY_BODY);
        let more = counted(capacity) - counted(bytes.capacity());
        let more = u32::try_from(more).map_err(|_| Fault::TooLarge)?;
        if more > 0 {
            let more = Arc::clone(room)
                .try_acquire_many_owned(more)
                .map_err(|_| Fault::NoRoom)?;
            match &mut held {
                Some(held) => held.merge(more),
                None => held = Some(more),
            }
        }
        bytes.reserve_exact(capacity - bytes.len());
        bytes.extend_from_slice(&data);
    }
    Ok(Buffered { bytes, _room: held })
}

/// How much memory is set aside for a body of which so much is needed: the double of what it had as long as it is ordinary,
/// then a quarter more, lest half of it be unused.
fn capacity(had: usize, needed: usize) -> usize {
    match needed {
        _ if needed <= had => had,
        _ if needed <= ORDINARY_BODY => needed.next_power_of_two(),
        _ => needed.max(had + had / 4).min(BODY_LIMIT),
    }
}

impl Buffered {
    /// Whether it counts, as only few do at a time.
    pub(super) fn is_large(&self) -> bool {
        self.bytes.len() > ORDINARY_BODY
    }
}

impl Deref for Buffered {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}
