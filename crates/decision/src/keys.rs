//! The keys of the contract with users: annotations and labels under one domain.

/// The annotation and label keys of the contract under one domain.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Keys {
    /// The domain.
    pub domain: String,
    /// `slo.<domain>/`: prefix of the annotations that edgeward reads.
    pub slo_prefix: String,
    /// Annotation: the sites that the pod may run at.
    pub sites: String,
    /// Annotation: the sites that the pod's policy allows. Both restrictions hold.
    pub policy_sites: String,
    /// Annotation: the traits that the pod requires.
    pub traits: String,
    /// Annotation: the traits that the pod's policy requires. Both lists hold.
    pub policy_traits: String,
    /// Annotation: the policy whose neighbourhood the pod's clouds belong to.
    pub neighbourhood: String,
    /// Label that opts a namespace in, and a pod in or out.
    pub managed: String,
    /// Label of namespaces in which SloPolicies apply to pods that state no SLO.
    pub policies: String,
    /// Label of placed pods. The API server does not send these pods to the webhook again.
    pub placed: String,
    /// Annotation: `edge` or `cloud`.
    pub decision: String,
    /// Annotation: name of the site.
    pub site: String,
    /// Annotation: reason code.
    pub reason: String,
    /// Annotation: time of the decision.
    pub timestamp: String,
    /// Annotation: WAN RTT of the decision, in milliseconds.
    pub wan_rtt_ms: String,
    /// Annotation: id of the decision.
    pub decision_id: String,
    /// Annotation: the numbers behind the verdict.
    pub explain: String,
    /// Our scheduling gate. It keeps a gated pod from kube-scheduler.
    pub gate: String,
}

/// Builds the keys under a domain.
impl From<String> for Keys {
    fn from(domain: String) -> Self {
        Self::new(&domain)
    }
}

impl From<Keys> for String {
    fn from(keys: Keys) -> Self {
        keys.domain
    }
}

impl Keys {
    /// Builds the keys under `domain`.
    pub fn new(domain: &str) -> Self {
        let scheduling = |name: &str| format!("scheduling.{domain}/{name}");
        Self {
            domain: domain.to_owned(),
            slo_prefix: format!("slo.{domain}/"),
            sites: format!("slo.{domain}/sites"),
            policy_sites: format!("slo.{domain}/policySites"),
            traits: format!("slo.{domain}/traits"),
            policy_traits: format!("slo.{domain}/policyTraits"),
            neighbourhood: format!("slo.{domain}/neighbourhood"),
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

    /// Whether this annotation holds the sites, traits or neighbourhood of the pod's policy. The policy's value replaces the
    /// pod's own.
    pub fn is_of_policy(&self, key: &str) -> bool {
        key == self.policy_sites || key == self.policy_traits || key == self.neighbourhood
    }

    /// The domain of a gate like ours under another domain. `None` for our own gate and for other gates.
    pub fn other_domain<'g>(&self, gate: &'g str) -> Option<&'g str> {
        let domain = gate.strip_prefix("scheduling.")?.strip_suffix("/awaiting-capacity")?;
        (*domain != *self.domain).then_some(domain)
    }

    /// Every annotation that a decision writes. On a pod that arrives they cannot be trusted.
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
    fn gate_of_another_domain_names_that_domain() {
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
