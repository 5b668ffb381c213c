//! The only readers and writers of documents: pods, nodes, fleet files.

pub mod fleet_file;
pub mod node;
pub mod pod;
