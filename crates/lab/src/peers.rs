//! Discovery of peers, simulated: many agents over a matrix of RTTs, compared with Flocky as published.

mod flocky;
mod network;
mod topology;

pub use network::{Plan, run};
pub use topology::Topology;

/// Figures of a round.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Measured {
    /// The share of the peers in range that the nodes hold near, of all nodes together.
    pub accuracy: f64,
    /// Handshakes begun per node.
    pub pings: f64,
    /// The share of near entries whose node is gone.
    pub dead: f64,
    /// Mean number of near peers.
    pub near: f64,
}

/// Runs Flocky's discovery as published, on an undisturbed network.
pub fn flocky(topology: &Topology, range_ms: f64, rounds: u64, seed: u64) -> Vec<Measured> {
    flocky::run(topology, range_ms, rounds, seed)
}
