//! Settings of an environment.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Settings of an environment. The default is the published environment: 4 clusters, instant departures, the stale
/// observation, the latency reward, and neither of the options for training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Settings {
    /// Number of clusters, 1 to 128.
    pub clusters: usize,
    pub mode: Mode,
    pub observation: Observation,
    pub reward: RewardKind,
    /// Fills the row of "spread" with -2 where the row of "reject" has -1. A network that treats all rows alike can
    /// then tell them apart.
    pub distinct_padding: bool,
    /// Scales observations: latencies and thresholds are divided by 500, CPU by 8, memory by 32, replicas by 8.
    pub scaled: bool,
}

impl Settings {
    pub const MAX_CLUSTERS: usize = 128;

    /// Checks that every field has a valid value.
    ///
    /// # Errors
    /// Names the invalid field and its value.
    pub fn validate(&self) -> Result<(), String> {
        match self.clusters {
            1..=Self::MAX_CLUSTERS => Ok(()),
            clusters => Err(format!(
                "clusters: {clusters} is not a number from 1 to {}",
                Self::MAX_CLUSTERS
            )),
        }
    }

    /// Reads fields such as `clusters=8,mode=stay,scaled=true`. A missing field has its default.
    ///
    /// # Errors
    /// A field is unknown, is given twice, or has an invalid value.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut settings = Self::default();
        let mut seen = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let Some((field, value)) = part.split_once('=') else {
                return Err(format!("{part} has no value: write FIELD=VALUE"));
            };
            let named = |error: String| format!("{field}: {value} {error}");
            if seen.contains(&field) {
                return Err(named("is a second value".to_owned()));
            }
            seen.push(field);
            match field {
                "clusters" => {
                    settings.clusters = value
                        .parse()
                        .map_err(|_| named(format!("is not a number from 1 to {}", Self::MAX_CLUSTERS)))?;
                }
                "mode" => settings.mode = Mode::parse(value).map_err(named)?,
                "observation" => settings.observation = Observation::parse(value).map_err(named)?,
                "reward" => settings.reward = RewardKind::parse(value).map_err(named)?,
                "distinct-padding" => settings.distinct_padding = truth(value).map_err(named)?,
                "scaled" => settings.scaled = truth(value).map_err(named)?,
                _ => {
                    let known = "clusters, mode, observation, reward, distinct-padding, scaled";
                    return Err(format!("{field} is not one of the fields {known}"));
                }
            }
        }
        settings.validate()?;
        Ok(settings)
    }
}

impl TryFrom<String> for Settings {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl From<Settings> for String {
    fn from(settings: Settings) -> Self {
        settings.to_string()
    }
}

fn truth(word: &str) -> Result<bool, String> {
    word.parse().map_err(|_| "is neither true nor false".to_owned())
}

impl fmt::Display for Settings {
    /// Writes all fields in the format of [`Settings::parse`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            clusters,
            mode,
            observation,
            reward,
            distinct_padding,
            scaled,
        } = self;
        write!(
            f,
            "clusters={clusters},mode={mode},observation={observation},reward={reward},\
             distinct-padding={distinct_padding},scaled={scaled}"
        )
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            clusters: 4,
            mode: Mode::Instant,
            observation: Observation::Stale,
            reward: RewardKind::Latency,
            distinct_padding: false,
            scaled: false,
        }
    }
}

/// Declares an enum as `edgeward_kube::words!` does, which also displays and parses its words.
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident $values:tt) => {
        edgeward_kube::words! { $(#[$meta])* pub enum $name $values }

        impl $name {
            /// Returns the value with this name.
            ///
            /// # Errors
            /// The name is unknown. The message lists the known names.
            pub fn parse(word: &str) -> Result<Self, String> {
                Self::of_word(word).ok_or_else(|| format!("is not one of {}", Self::WORDS.join(", ")))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

words! {
    pub enum Mode {
        /// Requests run until the next one arrives, as in the published code. At most one runs at a time.
        Instant = "instant",
        Stay = "stay",
    }
}

words! {
    pub enum Observation {
        /// The previous request, after its placement and before departures, as in the published code. Only the mask is
        /// about the pending request. After a reset, the observation is about the pending request as well.
        Stale = "stale",
        /// The pending request, and the clusters at that time.
        Fresh = "fresh",
    }
}

words! {
    /// The reward of a step. A request that is not accepted gives -1, or the maximum if no cluster had room for all its
    /// replicas.
    pub enum RewardKind {
        /// 1 if the latency is below the request's threshold, else -1.
        Latency = "latency",
        /// 16 minus the cost. The maximum is 15.
        Cost = "cost",
        /// Always 1.
        Naive = "naive",
        /// -1 if any cluster is used by more than 75 %, else 1.
        Risk = "risk",
        Binpack = "binpack",
    }
}

pub(crate) use words;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_text_round_trips() {
        let settings = Settings {
            clusters: 128,
            mode: Mode::Stay,
            observation: Observation::Fresh,
            reward: RewardKind::Binpack,
            distinct_padding: true,
            scaled: true,
        };
        assert_eq!(Settings::parse(&settings.to_string()), Ok(settings));
        assert_eq!(Settings::parse(""), Ok(Settings::default()));
    }

    #[test]
    fn invalid_settings_name_field_and_value() {
        for (text, expected) in [
            ("clusters=0", "clusters: 0 is not a number from 1 to 128"),
            ("clusters=4.5", "clusters: 4.5 is not a number from 1 to 128"),
            ("mode=stays", "mode: stays is not one of instant, stay"),
            ("scaled=yes", "scaled: yes is neither true nor false"),
            ("mode=stay,mode=instant", "mode: instant is a second value"),
            ("reward=latency,stay", "stay has no value: write FIELD=VALUE"),
            (
                "seed=1",
                "seed is not one of the fields clusters, mode, observation, reward, distinct-padding, scaled",
            ),
        ] {
            assert_eq!(Settings::parse(text), Err(expected.to_owned()));
        }
    }
}
