//! Messages between peers, in JSON.

use std::net::IpAddr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::coordinate::Coordinate;
use crate::settings::ClusterId;

/// The most bytes of a message. The shell reads no more.
pub const MAX_BYTES: usize = 16 * 1024;
/// The most offers in a reply.
pub const MAX_OFFERS: usize = 16;

/// A cluster asks a peer for its offers. The certificate says who asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Where the asking cluster answers its peers.
    pub address: IpAddr,
    /// Its coordinate, once it has one.
    pub coordinate: Option<Coordinate>,
    /// The offers that it has of this peer already.
    pub seen: Seen,
}

/// The number of offers of a version of a peer's table that another cluster has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The version of the table.
    pub version: u64,
    /// Offers received of that version, repeats included.
    pub count: usize,
}

/// The answer to a [`Request`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reply {
    /// The coordinate of the answering cluster, once it has one.
    pub coordinate: Option<Coordinate>,
    /// The version of its table.
    pub version: u64,
    /// Peers that it has exchanged messages with itself.
    pub offers: Vec<Offer>,
}

/// A peer that another cluster has exchanged messages with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Offer {
    /// The id by its certificate.
    pub id: ClusterId,
    /// Where it answers.
    pub address: IpAddr,
    /// Its coordinate, as it said.
    pub coordinate: Option<Coordinate>,
    /// Its RTT to the sender in ms, if the sender measured it.
    pub rtt_ms: Option<f64>,
    /// The time since the last exchange with it.
    pub age_ms: u64,
}

/// Reads a message of at most [`MAX_BYTES`].
pub(crate) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let is_small = bytes.len() <= MAX_BYTES;
    is_small.then(|| serde_json::from_slice(bytes).ok()).flatten()
}

pub(crate) fn write(message: &impl Serialize) -> Vec<u8> {
    // These messages have no maps and no numbers that JSON lacks.
    serde_json::to_vec(message).unwrap_or_default()
}
