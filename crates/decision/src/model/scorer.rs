//! The learned scorer: a small network that ranks clouds, and the file that it is read from.
//!
//! The network is equivariant: clouds in another order get the same scores in that order. For n clouds:
//!
//! | step | shape |
//! |---|---|
//! | `first = relu(features · firstWeights + firstBias)` | n × 16 |
//! | `mean` of `first` over the clouds | 16 |
//! | `second = relu(first · secondWeights + mean · meanWeights + secondBias)` | n × 16 |
//! | `score = second · lastWeights + lastBias` | n |
//!
//! All numbers are integers in units of 1/[`ONE`]. A product is summed in 64 bits, without overflow, and shifted back with
//! rounding down; values between layers are at most 256. So the scores are the same on every machine.

use std::fmt::Debug;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::document::{Checks, Fault, Faults, checked, parse, shown};
use edgeward_kube::excerpt::excerpt;

/// Number of features of a cloud, and of values in each hidden layer.
pub const WIDTH: usize = 16;

const SHIFT: u32 = 12;

/// The number 1 in features, weights and scores.
pub const ONE: i64 = 1 << SHIFT;

/// Largest absolute value of a feature.
pub const MAX_FEATURE: i64 = 8 * ONE;

/// Largest value between layers.
const MAX_HIDDEN: i64 = 256 * ONE;

/// Most bytes of a file.
pub const MAX_BYTES: usize = 64 << 10;

/// Most bytes of a value in an error: the length of `sha256`.
const SHOWN_BYTES: usize = 64;

/// The version of the file format.
const SCHEMA_VERSION: u64 = 1;

/// The features of a cloud for a pod, in the order of [`FEATURES`], each from -[`MAX_FEATURE`] to [`MAX_FEATURE`].
pub type Features = [i64; WIDTH];

/// Names of the features. `docs/guide/decide.md` says what they are.
pub const FEATURES: [&str; WIDTH] = [
    "cpuOverFree",
    "memoryOverFree",
    "fittingNodes",
    "processingOverBound",
    "queueOverBound",
    "wanOverBound",
    "etaOverBound",
    "rttOverThreshold",
    "lossOverThreshold",
    "costOverDearest",
    "ownerShare",
    "gatedShare",
    "class",
    "hasDeadline",
    "hasTarget",
    "priority",
];

/// Gives scores to clouds. The webhook has one implementation, [`Scorer`]; simulations have others.
pub trait Ranker: Debug + Send + Sync {
    /// Returns the scores of the clouds with these features, in this order. They depend on the features alone.
    fn scores(&self, clouds: &[Features]) -> Scores;
}

/// Scores of the clouds of a decision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scores {
    /// The score of each cloud, in units of 1/[`ONE`]; higher is better.
    pub of: Vec<i64>,
    /// The least difference between the best score and the second, in units of 1/[`ONE`]. Below it, `sitePolicy` decides.
    pub margin: i64,
    /// For each cloud and feature, whether the value is beyond the trained range.
    pub outside: Vec<[bool; WIDTH]>,
}

/// A trained network with its metadata, in the form of its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scorer {
    /// Version of the file format: 1.
    pub schema_version: u64,
    /// The names in [`FEATURES`], in that order.
    pub features: Vec<String>,
    /// The lowest and highest value of each feature in training, in units of 1/[`ONE`]. Values beyond are clamped and counted.
    pub ranges: [[i64; 2]; WIDTH],
    /// The least difference between the best score and the second, in units of 1/[`ONE`]. Below it, `sitePolicy` decides.
    pub margin: u32,
    /// The weights of the network.
    pub network: Network,
    /// How the scorer was made.
    pub provenance: Provenance,
    /// SHA-256, in hexadecimal, of the file as compact JSON with the fields in this order and an empty `sha256`.
    pub sha256: String,
}

/// Weights by input, then by output, in units of 1/[`ONE`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(missing_docs, reason = "the module says what they are")]
pub struct Network {
    pub first_weights: [[i16; WIDTH]; WIDTH],
    pub first_bias: [i16; WIDTH],
    pub second_weights: [[i16; WIDTH]; WIDTH],
    pub mean_weights: [[i16; WIDTH]; WIDTH],
    pub second_bias: [i16; WIDTH],
    pub last_weights: [i16; WIDTH],
    pub last_bias: i16,
}

/// How a scorer was made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Provenance {
    /// The command that trained it.
    pub command: String,
    /// The version of the program.
    pub version: String,
    /// SHA-256 of each scenario, in hexadecimal.
    pub scenarios: Vec<String>,
    /// The seeds of the training.
    pub seeds: Vec<u64>,
}

impl Scorer {
    /// Reads a file.
    ///
    /// # Errors
    /// The first field of a wrong shape, or all fields with a wrong value.
    pub fn read(text: &str) -> Result<Self, Faults> {
        if text.len() > MAX_BYTES {
            return Err(Fault::new("", format_args!("has more than {MAX_BYTES} bytes")).into());
        }
        let document: Value =
            serde_json::from_str(text).map_err(|error| Fault::new("", format_args!("is not JSON: {error}")))?;
        // The fields of another version may have other shapes.
        let version = &document["schemaVersion"];
        if *version != SCHEMA_VERSION {
            let message = format_args!("{} is not {SCHEMA_VERSION}", excerpt(shown(version), SHOWN_BYTES));
            return Err(Fault::new("schemaVersion", message).into());
        }
        let scorer: Self = parse(&document, "")?;
        checked("", |checks| {
            scorer.check(checks);
            Some(scorer)
        })
    }

    /// This scorer with the right `sha256`.
    pub fn sealed(self) -> Self {
        let sha256 = self.hash();
        Self { sha256, ..self }
    }

    /// The margin as a number.
    pub fn shown_margin(&self) -> f64 {
        f64::from(self.margin) / ONE as f64
    }

    fn hash(&self) -> String {
        let unsealed = Self {
            sha256: String::new(),
            ..self.clone()
        };
        // Numbers and strings always serialise.
        let bytes = serde_json::to_vec(&unsealed).unwrap_or_default();
        Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn check(&self, checks: &mut Checks<'_>) {
        for (i, name) in FEATURES.iter().enumerate() {
            let found = self.features.get(i).map_or("", |name| name);
            if found != *name {
                let found = excerpt(found, SHOWN_BYTES);
                checks.fault(format_args!("features[{i}]"), format_args!("{found:?} is not {name:?}"));
            }
        }
        if self.features.len() > WIDTH {
            checks.fault(
                "features",
                format_args!("has {} names, not {WIDTH}", self.features.len()),
            );
        }
        for (i, [least, most]) in self.ranges.iter().enumerate() {
            if least > most {
                checks.fault(format_args!("ranges[{i}]"), format_args!("{least} is above {most}"));
            }
        }
        let expected = self.hash();
        if self.sha256 != expected {
            let found = excerpt(&self.sha256, SHOWN_BYTES);
            checks.fault(
                "sha256",
                format_args!("{found:?} is not {expected}, that of the content"),
            );
        }
    }
}

impl Ranker for Scorer {
    /// Cost: 800 products for each cloud.
    fn scores(&self, clouds: &[Features]) -> Scores {
        let clamp = |i: usize, value: i64| value.max(self.ranges[i][0]).min(self.ranges[i][1]);
        let clamped = clouds
            .iter()
            .map(|features| std::array::from_fn(|i| clamp(i, features[i]).clamp(-MAX_FEATURE, MAX_FEATURE)));
        let clamped: Vec<_> = clamped.collect();
        let outside = clouds
            .iter()
            .map(|features| std::array::from_fn(|i| clamp(i, features[i]) != features[i]));
        Scores {
            of: self.network.scores(&clamped),
            margin: self.margin.into(),
            outside: outside.collect(),
        }
    }
}

impl Network {
    fn scores(&self, clouds: &[Features]) -> Vec<i64> {
        let first = clouds.iter().map(|features| {
            let mut sums = scaled(&self.first_bias);
            add_products(&mut sums, features, &self.first_weights);
            relu(sums)
        });
        let first: Vec<_> = first.collect();
        let count = clouds.len().max(1) as i64;
        let mean = std::array::from_fn(|i| first.iter().map(|values| values[i]).sum::<i64>() / count);
        let mut of_all = scaled(&self.second_bias);
        add_products(&mut of_all, &mean, &self.mean_weights);
        let score = |values: &[i64; WIDTH]| {
            let mut sums = of_all;
            add_products(&mut sums, values, &self.second_weights);
            let products = relu(sums).into_iter().zip(self.last_weights);
            let sum: i64 = products.map(|(value, weight)| value * i64::from(weight)).sum();
            (sum >> SHIFT) + i64::from(self.last_bias)
        };
        first.iter().map(score).collect()
    }
}

/// The bias in the units of a product.
fn scaled(bias: &[i16; WIDTH]) -> [i64; WIDTH] {
    bias.map(|bias| i64::from(bias) << SHIFT)
}

fn add_products(sums: &mut [i64; WIDTH], inputs: &[i64; WIDTH], weights: &[[i16; WIDTH]; WIDTH]) {
    for (input, weights) in inputs.iter().zip(weights) {
        for (sum, weight) in sums.iter_mut().zip(weights) {
            *sum += input * i64::from(*weight);
        }
    }
}

fn relu(sums: [i64; WIDTH]) -> [i64; WIDTH] {
    sums.map(|sum| (sum >> SHIFT).clamp(0, MAX_HIDDEN))
}

#[cfg(test)]
mod tests;
