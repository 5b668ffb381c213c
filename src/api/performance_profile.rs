//! The PerformanceProfile, cluster-scoped.

// The derive repeats each type inside a function, and columns are alike.
#![allow(unreachable_pub, clippy::duplicated_attributes)]

use kube::core::Rule;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LABEL_KEY, matches};

/// What an operator prefers among the sites that would do for a pod.
#[derive(CustomResource, KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "edgeward.io",
    version = "v1alpha1",
    kind = "PerformanceProfile",
    doc = "What is preferred among the sites that would do for a pod: an equation over normalised metrics gives each site a score. \
           Pods select it by the annotation `slo.<domain>/profile` or by their SloPolicy.",
    status = "PerformanceProfileStatus",
    shortname = "pprofile",
    category = "edgeward",
    validation = Rule::new("self.metadata.name.size() <= 63")
        .message(Message::Expression("self.metadata.name + ' is longer than 63 characters, which the name of a profile may have'".into())),
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
    /// Which of two scores is the better one.
    pub better: Better,
    /// The score, in CEL over `cm_normalized_<metric>`, each from 0.0 to 1.0: `+ - * /`, comparisons, `? :`, `math.greatest`,
    /// `math.least`, `exp`. Numbers are written with a point.
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = matches(EQUATION, "an equation: letters, digits, spaces and _ . , + - * / ( ) < > = ! & | ? :"))]
    pub equation: String,
    /// What the equation is made of.
    #[schemars(length(min = 1, max = 16))]
    #[x_kube(validation = Rule::new("self.all(metric, self.exists_one(other, other.name == metric.name))").message("a metric is listed twice"))]
    pub metrics: Vec<Metric>,
    /// How the scores of a site's nodes become one, where a metric is of nodes. Default mean.
    pub aggregate: Option<Aggregate>,
    /// By how much another site must be better to be preferred. Default 0.05.
    #[x_kube(validation = Rule::new("0.0 <= self && self <= 1000000000.0").message("is not a number from 0 to 1000000000"))]
    pub margin: Option<f64>,
    /// For how long it must be better, such as 5m; the default.
    #[x_kube(validation = duration())]
    #[schemars(length(max = 32))]
    pub dwell: Option<String>,
    /// How often metrics are read, 5s to 1h. Default 30s.
    #[x_kube(validation = duration())]
    #[schemars(length(max = 32))]
    pub period: Option<String>,
    /// How old a value may be to count; not less than the period. Default 2m.
    #[x_kube(validation = duration())]
    #[schemars(length(max = 32))]
    pub staleness: Option<String>,
}

/// Which of two scores is the better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Better {
    Lower,
    Higher,
}

/// How the scores of nodes become that of their site.
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
    /// The equation calls it `cm_normalized_<name>`.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = matches("^[A-Za-z_][A-Za-z0-9_]*$", "a name: letters, digits and `_`, not first a digit"))]
    pub name: String,
    /// What becomes 0.0, and all below it; in the metric's unit.
    pub norm_min: f64,
    /// What becomes 1.0, and all above it.
    pub norm_max: f64,
    /// An instant query of the Prometheus server of the configuration.
    #[serde(rename = "promQL")]
    #[schemars(length(min = 1, max = 4096))]
    pub prom_ql: Option<String>,
    /// Which label of a series names its place: `site`, `node`, or `instance`, an address of a node.
    pub by: Option<By>,
    /// A label of nodes whose value is a number.
    #[schemars(length(max = 317))]
    #[x_kube(validation = matches(LABEL_KEY, "a label key: `[domain/]name`"))]
    pub node_label: Option<String>,
    /// An annotation of nodes whose value is a number.
    #[schemars(length(max = 317))]
    #[x_kube(validation = matches(LABEL_KEY, "an annotation key: `[domain/]name`"))]
    pub node_annotation: Option<String>,
    /// What edgeward knows itself.
    pub built_in: Option<BuiltIn>,
    /// Of which class's pods the ETA is.
    #[schemars(extend("enum" = ["latency", "throughput", "batch", null]))]
    pub class: Option<String>,
}

/// Which label of a series names its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum By {
    Site,
    Node,
    Instance,
}

/// What edgeward knows itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("enum" = edgeward_profiles::BuiltIn::WORDS))]
pub struct BuiltIn(pub String);

/// What one replica, the leader, finds. What is not known is written as null, which takes an earlier value away.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PerformanceProfileStatus {
    /// The generation of the spec that this is about.
    pub observed_generation: Option<i64>,
    /// Accepted: whether the spec can be used, and why not.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// The site by which all replicas decide.
    pub preferred: Option<String>,
    /// Since when, RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    pub preferred_since: Option<String>,
    /// Each site's score, or why it has none.
    #[serde(default)]
    pub scores: Vec<SiteScore>,
    /// The scores on one line.
    pub summary: Option<String>,
    /// The first thing that is wrong: with the spec, or with what it is evaluated with.
    pub fault: Option<String>,
    /// When it was evaluated last, RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    pub evaluated: Option<String>,
}

/// A site's score.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SiteScore {
    /// The site.
    pub site: String,
    /// Of pods that miss none of their optional traits there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// Of pods that miss no, one, two … of them, where the equation asks for that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_missing: Vec<f64>,
    /// When the oldest of what it is made of was true, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub as_of: Option<String>,
    /// Why it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

/// A condition, as Kubernetes' own kinds have them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    pub kind: String,
    /// True or False.
    pub status: String,
    /// Why, in a word.
    pub reason: String,
    /// Why, in words.
    pub message: String,
    /// Since when it is so, RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
    /// The generation of the spec that this is about.
    pub observed_generation: Option<i64>,
}

const EQUATION: &str = "^[A-Za-z0-9_.,+*/()<>=!&|?: \\\\n\\\\t-]*$";

/// What a duration looks like; its bounds are told by the condition Accepted.
fn duration() -> Rule {
    matches("^([0-9]+(ms|s|m|h))+$", "a duration such as 60s or 1m30s")
}
