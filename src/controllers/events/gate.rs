//! What is told of a pod whose gate stays.

use edgeward_core::keys::Keys;
use edgeward_core::model::pod_record::{HeldPod, OtherDomainPod};
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

    /// A pod is behind the gate of another domain than that of these keys. One for each pod.
    pub fn another_domain(other_domain_pod: OtherDomainPod, keys: &Keys, at: Timestamp) -> Self {
        let gate = Keys::new(&other_domain_pod.domain).gate;
        Self {
            namespace: other_domain_pod.namespace,
            name: other_domain_pod.name,
            uid: other_domain_pod.uid,
            reason: PodReason::GateOfAnotherDomain,
            decision: None,
            at,
            note: format!(
                "nobody releases it: it is behind the gate {gate}, and edgeward runs with the domain {}; if the domain was \
                 changed, change it back until no pod is held, or remove its gate with `edgeward release` and the old configuration",
                keys.domain
            ),
        }
    }
}
