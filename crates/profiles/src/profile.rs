//! The text of a profile: the `spec` of a PerformanceProfile.

use std::sync::LazyLock;

use edgeward_decision::document;
use edgeward_decision::document::texts::{Dwell, PromQl};
use edgeward_decision::document::{Checks, DAY, Faults, SECOND, Span, schema};
use edgeward_decision::model::scores::{Better, Score};
use edgeward_decision::model::slo::Class;
use edgeward_kube::texts::LabelKey;
use edgeward_kube::units::Micros;
use edgeward_kube::words;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::equation::{self, Equation};

/// Maximum number of metrics per profile.
pub const MAX_METRICS: usize = 16;

/// Maximum length of a query, in bytes. The query is part of a URL.
pub(crate) const MAX_PROMQL: usize = 4_096;

/// Largest absolute value of a bound.
const MAX_BOUND: f64 = 1e18;
const BOUND: &str = "a number from -1e18 to 1e18";

const MARGIN: Score = Score(50_000);
const DWELL: Micros = Micros::from_secs(300);
const PERIOD: Micros = Micros::from_secs(30);
const STALENESS: Micros = Micros::from_secs(120);

/// A preference among the feasible sites: an equation over metrics that gives each site a score.
#[derive(Debug)]
pub struct Profile {
    /// Which of two scores is better.
    pub better: Better,
    /// Equation that computes the score from the metrics.
    pub equation: Equation,
    /// Metrics of the equation, at least one.
    pub metrics: Vec<Metric>,
    /// How the scores of a site's nodes become one.
    pub aggregate: Aggregate,
    /// By how much another site must be better to become the preferred site.
    pub margin: Score,
    /// How long another site must be better to become the preferred site.
    pub dwell: Micros,
    /// Query interval of the metrics.
    pub period: Micros,
    /// Maximum age of a value that counts.
    pub staleness: Micros,
}

/// A number per site or per node.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Name in the equation, without the prefix.
    pub name: String,
    /// The value that is normalised to 0.
    pub norm_min: f64,
    /// The value that is normalised to 1.
    pub norm_max: f64,
    /// Where the values come from.
    pub source: Source,
}

/// Where the values of a metric come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A Prometheus server, with a query and the label that names the place of a series.
    PromQl(String, By),
    /// A label of the nodes.
    NodeLabel(String),
    /// An annotation of the nodes.
    NodeAnnotation(String),
    /// The snapshot that decisions read.
    BuiltIn(BuiltIn),
    /// The snapshot that decisions read: the ETA of pods of this class, in ms.
    Eta(Class),
}

words! {
    /// The label of a series that names its place.
    pub enum By {
        /// The label holds the name of a site.
        Site = "site",
        /// The label holds the name of a node.
        Node = "node",
        /// The label holds an address of a node, with a port.
        Instance = "instance",
    }
}

words! {
    /// How the scores of a site's nodes become one.
    pub enum Aggregate {
        /// The mean of the scores.
        Mean = "mean",
        /// The largest score.
        Max = "max",
    }
}

words! {
    /// Metrics that need no query.
    pub enum BuiltIn {
        /// Free CPU of a node, in cores.
        FreeCpu = "free_cpu",
        /// Free memory of a node, in bytes.
        FreeMemory = "free_memory",
        /// Number of pods on a node.
        Pods = "pods",
        /// RTT to a site, in ms. 0 at the edge.
        Rtt = "rtt_ms",
        /// Packet loss on the way to a site, in percent. 0 at the edge.
        Loss = "loss_pct",
        /// ETA of a pod of the class at a site, in ms.
        Eta = "eta_ms",
        /// Number of the pod's optional traits that the site lacks.
        MissingOptionalTraits = "missing_optional_traits",
        /// 1 if a pod of the pod's component runs at the site, 0 if not.
        ComponentPresent = "component_present",
        /// Cost of an hour at the site.
        CostPerHour = "cost_per_hour",
        /// Power of the link between the edge and a site, both directions. 0 at the edge.
        LinkWatts = "link_watts",
        /// Power of all links of a site, for what it sends.
        NetworkWatts = "network_watts",
        /// Energy to send a gigabyte from the edge to a site and one back, in packets of 500 bytes. 0 at the edge.
        FlowJoules = "flow_joules_per_gigabyte",
    }
}

impl Source {
    /// Whether the metric has a value per node, not per site.
    pub fn is_of_nodes(&self) -> bool {
        match self {
            Source::PromQl(_, by) => *by != By::Site,
            Source::NodeLabel(_) | Source::NodeAnnotation(_) => true,
            Source::BuiltIn(built_in) => {
                matches!(built_in, BuiltIn::FreeCpu | BuiltIn::FreeMemory | BuiltIn::Pods)
            }
            Source::Eta(_) => false,
        }
    }
}

impl Profile {
    /// Reads `spec` of a PerformanceProfile.
    ///
    /// # Errors
    /// The first part with the wrong form, or else every fault.
    pub fn read(spec: &Value) -> Result<Self, Faults> {
        static SCHEMA: LazyLock<Value> = LazyLock::new(schema::of::<ProfileSpec>);
        document::checked("spec", |checks| {
            let spec: ProfileSpec = schema::read(&SCHEMA, spec, "spec", checks.faults)?;
            spec.profile(checks)
        })
    }

    /// Iterates over the queries for the Prometheus server. A query that several metrics share occurs once for each.
    pub fn queries(&self) -> impl Iterator<Item = &str> {
        self.metrics.iter().filter_map(|metric| match &metric.source {
            Source::PromQl(query, _) => Some(&**query),
            _ => None,
        })
    }
}

/// Ranks the sites that are acceptable for a pod.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProfileSpec {
    /// Which of two scores is better.
    better: Better,
    /// The score, a CEL expression over `cm_normalized_<metric>`, each from 0.0 to 1.0. Allowed: `+ - * /`,
    /// comparisons, `? :`, `math.greatest`, `math.least`, `exp`. Numbers have a decimal point.
    #[schemars(length(min = 1, max = equation::MAX_BYTES))]
    equation: String,
    /// The metrics that the equation uses.
    #[schemars(length(min = 1, max = MAX_METRICS))]
    metrics: Vec<MetricSpec>,
    /// How the scores of a site's nodes become one score, if a metric belongs to nodes. Default mean.
    aggregate: Option<Aggregate>,
    /// How much better another site must be to become the preferred one. Default 0.05.
    #[schemars(with = "Option<f64>", title = "a number from 0 to 1000000000", range(min = 0, max = Score::MAX))]
    margin: Option<Score>,
    /// How long another site must be better before it becomes the preferred one. Default 5m.
    #[schemars(with = "Option<Dwell>")]
    dwell: Option<Micros>,
    /// How often metrics are read, 5s to 1h. Default 30s.
    #[schemars(with = "Option<Span<{ 5 * SECOND }, { 3_600 * SECOND }>>")]
    period: Option<Micros>,
    /// Maximum age of a value, at least the period. Default 2m.
    #[schemars(with = "Option<Span<{ 5 * SECOND }, DAY>>")]
    staleness: Option<Micros>,
}

/// A metric of sites or of nodes, from exactly one source.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MetricSpec {
    /// Name of the metric; the equation uses `cm_normalized_<name>`.
    #[schemars(
        title = "a name: letters, digits and `_`, not first a digit, at most 63",
        length(max = 63),
        regex(pattern = "^[A-Za-z_][A-Za-z0-9_]*$")
    )]
    name: String,
    /// The value that becomes 0.0, in the metric's unit. Lower values become 0.0 too.
    #[schemars(title = BOUND, range(min = -MAX_BOUND, max = MAX_BOUND))]
    norm_min: f64,
    /// The value that becomes 1.0, in the metric's unit. Higher values become 1.0 too.
    #[schemars(title = BOUND, range(min = -MAX_BOUND, max = MAX_BOUND))]
    norm_max: f64,
    /// An instant query to the Prometheus server of the configuration.
    #[serde(rename = "promQL")]
    #[schemars(with = "Option<PromQl>")]
    prom_ql: Option<String>,
    /// The label of a series that names its place: `site`, `node`, or `instance` (an address of a node).
    by: Option<By>,
    /// A node label whose value is a number.
    #[schemars(with = "Option<LabelKey>")]
    node_label: Option<String>,
    /// A node annotation whose value is a number.
    #[schemars(with = "Option<LabelKey>", title = "an annotation key: `[domain/]name`")]
    node_annotation: Option<String>,
    /// A metric that edgeward computes itself.
    built_in: Option<BuiltIn>,
    /// The workload class for which `eta_ms` is computed.
    class: Option<Class>,
}

impl ProfileSpec {
    fn profile(self, checks: &mut Checks<'_>) -> Option<Profile> {
        let count = self.metrics.len();
        if !(1..=MAX_METRICS).contains(&count) {
            checks.fault("metrics", format_args!("{count} are not 1 to {MAX_METRICS}"));
        }
        let mut metrics: Vec<Metric> = vec![];
        for (i, spec) in self.metrics.into_iter().enumerate() {
            let at = format!("metrics[{i}]");
            if metrics.iter().any(|other| other.name == spec.name) {
                checks.fault(
                    &at,
                    format_args!("the name {:?} is taken by an earlier metric", spec.name),
                );
            }
            metrics.extend(spec.metric(&at, checks));
        }
        let names: Vec<_> = metrics.iter().map(|metric| &*metric.name).collect();
        // The equation cannot be checked without all of its metrics.
        let equation = (names.len() == count).then(|| Equation::parse(&self.equation, &names));
        let equation = equation.and_then(|parsed| parsed.map_err(|fault| checks.fault("equation", fault)).ok());
        let period = self.period.unwrap_or(PERIOD);
        let staleness = self.staleness.unwrap_or(STALENESS);
        if staleness < period {
            let message = format_args!("{staleness} ms is over before the next value, which takes {period} ms");
            checks.fault("staleness", message);
        }
        Some(Profile {
            better: self.better,
            equation: equation?,
            metrics,
            aggregate: self.aggregate.unwrap_or(Aggregate::Mean),
            margin: self.margin.unwrap_or(MARGIN),
            dwell: self.dwell.unwrap_or(DWELL),
            period,
            staleness,
        })
    }
}

impl MetricSpec {
    fn metric(self, at: &str, checks: &mut Checks<'_>) -> Option<Metric> {
        let (min, max) = (self.norm_min, self.norm_max);
        if min >= max {
            let message = format_args!("{max} is not above normMin, which is {min}");
            checks.fault(format_args!("{at}.normMax"), message);
        }
        if self.by.is_some() != self.prom_ql.is_some() {
            checks.fault(format_args!("{at}.by"), "is stated with promQL, and only then");
        }
        if self.class.is_some() != (self.built_in == Some(BuiltIn::Eta)) {
            checks.fault(
                format_args!("{at}.class"),
                "is stated with builtIn: eta_ms, and only then",
            );
        }
        let source = match (self.prom_ql, self.node_label, self.node_annotation, self.built_in) {
            (Some(query), None, None, None) => Source::PromQl(query, self.by?),
            (None, Some(key), None, None) => Source::NodeLabel(key),
            (None, None, Some(key), None) => Source::NodeAnnotation(key),
            (None, None, None, Some(BuiltIn::Eta)) => Source::Eta(self.class?),
            (None, None, None, Some(built_in)) => Source::BuiltIn(built_in),
            _ => {
                checks.fault(
                    at,
                    "exactly one of promQL, nodeLabel, nodeAnnotation and builtIn must be stated",
                );
                return None;
            }
        };
        Some(Metric {
            name: self.name,
            norm_min: min,
            norm_max: max,
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn faults(spec: Value) -> Vec<String> {
        let faults = Profile::read(&spec).unwrap_err();
        faults.0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn complete_profile_is_read_with_defaults() {
        let spec = json!({
            "better": "lower",
            "equation": "0.7 * cm_normalized_watts + 0.3 * (1.0 - cm_normalized_free)",
            "metrics": [
                {"name": "watts", "normMin": 0, "normMax": 400, "by": "node", "promQL": "sum by (node) (w)"},
                {"name": "again", "normMin": 0, "normMax": 1, "by": "site", "promQL": "sum by (node) (w)"},
                {"name": "free", "normMin": 0, "normMax": 64.5, "builtIn": "free_cpu"},
                {"name": "wait", "normMin": -1, "normMax": 1000, "builtIn": "eta_ms", "class": "batch"},
                {"name": "carbon", "normMin": 0, "normMax": 800, "nodeLabel": "example.com/carbon"},
                {"name": "rack", "normMin": 0, "normMax": 1, "nodeAnnotation": "example.com/watts"},
            ],
        });
        let profile = Profile::read(&spec).unwrap();
        assert_eq!((profile.margin, profile.dwell), (Score(50_000), Micros::from_secs(300)));
        assert_eq!(
            (profile.period, profile.staleness),
            (Micros::from_secs(30), Micros::from_secs(120))
        );
        assert_eq!(profile.aggregate, Aggregate::Mean);
        assert_eq!(profile.queries().collect::<Vec<_>>(), ["sum by (node) (w)"; 2]);
        assert_eq!(profile.metrics[3].source, Source::Eta(Class::Batch));
    }

    const FAULTS: &str = r#"
{"name": "1a"} -> .name: "1a" is not a name: letters, digits and `_`, not first a digit, at most 63
{"normMax": 0} -> .normMax: 0 is not above normMin, which is 0
{"normMax": null} -> .normMax: is missing
{"builtIn": null} -> : exactly one of promQL, nodeLabel, nodeAnnotation and builtIn must be stated
{"promQL": "x", "by": "node"} -> : exactly one of promQL, nodeLabel, nodeAnnotation and builtIn must be stated
{"by": "node"} -> .by: is stated with promQL, and only then
{"class": "batch"} -> .class: is stated with builtIn: eta_ms, and only then
{"builtIn": "eta_ms"} -> .class: is stated with builtIn: eta_ms, and only then
{"builtIn": null, "promQL": "up"} -> .by: is stated with promQL, and only then
{"builtIn": null, "nodeLabel": "a b"} -> .nodeLabel: "a b" is not a label key: `[domain/]name`
{"builtIn": "watts"} -> .builtIn: "watts" is not one of free_cpu, free_memory, pods, rtt_ms, loss_pct, eta_ms, missing_optional_traits, component_present, cost_per_hour, link_watts, network_watts, flow_joules_per_gigabyte
"#;

    #[test]
    fn every_fault_is_named() {
        let fields = "aggregate, better, dwell, equation, margin, metrics, period, staleness";
        assert_eq!(
            faults(json!({"x": 1})),
            [
                "spec.better: is missing",
                "spec.equation: is missing",
                "spec.metrics: is missing",
                &format!("spec.x: is not a field here; there are {fields}"),
            ]
        );
        let metric = |over: Value| {
            let mut metric = json!({"name": "a", "normMin": 0, "normMax": 1, "builtIn": "pods"});
            for (name, value) in over.as_object().unwrap() {
                metric[name] = value.clone();
            }
            json!({"better": "lower", "equation": "cm_normalized_a", "metrics": [metric]})
        };
        for line in FAULTS.trim().lines() {
            let (over, fault) = line.split_once(" -> ").unwrap();
            let found = faults(metric(serde_json::from_str(over).unwrap()));
            assert!(found.contains(&format!("spec.metrics[0]{fault}")), "{over}: {found:#?}");
        }
        let mut many = metric(json!({}));
        many["margin"] = json!(-1);
        many["period"] = json!("10m");
        many["equation"] = json!("2 * cm_normalized_a");
        assert_eq!(
            faults(many),
            [
                "spec.margin: -1 is not a number from 0 to 1000000000",
                "spec.equation: 2 is a whole number, which CEL does not mix with others: write 2.0",
                "spec.staleness: 120000 ms is over before the next value, which takes 600000 ms",
            ]
        );
        let mut soon = metric(json!({}));
        soon["dwell"] = json!("soon");
        assert_eq!(
            faults(soon),
            ["spec.dwell: \"soon\" is not a duration from 0s to 24h, such as 60s or 1m30s"]
        );
    }
}
