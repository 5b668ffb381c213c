//! What changes on a held pod: its release, and why it goes on waiting.
//!
//! Such a patch speaks of one version of the pod: it begins by testing that it still is that one, so that whatever
//! happened since is never overwritten.

use serde::Serialize;
use serde_json::Value;

use crate::config::Config;
use crate::keys::Keys;
use crate::placement::patch::{Add, Stamp, Wanted, annotate, patch, time};
use crate::placement::verdict::{Reason, Verdict};
use crate::wire::pod::Pod;

/// One operation of a JSONPatch (RFC 6902).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Operation {
    /// The patch applies only if this is there.
    Test {
        /// JSON pointer.
        path: String,
        /// What must be there.
        value: Value,
    },
    /// As [`Add`].
    Add {
        /// JSON pointer.
        path: String,
        /// What is added.
        value: Value,
    },
    /// Removes what is there.
    Remove {
        /// JSON pointer.
        path: String,
    },
}

impl From<Add> for Operation {
    fn from(Add { path, value }: Add) -> Self {
        Operation::Add { path, value }
    }
}

/// Releases a pod: adds what the verdict places it with, and removes our gate. `None` if it does not carry our gate, or does not
/// say which version it is.
pub fn release(pod: &Pod<'_>, verdict: &Verdict<'_>, config: &Config, stamp: &Stamp) -> Option<Vec<Operation>> {
    without_gate(pod, patch(pod, verdict, config, stamp), &config.keys)
}

/// Removes our gate, and changes nothing else. `None` as for [`release`].
pub fn remove_gate(pod: &Pod<'_>, keys: &Keys) -> Option<Vec<Operation>> {
    without_gate(pod, Vec::new(), keys)
}

fn without_gate(pod: &Pod<'_>, placement: Vec<Add>, keys: &Keys) -> Option<Vec<Operation>> {
    let at = pod.gate(&keys.gate)?;
    let mut operations = vec![
        is_version(pod)?,
        Operation::Test {
            path: format!("/spec/schedulingGates/{at}/name"),
            value: keys.gate.as_str().into(),
        },
    ];
    operations.extend(placement.into_iter().map(Operation::from));
    let path = format!("/spec/schedulingGates/{at}");
    operations.push(Operation::Remove { path });
    Some(operations)
}

/// Writes why a held pod goes on waiting. Its time begins again when it was only others that held it so far.
pub fn update_reason(pod: &Pod<'_>, reason: Reason, config: &Config, stamp: &Stamp) -> Option<Vec<Operation>> {
    let keys = &config.keys;
    let mut wanted: Wanted<'_> = vec![(&keys.reason, reason.as_str().into())];
    if pod.annotation(&keys.reason) == Some(Reason::HeldForeignGate.as_str()) {
        wanted.push((&keys.timestamp, time(stamp).into()));
    }
    let kept = [&keys.timestamp, &keys.explain];
    for key in kept {
        if let (Some(value), false) = (pod.annotation(key), wanted.iter().any(|(wanted, _)| wanted == key)) {
            wanted.push((key, value.into()));
        }
    }
    let mut adds = Vec::new();
    annotate(pod, wanted, config, &mut adds);
    let operations = std::iter::once(is_version(pod)?).chain(adds.into_iter().map(Operation::from));
    Some(operations.collect())
}

fn is_version(pod: &Pod<'_>) -> Option<Operation> {
    Some(Operation::Test {
        path: "/metadata/resourceVersion".to_owned(),
        value: pod.resource_version()?.into(),
    })
}
