//! The only readers and writers of documents: pods, nodes, volumes, Liqo's objects and fleet files.

pub mod fleet_file;
pub mod liqo;
pub mod liqo_objects;
pub mod node;
pub mod pod;
pub mod volumes;
