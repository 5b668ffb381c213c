//! What is told of a pod whose gate stays.

use edgeward_core::keys::Keys;
use edgeward_core::model::pod_record::HeldPod;
use jiff::Timestamp;

use super::{PodEvent, PodReason};

impl PodEvent {
    /// The API server refuses to change a held pod, in these words. One for each pod, however often it is
    /// tried.
    pub fn release_refused(held: &HeldPod, words: &str, keys: &Keys, at: Timestamp) -> Self {
        Self {
            namespace: held.namespace.clone(),
            name: held.name.clone(),
            uid: (*held.uid).into(),
            reason: PodReason::ReleaseRefused,
            decision: None,
            at,
            note: format!(
                "its gate {} stays for now; the API server refuses the change: {words}",
                keys.gate
            ),
        }
    }
}
