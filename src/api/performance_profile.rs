//! The PerformanceProfile, a cluster-scoped kind.

// The derive repeats each type inside a function, and print columns have similar attributes.
#![allow(unreachable_pub, clippy::duplicated_attributes)]

use edgeward_profiles::ProfileSpec;
use kube::CustomResource;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{add, in_cel, matches};

/// Ranks the sites that are acceptable for a pod.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
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
#[schemars(with = "ProfileSpec", transform = rules)]
pub struct PerformanceProfileSpec(Value);

/// Adds the form of an equation, and the rules that concern several fields.
fn rules(schema: &mut Schema) {
    in_cel(schema);
    let what = "an equation: letters, digits, spaces and _ . , + - * / ( ) < > = ! & | ? :";
    matches(schema, "/properties/equation", EQUATION, what);
    let is_unique = "self.all(metric, self.exists_one(other, other.name == metric.name))";
    add(schema, "/properties/metrics", is_unique, "a metric is listed twice");
    for (rule, message) in [
        (
            "[has(self.promQL), has(self.nodeLabel), has(self.nodeAnnotation), has(self.builtIn)].exists_one(is, is)",
            "exactly one of promQL, nodeLabel, nodeAnnotation and builtIn must be stated",
        ),
        (
            "has(self.promQL) == has(self.by)",
            "by is stated with promQL, and only then",
        ),
        (
            "(has(self.builtIn) && self.builtIn == 'eta_ms') == has(self.class)",
            "class is stated with builtIn eta_ms, and only then",
        ),
        ("self.normMin < self.normMax", "normMin is not below normMax"),
    ] {
        add(schema, "/properties/metrics/items", rule, message);
    }
}

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
