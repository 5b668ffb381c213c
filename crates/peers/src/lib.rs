//! Discovery of peers: each cluster finds the clusters whose RTT to it is low, and believes only what it measured itself.
//!
//! [`Agent::handle`] takes an input, the time and randomness, and returns what the shell has to send. This crate has no
//! I/O and no clock. The algorithm is Flocky's, with bounds: a peer is near by the RTT of an own handshake with a
//! verified certificate, and by nothing else. Hearsay only orders which peers are measured next.
//!
//! | module | what it is |
//! |---|---|
//! | [`settings`] | identity, allowed addresses |
//! | [`message`] | what peers send each other |
//! | [`coordinate`] | predicted RTTs |
//! | [`agent`] | the state machine |

#![warn(missing_docs)]

pub mod agent;
pub mod coordinate;
pub mod message;
mod peer;
pub mod settings;

pub use agent::{Agent, Input, Output};
pub use peer::{Peer, Standing};
pub use settings::{ClusterId, Settings};

#[cfg(test)]
mod tests;
