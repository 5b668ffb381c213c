//! The readers and writers of documents.

pub mod fleet_file;
