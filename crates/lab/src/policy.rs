//! The placement policies, including the bound `clairvoyant`.

use std::fmt;

use crate::gym::words;
use crate::scenario::Scenario;

words! {
    pub enum Policy {
        EdgeOnly = "edge-only",
        CloudOnly = "cloud-only",
        LeastLoaded = "least-loaded",
        Edgeward = "edgeward",
        /// edgeward with the scenario's performance profile, which every managed pod names.
        EdgewardProfile = "edgeward-profile",
        /// edgeward with the scenario's `moves`.
        EdgewardMoves = "edgeward-moves",
        /// edgeward with `sitePolicy: lowest-cost`.
        EdgewardLowestCost = "edgeward-lowest-cost",
        /// edgeward with an active scorer.
        EdgewardLearned = "edgeward-learned",
        Clairvoyant = "clairvoyant",
    }
}

impl Policy {
    pub fn of(scenario: &Scenario) -> impl Iterator<Item = Policy> + use<'_> {
        Self::ALL
            .into_iter()
            .filter(|policy| policy.missing(scenario).is_none())
    }

    /// What this policy needs of a scenario that has none.
    pub fn missing(self, scenario: &Scenario) -> Option<&'static str> {
        match self {
            Self::EdgewardProfile if scenario.profile.is_none() => Some("profile"),
            Self::EdgewardMoves if !scenario.config.moves.enabled => Some("edgeward.moves.enabled"),
            Self::EdgewardLowestCost if scenario.sites.len() < 3 => Some("second cloud"),
            Self::EdgewardLearned if scenario.scorer.is_none() => Some("--scorer"),
            _ => None,
        }
    }
}
