//! Policies with faults, and what applies in spite of these. A policy promises where pods may run, and a slip in a manifest
//! must not break that promise.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::document;
use crate::document::{Faults, schema};
use crate::model::site_restriction::Demand;
use crate::model::traits::Traits;
use crate::placement::policy::selector::LabelSelector;
use crate::placement::policy::{MAX_PRECEDENCE, POLICY_SITES, POLICY_TRAITS, Policy, SCHEMA, Seen};

/// Why a policy does not apply as written, and what applies instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    faults: Faults,
    instead: Option<Arc<Instead>>,
}

/// The part or version of a policy in force while its newest version has faults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Instead {
    /// The last known version without faults, and its generation.
    Last(Policy, Option<i64>),
    /// Only the sites and traits of the policy.
    Restrictions(Policy),
    /// Sites, traits or a precedence that cannot be read, so the policy's pods may run nowhere.
    Nowhere(Policy),
}

impl Refused {
    /// Records the faults of this version, without any earlier version.
    pub(super) fn of(faults: Faults, spec: &Value) -> Self {
        let instead = Instead::of_restrictions(spec).map(Arc::new);
        Self { faults, instead }
    }

    /// Adds the last version without faults, which `before` is or has recorded. `None` if there is none, or if this value
    /// has one already.
    pub(super) fn after(&self, before: &Seen) -> Option<Self> {
        if self.has_last() {
            return None;
        }
        let last = match &before.policy {
            Ok(policy) => Arc::new(Instead::Last(policy.clone(), before.generation)),
            Err(before) if before.has_last() => Arc::clone(before.instead.as_ref()?),
            Err(_) => return None,
        };
        Some(Self {
            faults: self.faults.clone(),
            instead: Some(last),
        })
    }

    /// Whether the last version without faults applies.
    fn has_last(&self) -> bool {
        matches!(self.instead(), Some(Instead::Last(..)))
    }

    /// All faults.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The part or version in force meanwhile; `None` if there is none.
    pub fn instead(&self) -> Option<&Instead> {
        self.instead.as_deref()
    }
}

impl Instead {
    pub(super) fn policy(&self) -> &Policy {
        let (Self::Last(policy, _) | Self::Restrictions(policy) | Self::Nowhere(policy)) = self;
        policy
    }

    /// The sites and traits that a spec with faults states, and whether they can be read. `None` if it states neither, or
    /// if its selector cannot be read.
    ///
    /// If the precedence cannot be read, it is unknown whether this policy or another applies. The policy then comes first,
    /// and its pods may run nowhere.
    fn of_restrictions(spec: &Value) -> Option<Self> {
        let selector = document::checked("", |checks| {
            let schema = &SCHEMA["properties"]["selector"];
            let selector: LabelSelector = schema::read(schema, &spec["selector"], "", checks.faults)?;
            Some(selector.selector("", checks))
        });
        let selector = selector.ok()?;
        let precedence = match &spec["precedence"] {
            Value::Null => Some(0),
            stated => stated.as_i64(),
        };
        let is_readable = |key, text: &str| match key {
            POLICY_SITES => Demand::parse(text).is_some(),
            _ => Traits::parse(text).is_some(),
        };
        let mut slo = vec![];
        let mut are_readable = precedence.is_some();
        for (name, key) in [("sites", POLICY_SITES), ("traits", POLICY_TRAITS)] {
            let stated = match &spec["slo"] {
                Value::Object(slo) => slo.get(name).filter(|stated| !stated.is_null()),
                Value::Null => None,
                _ => Some(&Value::Null),
            };
            if let Some(stated) = stated {
                let text = stated
                    .as_str()
                    .filter(|text| is_readable(key, text) && precedence.is_some());
                are_readable &= text.is_some();
                // An empty text counts as unreadable.
                slo.push((key, text.unwrap_or_default().to_owned()));
            }
        }
        let policy = Policy {
            precedence: precedence
                .unwrap_or(MAX_PRECEDENCE)
                .clamp(-MAX_PRECEDENCE, MAX_PRECEDENCE),
            selector,
            slo,
        };
        if policy.slo.is_empty() {
            return None;
        }
        let instead = if are_readable {
            Self::Restrictions
        } else {
            Self::Nowhere
        };
        Some(instead(policy))
    }
}

/// Describes what applies.
impl fmt::Display for Instead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Last(_, Some(generation)) => {
                write!(f, "generation {generation}, the last without faults, counts meanwhile")
            }
            Self::Last(_, None) => write!(f, "the last version without faults counts meanwhile"),
            Self::Restrictions(_) => write!(f, "of it, its sites and traits alone count meanwhile"),
            Self::Nowhere(_) => write!(
                f,
                "its sites, its traits or its precedence cannot be read, so pods that it selects are refused meanwhile"
            ),
        }
    }
}

/// Lists the faults.
impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.faults.fmt(f)
    }
}
