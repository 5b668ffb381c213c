//! Inputs for tests, also of other crates.

use edgeward_decision::keys::Keys;
use edgeward_decision::pod::Pod;
use serde_json::Value;

use crate::pod_record::{self, PodRecord};

/// Returns the record that a watch keeps of a pod.
#[allow(clippy::unwrap_used)]
pub fn record(pod: &Value, keys: &Keys) -> PodRecord {
    let text = pod.to_string();
    pod_record::record(&Pod::from_json(&text).unwrap(), keys)
        .unwrap()
        .unwrap()
}
