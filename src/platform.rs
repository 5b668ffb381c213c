//! The machine: clock, files, and the text of documents.

pub mod clock;
pub mod files;
pub mod yaml;
