//! A PerformanceProfile of a cluster, and what its last round gave.

use std::collections::BTreeMap;
use std::sync::Arc;

use edgeward_core::model::scores::ProfileScores;
use edgeward_core::units::Now;
use jiff::Timestamp;
use serde_json::Value;

use crate::evaluation::Evaluation;
use crate::profile::Profile;

/// All profiles by name.
pub type All = BTreeMap<String, Evaluated>;

/// A PerformanceProfile as it was seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenProfile {
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// Its `spec`.
    pub spec: Value,
    /// What its status says that outlives whoever wrote it.
    pub known: Known,
}

/// What the status of a PerformanceProfile says that outlives the replica that wrote it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// The generation that this is about.
    pub generation: Option<i64>,
    /// The site that is preferred, and since when.
    pub preferred: Option<(Box<str>, Timestamp)>,
    /// Whether it was accepted, and since when.
    pub accepted: Option<(bool, String)>,
}

/// What is known of a profile.
#[derive(Debug, Clone)]
pub struct Evaluated {
    /// The object.
    pub seen: SeenProfile,
    /// What the last good version of its spec says, as far as one was seen.
    pub profile: Option<Arc<Profile>>,
    /// Why its spec is not accepted, with every fault.
    pub refused: Option<String>,
    /// The last round; `None` before the first.
    pub last: Option<Arc<Round>>,
}

/// What one evaluation gave, and when.
#[derive(Debug)]
pub struct Round {
    /// What it gave.
    pub evaluation: Evaluation,
    /// When.
    pub at: Now,
}

impl Evaluated {
    /// A profile that was seen, where `before` is what was known of it. A spec with faults leaves the last good one in force.
    pub fn after(seen: SeenProfile, before: Option<&Self>) -> Self {
        let (profile, refused) = match Profile::read(&seen.spec) {
            Ok(profile) => (Some(Arc::new(profile)), None),
            Err(faults) => (
                before.and_then(|before| before.profile.clone()),
                Some(faults.to_string()),
            ),
        };
        // What another spec gave is nothing to this one.
        let last = before
            .filter(|_| refused.is_some())
            .and_then(|before| before.last.clone());
        Self {
            seen,
            profile,
            refused,
            last,
        }
    }

    /// What its status says of the spec that is in force.
    pub fn known(&self) -> Option<&Known> {
        let Known { generation, .. } = self.seen.known;
        let is_of_spec = self.refused.is_some() || generation == self.seen.generation;
        is_of_spec.then_some(&self.seen.known)
    }

    /// What decisions read of it; `None` of one that was never accepted. Before the first round it has no scores.
    pub fn scores(&self) -> Option<Arc<ProfileScores>> {
        let profile = self.profile.as_ref()?;
        let preferred = self.known().and_then(|known| known.preferred.as_ref());
        Some(Arc::new(ProfileScores {
            better: profile.better,
            margin: profile.margin,
            staleness: profile.staleness,
            preferred: preferred.map(|(site, _)| site.clone()),
            sites: self
                .last
                .as_ref()
                .map(|last| last.evaluation.scores.clone())
                .unwrap_or_default(),
        }))
    }
}
