//! Reads request bodies into memory, within a total limit.

use std::sync::Arc;

use axum::body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Largest request body in bytes. A review can hold a pod twice, and the API server accepts objects of 3 MiB. Other
/// webhooks commonly use this limit too.
pub const BODY_LIMIT: usize = 7 * 1024 * 1024;

/// Total bytes of large bodies in memory, over all requests. A body counts as it arrives, by the memory allocated for
/// it: a client that only announces a large body takes nothing from others.
pub const BODIES_LIMIT: usize = 26 * 1024 * 1024;

/// The first bytes of each body that do not count towards [`BODIES_LIMIT`]. The review of an ordinary pod is a few KiB,
/// so it is accepted whatever others send. The number of connections bounds this memory.
pub const ORDINARY_BODY: usize = 64 * 1024;

/// A complete body. Its bytes count towards the limit until it is dropped.
pub(super) struct Buffered {
    pub(super) bytes: Vec<u8>,
    _room: Option<OwnedSemaphorePermit>,
}

/// Why a body could not be read.
#[derive(Debug)]
pub(super) enum Fault {
    /// The body is larger than [`BODY_LIMIT`].
    TooLarge,
    /// Large bodies together would exceed [`BODIES_LIMIT`].
    NoRoom,
    /// The client disconnected or sent invalid HTTP.
    Broken(axum::BoxError),
}

/// Collects a body. Its large part takes permits from the shared `room`, which has one per byte of [`BODIES_LIMIT`].
pub(super) async fn read(body: Body, room: &Arc<Semaphore>) -> Result<Buffered, Fault> {
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

/// Returns the new buffer capacity for `needed` bytes. An ordinary body doubles its capacity. A large one grows by a
/// quarter, so that less memory stays unused.
fn capacity(had: usize, needed: usize) -> usize {
    match needed {
        _ if needed <= had => had,
        _ if needed <= ORDINARY_BODY => needed.next_power_of_two(),
        _ => needed.max(had + had / 4).min(BODY_LIMIT),
    }
}
