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
        Clairvoyant = "clairvoyant",
    }
}

impl Policy {
    pub fn of(scenario: &Scenario) -> impl Iterator<Item = Policy> {
        let has_profile = scenario.profile.is_some();
        Self::ALL
            .into_iter()
            .filter(move |policy| has_profile || *policy != Policy::EdgewardProfile)
    }
}
