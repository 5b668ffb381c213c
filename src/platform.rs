//! The machine: clock, files, threads for long work, YAML parsing, and rate limits.

pub mod blocking;
pub mod clock;
pub mod files;
pub mod threads;
pub mod token_bucket;
pub mod yaml;

use std::hash::{DefaultHasher, Hash, Hasher};

/// The global memory allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Hash of a content; equal for equal contents in all replicas of one build.
pub(crate) fn hash(content: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}

/// A random number; unique across replicas and calls for all practical purposes.
pub(crate) fn random() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().1
}
