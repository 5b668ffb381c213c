//! Imports profiles in CODECO's form (arXiv 2601.13351, figure 7) as PerformanceProfiles, and reports their faults.

use std::sync::LazyLock;

use heck::ToKebabCase as _;
use promql_parser::label::Labels;
use promql_parser::parser::{self, Expr, LabelModifier};
use regex::{Captures, Regex};
use serde_json::{Value, json};

use crate::equation::PREFIX;
use crate::profile::{By, MAX_PROMQL, Profile};

/// Metrics with a known maximum, and that maximum.
const BOUNDED: [(&str, f64); 2] = [("kube_node_status_condition", 1.0), ("node_cpu_seconds_total", 1.0)];

/// A bound counts as an error if it normalises the largest value to less than this.
const LEAST_NORMALISED: f64 = 1e-4;

/// A range that follows a call, not the series in it. A range with a colon is a subquery, which is valid there.
static RANGE_AFTER_CALL: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let pattern = r#"(?<function>[A-Za-z0-9_]+)\((?<inside>(?:[^()"]|"[^"]*")*)\)(?<range>\[[^\]:]*\])"#;
    Regex::new(pattern).ok()
});

/// An imported profile, and the faults of its text.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// The PerformanceProfile.
    pub object: Value,
    /// Faults of the text, each with the correction to write.
    pub findings: Vec<String>,
}

/// Reads the keys `profiles.yaml` and `custom_metrics.yaml` of a document, or of the `data` of a ConfigMap. Each is a
/// YAML text. With `fix`, faults are corrected; without it, the text stays as it is.
///
/// # Errors
/// The document has another form, or a profile is invalid as a PerformanceProfile. The message names every fault.
pub fn import(document: &Value, fix: bool) -> Result<Vec<Imported>, String> {
    let data = if document["data"].is_object() {
        &document["data"]
    } else {
        document
    };
    let part = |key: &str, list: &str| -> Result<Vec<Value>, String> {
        let value = match &data[key] {
            Value::String(text) => serde_saphyr::from_str(text).map_err(|error| format!("{key}: {error}"))?,
            Value::Null => {
                return Err(format!(
                    "{key} is missing: it and the other of profiles.yaml and custom_metrics.yaml are read"
                ));
            }
            value => value.clone(),
        };
        let list_of = value[list].as_array().cloned();
        list_of.ok_or_else(|| format!("{key}: {list} is not a list"))
    };
    let (profiles, metrics) = (
        part("profiles.yaml", "profiles")?,
        part("custom_metrics.yaml", "custom_metrics")?,
    );
    profiles
        .iter()
        .map(|profile| imported(profile, &metrics, fix))
        .collect()
}

fn imported(profile: &Value, metrics: &[Value], fix: bool) -> Result<Imported, String> {
    let text = |value: &Value, what: &str| {
        let text = value.as_str().filter(|text| !text.is_empty());
        text.map(str::to_owned)
            .ok_or_else(|| format!("{what}: {value} is not a text"))
    };
    let name = text(&profile["name"], "profiles[].name")?;
    let equation = text(&profile["equation"], &format!("{name}: equation"))?;
    let mut findings = vec![];
    let mut used = vec![];
    for metric in metrics {
        let called = text(&metric["name"], "custom_metrics[].name")?;
        if !is_used(&equation, &format!("{PREFIX}{called}")) {
            continue;
        }
        let promql = text(&metric["promQL"], &format!("{called}: promQL"))?;
        let judged = judge(&promql);
        findings.extend(judged.findings.iter().map(|finding| format!("{called}: {finding}")));
        let mut norm_max = metric["norm_max"].clone();
        if let Some((finding, bound)) = too_wide(&promql, &norm_max) {
            findings.push(format!("{called}: {finding}"));
            if fix {
                norm_max = json!(bound);
            }
        }
        used.push(json!({
            "name": called,
            "normMin": metric["norm_min"],
            "normMax": norm_max,
            "by": judged.place.as_str(),
            "promQL": if fix { judged.corrected } else { promql },
        }));
    }
    let spec = json!({"better": "lower", "equation": equation, "metrics": used, "aggregate": "mean"});
    Profile::read(&spec).map_err(|faults| format!("{name}: {faults}"))?;
    let object = json!({
        "apiVersion": "edgeward.io/v1alpha1",
        "kind": "PerformanceProfile",
        "metadata": {"name": object_name(&name)},
        "spec": spec,
    });
    Ok(Imported { object, findings })
}

/// Whether the equation uses this name.
fn is_used(equation: &str, name: &str) -> bool {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    equation.split(|letter| !is_part(letter)).any(|word| word == name)
}

/// Turns a name into lower-case words, as object names are: `UserDefined` becomes `user-defined`.
pub fn object_name(name: &str) -> String {
    let ascii: String = name.chars().filter(char::is_ascii).collect();
    let words: String = ascii.to_kebab_case().chars().take(63).collect();
    match words.trim_end_matches('-') {
        "" => "profile".to_owned(),
        words => words.to_owned(),
    }
}

/// A query, its faults and its corrected form.
struct Judged {
    findings: Vec<String>,
    corrected: String,
    /// The label with which its series name places.
    place: By,
}

fn judge(promql: &str) -> Judged {
    let mut judged = Judged {
        findings: vec![],
        corrected: promql.to_owned(),
        place: By::Node,
    };
    // Parsing takes stack for each level, and no profile may have a query of this length.
    if promql.len() > MAX_PROMQL {
        return judged;
    }
    let correct = |call: &Captures<'_>| {
        let (function, range) = (&call["function"], &call["range"]);
        let right = format!("{function}({}{range})", &call["inside"]);
        let finding = format!("range {range} stands after {function}(…): write {right}");
        judged.findings.push(finding);
        right
    };
    if let Some(range_after_call) = &*RANGE_AFTER_CALL {
        judged.corrected = range_after_call.replace_all(promql, correct).into_owned();
    }
    match parser::parse(&judged.corrected) {
        Ok(expression) => match combined(&expression) {
            Some((operator, None)) => {
                let finding = format!("one series without a node: write {operator} by (node) (…)");
                judged.findings.push(finding);
                let grouped = format!("{operator} by (node) (");
                judged.corrected = judged.corrected.replacen(&format!("{operator}("), &grouped, 1);
            }
            Some((_, Some(place))) => judged.place = place,
            None => {}
        },
        Err(error) => judged.findings.push(format!("not PromQL: {error}")),
    }
    judged
}

/// The operator that combines the series of an expression, and the first label of a place that it keeps. `None` if the
/// series have the labels of the metrics, which are not known.
fn combined(expression: &Expr) -> Option<(String, Option<By>)> {
    let aggregate = match expression {
        Expr::Paren(inner) => return combined(&inner.expr),
        Expr::Aggregate(aggregate) => aggregate,
        _ => return None,
    };
    let is_kept = |labels: &[String], by: &By| labels.iter().any(|label| label == by.as_str());
    let kept = match &aggregate.modifier {
        Some(LabelModifier::Include(Labels { labels })) => By::ALL.into_iter().find(|by| is_kept(labels, by)),
        Some(LabelModifier::Exclude(_)) => return None,
        None => None,
    };
    Some((aggregate.op.to_string(), kept))
}

/// Reports a bound far above all values, and returns the correct bound.
fn too_wide(promql: &str, norm_max: &Value) -> Option<(String, f64)> {
    let (metric, bound) = BOUNDED.into_iter().find(|(metric, _)| promql.contains(metric))?;
    let most = norm_max.as_f64()?;
    let is_wide = bound / most < LEAST_NORMALISED;
    is_wide.then(|| {
        let finding = format!("norm_max {most}: all values are below {LEAST_NORMALISED} by it, for {metric} gives at most {bound}: write {bound}");
        (finding, bound)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIGURE: &str = include_str!("../testdata/codeco-fig7.yaml");

    fn figure() -> Value {
        serde_saphyr::from_str(FIGURE).unwrap()
    }

    const FAULTS: [&str; 4] = [
        "avgNodecpucustom: range [1m] stands after rate(…): write rate(node_cpu_seconds_total{mode=\"idle\"}[1m])",
        "avgNodefailurecustom: range [1m] stands after avg_over_time(…): write avg_over_time(kube_node_status_condition{condition=\"Ready\", status!=\"true\"}[1m])",
        "avgNodefailurecustom: one series without a node: write sum by (node) (…)",
        "avgNodefailurecustom: norm_max 20000: all values are below 0.0001 by it, for kube_node_status_condition gives at most 1: write 1",
    ];

    #[test]
    fn paper_figure_is_imported_unchanged_with_findings() {
        let [imported] = &import(&figure(), false).unwrap()[..] else {
            panic!()
        };
        assert_eq!(imported.findings, FAULTS);
        assert_eq!(imported.object["metadata"]["name"], "user-defined");
        let spec = &imported.object["spec"];
        assert_eq!(
            spec["equation"],
            "cm_normalized_avgNodecpucustom * cm_normalized_avgNodefailurecustom"
        );
        assert_eq!((&spec["better"], &spec["aggregate"]), (&json!("lower"), &json!("mean")));
        assert_eq!(
            spec["metrics"],
            json!([
                {"name": "avgNodecpucustom", "normMin": 0, "normMax": 1, "by": "instance",
                 "promQL": "avg by (instance) (1 - rate(node_cpu_seconds_total{mode=\"idle\"})[1m])"},
                {"name": "avgNodefailurecustom", "normMin": 0, "normMax": 20000, "by": "node",
                 "promQL": "sum(avg_over_time(kube_node_status_condition{condition=\"Ready\", status!=\"true\"})[1m])"},
            ])
        );
    }

    #[test]
    fn paper_figure_is_corrected_on_request() {
        let [imported] = &import(&figure(), true).unwrap()[..] else {
            panic!()
        };
        assert_eq!(imported.findings, FAULTS);
        let metrics = &imported.object["spec"]["metrics"];
        assert_eq!(
            metrics[0]["promQL"],
            "avg by (instance) (1 - rate(node_cpu_seconds_total{mode=\"idle\"}[1m]))"
        );
        assert_eq!(
            metrics[1]["promQL"],
            "sum by (node) (avg_over_time(kube_node_status_condition{condition=\"Ready\", status!=\"true\"}[1m]))"
        );
        assert_eq!(metrics[1]["normMax"], 1.0);
        for metric in metrics.as_array().unwrap() {
            parser::parse(metric["promQL"].as_str().unwrap()).unwrap();
        }
        // What is right stays, and has no faults.
        let right = json!({
            "profiles.yaml": {"profiles": [{"name": "x", "equation": "cm_normalized_a"}]},
            "custom_metrics.yaml": {"custom_metrics": [
                {"name": "a", "norm_min": 0, "norm_max": 1, "promQL": "max by (site) (a)"},
                {"name": "ab", "norm_min": 0, "norm_max": 1, "promQL": "nobody reads this ("}]},
        });
        let [imported] = &import(&right, true).unwrap()[..] else {
            panic!()
        };
        assert_eq!(
            (imported.findings.len(), &imported.object["spec"]["metrics"][0]["by"]),
            (0, &json!("site"))
        );
    }

    #[test]
    fn config_map_is_imported_from_its_data() {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": figure()});
        assert_eq!(import(&map, false), import(&figure(), false));
    }

    #[test]
    fn invalid_import_document_reports_its_fault() {
        let fault = |document: Value| import(&document, false).unwrap_err();
        assert_eq!(
            fault(json!({})),
            "profiles.yaml is missing: it and the other of profiles.yaml and custom_metrics.yaml are read"
        );
        let of = |equation: &str| {
            json!({
                "profiles.yaml": {"profiles": [{"name": "x", "equation": equation}]},
                "custom_metrics.yaml": {"custom_metrics": [{"name": "a", "norm_min": 0, "norm_max": 1, "promQL": "a"}]},
            })
        };
        assert_eq!(
            fault(of("2 * cm_normalized_a")),
            "x: spec.equation: 2 is a whole number, which CEL does not mix with others: write 2.0"
        );
        assert_eq!(
            fault(of("cm_normalized_b")),
            "x: spec.metrics: 0 are not 1 to 16\nspec.equation: cm_normalized_b is not declared; there are "
        );
        let mut deep = of("cm_normalized_a");
        deep["custom_metrics.yaml"]["custom_metrics"][0]["promQL"] = json!("(".repeat(200_000));
        let found = fault(deep);
        assert!(found.contains("promQL") && found.contains("4096 bytes"), "{found:.200}");
        assert_eq!(
            fault(json!({"profiles.yaml": "a: ["})).split(':').next(),
            Some("profiles.yaml")
        );
    }

    #[test]
    fn profile_name_becomes_a_valid_object_name() {
        for (name, object) in [
            ("Greenness", "greenness"),
            ("UserDefined", "user-defined"),
            ("my_own V2", "my-own-v2"),
            ("__", "profile"),
        ] {
            assert_eq!(object_name(name), object);
        }
    }
}
