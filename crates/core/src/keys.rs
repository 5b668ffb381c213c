//! The keys of the contract with users: annotations and labels under one domain.

/// The annotation and label keys of the contract under one domain.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
#[serde(from = "String")]
pub struct Keys {
    /// The domain itself.
    pub domain: String,
    /// `slo.<domain>/`: the annotations read.
    pub slo_prefix: String,
    /// Annotation: the sites that the pod may run at.
    pub sites: String,
    /// Annotation: those that the policy says which counts for it; both hold.
    pub policy_sites: String,
    /// Annotation: the traits that the pod requires.
    pub traits: String,
    /// Annotation: those that the policy says which counts for it; both hold.
    pub policy_traits: String,
    /// Label that opts a namespace in, and a pod in or out.
    pub managed: String,
    /// Label of namespaces whose SloPolicies speak for pods that state nothing.
    pub policies: String,
    /// Label of pods that are placed: the API server does not ask about them again.
    pub placed: String,
    /// `edge` or `cloud`.
    pub decision: String,
    /// Site name.
    pub site: String,
    /// Reason code.
    pub reason: String,
    /// When it was decided.
    pub timestamp: String,
    /// RTT used, in milliseconds.
    pub wan_rtt_ms: String,
    /// Id of the decision.
    pub decision_id: String,
    /// The numbers behind the verdict.
    pub explain: String,
    /// Our scheduling gate: it keeps a gated pod from kube-scheduler.
    pub gate: String,
}

/// The keys under a domain.
impl From<String> for Keys {
    fn from(domain: String) -> Self {
        Self::new(&domain)
    }
}

impl Keys {
    /// The keys under `domain`.
    pub fn new(domain: &str) -> Self {
        let scheduling = |name: &str| format!("scheduling.{domain}/{name}");
        Self {
            domain: domain.to_owned(),
            slo_prefix: format!("slo.{domain}/"),
            sites: format!("slo.{domain}/sites"),
            policy_sites: format!("slo.{domain}/policySites"),
            traits: format!("slo.{domain}/traits"),
            policy_traits: format!("slo.{domain}/policyTraits"),
            managed: scheduling("managed"),
            policies: scheduling("policies"),
            placed: scheduling("placed"),
            decision: scheduling("decision"),
            site: scheduling("site"),
            reason: scheduling("reason"),
            timestamp: scheduling("timestamp"),
            wan_rtt_ms: scheduling("wanRttMs"),
            decision_id: scheduling("decision-id"),
            explain: scheduling("explain"),
            gate: scheduling("awaiting-capacity"),
        }
    }

    /// Whether this annotation is one that says where alone a pod may run by its policy, whatever the pod has.
    pub fn is_of_policy(&self, key: &str) -> bool {
        key == self.policy_sites || key == self.policy_traits
    }

    /// The domain of a gate like ours, if that is another than ours.
    pub fn other_domain<'g>(&self, gate: &'g str) -> Option<&'g str> {
        let domain = gate.strip_prefix("scheduling.")?.strip_suffix("/awaiting-capacity")?;
        (*domain != *self.domain).then_some(domain)
    }

    /// Every annotation that a decision writes: those of a pod that arrives are not to be believed.
    pub fn written(&self) -> [&str; 7] {
        [
            &self.decision,
            &self.site,
            &self.reason,
            &self.timestamp,
            &self.wan_rtt_ms,
            &self.decision_id,
            &self.explain,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_like_ours_tells_its_domain() {
        let keys = Keys::new("example.io");
        assert_eq!(keys.other_domain(&Keys::new("acme.dev").gate), Some("acme.dev"));
        for other in [
            &*keys.gate,
            "queue.example/admission",
            "awaiting-capacity",
            "scheduling.acme.dev/gated",
        ] {
            assert_eq!(keys.other_domain(other), None, "{other}");
        }
    }
}
