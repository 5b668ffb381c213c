//! Random numbers by purpose.
//!
//! Each number comes from its own stream. The name of a stream is the seed of the run, a purpose and up to two numbers.
//! The draws of one part of a run therefore do not affect other parts, and all policies of a seed meet the same
//! arrivals, service times and WAN.

use std::f64::consts::{FRAC_1_SQRT_2, TAU};

#[derive(Debug, Clone, Copy)]
pub enum Purpose {
    Arrivals = 1,
    Service,
    Controller,
    Wan,
    Crossing,
    Probe,
    Watch,
    Lot,
    Bind,
    Termination,
    Decision,
    Action,
    Learning,
    Topology,
    Discovery,
    Scenarios,
}

#[derive(Debug, Clone)]
pub struct Stream(fastrand::Rng);

impl Stream {
    pub fn new(seed: u64, purpose: Purpose, first: u64, second: u64) -> Self {
        Self(fastrand::Rng::with_seed(key(seed, purpose, first, second)))
    }

    /// The current state. [`Stream::at`] continues from it.
    pub fn state(&self) -> u64 {
        self.0.get_seed()
    }

    pub fn at(state: u64) -> Self {
        Self(fastrand::Rng::with_seed(state))
    }

    /// A uniform number in [0, 1).
    pub fn unit(&mut self) -> f64 {
        self.0.f64()
    }

    /// A uniform whole number below `end`, which must be above zero.
    pub fn below(&mut self, end: usize) -> usize {
        self.0.usize(..end)
    }

    /// 128 random bits.
    pub fn bits(&mut self) -> u128 {
        self.0.u128(..)
    }

    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (TAU * self.unit()).cos()
    }

    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

/// The first number in [0, 1) of the stream with this name.
pub fn unit(seed: u64, purpose: Purpose, first: u64, second: u64) -> f64 {
    (key(seed, purpose, first, second) >> 11) as f64 / (1_u64 << 53) as f64
}

fn key(seed: u64, purpose: Purpose, first: u64, second: u64) -> u64 {
    let mixed = mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15));
    let mixed = mix(mixed ^ (purpose as u64).wrapping_mul(0xd6e8_feb8_6659_fd93));
    mix(mix(mixed ^ first).wrapping_add(second.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// The finaliser of SplitMix64.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A distribution of times in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(
    feature = "simulation",
    derive(serde::Deserialize),
    serde(try_from = "serde_json::Value")
)]
pub enum Distribution {
    Constant(f64),
    Exponential(f64),
    /// Median, and the standard deviation of the logarithm.
    LogNormal(f64, f64),
    Uniform(f64, f64),
    Pareto(f64, f64, f64),
}

impl Distribution {
    /// Returns the value at the quantile of `place` in the standard normal distribution. Correlated places give
    /// correlated values.
    pub fn at(self, place: f64) -> f64 {
        match self {
            Self::Constant(value) => value,
            Self::Exponential(mean) => -mean * upper_tail(place).ln(),
            Self::LogNormal(median, sigma) => median * (sigma * place).exp(),
            Self::Uniform(least, most) => most - (most - least) * upper_tail(place),
            Self::Pareto(least, exponent, most) => (least * upper_tail(place).powf(-1.0 / exponent)).min(most),
        }
    }

    pub fn draw(self, stream: &mut Stream) -> f64 {
        match self {
            Self::Constant(value) => value,
            Self::Exponential(mean) => stream.exponential(mean),
            other => other.at(stream.normal()),
        }
    }

    pub fn least(self) -> f64 {
        match self {
            Self::Constant(value) => value,
            Self::Exponential(_) | Self::LogNormal(..) => 0.0,
            Self::Uniform(least, _) | Self::Pareto(least, ..) => least,
        }
    }
}

/// The probability that a standard normal number exceeds `place`. Source: Numerical Recipes, `erfcc`; the relative
/// error is below 1.2e-7.
fn upper_tail(place: f64) -> f64 {
    let x = place * FRAC_1_SQRT_2;
    let t = 1.0 / (1.0 + 0.5 * x.abs());
    const TERMS: [f64; 10] = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let sum = TERMS.iter().rev().fold(0.0, |sum, term| term + t * sum);
    let tail = t * (sum - x * x).exp();
    let tail = if x >= 0.0 { tail } else { 2.0 - tail };
    (0.5 * tail).clamp(f64::MIN_POSITIVE, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_stream_is_independent_of_other_streams() {
        let mut one = Stream::new(7, Purpose::Service, 1, 2);
        let mut other = Stream::new(7, Purpose::Service, 1, 2);
        Stream::new(7, Purpose::Arrivals, 1, 2).unit();
        assert_eq!(one.unit().to_bits(), other.unit().to_bits());
        let different = [
            Stream::new(8, Purpose::Service, 1, 2),
            Stream::new(7, Purpose::Wan, 1, 2),
            Stream::new(7, Purpose::Service, 2, 1),
        ];
        let next = one.unit();
        different.into_iter().for_each(|mut stream| {
            stream.unit();
            assert_ne!(next.to_bits(), stream.unit().to_bits());
        });
    }

    #[test]
    fn sample_means_match_distributions() {
        let (mean, sigma): (f64, f64) = (100.0, 0.5);
        for (distribution, expected) in [
            (Distribution::Constant(mean), mean),
            (Distribution::Exponential(mean), mean),
            (Distribution::LogNormal(mean, sigma), mean * (sigma * sigma / 2.0).exp()),
            (Distribution::Uniform(50.0, 150.0), mean),
            (Distribution::Pareto(50.0, 3.0, f64::MAX), 75.0),
        ] {
            let mut stream = Stream::new(1, Purpose::Service, 0, 0);
            let count = 200_000;
            let drawn: f64 = (0..count).map(|_| distribution.at(stream.normal())).sum();
            let found = drawn / f64::from(count);
            assert!((found - expected).abs() < 0.01 * expected, "{distribution:?}: {found}");
        }
    }

    #[test]
    fn upper_tail_matches_normal_distribution() {
        for (place, expected) in [(0.0, 0.5), (1.0, 0.158_655), (-1.0, 0.841_345), (3.0, 0.001_35)] {
            assert!((upper_tail(place) - expected).abs() < 1e-6, "{place}");
        }
    }
}
