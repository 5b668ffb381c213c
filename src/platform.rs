//! The machine: clock, files, threads for long work, and the text of documents.

pub mod blocking;
pub mod clock;
pub mod files;
pub mod yaml;
