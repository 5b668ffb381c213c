//! When probes are sent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::{Decimal, SECOND, Span};
use edgeward_kube::units::Micros;

/// How often an endpoint is probed, and how long a probe may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Probing {
    /// How many probes each endpoint gets in a period
    // Spread evenly over it. 0 counts as 1.
    #[schemars(with = "Decimal<0, 1, 100>")]
    pub probes: u32,
    /// Time over which the probes are spread
    #[schemars(with = "Span<SECOND, { 3_600 * SECOND }>")]
    pub period: Micros,
    /// Time after which a probe is lost
    #[schemars(with = "Span<1, { 60 * SECOND }>")]
    pub timeout: Micros,
}

impl Default for Probing {
    /// 5 probes in 10 s, each lost after 2 s.
    fn default() -> Self {
        Self {
            probes: 5,
            period: Micros::from_secs(10),
            timeout: Micros::from_secs(2),
        }
    }
}

impl Probing {
    /// When probe `k` starts, counted from when the prober did. `offset` is one random number for the life of the
    /// prober and shifts all probes by less than the time between two of them, so that replicas started together do
    /// not probe together; `jitter` is one for each probe and delays it by less than half of that time, so that they do
    /// not fall into step later. Probe `k` always starts before probe `k + 1`.
    pub fn start(&self, k: u64, offset: u64, jitter: u64) -> Micros {
        let offset = offset % self.slot(1).0.max(1);
        let jitter = jitter % (self.slot(1).0 / 2).max(1);
        self.slot(k) + Micros(offset) + Micros(jitter)
    }

    /// How long after the end of a probe that of the next may come: it starts one and a half times the time between two
    /// probes later at most, and may be lost.
    pub fn longest_gap(&self) -> Micros {
        let slot = self.slot(1);
        slot + Micros(slot.0 / 2) + self.timeout
    }

    /// The probe after `k` that still lies ahead when so much time has passed: `k + 1`, or a later one where the
    /// machine slept. What was missed is not made up for.
    pub fn after(&self, k: u64, elapsed: Micros) -> u64 {
        let passed = u128::from(elapsed.0) * self.per_period() / u128::from(self.period.0.max(1));
        k.saturating_add(1).max(u64::try_from(passed).unwrap_or(u64::MAX))
    }

    /// Whether a period begins with probe `k`.
    pub fn begins_period(&self, k: u64) -> bool {
        k.is_multiple_of(u64::from(self.probes.max(1)))
    }

    /// `k` times the time between two probes.
    fn slot(&self, k: u64) -> Micros {
        let us = u128::from(k) * u128::from(self.period.0) / self.per_period();
        Micros(u64::try_from(us).unwrap_or(u64::MAX))
    }

    fn per_period(&self) -> u128 {
        u128::from(self.probes.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn five_probes_in_ten_seconds_are_two_seconds_apart() {
        let probing = Probing::default();
        let starts: Vec<Micros> = (0..6).map(|k| probing.start(k, 0, 0)).collect();
        assert_eq!(starts, [0, 2, 4, 6, 8, 10].map(Micros::from_secs));
        assert_eq!(probing.start(1, 1_999_999, 999_999), Micros(4_999_998));
        assert_eq!(probing.start(1, 2_000_000, 1_000_000), Micros::from_secs(2));
        assert!((0..=10).filter(|k| probing.begins_period(*k)).eq([0, 5, 10]));
    }

    #[test]
    fn longest_gap_includes_jitter_and_timeout() {
        assert_eq!(Probing::default().longest_gap(), Micros::from_secs(5));
        let alone = Probing {
            probes: 1,
            ..Probing::default()
        };
        assert_eq!(alone.longest_gap(), Micros::from_secs(17));
    }

    #[test]
    fn missed_probes_are_not_made_up_for() {
        let probing = Probing::default();
        assert_eq!(probing.after(0, Micros::from_secs(1)), 1);
        assert_eq!(probing.after(3, Micros::from_secs(7)), 4);
        assert_eq!(probing.after(3, Micros::from_secs(3_600)), 1_800);
    }

    proptest! {
        #[test]
        fn probes_keep_their_order_and_their_distance(
            probes in 0..50_u32, period in 0..100_000_000_u64, k in 0..1_000_000_u64,
            offset: u64, first: u64, second: u64,
        ) {
            let probing = Probing { probes, period: Micros(period), timeout: Micros(0) };
            let slot = period / u64::from(probes.max(1));
            let (one, two) = (probing.start(k, offset, first), probing.start(k + 1, offset, second));
            // Dividing the period rounds by up to 1 µs.
            prop_assert!(two.0 + 1 >= one.0 + slot / 2, "{one:?} {two:?}");
            prop_assert!(two.0 <= one.0 + slot + slot / 2 + 2, "{one:?} {two:?}");
            prop_assert!(one.0 <= k * slot + k + slot + slot / 2 + 1);
        }
    }
}
