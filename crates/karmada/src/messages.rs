//! The messages of Karmada's `pkg/estimator/pb` and the Kubernetes messages inside them, as prost derives them.
//!
//! Karmada 1.18 replaced a few fields by new ones that hold the same message as bytes, and 1.19 removed the old ones. Bytes and a
//! message are the same on the wire, so both fields have one type here.

use std::collections::BTreeMap;

use prost::Message;
use serde::Serialize;
use serde_json::{Value, json};

/// Asks how many pods fit.
#[derive(Clone, PartialEq, Message)]
pub struct MaxAvailableReplicasRequest {
    #[prost(string, tag = "1")]
    pub cluster: String,
    #[prost(message, optional, tag = "2")]
    pub requirements: Option<ReplicaRequirements>,
    #[prost(message, repeated, tag = "3")]
    pub assumed: Vec<AssumedWorkload>,
}

/// Asks how many sets of pods fit.
#[derive(Clone, PartialEq, Message)]
pub struct MaxAvailableComponentSetsRequest {
    #[prost(string, tag = "1")]
    pub cluster: String,
    #[prost(message, repeated, tag = "2")]
    pub components: Vec<Component>,
    #[prost(string, tag = "3")]
    pub namespace: String,
    #[prost(message, repeated, tag = "4")]
    pub assumed: Vec<AssumedWorkload>,
}

/// The answer to both.
#[derive(Clone, PartialEq, Message)]
pub struct Count {
    #[prost(int32, tag = "1")]
    pub count: i32,
}

/// Pods that Karmada has assigned to the cluster, and that do not have a node yet.
#[derive(Clone, PartialEq, Message)]
pub struct AssumedWorkload {
    #[prost(message, repeated, tag = "2")]
    pub components: Vec<Component>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Component {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub requirements: Option<ComponentRequirements>,
    #[prost(int32, tag = "3")]
    pub replicas: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct ReplicaRequirements {
    #[prost(message, optional, tag = "1")]
    pub claim: Option<NodeClaim>,
    #[prost(btree_map = "string, message", tag = "2")]
    pub old_request: BTreeMap<String, Quantity>,
    #[prost(string, tag = "3")]
    pub namespace: String,
    #[prost(btree_map = "string, message", tag = "5")]
    pub request: BTreeMap<String, Quantity>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ComponentRequirements {
    #[prost(message, optional, tag = "1")]
    pub claim: Option<NodeClaim>,
    #[prost(btree_map = "string, message", tag = "2")]
    pub old_request: BTreeMap<String, Quantity>,
    #[prost(btree_map = "string, message", tag = "4")]
    pub request: BTreeMap<String, Quantity>,
}

#[derive(Clone, PartialEq, Message)]
pub struct NodeClaim {
    #[prost(message, optional, tag = "1")]
    pub old_affinity: Option<NodeSelector>,
    #[prost(btree_map = "string, string", tag = "2")]
    pub selector: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "3")]
    pub old_tolerations: Vec<Toleration>,
    #[prost(message, optional, tag = "4")]
    pub affinity: Option<NodeSelector>,
    #[prost(message, repeated, tag = "5")]
    pub tolerations: Vec<Toleration>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Quantity {
    #[prost(string, tag = "1")]
    pub text: String,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelector {
    #[prost(message, repeated, tag = "1")]
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSelectorTerm {
    #[prost(message, repeated, tag = "1")]
    pub match_expressions: Vec<Requirement>,
    #[prost(message, repeated, tag = "2")]
    pub match_fields: Vec<Requirement>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub struct Requirement {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub operator: String,
    #[prost(string, repeated, tag = "3")]
    pub values: Vec<String>,
}

#[derive(Clone, PartialEq, Message, Serialize)]
pub struct Toleration {
    #[prost(string, tag = "1")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    #[prost(string, tag = "2")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub operator: String,
    #[prost(string, tag = "3")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    #[prost(string, tag = "4")]
    #[serde(skip_serializing_if = "String::is_empty")]
    pub effect: String,
}

impl From<ReplicaRequirements> for ComponentRequirements {
    fn from(of_replica: ReplicaRequirements) -> Self {
        Self {
            claim: of_replica.claim,
            old_request: of_replica.old_request,
            request: of_replica.request,
        }
    }
}

impl ComponentRequirements {
    /// The manifest of such a pod in this namespace.
    pub fn pod(self, namespace: &str) -> Value {
        let request = if self.request.is_empty() {
            self.old_request
        } else {
            self.request
        };
        let request: BTreeMap<_, _> = request.into_iter().map(|(name, amount)| (name, amount.text)).collect();
        let claim = self.claim.unwrap_or_default();
        let tolerations = if claim.tolerations.is_empty() {
            claim.old_tolerations
        } else {
            claim.tolerations
        };
        let mut spec = json!({
            "containers": [{"name": "replica", "resources": {"requests": request}}],
            "nodeSelector": claim.selector,
            "tolerations": tolerations,
        });
        if let Some(terms) = claim.affinity.or(claim.old_affinity) {
            spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
        }
        json!({"metadata": {"namespace": namespace}, "spec": spec})
    }
}
