//! The machine: clock, files, threads for long work, the text of documents, and how often something may happen.

mod allocator;
pub mod blocking;
pub mod clock;
pub mod files;
pub mod threads;
pub mod token_bucket;
pub mod yaml;

/// A number that no other replica, and no other call, has.
pub(crate) fn random() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().1
}
