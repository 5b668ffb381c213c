//! The record of a peer.

use std::net::IpAddr;

use edgeward_kube::units::{Micros, Moment};

use crate::coordinate::Coordinate;
use crate::message::Seen;
use crate::settings::ClusterId;

/// Where a peer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Verified, measured and within the bound. It is measured again in the round `due`.
    Near {
        /// The round.
        due: u64,
    },
    /// A candidate, or too far.
    Known,
    /// It failed. It is not tried before the round `until`, and then forgotten.
    Buried {
        /// The round.
        until: u64,
    },
}

/// A peer, by its address.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Its id: by its certificate if it is verified, else as offered.
    pub id: Option<ClusterId>,
    /// Whether a handshake with this address, or a request from it, has shown its certificate.
    pub is_verified: bool,
    /// Where it stands.
    pub standing: Standing,
    /// The RTT of the last own handshake.
    pub rtt: Option<Micros>,
    /// The peer that offered it, until it is verified.
    pub(crate) introducer: Option<IpAddr>,
    pub(crate) coordinate: Option<Coordinate>,
    /// The RTT in ms through an introducer: about the upper limit of the direct RTT.
    pub(crate) detour_ms: f64,
    /// The last exchange, by either side.
    pub(crate) exchanged: Option<Moment>,
    pub(crate) failed: Option<Moment>,
    /// Failures since the last exchange.
    pub(crate) failures: u8,
    /// The round of the last attempt.
    pub(crate) tried: Option<u64>,
    /// The time of the last attempt.
    pub(crate) asked: Option<Moment>,
    /// Measurements in a row that were too long, at most 2. One alone may be due to a busy moment.
    pub(crate) too_far: u8,
    pub(crate) seen: Seen,
    /// Peers it offered that failed in a row.
    pub(crate) dead_offers: u8,
    /// Its offers are ignored before this round.
    pub(crate) muted_until: u64,
}

impl Peer {
    pub(crate) fn new(id: Option<ClusterId>, coordinate: Option<Coordinate>, introducer: Option<IpAddr>) -> Self {
        Self {
            id,
            is_verified: false,
            standing: Standing::Known,
            rtt: None,
            introducer,
            coordinate,
            detour_ms: f64::INFINITY,
            exchanged: None,
            failed: None,
            failures: 0,
            tried: None,
            asked: None,
            too_far: 0,
            seen: Seen::default(),
            dead_offers: 0,
            muted_until: 0,
        }
    }

    /// Whether it is verified, measured and within the bound.
    pub fn is_near(&self) -> bool {
        matches!(self.standing, Standing::Near { .. })
    }

    pub(crate) fn is_buried(&self) -> bool {
        matches!(self.standing, Standing::Buried { .. })
    }

    /// The RTT in ms: measured, else predicted from `here`, else infinite.
    pub(crate) fn rtt_ms(&self, here: &Coordinate) -> f64 {
        let predicted = self
            .coordinate
            .map_or(f64::INFINITY, |coordinate| coordinate.rtt_ms(here));
        self.rtt.map_or(predicted.min(self.detour_ms), Micros::as_millis_f64)
    }

    /// Notes that the peer showed its certificate and answered or asked.
    pub(crate) fn verify(&mut self, id: ClusterId, now: Moment) {
        self.id = Some(id);
        self.is_verified = true;
        self.introducer = None;
        self.exchanged = Some(now);
        self.failures = 0;
    }
}
