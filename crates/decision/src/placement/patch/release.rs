//! Patches of a gated pod: its release, and the reason why it keeps waiting.
//!
//! Each patch first tests the pod's resourceVersion, so it never overwrites a later change.

use json_patch::jsonptr::PointerBuf;
use json_patch::{PatchOperation, RemoveOperation, TestOperation};

use crate::config::Config;
use crate::keys::Keys;
use crate::placement::patch::{Stamp, Wanted, annotate, patch, timestamp};
use crate::placement::verdict::{Reason, Verdict};
use crate::pod::Pod;

/// Releases a pod: adds the placement of the verdict, and removes edgeward's gate. `None` if the pod has no such gate or no
/// resourceVersion.
pub fn release(pod: &Pod<'_>, verdict: &Verdict<'_>, config: &Config, stamp: &Stamp) -> Option<Vec<PatchOperation>> {
    without_gate(pod, patch(pod, verdict, config, stamp), &config.keys)
}

/// Removes edgeward's gate and changes nothing else. `None` in the same cases as [`release`].
pub fn remove_gate(pod: &Pod<'_>, keys: &Keys) -> Option<Vec<PatchOperation>> {
    without_gate(pod, Vec::new(), keys)
}

fn without_gate(pod: &Pod<'_>, placement: Vec<PatchOperation>, keys: &Keys) -> Option<Vec<PatchOperation>> {
    let at = pod.gate(&keys.gate)?;
    let path = PointerBuf::from_tokens(["spec", "schedulingGates", &at.to_string()]);
    let name = path.with_trailing_token("name");
    let mut operations = vec![is_version(pod)?, test(name, &keys.gate)];
    operations.extend(placement);
    operations.push(PatchOperation::Remove(RemoveOperation { path }));
    Some(operations)
}

/// Writes why a gated pod keeps waiting. Its time restarts if only gates of others held it so far. `None` if the pod has no
/// resourceVersion.
pub fn update_reason(pod: &Pod<'_>, reason: Reason, config: &Config, stamp: &Stamp) -> Option<Vec<PatchOperation>> {
    let keys = &config.keys;
    let mut wanted: Wanted<'_> = vec![(&keys.reason, reason.as_str().into())];
    if pod.annotation(&keys.reason) == Some(Reason::HeldForeignGate.as_str()) {
        wanted.push((&keys.timestamp, timestamp(stamp.at).into()));
    }
    let kept = [&keys.timestamp, &keys.explain];
    for key in kept {
        if let (Some(value), false) = (pod.annotation(key), wanted.iter().any(|(wanted, _)| wanted == key)) {
            wanted.push((key, value.into()));
        }
    }
    let mut operations = vec![is_version(pod)?];
    annotate(pod, wanted, config, &mut operations);
    Some(operations)
}

fn is_version(pod: &Pod<'_>) -> Option<PatchOperation> {
    let path = PointerBuf::from_tokens(["metadata", "resourceVersion"]);
    Some(test(path, pod.resource_version()?))
}

fn test(path: PointerBuf, value: &str) -> PatchOperation {
    let value = value.into();
    PatchOperation::Test(TestOperation { path, value })
}
