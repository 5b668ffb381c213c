//! Policies with faults: what counts of them all the same. Where pods may run is a promise, which a slip in a manifest does not end.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::{MAX_PRECEDENCE, POLICY_SITES, POLICY_TRAITS, Policy, Seen};
use crate::document::{self, Faults};
use crate::model::site_restriction::Demand;
use crate::model::traits::Traits;
use crate::placement::policy::selector::LabelSelector;

/// Why a policy does not count as it is, and what counts instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    faults: Faults,
    instead: Option<Arc<Instead>>,
}

/// What counts while the newest version of a policy has faults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instead {
    policy: Policy,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// The last version without faults that was known, of this generation.
    Last(Option<i64>),
    /// Its sites and traits and nothing else.
    Restrictions,
    /// That these cannot be read, so that its pods may run nowhere.
    Nowhere,
}

impl Refused {
    /// Nothing else is known than this version, which has these faults.
    pub(super) fn of(faults: Faults, spec: &Value) -> Self {
        let instead = Instead::of_restrictions(spec).map(Arc::new);
        Self { faults, instead }
    }

    /// The same with what counts of the version before, where that is a whole one; `None` where it changes nothing, also where an older
    /// one was found already.
    pub(super) fn after(&self, before: &Seen) -> Option<Self> {
        if self.has_last() {
            return None;
        }
        let last = match &before.policy {
            Ok(policy) => Arc::new(Instead {
                policy: policy.clone(),
                what: What::Last(before.generation),
            }),
            Err(before) if before.has_last() => Arc::clone(before.instead.as_ref()?),
            Err(_) => return None,
        };
        Some(Self {
            faults: self.faults.clone(),
            instead: Some(last),
        })
    }

    /// Whether the last version without faults counts.
    fn has_last(&self) -> bool {
        let instead = self.instead.as_ref();
        instead.is_some_and(|instead| matches!(instead.what, What::Last(_)))
    }

    /// Every fault.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// What counts meanwhile; `None` where the policy says nothing at all.
    pub fn instead(&self) -> Option<&Instead> {
        self.instead.as_deref()
    }
}

impl Instead {
    pub(super) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The sites and traits that a spec with faults states, or that they cannot be read; `None` where it states none, or it cannot be read
    /// which pods it selects. Without a readable precedence nobody can say whether these count or those of another: it comes first,
    /// and its pods may run nowhere.
    fn of_restrictions(spec: &Value) -> Option<Self> {
        let selector: LabelSelector = document::parse(&spec["selector"], "").ok()?;
        let selector = document::checked("", |checks| Some(selector.selector("", checks))).ok()?;
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
                // Without a text nothing can be read.
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
        let what = if are_readable {
            What::Restrictions
        } else {
            What::Nowhere
        };
        (!policy.slo.is_empty()).then_some(Self { policy, what })
    }
}

/// What counts, in words.
impl fmt::Display for Instead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.what {
            What::Last(Some(generation)) => {
                write!(f, "generation {generation}, the last without faults, counts meanwhile")
            }
            What::Last(None) => write!(f, "the last version without faults counts meanwhile"),
            What::Restrictions => write!(f, "of it, its sites and traits alone count meanwhile"),
            What::Nowhere => write!(
                f,
                "its sites, its traits or its precedence cannot be read, so pods that it selects are refused meanwhile"
            ),
        }
    }
}

/// The faults.
impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.faults.fmt(f)
    }
}
