//! The only writer to the API server.

pub mod events;
pub mod lease;
