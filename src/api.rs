//! Our custom resources, group `edgeward.io/v1alpha1`: [`Site`], [`SloPolicy`], [`PerformanceProfile`], [`ClusterReport`] and
//! [`Peer`].
//!
//! The schema of a `spec` is the schema of the type that the webhook reads it into. The rules here, in CEL, add what a schema
//! cannot state, and make the API server's messages name the value.

// The derive repeats each type inside a function, and print columns have similar attributes.
#![allow(unreachable_pub, clippy::duplicated_attributes)]

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::{Message, Rule};
use kube::{CustomResource, CustomResourceExt as _};
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use edgeward_decision::config::site_definition::WrittenSite;
use edgeward_decision::model::report::Report;
use edgeward_decision::model::{endpoint, liqo, site_restriction, traits};
use edgeward_decision::placement::policy::{MAX_SELECTOR_BYTES, PolicySpec};
use edgeward_kube::ties;
use edgeward_profiles::ProfileSpec;

/// A place where pods can run: the nodes of this cluster, or a cluster behind virtual nodes.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "edgeward.io",
    version = "v1alpha1",
    kind = "Site",
    doc = "A place where pods can run: the nodes of this cluster, or a cluster behind virtual nodes. If any Site exists, \
           the Sites replace the `sites` of the configuration, and at most one may have kind edge.",
    status = "SiteStatus",
    shortname = "esite",
    category = "edgeward",
    validation = Rule::new("self.metadata.name.size() <= 63")
        .message(Message::Expression("self.metadata.name + ' is longer than 63 characters, the limit for a site name'".into())),
    printcolumn(name = "Kind", type_ = "string", json_path = ".spec.kind"),
    printcolumn(name = "Health", type_ = "string", json_path = ".status.health"),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes"),
    printcolumn(name = "Free-CPU", type_ = "string", json_path = ".status.freeCpu"),
    printcolumn(name = "Free-Memory", type_ = "string", json_path = ".status.freeMemory"),
    printcolumn(name = "Queue", type_ = "integer", json_path = ".status.queue"),
    printcolumn(name = "Gated", type_ = "integer", json_path = ".status.gated"),
    printcolumn(name = "RTT-ms", type_ = "number", json_path = ".status.rttMs"),
    printcolumn(name = "Loss-pct", type_ = "number", json_path = ".status.lossPct"),
    printcolumn(name = "Last-Probe", type_ = "date", json_path = ".status.lastProbe"),
    printcolumn(name = "Full-From", type_ = "string", json_path = ".status.full", priority = 1),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.reason", priority = 1),
    printcolumn(name = "Labels", type_ = "string", json_path = ".spec.labels", priority = 1),
    printcolumn(name = "Traits", type_ = "string", json_path = ".spec.traits", priority = 1),
    printcolumn(name = "Cost-per-hour", type_ = "number", json_path = ".spec.costPerHour", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[schemars(with = "WrittenSite", transform = site_rules)]
pub struct SiteSpec(Value);

/// Removes the name, which is the object's, and adds the rules that concern several fields.
fn site_rules(schema: &mut Schema) {
    if let Some(Value::Object(fields)) = schema.get_mut("properties") {
        fields.remove("name");
    }
    schema.insert("required".to_owned(), json!(["kind"]));
    in_cel(schema);
    for (is_stated, message) in [
        (
            "has(self.order)",
            "order is not for a site of kind edge: it ranks clouds",
        ),
        (
            "has(self.probes)",
            "probes are not for a site of kind edge: there is no WAN to it",
        ),
        (
            "(has(self.rttThresholdMs) || has(self.lossThresholdPct))",
            "thresholds are not for a site of kind edge: there is no WAN to it",
        ),
        (
            "has(self.report)",
            "report is not for a site of kind edge: it tells about a neighbour",
        ),
        (
            "has(self.storageClasses)",
            "storageClasses are not for a site of kind edge: it can create volumes of every class",
        ),
    ] {
        add(schema, "", format!("self.kind != 'edge' || !{is_stated}"), message);
    }
    survives_offloading(schema);
    let is_unique = "self.all(probe, self.exists_one(other, other == probe))";
    add(schema, "/properties/probes", is_unique, "an endpoint is listed twice");
    let probe = "^(icmp://[^/]+|tcp://[^/]+:[0-9]+|https://[^/].*)$";
    matches(schema, "/properties/probes/items", probe, endpoint::ALLOWED);
    let tolerations = "/properties/tolerations/items";
    let key = "(has(self.operator) && self.operator == 'Exists') || (has(self.key) && self.key != '')";
    add(schema, tolerations, key, "key may be empty only with operator Exists");
    let value = "!has(self.operator) || self.operator != 'Exists' || !has(self.value) || self.value == ''";
    add(schema, tolerations, value, "value must be empty with operator Exists");
}

/// The state of a site as the leader sees it. An unknown value is written as null, which removes an earlier value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SiteStatus {
    /// The generation of the spec that this status describes.
    pub observed_generation: Option<i64>,
    /// Ready, Degraded, Unreachable, Missing (no usable node), Unknown (not in use yet) or Refused (a fault in the
    /// Site).
    pub health: Option<String>,
    /// Reason of the health, as text.
    pub reason: Option<String>,
    /// Nodes that are Ready and not cordoned.
    pub nodes: Option<i64>,
    /// CPU of these nodes that is free of pods.
    pub free_cpu: Option<String>,
    /// Memory of these nodes that is free of pods.
    pub free_memory: Option<String>,
    /// Pods that wait for room at the site.
    pub queue: Option<i64>,
    /// Requests for which the cluster behind the site has no room, such as `cpu 500m or more (3 waiting)`.
    pub full: Option<String>,
    /// All gated pods. Only the edge site reports them.
    pub gated: Option<i64>,
    /// Round-trip time of the WAN, ms.
    pub rtt_ms: Option<f64>,
    /// Packet loss on the WAN, percent.
    pub loss_pct: Option<f64>,
    /// When the WAN was last measured, RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    pub last_probe: Option<String>,
}

/// A default SLO for the pods that it selects.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "edgeward.io",
    version = "v1alpha1",
    kind = "SloPolicy",
    plural = "slopolicies",
    namespaced,
    doc = "The default SLO of the pods that it selects in its namespace. A pod's own annotations win, field by field. If \
           several policies select a pod, the highest precedence counts, then the first by name.",
    status = "SloPolicyStatus",
    shortname = "slo",
    category = "edgeward",
    printcolumn(name = "Class", type_ = "string", json_path = ".spec.slo.class"),
    printcolumn(name = "Deadline-ms", type_ = "integer", json_path = ".spec.slo.deadlineMs"),
    printcolumn(name = "Target-ms", type_ = "integer", json_path = ".spec.slo.latencyTargetMs"),
    printcolumn(name = "Priority", type_ = "integer", json_path = ".spec.slo.priority"),
    printcolumn(name = "Offload", type_ = "boolean", json_path = ".spec.slo.offloadAllowed"),
    printcolumn(name = "Sites", type_ = "string", json_path = ".spec.slo.sites", priority = 1),
    printcolumn(name = "Traits", type_ = "string", json_path = ".spec.slo.traits", priority = 1),
    printcolumn(name = "Profile", type_ = "string", json_path = ".spec.slo.profile", priority = 1),
    printcolumn(name = "Clouds", type_ = "string", json_path = ".status.members", priority = 1),
    printcolumn(name = "Precedence", type_ = "integer", json_path = ".spec.precedence"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[schemars(with = "PolicySpec", transform = policy_rules)]
pub struct SloPolicySpec(Value);

/// Adds the forms of lists in text, and the rules of selectors.
fn policy_rules(schema: &mut Schema) {
    in_cel(schema);
    let listed = listed_traits();
    let traits = format!("self.matches('{listed}') && !self.matches('{BARE_DISTANCE}')");
    let message = format!("self + ' is not {}'", traits::ALLOWED.replace('"', "`"));
    add(
        schema,
        "/properties/slo/properties/traits",
        traits,
        Message::Expression(message),
    );
    let what = site_restriction::ALLOWED;
    matches(schema, "/properties/slo/properties/sites", &sites(), what);
    let bytes = format!(
        "(has(self.matchLabels) ? self.matchLabels.map(key, key.size() + self.matchLabels[key].size()).sum() : 0) \
         + (has(self.matchExpressions) ? self.matchExpressions.map(one, one.key.size() + (has(one.values) ? one.values.map(value, value.size()).sum() : 0)).sum() : 0) \
         <= {MAX_SELECTOR_BYTES}"
    );
    let message = format!("names more than {MAX_SELECTOR_BYTES} bytes of labels and values");
    add(schema, "/properties/selector", bytes, &*message);
    let values = "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)";
    let message = "'values must be ' + (self.operator in ['In', 'NotIn'] ? 'stated' : 'empty') + ' with operator ' + self.operator";
    let expressions = "/properties/selector/properties/matchExpressions/items";
    add(schema, expressions, values, Message::Expression(message.into()));
}

/// The state of a policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SloPolicyStatus {
    /// The generation of the spec that this status describes.
    pub observed_generation: Option<i64>,
    /// Why the policy is not in force as written, and which part counts meanwhile. Empty if it is in force.
    #[serde(default)]
    pub faults: Vec<String>,
    /// The clouds of the policy's neighbourhood.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub members: Option<Vec<String>>,
}

const BARE_DISTANCE: &str = "(^|,)[ ]*SoftDistanceLimit[?]?[ ]*(,|$)";

/// Pattern of a list of traits.
fn listed_traits() -> String {
    let one = "[ ]*([A-Za-z]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?|SoftDistanceLimit=([1-9][0-9]{0,3}|[1-5][0-9]{4}|60000)ms)[?]?[ ]*";
    format!("^{one}(,{one}){{0,15}}$")
}

/// Pattern of a label selector as text. A list of site names has this form too.
fn sites() -> String {
    let word = "[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?";
    let (key, value) = (
        format!("([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?{word}"),
        format!("[ ]*({word})?[ ]*"),
    );
    let list = format!("[(]{value}(,{value})*[)]");
    let requirement = format!("[ ]*(![ ]*{key}|{key}([ ]*(=|==|!=){value}|[ ]+(in|notin)[ ]*{list})?)[ ]*");
    format!("^{requirement}(,{requirement})*$")
}

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
#[schemars(with = "ProfileSpec", transform = profile_rules)]
pub struct PerformanceProfileSpec(Value);

/// Adds the form of an equation, and the rules that concern several fields.
fn profile_rules(schema: &mut Schema) {
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
    /// Scores for a pod that misses 0, 1, 2 … 16 optional traits there, if the equation uses `missing_optional_traits`. With
    /// `component_present`, first for pods whose component runs there, then for others.
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

/// Nothing: a ClusterReport has only a status.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "edgeward.io",
    version = "v1alpha1",
    kind = "ClusterReport",
    doc = "What this cluster reports to neighbours that send it pods. edgeward keeps the object `self` while its setting \
           `report` is on.",
    status = "Report",
    category = "edgeward",
    printcolumn(name = "Generation", type_ = "integer", json_path = ".status.generation"),
    printcolumn(name = "Most-CPU", type_ = "string", json_path = ".status.room[0].cpu"),
    printcolumn(name = "Its-Memory", type_ = "string", json_path = ".status.room[0].memory"),
    printcolumn(name = "Traits", type_ = "string", json_path = ".status.traits.all"),
    printcolumn(name = "Reported", type_ = "date", json_path = ".status.time")
)]
pub struct ClusterReportSpec {}

/// Nothing: a Peer has only a status.
#[derive(CustomResource, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "edgeward.io",
    version = "v1alpha1",
    kind = "Peer",
    doc = "A cluster near this one, as edgeward measured it; the name is its id. edgeward keeps these objects while its setting \
           `peers` is on.",
    status = "PeerStatus",
    category = "edgeward",
    printcolumn(name = "RTT-ms", type_ = "number", json_path = ".status.rttMs"),
    printcolumn(name = "Room", type_ = "string", json_path = ".status.room"),
    printcolumn(name = "Traits", type_ = "string", json_path = ".status.report.traits.all"),
    printcolumn(name = "Site", type_ = "string", json_path = ".status.site"),
    printcolumn(name = "Seen", type_ = "date", json_path = ".status.seen"),
    printcolumn(name = "Identity", type_ = "string", json_path = ".status.identity")
)]
pub struct PeerSpec {}

/// What is known of a peer. An unknown value is written as null, which removes an earlier value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PeerStatus {
    /// The URI name of its certificate.
    #[serde(default)]
    pub identity: String,
    /// Its IP address.
    #[serde(default)]
    pub address: String,
    /// Round-trip time of the last TCP handshake with it, ms.
    pub rtt_ms: Option<f64>,
    /// When it last answered, RFC 3339.
    #[schemars(extend("format" = "date-time"))]
    pub seen: Option<String>,
    /// The site that it refines: the Liqo site whose remote cluster has its id.
    pub site: Option<String>,
    /// Its largest free room on one line, such as `3 × 4 CPU, 8Gi`; `none` if nothing is free.
    pub room: Option<String>,
    /// What it reports.
    pub report: Option<Report>,
}

const EQUATION: &str = "^[A-Za-z0-9_.,+*/()<>=!&|?: \\\\n\\\\t-]*$";

/// Requires the string at this JSON pointer to match the pattern.
fn matches(schema: &mut Schema, at: &str, pattern: &str, what: &str) {
    let message = format!("self + ' is not {what}'");
    add(
        schema,
        at,
        format!("self.matches('{pattern}')"),
        Message::Expression(message),
    );
}

/// Converts patterns and bounds to rules in CEL, whose messages name the value, and removes what a structural schema must not
/// contain.
fn in_cel(schema: &mut Schema) {
    let title = schema.remove("title");
    let allowed = title.as_ref().and_then(Value::as_str).unwrap_or_default();
    if let Some(Value::String(pattern)) = schema.remove("pattern") {
        matches(schema, "", &pattern, allowed);
    }
    if let Some(keys) = schema.remove("propertyNames") {
        let text = |name: &str| keys[name].as_str().unwrap_or_default();
        let (pattern, allowed) = (text("pattern"), text("title"));
        let rule = format!("self.all(key, key.matches('{pattern}'))");
        let message = format!("self.filter(key, !key.matches('{pattern}'))[0] + ' is not {allowed}'");
        add(schema, "", rule, Message::Expression(message));
    }
    let decimals = schema.remove("x-decimals").and_then(|decimals| decimals.as_i64());
    if schema.get("minimum").is_some() {
        let mut bound = |name: &str| schema.remove(name).and_then(|bound| bound.as_f64()).unwrap_or_default();
        let (least, most) = (bound("minimum"), bound("maximum"));
        add(
            schema,
            "",
            is_decimal(least, most, decimals),
            &*format!("is not {allowed}"),
        );
    }
    if schema.get("additionalProperties") == Some(&Value::Bool(false)) {
        schema.remove("additionalProperties");
    }
    transform_subschemas(&mut in_cel, schema);
}

/// A CEL expression: whether a number is within these bounds and has at most this many decimals.
fn is_decimal(least: f64, most: f64, decimals: Option<i64>) -> String {
    let decimals = match decimals {
        Some(0) => return format!("{least} <= self && self <= {most}"),
        None => return format!("{least:?} <= self && self <= {most:?}"),
        Some(decimals) => decimals,
    };
    let parts = 10_f64.powi(decimals as i32);
    // Floating-point error is larger for millionths.
    let exactness = if decimals > 3 { "0.001" } else { "0.000001" };
    let whole = format!("double(int(self * {parts:?} + 0.5))");
    let off = format!("self * {parts:?} - {whole}");
    format!("{least:?} <= self && self <= {most:?} && -{exactness} < {off} && {off} < {exactness}")
}

/// Adds a rule in CEL to the part of a schema at this JSON pointer.
fn add(schema: &mut Schema, at: &str, rule: impl Into<String>, message: impl Into<Message>) {
    if let Some(Value::Object(fields)) = schema.pointer_mut(at)
        && let Value::Array(rules) = fields.entry("x-kubernetes-validations").or_insert_with(|| json!([]))
    {
        rules.push(json!(Rule::new(rule).message(message)));
    }
}

/// Requires a Liqo site to support no feature that Liqo drops on offloading. A Liqo site is recognized by the selector
/// or toleration that is the default of kind liqo.
fn survives_offloading(schema: &mut Schema) {
    let lost = ties::Tie::LOST_BY_LIQO
        .map(|tie| format!("'{}'", tie.as_str()))
        .join(", ");
    let (label, value) = liqo::VIRTUAL_NODE;
    let selects = format!(
        "(has(self.nodeSelector) ? self.nodeSelector.exists(key, key == '{}' || (key == '{label}' && self.nodeSelector[key] == '{value}')) \
         : self.kind == 'liqo')",
        liqo::REMOTE_CLUSTER_ID
    );
    let tolerates = format!(
        "(has(self.tolerations) ? self.tolerations.exists(one, has(one.key) && one.key == '{}') : self.kind == 'liqo')",
        liqo::NOT_ALLOWED
    );
    let rule =
        format!("!has(self.supports) || !self.supports.exists(one, one in [{lost}]) || !({selects} || {tolerates})");
    let message = format!(
        "'supports: ' + self.supports.filter(one, one in [{lost}])[0] + ' does not survive offloading by Liqo'"
    );
    add(schema, "", rule, Message::Expression(message));
}

/// The CustomResourceDefinitions of our kinds, in the order of `edgeward crds`.
pub fn definitions() -> [CustomResourceDefinition; 5] {
    [
        Site::crd(),
        SloPolicy::crd(),
        PerformanceProfile::crd(),
        ClusterReport::crd(),
        Peer::crd(),
    ]
}
