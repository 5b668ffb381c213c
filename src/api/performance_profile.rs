//! The PerformanceProfile, a cluster-scoped kind.

// The derive repeats each type inside a function, and print columns have similar attributes.
#![allow(unreachable_pub, clippy::duplicated_attributes)]

use kube::core::Rule;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LABEL_KEY, matches};

/// Ranks the sites that are acceptable for a pod.
#[derive(CustomResource, KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "edgeward.io",
    version = "v1alpha1",
    kind = "PerformanceProfile",
    doc = "Ranks the sites that are acceptable for a pod: an equation over normalised metrics gives each site a score. Pods \
           select a profile by the annotation `slo.<domain>/profile` or by their SloPolicy.",
    status = "PerformanceProfileStatus",
    shortname = "pprofile",
    category = "edgeward",
    validation = Rule::new("self.metadata.name.size() <= 63")
        .message(Message::Expression("self.metadata.name + ' is longer than 63 characters, the limit for a profile name'".into())),
    printcolumn(name = "Accepted", type_ = "string", json_path = ".status.conditions[?(@.type=='Accepted')].status"),
    printcolumn(name = "Better", type_ = "string", json_path = ".spec.better"),
    printcolumn(name = "Scores", type_ = "string", json_path = ".status.summary"),
    printcolumn(name = "Preferred", type_ = "string", json_path = ".status.preferred"),
    printcolumn(name = "Since", type_ = "date", json_path = ".status.preferredSince"),
    printcolumn(name = "Evaluated", type_ = "date", json_path = ".status.evaluated"),
    printcolumn(name = "Fault", type_ = "string", json_path = ".status.fault"),
    printcolumn(name = "Equation", type_ = "string", json_path = ".spec.equation", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct PerformanceProfileSpec {
    /// Which of two scores is better.
    pub better: Better,
    /// The score, a CEL expression over `cm_normalized_<metric>`, each from 0.0 to 1.0. Allowed: `+ - * /`,
    /// comparisons, `? :`, `math.greatest`, `math.least`, `exp`. Numbers have a decimal point.
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = matches(EQUATION, "an equation: letters, digits, spaces and _ . , + - * / ( ) < > = ! & | ? :"))]
    pub equation: String,
    /// The metrics that the equation uses.
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(validation = Rule::new("self.all(metric, self.exists_one(other, other.name == metric.name))").message("a metric is listed twice"))]
    pub metrics: Vec<Metric>,
    /// How the scores of a site's nodes become one score, if a metric belongs to nodes. Default mean.
    pub aggregate: Option<Aggregate>,
    /// How much better another site must be to become the preferred one. Default 0.05.
    #[x_kube(validation = Rule::new("0.0 <= self && self <= 1000000000.0").message("is not a number from 0 to 1000000000"))]
    pub margin: Option<f64>,
    /// How long another site must be better before it becomes the preferred one. Default 5m.
    #[x_kube(validation = duration())]
    #[schemars(length(max = 32))]
    pub dwell: Option<String>,
    /// How often metrics are read, 5s to 1h. Default 30s.
    #[x_kube(validation = duration())]
    #[schemars(length(max = 32))]
    pub period: Option<String>,
    /// Maximum age of a value, at least the period. Default 2m.
    #[x_kube(validation = duration())]
    #[schemars(length(max = 32))]
    pub staleness: Option<String>,
}

/// Which of two scores is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Better {
    Lower,
    Higher,
}

/// How the scores of a site's nodes become one score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Aggregate {
    Mean,
    Max,
}

/// A metric of sites or of nodes, from exactly one source.
#[derive(KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("[has(self.promQL), has(self.nodeLabel), has(self.nodeAnnotation), has(self.builtIn)].exists_one(is, is)")
    .message("exactly one of promQL, nodeLabel, nodeAnnotation and builtIn must be stated"))]
#[x_kube(validation = Rule::new("has(self.promQL) == has(self.by)").message("by is stated with promQL, and only then"))]
#[x_kube(validation = Rule::new("(has(self.builtIn) && self.builtIn == 'eta_ms') == has(self.class)")
    .message("class is stated with builtIn eta_ms, and only then"))]
#[x_kube(validation = Rule::new("self.normMin < self.normMax").message("normMin is not below normMax"))]
pub struct Metric {
    /// Name of the metric; the equation uses `cm_normalized_<name>`.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = matches("^[A-Za-z_][A-Za-z0-9_]*$", "a name: letters, digits and `_`, not first a digit"))]
    pub name: String,
    /// The value that becomes 0.0, in the metric's unit. Lower values become 0.0 too.
    pub norm_min: f64,
    /// The value that becomes 1.0, in the metric's unit. Higher values become 1.0 too.
    pub norm_max: f64,
    /// An instant query to the Prometheus server of the configuration.
    #[serde(rename = "promQL")]
    #[schemars(length(min = 1, max = 4096))]
    pub prom_ql: Option<String>,
    /// The label of a series that names its place: `site`, `node`, or `instance` (an address of a node).
    pub by: Option<By>,
    /// A node label whose value is a number.
    #[schemars(length(max = 317))]
    #[x_kube(validation = matches(LABEL_KEY, "a label key: `[domain/]name`"))]
    pub node_label: Option<String>,
    /// A node annotation whose value is a number.
    #[schemars(length(max = 317))]
    #[x_kube(validation = matches(LABEL_KEY, "an annotation key: `[domain/]name`"))]
    pub node_annotation: Option<String>,
    /// A metric that edgeward computes itself.
    pub built_in: Option<BuiltIn>,
    /// The workload class for which `eta_ms` is computed.
    #[schemars(extend("enum" = ["latency", "throughput", "batch", null]))]
    pub class: Option<String>,
}

/// The label of a series that names its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum By {
    Site,
    Node,
    Instance,
}

/// A metric that edgeward computes itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("enum" = edgeward_profiles::BuiltIn::WORDS))]
pub struct BuiltIn(pub String);

/// The state of a profile as the leader sees it. An unknown value is written as null, which removes an earlier value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PerformanceProfileStatus {
    /// The generation of the spec that this status describes.
    pub observed_generation: Option<i64>,
    /// The condition Accepted: whether the spec can be used, and why not.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// The preferred site; all replicas use it in their decisions.
    pub preferred: Option<String>,
    /// Since when this site is preferred, RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    pub preferred_since: Option<String>,
    /// The score of each site, or why it has none.
    #[serde(default)]
    pub scores: Vec<SiteScore>,
    /// The scores on one line.
    pub summary: Option<String>,
    /// The first fault of the spec or of its evaluation.
    pub fault: Option<String>,
    /// When the profile was last evaluated, RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    pub evaluated: Option<String>,
}

/// The score of one site.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SiteScore {
    /// Name of the site.
    pub site: String,
    /// Score for a pod whose optional traits are all available there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// Scores for a pod that misses 0, 1, 2 … optional traits there, if the equation uses `missing_optional_traits`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_missing: Vec<f64>,
    /// Time of the oldest value in the score, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub as_of: Option<String>,
    /// Why the site has no score.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// A condition, as in Kubernetes' own kinds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type of the condition: `Accepted`.
    #[serde(rename = "type")]
    pub kind: String,
    /// True or False.
    pub status: String,
    /// Reason as one CamelCase word.
    pub reason: String,
    /// Reason as text.
    pub message: String,
    /// Since when the condition has this status, RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
    /// The generation of the spec that this condition describes.
    pub observed_generation: Option<i64>,
}

const EQUATION: &str = "^[A-Za-z0-9_.,+*/()<>=!&|?: \\\\n\\\\t-]*$";

/// Requires the form of a duration. The condition Accepted reports one out of bounds.
fn duration() -> Rule {
    matches("^([0-9]+(ms|s|m|h))+$", "a duration such as 60s or 1m30s")
}
