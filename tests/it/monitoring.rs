//! The metrics and labels that `deploy/monitoring` uses exist. promtool checks in `tests/prometheus` that the queries parse and
//! the alerts fire.

use edgeward_decision::placement::verdict::Reason;
use edgeward_harness::prelude::*;

use crate::deployment::object;

/// The documented metrics. A unit test compares them with the program's.
const METRICS: &str = include_str!("../../docs/reference/metrics.md");

/// Metrics of the API server that the queries use, with the labels used.
const API_SERVER: [(&str, &[&str]); 2] = [
    ("apiserver_admission_webhook_fail_open_count", &["name"]),
    (
        "apiserver_admission_webhook_admission_duration_seconds_bucket",
        &["name", "le"],
    ),
];

fn entries<'v>(value: &'v Value, list: &str) -> impl Iterator<Item = &'v Value> {
    value[list].as_array().into_iter().flatten()
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field]
        .as_str()
        .unwrap_or_else(|| panic!("no {field} in {value:#}"))
}

fn alerts() -> Vec<Value> {
    let rule = object("deploy/monitoring/prometheusrule.yaml");
    let groups = entries(&rule["spec"], "groups");
    groups.flat_map(|group| entries(group, "rules")).cloned().collect()
}

fn dashboard() -> Value {
    serde_json::from_str(include_str!("../../deploy/monitoring/dashboard.json")).unwrap()
}

/// Names and matchers of the edgeward and API server series in a query.
fn selectors(query: &str) -> Vec<(&str, Vec<(&str, &str)>)> {
    let is_of_a_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let starts = ["edgeward_", "apiserver_"];
    let starts = starts.into_iter().flat_map(|start| query.match_indices(start));
    let starts = starts.filter(|(at, _)| !query[..*at].ends_with(is_of_a_name));
    let selector = |(at, _)| {
        let rest: &str = &query[at..];
        let (name, rest) = rest.split_at(rest.find(|c| !is_of_a_name(c)).unwrap_or(rest.len()));
        let matchers = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        let matchers = matchers.into_iter().flat_map(|(matchers, _)| matchers.split(','));
        let matchers = matchers.map(|matcher| {
            let (label, value) = matcher.split_once(['=', '!']).unwrap();
            (label.trim(), value.trim_start_matches(['=', '~']).trim_matches('"'))
        });
        (name, matchers.collect())
    };
    starts.map(selector).collect()
}

/// The labels of a series; `None` for an unknown series.
fn labels_of(series: &str) -> Option<BTreeSet<&'static str>> {
    if let Some((_, labels)) = API_SERVER.iter().find(|(name, _)| *name == series) {
        return Some(labels.iter().copied().collect());
    }
    let rows = METRICS.lines().filter(|line| line.starts_with("| `edgeward_"));
    let mut rows = rows.map(|row| row.split(" | ").collect::<Vec<_>>());
    let row = rows.find(|row| {
        let name = row[0].trim_matches(['|', ' ', '`']);
        match row[1] {
            "histogram" => ["_bucket", "_sum", "_count"]
                .iter()
                .any(|part| series.strip_suffix(part) == Some(name)),
            _ => series == name,
        }
    })?;
    let labels = row[2].split(", ").map(|label| label.trim_matches('`'));
    let le = series.ends_with("_bucket").then_some("le");
    Some(labels.chain(le).collect())
}

fn check(what: &str, query: &str) {
    let found = selectors(query);
    assert!(!found.is_empty(), "{what} asks for nothing of ours: {query}");
    for (series, matchers) in found {
        let labels = labels_of(series).unwrap_or_else(|| panic!("{what}: there is no {series}"));
        // `cluster` is a label that a Prometheus for many clusters adds.
        for (label, value) in matchers.into_iter().filter(|(label, _)| *label != "cluster") {
            assert!(labels.contains(label), "{what}: {series} has no label {label}");
            let is_code = |value: &str| Reason::ALL.iter().any(|reason| reason.as_str() == value);
            let exists = label != "reason" || value.split('|').all(is_code);
            assert!(exists, "{what}: not all of {value} are reasons");
        }
    }
}

#[test]
fn alerts_and_dashboard_query_existing_metrics() {
    let alerts = alerts();
    assert!(alerts.len() <= 12, "{} alerts", alerts.len());
    for alert in &alerts {
        check(text(alert, "alert"), text(alert, "expr"));
    }
    for panel in entries(&dashboard(), "panels") {
        for target in entries(panel, "targets") {
            check(text(panel, "title"), text(target, "expr"));
        }
    }
    assert!(labels_of("edgeward_reviews").is_none() && labels_of("edgeward_review_duration_seconds").is_none());
}

#[test]
fn dashboard_queries_select_one_cluster() {
    for panel in entries(&dashboard(), "panels") {
        for target in entries(panel, "targets") {
            let of_cluster = |(name, matchers): (&str, Vec<(&str, &str)>)| {
                assert!(
                    matchers.contains(&("cluster", "$cluster")),
                    "{}: {name}",
                    panel["title"]
                );
            };
            selectors(text(target, "expr")).into_iter().for_each(of_cluster);
        }
    }
}

#[test]
fn each_alert_names_its_severity_and_its_runbook() {
    for alert in alerts() {
        let name = text(&alert, "alert");
        let severity = text(&alert["labels"], "severity");
        assert!(["critical", "warning"].contains(&severity), "{name}: {severity}");
        for annotation in ["summary", "description"] {
            assert!(
                !text(&alert["annotations"], annotation).is_empty(),
                "{name}: {annotation}"
            );
        }
        let anchor = format!("docs/guide/troubleshoot.md#{}", name.to_lowercase());
        assert_eq!(text(&alert["annotations"], "runbook_url"), anchor);
    }
}

#[test]
fn dashboard_is_labelled_and_panels_are_described() {
    let dashboard = dashboard();
    let panels = || entries(&dashboard, "panels");
    let ids: BTreeSet<_> = panels().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels().count(), "two panels have one id");
    for panel in panels().filter(|panel| panel["type"] != "row") {
        assert!(!text(panel, "description").is_empty(), "{}", panel["title"]);
        assert!(entries(panel, "targets").count() > 0, "{}", panel["title"]);
    }
    let kustomization = object("deploy/monitoring/kustomization.yaml");
    let generated = &kustomization["configMapGenerator"][0];
    assert_eq!(generated["files"], json!(["edgeward.json=dashboard.json"]));
    assert_eq!(generated["options"]["labels"], json!({"grafana_dashboard": "1"}));
}

#[test]
fn service_monitor_matches_metrics_port() {
    let monitor = object("deploy/monitoring/servicemonitor.yaml");
    let service = object("deploy/base/service.yaml");
    let base = object("deploy/base/kustomization.yaml");
    assert_eq!(
        monitor["spec"]["selector"]["matchLabels"], base["labels"][0]["pairs"],
        "the label of the Service"
    );
    assert_eq!(monitor["metadata"]["namespace"], service["metadata"]["namespace"]);
    let endpoint = &monitor["spec"]["endpoints"][0];
    assert_eq!(endpoint["path"], "/metrics");
    let port = entries(&service["spec"], "ports").find(|port| port["name"] == endpoint["port"]);
    assert_eq!(port.unwrap()["targetPort"], "health");
    let policy = object("deploy/base/networkpolicy.yaml");
    let mut ports = entries(&policy["spec"], "ingress").flat_map(|rule| entries(rule, "ports"));
    assert!(ports.any(|port| port["port"] == "health"));
}
