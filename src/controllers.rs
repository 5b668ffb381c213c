//! Background controllers. They are the only code of a serving replica that writes to the API server.

pub mod backstop;
pub mod certificates;
pub mod events;
pub mod executor;
pub mod gate;
pub mod lease;
mod pod_patch;
pub mod status;
