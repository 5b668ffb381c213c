//! A request's body in memory, of which there is only so much.

use std::ops::Deref;
use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The largest request body in bytes. A review can hold a pod twice and the API server takes objects of 3 MiB, so
/// this is what webhooks commonly accept.
pub const BODY_LIMIT: usize = 7 * 1024 * 1024;

/// How many bytes of large bodies are held at the same time, in all requests together. A body counts as it arrives, so
/// that a client which only announces one takes nothing from the others.
pub const BODIES_LIMIT: usize = 64 * 1024 * 1024;

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
    let mut bytes = Vec::new();
    let mut held: Option<OwnedSemaphorePermit> = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| match error {
            error if error.is::<LengthLimitError>() => Fault::TooLarge,
            error => Fault::Broken(error),
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let counted = |length: usize| length.saturating_sub(ORDINARY_BODY);
        let size = counted(bytes.len() + data.len()) - counted(bytes.len());
        let size = u32::try_from(size).map_err(|_| Fault::TooLarge)?;
        if size > 0 {
            let more = Arc::clone(room)
                .try_acquire_many_owned(size)
                .map_err(|_| Fault::NoRoom)?;
            match &mut held {
                Some(held) => held.merge(more),
                None => held = Some(more),
            }
        }
        bytes.extend_from_slice(&data);
    }
    Ok(Buffered { bytes, _room: held })
}

impl Deref for Buffered {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}
