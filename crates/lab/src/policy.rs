//! The placement policies, including the bound `clairvoyant`.

use std::fmt;

use crate::scenario::Scenario;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    EdgeOnly,
    CloudOnly,
    LeastLoaded,
    Edgeward,
    /// edgeward with the scenario's performance profile, which every managed pod names.
    EdgewardProfile,
    Clairvoyant,
}

impl Policy {
    pub const ALL: [Policy; 6] = [
        Policy::EdgeOnly,
        Policy::CloudOnly,
        Policy::LeastLoaded,
        Policy::Edgeward,
        Policy::EdgewardProfile,
        Policy::Clairvoyant,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Policy::EdgeOnly => "edge-only",
            Policy::CloudOnly => "cloud-only",
            Policy::LeastLoaded => "least-loaded",
            Policy::Edgeward => "edgeward",
            Policy::EdgewardProfile => "edgeward-profile",
            Policy::Clairvoyant => "clairvoyant",
        }
    }

    pub fn of(scenario: &Scenario) -> impl Iterator<Item = Policy> {
        let has_profile = scenario.profile.is_some();
        Self::ALL
            .into_iter()
            .filter(move |policy| has_profile || *policy != Policy::EdgewardProfile)
    }

    /// Returns the policy with this name.
    ///
    /// # Errors
    /// The name is unknown. The message lists the known names.
    pub fn parse(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|policy| policy.as_str() == name);
        known.ok_or_else(|| format!("is not one of {}", Self::ALL.map(Self::as_str).join(", ")))
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
