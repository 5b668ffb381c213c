//! Links: the measured state and the thresholds of the WAN to a cloud site, bandwidths, and figures between any two sites.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::document::Decimal;
use crate::model::snapshot::ByNamespace;
use edgeward_kube::resources::MAX_BITS;
use edgeward_kube::units::{Micros, Moment, Permille, Quantity};
use edgeward_kube::words;

/// Measured state of the WAN to a cloud site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Health, with hysteresis applied.
    pub state: LinkState,
    /// Round-trip time. `None` if no probe was ever answered.
    pub rtt: Option<Micros>,
    /// RTT that 19 of 20 probes do not exceed. `None` if it is not known.
    pub rtt_p95: Option<Micros>,
    /// Packet loss.
    pub loss: Option<Permille>,
    /// Mean difference between the RTTs of successive probes.
    pub jitter: Option<Micros>,
    /// Exponential average of the RTT. It is shown to people, and no decision reads it.
    pub average_rtt: Option<Micros>,
    /// Where the RTT comes from.
    pub source: LinkSource,
    /// Time of the measurement.
    pub as_of: Moment,
}

impl Link {
    /// RTT of the link. `None` if nothing answers.
    pub fn live_rtt(&self) -> Option<Micros> {
        self.rtt.filter(|_| self.state != LinkState::Unreachable)
    }

    /// Whether the time over this link can be estimated while it is degraded: its figures are known, and fewer than half of the
    /// packets are lost.
    pub(crate) fn can_be_estimated(&self) -> bool {
        self.rtt.is_some() && self.loss.is_some_and(|loss| loss < Permille(500))
    }

    /// The time that 19 of 20 requests with so many round trips do not exceed on a degraded link. A lost round trip is repeated
    /// after a timeout, which doubles with each loss. `None` if it cannot be estimated.
    pub fn degraded_crossing(&self, round_trips: u64) -> Option<Micros> {
        // In thousandths.
        const ONE_IN_TWENTY: u64 = 50;
        let (rtt, loss) = self.degraded_figures()?;
        // The share of requests in which one round trip is lost more than `losses` times. It halves at least each time.
        let (mut losses, mut share) = (0, round_trips.saturating_mul(loss));
        while share > ONE_IN_TWENTY {
            losses += 1;
            share = share * loss / 1_000;
        }
        Some(rtt.times(round_trips) + timeout(rtt).times((1 << losses) - 1))
    }

    /// The most that one TCP connection carries over a degraded link (RFC 5348, section 3.1), with segments of 1,460 bytes. `None`
    /// without loss, or if it cannot be estimated.
    pub fn degraded_bandwidth(&self) -> Option<Bandwidth> {
        const SEGMENT_BITS: f64 = 1_460.0 * 8.0;
        let (rtt, loss) = self.degraded_figures().filter(|(_, loss)| *loss > 0)?;
        let [rtt, timeout] = [rtt, timeout(rtt)].map(|time| time.0 as f64 / 1e6);
        let p = loss as f64 / 1e3;
        let repeats = (2.0 * p / 3.0).sqrt();
        let timeouts = 3.0 * (3.0 * p / 8.0).sqrt() * p * (1.0 + 32.0 * p * p);
        Some(Bandwidth((SEGMENT_BITS / (rtt * repeats + timeout * timeouts)) as u64))
    }

    /// The RTT that 19 of 20 round trips do not exceed, and the loss in thousandths.
    fn degraded_figures(&self) -> Option<(Micros, u64)> {
        let (rtt, loss) = (self.rtt.filter(|_| self.can_be_estimated())?, self.loss?);
        Some((rtt.max(self.rtt_p95.unwrap_or_default()), loss.0.into()))
    }
}

/// After how long a lost round trip is repeated: twice the RTT, and at least 1 s (RFC 6298).
fn timeout(rtt: Micros) -> Micros {
    rtt.times(2).max(Micros::from_secs(1))
}

/// A link of which nothing is known.
impl Default for Link {
    fn default() -> Self {
        Self {
            state: LinkState::Unreachable,
            rtt: None,
            rtt_p95: None,
            loss: None,
            jitter: None,
            average_rtt: None,
            source: LinkSource::Stated,
            as_of: Moment::default(),
        }
    }
}

words! {
    /// Where a figure of a link comes from.
    pub enum LinkSource {
        /// The probes of this replica.
        Probe = "probe",
        /// Liqo's report on the cluster.
        Liqo = "liqo",
        /// The Prometheus server.
        Prometheus = "prometheus",
        /// The sum over both ways to the edge, through which Liqo's traffic passes.
        Hub = "hub",
        /// The site's definition or a fleet file.
        Stated = "stated",
    }
}

/// A bandwidth in bits per second, written as a quantity such as `50M`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Bandwidth(pub u64);

impl Bandwidth {
    const TITLE: &str = "a bandwidth in bits per second from 1k to 1P, such as 50M";

    const LEAST: u64 = 1_000;
    /// The largest bandwidth.
    pub const MOST: u64 = MAX_BITS.cast_unsigned();

    /// The time that so many bytes take, rounded up.
    pub fn time_for(self, bytes: u64) -> Micros {
        let bits = u128::from(bytes) * 8 * 1_000_000;
        let time = bits.div_ceil(self.0.max(1).into());
        Micros(u64::try_from(time).unwrap_or(u64::MAX))
    }
}

impl TryFrom<String> for Bandwidth {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bits = Quantity::parse(&text).ok().map(Quantity::units);
        let bits = bits.and_then(|bits| u64::try_from(bits).ok());
        let bits = bits.filter(|bits| (Self::LEAST..=Self::MOST).contains(bits));
        bits.map(Self).ok_or_else(|| format!("{text:?} is not {}", Self::TITLE))
    }
}

impl From<Bandwidth> for String {
    fn from(Bandwidth(bits): Bandwidth) -> Self {
        match bits % 1_000_000 {
            0 => format!("{}M", bits / 1_000_000),
            _ => bits.to_string(),
        }
    }
}

impl JsonSchema for Bandwidth {
    fn schema_name() -> Cow<'static, str> {
        "Bandwidth".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "title": Self::TITLE,
            "type": "string",
            "pattern": "^[0-9]{1,15}([.][0-9]{1,3})?(k|M|G|T|P)?$",
        })
    }
}

/// What Prometheus measures of the way from one site to another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkFigures {
    /// Round-trip time.
    pub rtt: Option<Micros>,
    /// Packet loss.
    pub loss: Option<Permille>,
    /// Bandwidth in this direction.
    pub bandwidth: Option<Bandwidth>,
    /// Bytes per second in this direction.
    pub bytes: Option<u64>,
    /// Packets per second in this direction.
    pub packets: Option<u64>,
}

/// What is measured between sites, by the names of the source and the target. A pair that is not measured has no entry.
pub type Links = ByNamespace<LinkFigures>;

/// What it takes a site to send on one of its links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Energy {
    /// Joules for each gigabyte.
    pub joules_per_gigabyte: Joules,
    /// Joules for each million packets.
    pub joules_per_million_packets: Option<Joules>,
    /// Watts without traffic.
    pub idle_watts: Option<Joules>,
}

/// Joules or watts, in thousandths.
pub type Joules = Decimal<3, 0, 1_000_000_000_000>;

impl Energy {
    /// Joules to send a gigabyte in packets of 500 bytes.
    pub fn of_a_gigabyte(&self) -> f64 {
        let of_packets = self.joules_per_million_packets.map_or(0, |joules| 2 * joules.0);
        (self.joules_per_gigabyte.0 + of_packets) as f64 / 1e3
    }

    /// The power, in microwatts, of sending as measured. `None` if a measurement is missing.
    pub fn microwatts(&self, traffic: &LinkFigures) -> Option<u64> {
        let of_packets = match self.joules_per_million_packets {
            Some(joules) => u128::from(traffic.packets?) * thousandths(joules) / 1_000,
            None => 0,
        };
        let of_bytes = u128::from(traffic.bytes?) * thousandths(self.joules_per_gigabyte) / 1_000_000;
        let idle = self.idle_watts.map_or(0, thousandths) * 1_000;
        u64::try_from(idle + of_bytes + of_packets).ok()
    }
}

fn thousandths(joules: Joules) -> u128 {
    u128::from(joules.0.unsigned_abs())
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
