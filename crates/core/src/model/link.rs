//! The WAN towards a cloud site, as it is and as it should be.

use crate::units::{Micros, Moment, Permille};
use crate::words;

/// The WAN towards a cloud site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Health, hysteresis included.
    pub state: LinkState,
    /// Round-trip time; `None` where nothing was ever answered.
    pub rtt: Option<Micros>,
    /// Loss.
    pub loss: Option<Permille>,
    /// When this was measured.
    pub as_of: Moment,
}

words! {
    /// Health of a link, best first.
    pub enum LinkState {
        /// Reachable, RTT and loss below their thresholds.
        Healthy = "healthy",
        /// Reachable, but RTT or loss is not.
        Degraded = "degraded",
        /// Nothing answers.
        Unreachable = "unreachable",
    }
}

impl LinkState {
    /// The state that these numbers stand for by the thresholds alone, without history. A number that is missing is
    /// never a good one.
    pub fn judge(reachable: bool, rtt: Option<Micros>, loss: Option<Permille>, thresholds: Thresholds) -> Self {
        let over_rtt = rtt.is_none_or(|rtt| rtt >= thresholds.rtt);
        let over_loss = loss.is_none_or(|loss| loss >= thresholds.loss);
        match (reachable, over_rtt || over_loss) {
            (false, _) => LinkState::Unreachable,
            (true, true) => LinkState::Degraded,
            (true, false) => LinkState::Healthy,
        }
    }
}

/// From which numbers on a link is degraded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// RTT from which it is degraded; healthy again below 90 % of it.
    pub rtt: Micros,
    /// Loss from which it is degraded; healthy again below half of it.
    pub loss: Permille,
}

/// The thresholds that one site has of its own, instead of those of the configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OwnThresholds {
    /// As [`Thresholds::rtt`].
    pub rtt: Option<Micros>,
    /// As [`Thresholds::loss`].
    pub loss: Option<Permille>,
}

impl Thresholds {
    /// These, but for what a site has of its own.
    pub fn with(self, own: OwnThresholds) -> Self {
        Self {
            rtt: own.rtt.unwrap_or(self.rtt),
            loss: own.loss.unwrap_or(self.loss),
        }
    }
}
