//! What can be chosen of an environment.

use std::fmt;

/// The choices of an environment. The default is the environment as it was published: 4 clusters, instant departures, the
/// stale observation, the latency reward, and neither of the options for training.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// How many clusters there are, 1 to 128.
    pub clusters: usize,
    pub mode: Mode,
    pub observation: Observation,
    pub reward: RewardKind,
    /// Mark the row of "spread" by -2 where that of "reject" has -1, so that a network that treats rows alike can tell them apart.
    pub distinct_padding: bool,
    /// Divide what is observed: latencies and thresholds by 500, CPU by 8, memory by 32, replicas by 8.
    pub scaled: bool,
}

impl Settings {
    pub const MAX_CLUSTERS: usize = 128;

    /// Whether every field has a value that it can have.
    ///
    /// # Errors
    /// The field that has not, and its value.
    pub fn validate(&self) -> Result<(), String> {
        match self.clusters {
            1..=Self::MAX_CLUSTERS => Ok(()),
            clusters => Err(format!(
                "clusters: {clusters} is not a number from 1 to {}",
                Self::MAX_CLUSTERS
            )),
        }
    }
}

impl Settings {
    /// Reads fields as they are written: `clusters=8,mode=stay,scaled=true`. A field that is not named has its default.
    ///
    /// # Errors
    /// A field that there is not or that is named twice, or one with its value that it cannot have.
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
                    return Err(format!("{field} is none of the fields {known}"));
                }
            }
        }
        settings.validate()?;
        Ok(settings)
    }
}

fn truth(word: &str) -> Result<bool, String> {
    word.parse().map_err(|_| "is neither true nor false".to_owned())
}

impl fmt::Display for Settings {
    /// All fields, as [`Settings::parse`] reads them.
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

macro_rules! words {
    ($name:ident: $($value:ident = $word:literal),+) => {
        impl $name {
            pub const ALL: [$name; [$($word),+].len()] = [$($name::$value),+];

            pub fn as_str(self) -> &'static str {
                match self {
                    $($name::$value => $word),+
                }
            }

            /// The one of this word.
            ///
            /// # Errors
            /// There is none; the message names those that there are.
            pub fn parse(word: &str) -> Result<Self, String> {
                let known = Self::ALL.into_iter().find(|value| value.as_str() == word);
                known.ok_or_else(|| format!("is none of {}", Self::ALL.map(Self::as_str).join(", ")))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Until the next request arrives, as in the published code: at most one runs at a time.
    Instant,
    Stay,
}

words!(Mode: Instant = "instant", Stay = "stay");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observation {
    /// The last request, after it was placed and before anything departed, as in the published code. Only the mask is about
    /// the request that is to be placed; after a reset the observation is, too.
    Stale,
    /// The request that is to be placed, and the clusters as it finds them.
    Fresh,
}

words!(Observation: Stale = "stale", Fresh = "fresh");

/// What a step is worth. A request that is not accepted is worth -1, or the most if no cluster had room for all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RewardKind {
    /// 1 if the latency is below the request's threshold, else -1.
    Latency,
    /// 16 less the cost. The most is 15.
    Cost,
    /// 1.
    Naive,
    /// -1 if any cluster is used by more than 75 %, else 1.
    Risk,
    Binpack,
}

words!(RewardKind: Latency = "latency", Cost = "cost", Naive = "naive", Risk = "risk", Binpack = "binpack");

pub(crate) use words;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_they_are_written() {
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
    fn what_cannot_be_read_is_named() {
        for (text, expected) in [
            ("clusters=0", "clusters: 0 is not a number from 1 to 128"),
            ("clusters=4.5", "clusters: 4.5 is not a number from 1 to 128"),
            ("mode=stays", "mode: stays is none of instant, stay"),
            ("scaled=yes", "scaled: yes is neither true nor false"),
            ("mode=stay,mode=instant", "mode: instant is a second value"),
            ("reward=latency,stay", "stay has no value: write FIELD=VALUE"),
            (
                "seed=1",
                "seed is none of the fields clusters, mode, observation, reward, distinct-padding, scaled",
            ),
        ] {
            assert_eq!(Settings::parse(text), Err(expected.to_owned()));
        }
    }
}
