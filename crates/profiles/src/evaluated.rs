//! A PerformanceProfile object, and the result of its last evaluation.

use std::collections::BTreeMap;
use std::sync::Arc;

use edgeward_decision::model::scores::ProfileScores;
use edgeward_kube::units::Now;
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
    /// `spec` of the object.
    pub spec: Value,
    /// The part of the status that outlives the replica that wrote it.
    pub known: StatusFacts,
}

/// The part of a PerformanceProfile's status that outlives the replica that wrote it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusFacts {
    /// The generation that the status is about.
    pub generation: Option<i64>,
    /// The preferred site, and since when it is preferred.
    pub preferred: Option<(Box<str>, Timestamp)>,
    /// Whether the spec was accepted, and since when.
    pub accepted: Option<(bool, String)>,
}

/// A profile object with its parsed spec and its last evaluation.
#[derive(Debug, Clone)]
pub struct Evaluated {
    /// The object as it was last seen.
    pub seen: SeenProfile,
    /// The last valid version of the spec, if one was seen.
    pub profile: Option<Arc<Profile>>,
    /// Why the spec is not accepted, with every fault.
    pub refused: Option<String>,
    /// Result of the last evaluation. `None` before the first.
    pub last: Option<Arc<Round>>,
}

/// Result and time of one evaluation.
#[derive(Debug)]
pub struct Round {
    /// Scores of the sites.
    pub evaluation: Evaluation,
    /// Time of the evaluation.
    pub at: Now,
}

impl Evaluated {
    /// Combines the object that was just seen with the state `before` it. If the spec has faults, the last valid spec
    /// stays in force.
    pub fn after(seen: SeenProfile, before: Option<&Self>) -> Self {
        let (profile, refused) = match Profile::read(&seen.spec) {
            Ok(profile) => (Some(Arc::new(profile)), None),
            Err(faults) => (
                before.and_then(|before| before.profile.clone()),
                Some(faults.to_string()),
            ),
        };
        // The result of another spec does not apply to this spec.
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

    /// Returns the status if it is about the spec in force.
    pub fn known(&self) -> Option<&StatusFacts> {
        let StatusFacts { generation, .. } = self.seen.known;
        let is_of_spec = self.refused.is_some() || generation == self.seen.generation;
        is_of_spec.then_some(&self.seen.known)
    }

    /// Returns the scores for decisions. `None` if no spec was ever accepted. Before the first evaluation there are no
    /// scores.
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
