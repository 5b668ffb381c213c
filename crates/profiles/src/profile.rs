//! The text of a profile: the `spec` of a PerformanceProfile.

use edgeward_core::document::{self, Faults, Field};
use edgeward_core::model::constraints::is_label_key;
use edgeward_core::model::scores::{Better, Score};
use edgeward_core::model::slo::Class;
use edgeward_core::units::Micros;
use edgeward_core::words;
use serde_json::Value;

use crate::equation::Equation;

/// The most metrics of a profile.
pub const MAX_METRICS: usize = 16;

/// The longest name of a metric.
const MAX_NAME: usize = 63;

/// The longest query: it is part of a URL.
const MAX_PROMQL: usize = 4_096;

/// The largest amount of a bound, of either sign.
const MAX_BOUND: f64 = 1e18;

const MARGIN: Score = Score(50_000);
const DWELL: Micros = Micros::from_secs(300);
const PERIOD: Micros = Micros::from_secs(30);
const STALENESS: Micros = Micros::from_secs(120);

/// What is preferred among the sites that would do.
#[derive(Debug, PartialEq)]
pub struct Profile {
    /// Which of two scores is the better one.
    pub better: Better,
    /// The score, over the metrics.
    pub equation: Equation,
    /// What it is made of; at least one.
    pub metrics: Vec<Metric>,
    /// How the scores of a site's nodes become one.
    pub aggregate: Aggregate,
    /// By how much another site must be better.
    pub margin: Score,
    /// For how long.
    pub dwell: Micros,
    /// How often metrics are read.
    pub period: Micros,
    /// How old a value may be to count.
    pub staleness: Micros,
}

/// A number of sites or of nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// What the equation calls it, without the prefix.
    pub name: String,
    /// What becomes 0.
    pub norm_min: f64,
    /// What becomes 1.
    pub norm_max: f64,
    /// Where it comes from.
    pub source: Source,
}

/// Where a metric comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A Prometheus server, by a query and the label that names a place.
    PromQl(String, By),
    /// A label of nodes.
    NodeLabel(String),
    /// An annotation of nodes.
    NodeAnnotation(String),
    /// The view that decisions are made on.
    BuiltIn(BuiltIn),
    /// The same: the ETA of pods of this class, in ms.
    Eta(Class),
}

words! {
    /// Which label of a series names its place.
    pub enum By {
        /// The name of a site.
        Site = "site",
        /// The name of a node.
        Node = "node",
        /// An address of a node, with a port.
        Instance = "instance",
    }
}

words! {
    /// How the scores of a site's nodes become one.
    pub enum Aggregate {
        /// Their mean.
        Mean = "mean",
        /// The largest.
        Max = "max",
    }
}

words! {
    /// What is known without asking anybody.
    pub enum BuiltIn {
        /// CPU of a node that no pod has, cores.
        FreeCpu = "free_cpu",
        /// Memory of a node that no pod has, bytes.
        FreeMemory = "free_memory",
        /// Pods on a node.
        Pods = "pods",
        /// RTT to a site, ms; 0 at the edge.
        Rtt = "rtt_ms",
        /// Loss on the way to a site, percent; 0 at the edge.
        Loss = "loss_pct",
        /// Time of a pod of the class at a site, ms.
        Eta = "eta_ms",
        /// How many of the pod's optional traits the site has not.
        MissingOptionalTraits = "missing_optional_traits",
        /// What an hour at the site costs.
        CostPerHour = "cost_per_hour",
    }
}

impl Source {
    /// Whether it is of nodes, and not of sites.
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
    /// Every fault.
    pub fn read(spec: &Value) -> Result<Self, Faults> {
        document::read(spec, |spec| profile(&spec.called("spec")))
    }

    /// The texts that a Prometheus server is asked for. One that several metrics share is there for each.
    pub fn queries(&self) -> impl Iterator<Item = &str> {
        self.metrics.iter().filter_map(|metric| match &metric.source {
            Source::PromQl(query, _) => Some(&**query),
            _ => None,
        })
    }
}

fn profile(spec: &Field<'_>) -> Option<Profile> {
    let [better, equation, metrics, aggregate, margin, dwell, period, staleness] = spec.object([
        "better",
        "equation",
        "metrics",
        "aggregate",
        "margin",
        "dwell",
        "period",
        "staleness",
    ])?;
    let (equation, list) = (equation.required(), metrics.required());
    let fields = list.list();
    match fields.as_ref().map(Vec::len) {
        Some(0) => list.fault("is empty".into()),
        Some(count) if count > MAX_METRICS => list.fault(format!("{count} are more than {MAX_METRICS}")),
        _ => {}
    }
    let mut metrics = Vec::new();
    for field in fields.iter().flatten().take(MAX_METRICS) {
        if let Some(metric) = metric(field) {
            if metrics.iter().any(|other: &Metric| other.name == metric.name) {
                field.fault(format!("the name {:?} is taken by an earlier metric", metric.name));
            }
            metrics.push(metric);
        }
    }
    // Without all of its metrics, what the equation is of is not known.
    let are_known = fields.as_ref().is_some_and(|fields| fields.len() == metrics.len());
    let names: Vec<_> = metrics.iter().map(|metric| &*metric.name).collect();
    let parsed = equation.string().filter(|_| are_known).and_then(|text| {
        let parsed = Equation::parse(text, &names);
        parsed.map_err(|fault| equation.fault(fault)).ok()
    });
    let period_of = period.duration("5s", "1h").unwrap_or(PERIOD);
    let staleness_of = staleness.duration("5s", "24h").unwrap_or(STALENESS);
    if staleness_of < period_of {
        staleness.fault(format!(
            "{staleness_of} ms is over before the next value, which takes {period_of} ms"
        ));
    }
    let margin_of = margin.number().map(|number| {
        let score = Score::of(number).filter(|score| score.0 >= 0);
        score.unwrap_or_else(|| {
            margin.fault(format!("{number} is not a number from 0 to {}", Score::MAX));
            MARGIN
        })
    });
    let better = better.required().word(&Better::BY_WORD);
    let aggregate = aggregate.word(&Aggregate::BY_WORD).unwrap_or(Aggregate::Mean);
    let dwell = dwell.duration("0s", "24h").unwrap_or(DWELL);
    Some(Profile {
        better: better?,
        equation: parsed?,
        aggregate,
        margin: margin_of.unwrap_or(MARGIN),
        dwell,
        period: period_of,
        staleness: staleness_of,
        metrics,
    })
}

fn metric(field: &Field<'_>) -> Option<Metric> {
    let [name, norm_min, norm_max, promql, by, label, annotation, built_in, class] = field.object([
        "name",
        "normMin",
        "normMax",
        "promQL",
        "by",
        "nodeLabel",
        "nodeAnnotation",
        "builtIn",
        "class",
    ])?;
    let name = name.required();
    let text = name.string()?;
    let is_name = text.len() <= MAX_NAME
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && text.starts_with(|first: char| !first.is_ascii_digit());
    if !is_name {
        name.fault(format!(
            "{text:?} is not a name: letters, digits and `_`, not first a digit, at most {MAX_NAME}"
        ));
    }
    let bound = |field: Field<'_>| {
        let field = field.required();
        let number = field.number()?;
        if number.abs() > MAX_BOUND {
            field.fault(format!("{number} is not a number from -{MAX_BOUND} to {MAX_BOUND}"));
        }
        Some(number)
    };
    let (min, max) = (bound(norm_min), bound(norm_max.clone()));
    if let (Some(min), Some(max)) = (min, max)
        && min >= max
    {
        norm_max.fault(format!("{max} is not above normMin, which is {min}"));
    }
    let stated = [&promql, &label, &annotation, &built_in]
        .iter()
        .filter(|field| field.is_present())
        .count();
    if stated != 1 {
        field.fault("exactly one of promQL, nodeLabel, nodeAnnotation and builtIn must be stated".into());
        return None;
    }
    let key = |field: &Field<'_>| {
        let key = field.string()?;
        if !is_label_key(key) {
            field.fault(format!("{key:?} is not a key: `[domain/]name`"));
        }
        Some(key.to_owned())
    };
    let built_in_of = built_in.word(&BuiltIn::BY_WORD);
    let only = |field: &Field<'_>, with: &str| {
        if field.is_present() {
            field.fault(format!("is stated with {with}, and only then"));
        }
    };
    if !promql.is_present() {
        only(&by, "promQL");
    }
    if built_in_of != Some(BuiltIn::Eta) {
        only(&class, "builtIn: eta_ms");
    }
    let source = if promql.is_present() {
        let query = promql.non_empty_string()?;
        if query.len() > MAX_PROMQL {
            promql.fault(format!("is longer than {MAX_PROMQL} bytes"));
        }
        Source::PromQl(query.to_owned(), by.required().word(&By::BY_WORD)?)
    } else if label.is_present() {
        Source::NodeLabel(key(&label)?)
    } else if annotation.is_present() {
        Source::NodeAnnotation(key(&annotation)?)
    } else if built_in_of? == BuiltIn::Eta {
        Source::Eta(class.required().word(&Class::BY_WORD)?)
    } else {
        Source::BuiltIn(built_in_of?)
    };
    Some(Metric {
        name: text.to_owned(),
        norm_min: min?,
        norm_max: max?,
        source,
    })
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
    fn a_whole_profile_and_the_defaults() {
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
        let mut own = spec;
        for (name, value) in [
            ("aggregate", json!("max")),
            ("margin", json!(0)),
            ("dwell", json!("1m30s")),
            ("period", json!("5s")),
            ("staleness", json!("10s")),
        ] {
            own[name] = value;
        }
        let profile = Profile::read(&own).unwrap();
        assert_eq!(
            (profile.aggregate, profile.margin, profile.dwell),
            (Aggregate::Max, Score(0), Micros::from_secs(90))
        );
    }

    #[test]
    fn every_fault_is_named() {
        assert_eq!(
            faults(json!({"x": 1})),
            [
                "spec.x: is not a field here; there are better, equation, metrics, aggregate, margin, dwell, period, staleness",
                "spec.equation: is missing",
                "spec.metrics: is missing",
                "spec.better: is missing",
            ]
        );
        let metric = |over: Value| {
            let mut metric = json!({"name": "a", "normMin": 0, "normMax": 1, "builtIn": "pods"});
            for (name, value) in over.as_object().unwrap() {
                metric[name] = value.clone();
            }
            json!({"better": "lower", "equation": "cm_normalized_a", "metrics": [metric]})
        };
        for (over, fault) in [
            (
                json!({"name": "1a"}),
                "spec.metrics[0].name: \"1a\" is not a name: letters, digits and `_`, not first a digit, at most 63",
            ),
            (
                json!({"normMax": 0}),
                "spec.metrics[0].normMax: 0 is not above normMin, which is 0",
            ),
            (json!({"normMax": null}), "spec.metrics[0].normMax: is missing"),
            (
                json!({"builtIn": null}),
                "spec.metrics[0]: exactly one of promQL, nodeLabel, nodeAnnotation and builtIn must be stated",
            ),
            (
                json!({"promQL": "x", "by": "node"}),
                "spec.metrics[0]: exactly one of promQL, nodeLabel, nodeAnnotation and builtIn must be stated",
            ),
            (
                json!({"by": "node"}),
                "spec.metrics[0].by: is stated with promQL, and only then",
            ),
            (
                json!({"class": "batch"}),
                "spec.metrics[0].class: is stated with builtIn: eta_ms, and only then",
            ),
            (json!({"builtIn": "eta_ms"}), "spec.metrics[0].class: is missing"),
            (
                json!({"builtIn": null, "promQL": "up"}),
                "spec.metrics[0].by: is missing",
            ),
            (
                json!({"builtIn": null, "nodeLabel": "a b"}),
                "spec.metrics[0].nodeLabel: \"a b\" is not a key: `[domain/]name`",
            ),
            (
                json!({"builtIn": "watts"}),
                "spec.metrics[0].builtIn: \"watts\" is not one of free_cpu, free_memory, pods, rtt_ms, loss_pct, eta_ms, missing_optional_traits, cost_per_hour",
            ),
        ] {
            let found = faults(metric(over.clone()));
            assert!(found.contains(&fault.to_owned()), "{over}: {found:#?}");
        }
        let mut many = metric(json!({}));
        many["margin"] = json!(-1);
        many["dwell"] = json!("soon");
        many["period"] = json!("10m");
        many["equation"] = json!("2 * cm_normalized_a");
        assert_eq!(
            faults(many),
            [
                "spec.equation: 2 is a whole number, which CEL does not mix with others: write 2.0",
                "spec.staleness: 120000 ms is over before the next value, which takes 600000 ms",
                "spec.margin: -1 is not a number from 0 to 1000000000",
                "spec.dwell: \"soon\" is not a duration from 0s to 24h, such as 60s or 1m30s",
            ]
        );
    }
}
