//! Constraints of a pod on its node, and the match against a node as kube-scheduler does it. The constraints are the
//! nodeSelector, the required node affinity and the tolerations.
//!
//! Source: `k8s.io/component-helpers/scheduling/corev1/nodeaffinity`, `apimachinery/pkg/labels`,
//! `core/v1.Toleration.ToleratesTaint`. A requirement that fails validation makes its term match nothing.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
pub struct NodeConstraints<'a> {
    /// `spec.nodeSelector`.
    pub selector: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// `requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms`. `None` means no required affinity: every
    /// node is allowed. An empty list allows no node.
    pub affinity: Option<Vec<Term<'a>>>,
    /// Required node affinity of the volumes that hold the pod's data. Each volume must allow the node. The affinity is
    /// looked up; the pod does not contain it.
    pub volumes: Vec<VolumeAffinity>,
}

impl NodeConstraints<'_> {
    /// Converts the constraints to a form that does not borrow from the parsed document.
    pub fn into_owned(self) -> NodeConstraints<'static> {
        NodeConstraints {
            selector: self
                .selector
                .into_iter()
                .map(|(key, value)| (owned(key), owned(value)))
                .collect(),
            affinity: self
                .affinity
                .map(|terms| terms.into_iter().map(Term::into_owned).collect()),
            volumes: self.volumes,
        }
    }

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
        let is_matched = |terms: &Vec<Term<'_>>| terms.iter().any(|term| term.matches(name, labels));
        labels.contain(self.selector.iter().map(|(k, v)| (&**k, &**v))) && self.affinity.as_ref().is_none_or(is_matched)
    }
}

/// The required node affinity of a PersistentVolume.
pub type VolumeAffinity = Arc<Vec<Term<'static>>>;

/// One node selector term. All of its requirements must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Term<'a> {
    /// Requirements on labels.
    pub expressions: Vec<Requirement<'a>>,
    /// Requirements on node fields. Only `metadata.name` exists.
    pub fields: Vec<Requirement<'a>>,
}

/// The label that identifies a node: each node has its own value.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// Copies the text unless it is owned already.
pub fn owned(text: Cow<'_, str>) -> Cow<'static, str> {
    Cow::Owned(text.into_owned())
}

impl Term<'_> {
    /// Converts the term to a form that does not borrow from the parsed document.
    pub fn into_owned(self) -> Term<'static> {
        Term {
            expressions: self.expressions.into_iter().map(Requirement::into_owned).collect(),
            fields: self.fields.into_iter().map(Requirement::into_owned).collect(),
        }
    }

    /// Whether the term matches a node with this name and these labels. An empty term matches no node.
    pub fn matches(&self, name: &str, labels: &Labels) -> bool {
        let empty = self.expressions.is_empty() && self.fields.is_empty();
        !empty
            && self.expressions.iter().all(|r| r.matches_label(labels))
            && self.fields.iter().all(|r| r.matches_field(name))
    }
}

/// A requirement on one label or field.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Requirement<'a> {
    key: Cow<'a, str>,
    operator: Operator,
    values: Vec<Cow<'a, str>>,
    /// The operator as the pod spells it, for messages.
    text: Cow<'a, str>,
}

/// The test that a requirement applies. `Never` stands for a requirement that kube-scheduler's parser refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Gt(i64),
    Lt(i64),
    Never,
}

impl<'a> Requirement<'a> {
    /// Returns the key, the operator as the pod spells it, and the values.
    pub fn parts(&self) -> (&str, &str, &[Cow<'a, str>]) {
        (&self.key, &self.text, &self.values)
    }

    /// Builds a requirement on a label. A requirement that kube-scheduler cannot parse matches nothing.
    pub fn on_label(key: Cow<'a, str>, operator: Cow<'a, str>, values: Vec<Cow<'a, str>>) -> Self {
        let bound = match &values[..] {
            [value] => value.parse::<i64>().ok(),
            _ => None,
        };
        let parsed = match (&*operator, bound) {
            ("In", _) if !values.is_empty() => Operator::In,
            ("NotIn", _) if !values.is_empty() => Operator::NotIn,
            ("Exists", _) if values.is_empty() => Operator::Exists,
            ("DoesNotExist", _) if values.is_empty() => Operator::DoesNotExist,
            ("Gt", Some(bound)) => Operator::Gt(bound),
            ("Lt", Some(bound)) => Operator::Lt(bound),
            _ => Operator::Never,
        };
        let valid = is_label_key(&key) && values.iter().all(|value| is_label_value(value));
        Self {
            key,
            operator: if valid { parsed } else { Operator::Never },
            values,
            text: operator,
        }
    }

    /// Builds a requirement on a node field. kube-scheduler accepts only `In` or `NotIn` with exactly one value.
    /// Anything else matches nothing.
    pub fn on_field(key: Cow<'a, str>, operator: Cow<'a, str>, values: Vec<Cow<'a, str>>) -> Self {
        let parsed = match (&*operator, values.len()) {
            ("In", 1) => Operator::In,
            ("NotIn", 1) => Operator::NotIn,
            _ => Operator::Never,
        };
        Self {
            key,
            operator: parsed,
            values,
            text: operator,
        }
    }

    fn into_owned(self) -> Requirement<'static> {
        Requirement {
            key: owned(self.key),
            operator: self.operator,
            values: self.values.into_iter().map(owned).collect(),
            text: owned(self.text),
        }
    }

    fn matches_label(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let number = || value.and_then(|v| v.parse::<i64>().ok());
        match self.operator {
            Operator::In => value.is_some_and(|v| self.values.iter().any(|allowed| allowed == v)),
            Operator::NotIn => value.is_none_or(|v| self.values.iter().all(|refused| refused != v)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt(bound) => number().is_some_and(|n| n > bound),
            Operator::Lt(bound) => number().is_some_and(|n| n < bound),
            Operator::Never => false,
        }
    }

    fn matches_field(&self, node_name: &str) -> bool {
        // A field that does not exist reads as the empty string.
        let field = if self.key == "metadata.name" { node_name } else { "" };
        match self.operator {
            Operator::In => self.values.iter().all(|v| v == field),
            Operator::NotIn => self.values.iter().all(|v| v != field),
            _ => false,
        }
    }
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
#[serde(deny_unknown_fields)]
pub struct Taint {
    /// Key.
    pub key: Box<str>,
    /// Value; often empty.
    #[serde(default, skip_serializing_if = "str::is_empty")]
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
#[serde(default, deny_unknown_fields)]
#[schemars(!default)]
pub struct Toleration<'a> {
    /// Key of the taint. An empty key with Exists tolerates every taint.
    #[schemars(with = "Option<TaintKey>")]
    #[serde(skip_serializing_if = "str::is_empty")]
    pub key: Cow<'a, str>,
    /// Equal (default) or Exists.
    // In a pod it may be empty, which means Equal. `Lt` and `Gt` are alpha in Kubernetes; here they tolerate nothing.
    #[schemars(!default, with = "Option<String>", extend("enum" = ["Equal", "Exists", null]))]
    #[serde(default = "equal", skip_serializing_if = "str::is_empty")]
    pub operator: Cow<'a, str>,
    /// Value of the taint, for Equal.
    #[schemars(with = "Option<TaintValue>")]
    #[serde(skip_serializing_if = "str::is_empty")]
    pub value: Cow<'a, str>,
    /// Effect of the taint. If absent, every effect.
    #[schemars(with = "Option<String>", extend("enum" = ["NoSchedule", "PreferNoSchedule", "NoExecute", null]))]
    #[serde(skip_serializing_if = "str::is_empty")]
    pub effect: Cow<'a, str>,
    /// How long a `NoExecute` taint is tolerated, in seconds. `None` means forever. Tolerations of a site never set it.
    #[serde(skip)]
    pub seconds: Option<i64>,
}

fn equal() -> Cow<'static, str> {
    "Equal".into()
}

impl Toleration<'_> {
    /// Converts the toleration to a form that does not borrow from the parsed document.
    pub fn into_owned(self) -> Toleration<'static> {
        Toleration {
            key: owned(self.key),
            operator: owned(self.operator),
            value: owned(self.value),
            effect: owned(self.effect),
            seconds: self.seconds,
        }
    }

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
    pub fn covers(&self, other: &Toleration<'_>) -> bool {
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
