//! The WAN to a cloud site: its measured state and its thresholds.

use edgeward_kube::units::{Micros, Moment, Permille};
use edgeward_kube::words;

/// Measured state of the WAN to a cloud site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Health, with hysteresis applied.
    pub state: LinkState,
    /// Round-trip time. `None` if no probe was ever answered.
    pub rtt: Option<Micros>,
    /// Packet loss.
    pub loss: Option<Permille>,
    /// Time of the measurement.
    pub as_of: Moment,
}

words! {
    /// Health of a link, best first.
    pub enum LinkState {
        /// Reachable, with RTT and loss below their thresholds.
        Healthy = "healthy",
        /// Reachable, but RTT or loss is not below its threshold.
        Degraded = "degraded",
        /// Nothing answers.
        Unreachable = "unreachable",
    }
}

impl LinkState {
    /// Judges these numbers by the thresholds alone, without history. A missing number counts as bad.
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

/// The thresholds at which a link is degraded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// A link with an RTT at or above this is degraded. It is healthy again below 90 % of this.
    pub rtt: Micros,
    /// A link with a loss at or above this is degraded. It is healthy again below half of this.
    pub loss: Permille,
}

/// Thresholds of one site that replace the configured thresholds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OwnThresholds {
    /// Replaces [`Thresholds::rtt`] if set.
    pub rtt: Option<Micros>,
    /// Replaces [`Thresholds::loss`] if set.
    pub loss: Option<Permille>,
}

impl Thresholds {
    /// Returns these thresholds with a site's own thresholds applied.
    pub fn with(self, own: OwnThresholds) -> Self {
        Self {
            rtt: own.rtt.unwrap_or(self.rtt),
            loss: own.loss.unwrap_or(self.loss),
        }
    }
}
