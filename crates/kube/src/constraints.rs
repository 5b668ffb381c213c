//! Constraints of a pod on its node, and the match against a node as kube-scheduler does it. The constraints are the
//! nodeSelector, the required node affinity and the tolerations.
//!
//! Source: `k8s.io/component-helpers/scheduling/corev1/nodeaffinity`, `apimachinery/pkg/labels`,
//! `core/v1.Toleration.ToleratesTaint`. A term with a requirement that fails validation matches
//! nothing.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::texts::{TaintKey, TaintValue};

/// Key prefix of the label that stands for a declared feature of a node. No real label has such a key. A pod that
/// needs the feature gets a nodeSelector entry for the label.
pub const DECLARED: &str = "declaredFeatures:";

/// Labels of a node, sorted by key. Clones share the data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels(Arc<[(Box<str>, Box<str>)]>);

impl Labels {
    /// Returns the value of `key`. Cost: a binary search.
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        Some(&self.0[at].1)
    }

    /// Iterates over keys and values, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Whether these labels include every pair of `selector`.
    pub fn contain<'s>(&self, selector: impl IntoIterator<Item = (&'s str, &'s str)>) -> bool {
        selector.into_iter().all(|(key, value)| self.get(key) == Some(value))
    }
}

impl<K: Into<Box<str>>, V: Into<Box<str>>> FromIterator<(K, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut pairs: Vec<_> = pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        pairs.sort_unstable();
        Self(pairs.into())
    }
}

/// A pod's nodeSelector and required node affinity, and the node affinity of its volumes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct NodeConstraints {
    /// `spec.nodeSelector`.
    pub selector: Vec<(String, String)>,
    /// `requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms`. `None` means no required affinity: every
    /// node is allowed. An empty list allows no node.
    pub affinity: Option<Vec<Term>>,
    /// Required node affinity of the volumes that hold the pod's data. Each volume must allow the node. The affinity is
    /// looked up; the pod does not contain it.
    pub volumes: Vec<VolumeAffinity>,
}

impl NodeConstraints {
    /// Upper bound on the comparisons of a match against one node.
    pub fn comparisons(&self) -> usize {
        let of_volumes = self.volumes.iter().flat_map(|terms| terms.iter());
        let terms = self.affinity.iter().flatten().chain(of_volumes);
        let requirements = terms.flat_map(|term| term.expressions.iter().chain(&term.fields));
        self.selector.len()
            + requirements
                .map(|requirement| 1 + requirement.values.len())
                .sum::<usize>()
    }

    /// Whether the nodeSelector contains all of these labels.
    pub fn selects<'l>(&self, mut labels: impl Iterator<Item = (&'l str, &'l str)>) -> bool {
        labels.all(|(key, value)| self.selector.iter().any(|(k, v)| k == key && v == value))
    }

    /// Whether the constraints allow a node with this name and these labels. Cost: a label search per requirement.
    pub fn allow(&self, name: &str, labels: &Labels) -> bool {
        let is_usable = |volume: &VolumeAffinity| volume.iter().any(|term| term.matches(name, labels));
        self.allow_by_pod(name, labels) && self.volumes.iter().all(is_usable)
    }

    /// Whether the pod's own nodeSelector and affinity allow the node.
    pub fn allow_by_pod(&self, name: &str, labels: &Labels) -> bool {
        let is_matched = |terms: &Vec<Term>| terms.iter().any(|term| term.matches(name, labels));
        labels.contain(self.selector.iter().map(|(k, v)| (&**k, &**v))) && self.affinity.as_ref().is_none_or(is_matched)
    }
}

/// The required node affinity of a PersistentVolume.
pub type VolumeAffinity = Arc<Vec<Term>>;

/// A NodeSelector of Kubernetes. One of its terms must match.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeSelector {
    /// The terms as they are stated.
    #[serde(deserialize_with = "or_default")]
    pub node_selector_terms: Vec<Term>,
}

impl NodeSelector {
    /// The terms that kube-scheduler can parse. It matches no node with any other.
    pub fn terms(&self) -> Vec<Term> {
        let terms = self.node_selector_terms.iter();
        terms.filter(|term| term.is_valid()).cloned().collect()
    }
}

/// One node selector term. All of its requirements must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Term {
    /// Requirements on labels.
    #[serde(rename = "matchExpressions", skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "or_default")]
    pub expressions: Vec<Requirement>,
    /// Requirements on node fields. Only `metadata.name` exists.
    #[serde(rename = "matchFields", skip_serializing_if = "Vec::is_empty")]
    #[serde(deserialize_with = "or_default")]
    pub fields: Vec<Requirement>,
}

/// The label that identifies a node: each node has its own value.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// Copies the text unless it is owned already.
pub fn owned(text: Cow<'_, str>) -> Cow<'static, str> {
    Cow::Owned(text.into_owned())
}

/// Reads null as absent, as Go does.
pub(crate) fn or_default<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(stated: D) -> Result<T, D::Error> {
    Option::deserialize(stated).map(Option::unwrap_or_default)
}

impl Term {
    fn is_valid(&self) -> bool {
        // An empty term matches no node.
        !(self.expressions.is_empty() && self.fields.is_empty())
            && self.expressions.iter().all(Requirement::is_valid_on_label)
            && self.fields.iter().all(Requirement::is_valid_on_field)
    }

    /// Whether this term of [`NodeSelector::terms`] matches a node with this name and these labels.
    pub fn matches(&self, name: &str, labels: &Labels) -> bool {
        // A field that does not exist reads as the empty string.
        let field = |key: &str| if key == "metadata.name" { name } else { "" };
        self.expressions.iter().all(|r| r.matches(labels.get(&r.key)))
            && self.fields.iter().all(|r| r.matches(Some(field(&r.key))))
    }
}

/// A requirement on one label or field.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Requirement {
    /// Key of the label, or name of the field.
    #[serde(deserialize_with = "or_default")]
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
    #[serde(deserialize_with = "or_default")]
    pub operator: String,
    /// The values to compare with.
    #[serde(deserialize_with = "or_default", skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

impl Requirement {
    /// Requires this value.
    pub fn is(key: &str, value: &str) -> Self {
        Self {
            key: key.to_owned(),
            operator: "In".to_owned(),
            values: vec![value.to_owned()],
        }
    }

    fn is_valid_on_label(&self) -> bool {
        let are_fit = match &*self.operator {
            "In" | "NotIn" => !self.values.is_empty(),
            "Exists" | "DoesNotExist" => self.values.is_empty(),
            "Gt" | "Lt" => self.values.len() == 1 && number(&self.values[0]).is_some(),
            _ => false,
        };
        are_fit && is_label_key(&self.key) && self.values.iter().all(|value| is_label_value(value))
    }

    fn is_valid_on_field(&self) -> bool {
        matches!(&*self.operator, "In" | "NotIn") && self.values.len() == 1
    }

    fn matches(&self, value: Option<&str>) -> bool {
        let is_listed = || value.is_some_and(|value| self.values.iter().any(|listed| listed == value));
        let compared = || Some(number(value?)?.cmp(&number(self.values.first()?)?));
        match &*self.operator {
            "In" => is_listed(),
            "NotIn" => !is_listed(),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "Gt" => compared().is_some_and(Ordering::is_gt),
            "Lt" => compared().is_some_and(Ordering::is_lt),
            _ => false,
        }
    }
}

fn number(text: &str) -> Option<i64> {
    text.parse().ok()
}

/// Whether `key` is a valid key of a label or taint, `[prefix/]name`. Source:
/// `apimachinery/pkg/util/validation.IsQualifiedName`.
pub fn is_label_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    !name.is_empty() && is_label_value(name) && prefix.is_none_or(is_subdomain)
}

/// Regular expression of a DNS subdomain, without its maximum length.
pub const SUBDOMAIN: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";

/// Regular expression of [`is_label_key`], without the maximum length of the prefix.
pub const LABEL_KEY: &str = "^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";

/// Regular expression of [`is_label_value`].
pub const LABEL_VALUE: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$";

/// Whether `name` is a DNS subdomain, the form of most object names. Source:
/// `apimachinery/pkg/util/validation.IsDNS1123Subdomain`.
pub fn is_subdomain(name: &str) -> bool {
    name.len() <= 253
        && name.split('.').all(|part| {
            let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
            part.bytes().all(|b| inner(b) || b == b'-')
                && part.bytes().next().is_some_and(inner)
                && part.bytes().last().is_some_and(inner)
        })
}

/// Whether `name` is a DNS label. Source: `apimachinery/pkg/util/validation.IsDNS1123Label`.
pub fn is_dns_label(name: &str) -> bool {
    name.len() <= 63 && !name.contains('.') && is_subdomain(name)
}

/// Whether `value` is a valid value of a label or taint: at most 63 of `[A-Za-z0-9_.-]`, alphanumeric at both ends. An
/// empty value is valid. Source: `apimachinery/pkg/util/validation.IsValidLabelValue`.
pub fn is_label_value(value: &str) -> bool {
    let bytes = value.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    bytes.len() <= 63
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && ends.into_iter().flatten().all(u8::is_ascii_alphanumeric)
}

/// A taint of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taint {
    /// Key.
    pub key: Box<str>,
    /// Value; often empty.
    #[serde(default, deserialize_with = "or_default", skip_serializing_if = "str::is_empty")]
    pub value: Box<str>,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: Box<str>,
}

/// Formats the taint as kubectl does: `key=value:effect`.
impl fmt::Display for Taint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let equals = if self.value.is_empty() { "" } else { "=" };
        write!(f, "{}{equals}{}:{}", self.key, self.value, self.effect)
    }
}

/// The effects that a taint can have.
pub const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

impl Taint {
    /// Whether the taint keeps a pod off the node if the pod does not tolerate it.
    pub fn is_hard(&self) -> bool {
        matches!(&*self.effect, "NoSchedule" | "NoExecute")
    }

    /// Whether this is one of the taints that Kubernetes sets for a condition of the node and removes afterwards.
    /// Source: `k8s.io/api/core/v1`, `well_known_taints.go`; `k8s.io/cloud-provider/api`.
    pub fn is_condition(&self) -> bool {
        const CONDITIONS: [&str; 10] = [
            "node.kubernetes.io/not-ready",
            "node.kubernetes.io/unreachable",
            "node.kubernetes.io/unschedulable",
            "node.kubernetes.io/memory-pressure",
            "node.kubernetes.io/disk-pressure",
            "node.kubernetes.io/pid-pressure",
            "node.kubernetes.io/network-unavailable",
            "node.kubernetes.io/out-of-service",
            "node.cloudprovider.kubernetes.io/uninitialized",
            "node.cloudprovider.kubernetes.io/shutdown",
        ];
        CONDITIONS.contains(&&*self.key)
    }

    /// The taint that kube-scheduler assumes on a cordoned node. Source: `nodeunschedulable.Filter`.
    pub fn unschedulable() -> Taint {
        Taint {
            key: "node.kubernetes.io/unschedulable".into(),
            value: "".into(),
            effect: "NoSchedule".into(),
        }
    }
}

/// A toleration, as in a pod spec.
// A pod states it, or a site's placement adds it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(!default, deny_unknown_fields)]
pub struct Toleration {
    /// Key of the taint. An empty key with Exists tolerates every taint.
    #[schemars(with = "Option<TaintKey>")]
    #[serde(deserialize_with = "or_default", skip_serializing_if = "str::is_empty")]
    pub key: String,
    /// Equal (default) or Exists.
    // In a pod it may be empty, which means Equal. `Lt` and `Gt` are alpha in Kubernetes; here they tolerate nothing.
    #[schemars(!default, with = "Option<String>", extend("enum" = ["Equal", "Exists", null]))]
    #[serde(default = "equal", skip_serializing_if = "str::is_empty")]
    #[serde(deserialize_with = "or_default")]
    pub operator: String,
    /// Value of the taint, for Equal.
    #[schemars(with = "Option<TaintValue>")]
    #[serde(deserialize_with = "or_default", skip_serializing_if = "str::is_empty")]
    pub value: String,
    /// Effect of the taint. If absent, every effect.
    #[schemars(with = "Option<String>", extend("enum" = ["NoSchedule", "PreferNoSchedule", "NoExecute", null]))]
    #[serde(deserialize_with = "or_default", skip_serializing_if = "str::is_empty")]
    pub effect: String,
    /// How long a `NoExecute` taint is tolerated, in seconds. `None` means forever. Tolerations of a site never set it.
    #[schemars(skip)]
    #[serde(rename = "tolerationSeconds", skip_serializing_if = "Option::is_none")]
    pub seconds: Option<i64>,
}

fn equal() -> String {
    "Equal".to_owned()
}

impl Toleration {
    /// Whether the toleration tolerates `taint`.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        (self.effect.is_empty() || *self.effect == *taint.effect)
            && (self.key.is_empty() || *self.key == *taint.key)
            && match &*self.operator {
                "" | "Equal" => *self.value == *taint.value,
                "Exists" => true,
                _ => false,
            }
    }

    /// Whether this toleration tolerates everything that `other` tolerates, for at least as long.
    pub fn covers(&self, other: &Toleration) -> bool {
        let any_value = self.operator == "Exists";
        let equal = |operator: &str| matches!(operator, "" | "Equal");
        let same_value = equal(&self.operator) && equal(&other.operator) && self.value == other.value;
        let as_long = match (self.seconds, other.seconds) {
            (None, _) => true,
            (Some(mine), Some(theirs)) => mine >= theirs,
            (Some(_), None) => false,
        };
        (self.effect.is_empty() || self.effect == other.effect)
            && (self.key == other.key || (self.key.is_empty() && any_value))
            && (any_value || same_value)
            && as_long
    }
}

#[cfg(test)]
mod tests;
