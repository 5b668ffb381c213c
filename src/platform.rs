//! The machine: clock, files, threads for long work, the text of documents, and how often something may happen.

mod allocator;
pub mod blocking;
pub mod clock;
pub mod files;
pub mod threads;
pub mod token_bucket;
pub mod yaml;
