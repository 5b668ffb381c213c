//! Our custom resources, group `edgeward.io/v1alpha1`: [`Site`], [`SloPolicy`] and [`PerformanceProfile`].
//!
//! The types define the CRD schemas and the statuses that edgeward writes. The core reads the `spec` of each object, as
//! it reads a configuration: with the same bounds, and reporting every fault.

// The derive repeats each type inside a function, and print columns have similar attributes.
#![allow(unreachable_pub, clippy::duplicated_attributes)]

mod performance_profile;

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::{Message, Rule};
use kube::{CustomResource, CustomResourceExt as _, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use edgeward_core::model::liqo;
use edgeward_core::model::selector::Operator;
use edgeward_core::model::site_restriction::{self, MAX_BYTES};
use edgeward_core::model::slo::{self, MAX_MILLIS};
use edgeward_core::model::ties;
use edgeward_core::model::traits;
use edgeward_core::placement::policy::MAX_SELECTOR_BYTES;

pub use performance_profile::{Condition, PerformanceProfile, PerformanceProfileStatus, SiteScore};

/// A place where pods can run: the nodes of this cluster, or a cluster behind virtual nodes.
#[derive(CustomResource, KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "edgeward.io",
    version = "v1alpha1",
    kind = "Site",
    doc = "A place where pods can run: the nodes of this cluster, or a cluster behind virtual nodes. If any Site exists, \
           the Sites replace the `sites` of the configuration, and exactly one must have kind edge.",
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
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.kind != 'edge' || !has(self.order)")
    .message("order is not for a site of kind edge: it ranks clouds"))]
#[x_kube(validation = Rule::new("self.kind != 'edge' || !has(self.probes)")
    .message("probes are not for a site of kind edge: there is no WAN to it"))]
#[x_kube(validation = Rule::new("self.kind != 'edge' || (!has(self.rttThresholdMs) && !has(self.lossThresholdPct))")
    .message("thresholds are not for a site of kind edge: there is no WAN to it"))]
#[x_kube(validation = Rule::new("self.kind != 'edge' || !has(self.storageClasses)")
    .message("storageClasses are not for a site of kind edge: it can create volumes of every class"))]
#[x_kube(validation = survives_offloading())]
pub struct SiteSpec {
    /// edge: the nodes of this cluster. cloud: a cluster behind virtual nodes. liqo: a cluster behind Liqo's virtual
    /// nodes.
    #[schemars(extend("enum" = ["edge", "cloud", "liqo"]))]
    pub kind: String,
    /// Labels of the site, such as region or tier. A pod can restrict its sites by them (`slo.<domain>/sites`).
    #[schemars(extend("maxProperties" = 32))]
    #[x_kube(validation = label_keys())]
    #[x_kube(validation = label_values())]
    pub labels: Option<BTreeMap<String, LabelValue>>,
    /// Cost per hour, in the same currency for all sites.
    #[x_kube(validation = decimal(0.0, 1_000_000.0, 1_000_000.0))]
    pub cost_per_hour: Option<f64>,
    /// Rank of a cloud with `sitePolicy: ordered`. The lowest comes first, then the first by name. Default 0.
    #[x_kube(validation = whole(0, 1_000_000, ""))]
    pub order: Option<i64>,
    /// Labels of the site's nodes. A node belongs to the site if it has all of them, and a pod placed here gets them as
    /// its nodeSelector. Default by kind.
    #[schemars(extend("minProperties" = 1, "maxProperties" = 16))]
    #[x_kube(validation = label_keys())]
    #[x_kube(validation = label_values())]
    pub node_selector: Option<BTreeMap<String, LabelValue>>,
    /// Tolerations that a pod placed here gets, unless it already tolerates as much. Default by kind.
    #[schemars(length(max = 16))]
    pub tolerations: Option<Vec<Toleration>>,
    /// The RuntimeClass of a pod placed here, if the pod names none.
    #[schemars(length(max = 253))]
    #[x_kube(validation = matches(DNS_SUBDOMAIN, "the name of a RuntimeClass: lower-case letters, digits, `-` and `.`"))]
    pub runtime_class_name: Option<String>,
    /// Endpoints that measure the WAN to the site: icmp://host, tcp://host:port or https://host[:port][/path]. Without
    /// any, the site counts as unreachable.
    #[schemars(length(max = 16), inner(length(max = 2048)))]
    #[x_kube(validation = Rule::new("self.all(probe, self.exists_one(other, other == probe))").message("an endpoint is listed twice"))]
    #[x_kube(validation = Rule::new(format!("self.all(probe, probe.matches('{ENDPOINT}'))")).message(Message::Expression(format!(
        "self.filter(probe, !probe.matches('{ENDPOINT}'))[0] + ' is not a WAN endpoint: icmp://host, tcp://host:port or https://host[:port][/path]'"
    ))))]
    pub probes: Option<Vec<String>>,
    /// The site is degraded at this RTT or above, in ms. Default: from the configuration.
    #[x_kube(validation = decimal(0.001, 60_000.0, 1_000.0))]
    pub rtt_threshold_ms: Option<f64>,
    /// The site is degraded at this packet loss or above, in percent. Default: from the configuration.
    #[x_kube(validation = decimal(0.1, 100.0, 10.0))]
    pub loss_threshold_pct: Option<f64>,
    /// Speed of the site's CPUs. Processing times are stated for speed 1.
    #[x_kube(validation = decimal(0.001, 1_000.0, 1_000.0))]
    pub speed_factor: Option<f64>,
    /// Features that this cloud site can serve although they otherwise keep a pod at the edge.
    #[schemars(length(max = 7))]
    pub supports: Option<Vec<Tie>>,
    /// Traits that all nodes of the site have, such as SecureRuntime. A single edge node gets one by the label
    /// `traits.edgeward.io/<name>: "true"`.
    #[schemars(length(max = 32), inner(length(max = 63)))]
    #[x_kube(validation = Rule::new(format!("self.all(name, name.matches('{TRAIT}'))")).message(Message::Expression(format!(
        "self.filter(name, !name.matches('{TRAIT}'))[0] + ' is not {}'", traits::NAME
    ))))]
    pub traits: Option<Vec<String>>,
    /// StorageClasses for which this cloud site can create volumes. Default: `liqo` for kind liqo, none for kind cloud.
    #[schemars(length(max = 16), inner(length(max = 253)))]
    pub storage_classes: Option<Vec<String>>,
}

/// The value of a label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("maxLength" = 63))]
pub struct LabelValue(pub String);

/// A feature of a pod that depends on the cluster where the pod is created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("enum" = ties::Tie::WORDS))]
pub struct Tie(pub String);

/// A toleration, as in a pod spec.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(has(self.operator) && self.operator == 'Exists') || (has(self.key) && self.key != '')")
    .message("key may be empty only with operator Exists"))]
#[x_kube(validation = Rule::new("!has(self.operator) || self.operator != 'Exists' || !has(self.value) || self.value == ''")
    .message("value must be empty with operator Exists"))]
pub struct Toleration {
    /// Key of the taint. An empty key with Exists tolerates every taint.
    #[schemars(length(max = 317))]
    #[x_kube(validation = Rule::new(format!("self == '' || self.matches('{LABEL_KEY}')"))
        .message(Message::Expression("self + ' is not a taint key'".into())))]
    pub key: Option<String>,
    /// Equal (default) or Exists.
    #[schemars(extend("enum" = ["Equal", "Exists", null]))]
    pub operator: Option<String>,
    /// Value of the taint, for Equal.
    #[schemars(length(max = 63))]
    #[x_kube(validation = matches(LABEL_VALUE, "a taint value: letters, digits, `-`, `_` and `.`, at most 63"))]
    pub value: Option<String>,
    /// Effect of the taint. If absent, every effect.
    #[schemars(extend("enum" = ["NoSchedule", "PreferNoSchedule", "NoExecute", null]))]
    pub effect: Option<String>,
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
    /// Requests for which the cluster behind the site has no room, such as `cpu 500m or more (3 wait)`.
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
#[derive(CustomResource, KubeSchema, Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    printcolumn(name = "Precedence", type_ = "integer", json_path = ".spec.precedence"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct SloPolicySpec {
    /// The pods. `{}` selects all pods of the namespace.
    pub selector: LabelSelector,
    /// If several policies select a pod, the highest precedence counts, then the first by name. Default 0.
    #[x_kube(validation = whole(-1_000_000, 1_000_000, ""))]
    pub precedence: Option<i64>,
    /// The SLO fields of these pods, where a pod does not state its own.
    pub slo: SloDefaults,
}

/// The fields of an SLO, as in the annotations `slo.<domain>/…`.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SloDefaults {
    /// Workload class.
    #[schemars(extend("enum" = slo::Class::WORDS))]
    pub class: String,
    /// End-to-end deadline, ms.
    #[x_kube(validation = whole(1, MAX_MILLIS as i64, " of milliseconds"))]
    pub deadline_ms: Option<i64>,
    /// p95 latency target, ms.
    #[x_kube(validation = whole(1, MAX_MILLIS as i64, " of milliseconds"))]
    pub latency_target_ms: Option<i64>,
    /// 0 to 10; higher is more important. Default 5.
    #[x_kube(validation = whole(0, 10, ""))]
    pub priority: Option<i64>,
    /// Whether the pods may run in the cloud. Default true.
    pub offload_allowed: Option<bool>,
    /// The only sites where the pods may run: names (`near, far`) or a selector of site labels
    /// (`region in (eu), tier!=spot`). It applies in addition to the pod's own restriction.
    #[schemars(length(max = MAX_BYTES))]
    #[x_kube(validation = matches(&sites(), site_restriction::ALLOWED))]
    pub sites: Option<String>,
    /// Traits that the site or node must have: `SecureRuntime, GreenEnergy?, SoftDistanceLimit=20ms`. `?` marks an
    /// optional trait. They apply in addition to the pod's own traits.
    #[schemars(length(max = 1024))]
    #[x_kube(validation = Rule::new(format!("self.matches('{}') && !self.matches('{BARE_DISTANCE}')", listed_traits()))
        .message(Message::Expression(format!("self + ' is not {}'", traits::ALLOWED.replace('"', "`")))))]
    pub traits: Option<String>,
    /// The PerformanceProfile that ranks the sites that meet the SLO.
    #[schemars(length(max = 63))]
    #[x_kube(validation = matches(DNS_SUBDOMAIN, slo::PROFILE_NAME))]
    pub profile: Option<String>,
}

/// Selects objects by their labels, as in Kubernetes' own kinds.
#[derive(KubeSchema, Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(format!("(has(self.matchLabels) ? self.matchLabels.map(key, key.size() + self.matchLabels[key].size()).sum() : 0) \
    + (has(self.matchExpressions) ? self.matchExpressions.map(one, one.key.size() + (has(one.values) ? one.values.map(value, value.size()).sum() : 0)).sum() : 0) \
    <= {MAX_SELECTOR_BYTES}"))
    .message(Message::Message(format!("names more than {MAX_SELECTOR_BYTES} bytes of labels and values"))))]
pub struct LabelSelector {
    /// Labels that must all be present.
    #[schemars(extend("maxProperties" = 32))]
    #[x_kube(validation = label_keys())]
    #[x_kube(validation = label_values())]
    pub match_labels: Option<BTreeMap<String, LabelValue>>,
    /// Requirements that must all be met.
    #[schemars(length(max = 16))]
    pub match_expressions: Option<Vec<LabelSelectorRequirement>>,
}

/// A requirement on one label.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)")
    .message(Message::Expression("'values must be ' + (self.operator in ['In', 'NotIn'] ? 'stated' : 'empty') + ' with operator ' + self.operator".into())))]
pub struct LabelSelectorRequirement {
    /// The label key.
    #[schemars(length(max = 317))]
    #[x_kube(validation = matches(LABEL_KEY, "a label key: `[domain/]name`"))]
    pub key: String,
    /// How the label relates to the values.
    #[schemars(extend("enum" = Operator::WORDS))]
    pub operator: String,
    /// The values, for In and NotIn.
    #[schemars(length(max = 64), inner(length(max = 63)))]
    #[x_kube(validation = Rule::new(format!("self.all(value, value.matches('{LABEL_VALUE}'))")).message(Message::Expression(format!(
        "self.filter(value, !value.matches('{LABEL_VALUE}'))[0] + ' is not a label value: letters, digits, `-`, `_` and `.`, at most 63'"
    ))))]
    pub values: Option<Vec<String>>,
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
}

const LABEL_KEY: &str = "^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
const LABEL_VALUE: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$";
const DNS_SUBDOMAIN: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
const ENDPOINT: &str = "^(icmp://[^/]+|tcp://[^/]+:[0-9]+|https://[^/].*)$";

const TRAIT: &str = "^[A-Za-z]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
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

/// Requires a string to match the pattern.
fn matches(pattern: &str, what: &str) -> Rule {
    Rule::new(format!("self.matches('{pattern}')")).message(Message::Expression(format!("self + ' is not {what}'")))
}

/// Requires the keys of a map to be label keys.
fn label_keys() -> Rule {
    Rule::new(format!("self.all(key, key.matches('{LABEL_KEY}'))")).message(Message::Expression(format!(
        "self.filter(key, !key.matches('{LABEL_KEY}'))[0] + ' is not a label key: `[domain/]name`'"
    )))
}

/// Requires the values of a map to be label values.
fn label_values() -> Rule {
    Rule::new(format!("self.all(key, self[key].matches('{LABEL_VALUE}'))")).message(Message::Expression(format!(
        "self[self.filter(key, !self[key].matches('{LABEL_VALUE}'))[0]] + ' is not a label value: letters, digits, `-`, `_` and `.`, at most 63'"
    )))
}

/// Requires a Liqo site to support no feature that Liqo drops on offloading. A Liqo site is recognized by the selector
/// or toleration that is the default of kind liqo.
fn survives_offloading() -> Rule {
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
    Rule::new(format!(
        "!has(self.supports) || !self.supports.exists(one, one in [{lost}]) || !({selects} || {tolerates})"
    ))
    .message(Message::Expression(format!(
        "'supports: ' + self.supports.filter(one, one in [{lost}])[0] + ' does not survive offloading by Liqo'"
    )))
}

/// Requires a whole number within these bounds. The API server adds the value to the message.
fn whole(least: i64, most: i64, of: &str) -> Rule {
    Rule::new(format!("{least} <= self && self <= {most}")).message(Message::Message(format!(
        "is not a whole number{of} from {least} to {most}"
    )))
}

/// Requires a number within these bounds, with at most as many decimals as `parts` has zeros.
fn decimal(least: f64, most: f64, parts: f64) -> Rule {
    let places = match parts {
        1_000_000.0 => "six decimals",
        1_000.0 => "three decimals",
        _ => "one decimal",
    };
    // Floating-point error is larger for millionths.
    let exactness = if parts > 1_000.0 { "0.001" } else { "0.000001" };
    let whole = format!("double(int(self * {parts:?} + 0.5))");
    let off = format!("self * {parts:?} - {whole}");
    Rule::new(format!(
        "{least:?} <= self && self <= {most:?} && -{exactness} < {off} && {off} < {exactness}"
    ))
    .message(Message::Message(format!(
        "is not a number from {least} to {most} with at most {places}"
    )))
}

/// The CustomResourceDefinitions of our kinds, in the order of `edgeward crds`.
pub fn definitions() -> [CustomResourceDefinition; 3] {
    [Site::crd(), SloPolicy::crd(), PerformanceProfile::crd()]
}
