//! The rules and the dashboard of `deploy/monitoring`, judged by promtool.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Half an hour of two replicas that are well, in promtool's notation, by steps of 30 s from the Unix epoch on. Values of a
/// counter that grow by one a step are `0+1x60`.
const WELL: &[(&str, &str)] = &[
    (r#"edgeward_ready{instance="a"}"#, "1x60"),
    (r#"edgeward_ready{instance="b"}"#, "1x60"),
    (r#"edgeward_leader{instance="a"}"#, "1x60"),
    (r#"edgeward_leader{instance="b"}"#, "0x60"),
    (
        r#"edgeward_reviews_total{verdict="edge",reason="edge_feasible_slo_met"}"#,
        "0+300x60",
    ),
    (
        r#"edgeward_reviews_total{verdict="passthrough",reason="passthrough_not_ready"}"#,
        "0+1x60",
    ),
    (r#"edgeward_review_duration_seconds_bucket{le="0.1"}"#, "0+299x60"),
    ("edgeward_review_duration_seconds_count", "0+300x60"),
    (
        r#"apiserver_admission_webhook_fail_open_count{name="pods.edgeward.io"}"#,
        "3x60",
    ),
    ("edgeward_gated_oldest_timestamp_seconds", "0x10 0+30x50"),
    (
        r#"edgeward_gated_pod_changes_total{reason="edge_feasible_slo_met",result="changed"}"#,
        "0+1x60",
    ),
    (
        r#"edgeward_gated_pod_changes_total{reason="edge_feasible_slo_met",result="refused"}"#,
        "0x60",
    ),
    ("edgeward_tls_certificate_not_after_seconds", "2592000x60"),
    (r#"edgeward_tls_handshake_failures_total{cause="client"}"#, "0x60"),
    (
        r#"edgeward_tls_reloads_total{of="certificate",result="loaded"}"#,
        "0+1x60",
    ),
    (
        r#"edgeward_tls_reloads_total{of="certificate",result="refused"}"#,
        "0x60",
    ),
    (r#"edgeward_tls_handshake_failures_total{cause="rejected"}"#, "0x60"),
    (r#"edgeward_tls_handshake_failures_total{cause="closed"}"#, "0+1x60"),
    (r#"edgeward_watch_heard_timestamp_seconds{kind="nodes"}"#, "0+30x60"),
    (r#"edgeward_watch_heard_timestamp_seconds{kind="pods"}"#, "0+30x60"),
    (r#"edgeward_wan_state{site="cloud",state="healthy"}"#, "1x60"),
    (r#"edgeward_wan_state{site="cloud",state="unreachable"}"#, "0x60"),
    (
        r#"edgeward_wan_probes_total{site="cloud",endpoint="one",outcome="answered"}"#,
        "0+15x60",
    ),
    (
        r#"edgeward_wan_probes_total{site="cloud",endpoint="two",outcome="answered"}"#,
        "0x60",
    ),
    (
        r#"edgeward_wan_probes_total{site="removed",endpoint="one",outcome="answered"}"#,
        "7x60",
    ),
    (r#"edgeward_backstop_pods{finding="misplaced"}"#, "0x60"),
    (r#"edgeward_backstop_pods{finding="undecided"}"#, "0x60"),
    (r#"edgeward_backstop_pods{finding="bound"}"#, "4x60"),
];

/// What is different, and which alerts fire after half an hour of it. A series without values is not there.
type Case = (&'static [(&'static str, &'static str)], &'static [&'static str]);

/// For each alert one case at least, and what looks like trouble and is none. Each is tried of the second of three
/// clusters; the first few also of one alone, without that label.
const CASES: &[Case] = &[
    (&[], &[]),
    (
        &[
            (r#"edgeward_ready{instance="a"}"#, "0x60"),
            (r#"edgeward_ready{instance="b"}"#, "0x60"),
        ],
        &["EdgewardNoReplicaReady"],
    ),
    (
        &[
            (r#"edgeward_ready{instance="a"}"#, "1x20 stale"),
            (r#"edgeward_ready{instance="b"}"#, "1x20 stale"),
        ],
        &["EdgewardNoReplicaReady"],
    ),
    // One of them is away for good, and the other leads.
    (
        &[
            (r#"edgeward_ready{instance="a"}"#, "1x39 0 stale"),
            (r#"edgeward_leader{instance="a"}"#, "1x40 stale"),
            (r#"edgeward_leader{instance="b"}"#, "0x41 1x20"),
        ],
        &[],
    ),
    (
        &[(
            r#"apiserver_admission_webhook_fail_open_count{name="pods.edgeward.io"}"#,
            "3x40 4x20",
        )],
        &["EdgewardFailOpen"],
    ),
    // It counts for the first time.
    (
        &[(
            r#"apiserver_admission_webhook_fail_open_count{name="pods.edgeward.io"}"#,
            "_x40 1x20",
        )],
        &["EdgewardFailOpen"],
    ),
    (
        &[
            (
                r#"apiserver_admission_webhook_fail_open_count{name="pods.edgeward.io"}"#,
                "",
            ),
            (
                r#"apiserver_admission_webhook_fail_open_count{name="other.example.com"}"#,
                "0+9x60",
            ),
        ],
        &[],
    ),
    (
        &[(
            r#"edgeward_reviews_total{verdict="passthrough",reason="passthrough_not_ready"}"#,
            "0+5x60",
        )],
        &["EdgewardReviewsLateOrUndecided"],
    ),
    (
        &[(r#"edgeward_review_duration_seconds_bucket{le="0.1"}"#, "0+290x60")],
        &["EdgewardReviewsLateOrUndecided"],
    ),
    (
        &[("edgeward_gated_oldest_timestamp_seconds", "0x10 300x50")],
        &["EdgewardPodGatedTooLong"],
    ),
    (
        &[(
            r#"edgeward_gated_pod_changes_total{reason="edge_feasible_slo_met",result="refused"}"#,
            "0+1x60",
        )],
        &["EdgewardReleasesRefused"],
    ),
    (
        &[(r#"edgeward_leader{instance="a"}"#, "1x50 0x10")],
        &["EdgewardNoLeader"],
    ),
    // The Lease is handed over, and scraped meanwhile.
    (
        &[
            (r#"edgeward_leader{instance="a"}"#, "1x58 0x2"),
            (r#"edgeward_leader{instance="b"}"#, "0x60"),
        ],
        &[],
    ),
    (
        &[("edgeward_tls_certificate_not_after_seconds", "600000x60")],
        &["EdgewardCertificateExpires"],
    ),
    (
        &[("edgeward_tls_certificate_not_after_seconds", "1700x60")],
        &["EdgewardCertificateExpires"],
    ),
    // There is none yet.
    (&[("edgeward_tls_certificate_not_after_seconds", "0x60")], &[]),
    (
        &[(r#"edgeward_tls_handshake_failures_total{cause="client"}"#, "0x50 2x10")],
        &["EdgewardCertificateRefused"],
    ),
    (
        &[(
            r#"edgeward_tls_reloads_total{of="certificate",result="refused"}"#,
            "0x50 1x10",
        )],
        &["EdgewardCertificateRefused"],
    ),
    (
        &[(
            r#"edgeward_tls_handshake_failures_total{cause="rejected"}"#,
            "0x40 0+1x20",
        )],
        &["EdgewardCertificateRefused"],
    ),
    (
        &[(r#"edgeward_config_faults{path="sites"}"#, "_x50 1x10")],
        &["EdgewardConfigurationRefused"],
    ),
    (
        &[(
            r#"edgeward_watch_heard_timestamp_seconds{kind="pods"}"#,
            "0+30x50 1500x10",
        )],
        &["EdgewardViewStale"],
    ),
    (
        &[(r#"edgeward_wan_state{site="cloud",state="unreachable"}"#, "0x40 1x20")],
        &["EdgewardCloudUnreachable"],
    ),
    // It cannot be reached, and so nothing answers.
    (
        &[
            (r#"edgeward_wan_state{site="cloud",state="unreachable"}"#, "0x40 1x20"),
            (
                r#"edgeward_wan_probes_total{site="cloud",endpoint="one",outcome="answered"}"#,
                "0+15x40 600x20",
            ),
        ],
        &["EdgewardCloudUnreachable"],
    ),
    (
        &[(
            r#"edgeward_wan_probes_total{site="cloud",endpoint="one",outcome="answered"}"#,
            "0+15x30 450x30",
        )],
        &["EdgewardCloudUnreachable"],
    ),
    (
        &[(r#"edgeward_backstop_pods{finding="misplaced"}"#, "0x40 2x20")],
        &["EdgewardPodsAstray"],
    ),
    (
        &[(r#"edgeward_backstop_pods{finding="undecided"}"#, "0x40 2x20")],
        &["EdgewardPodsAstray"],
    ),
    (
        &[(r#"edgeward_backstop_pods{finding="bound"}"#, "4x45 5x15")],
        &["EdgewardPodsAstray"],
    ),
];

/// How many of them are also tried of a cluster alone.
const ALONE: usize = 5;

/// What promtool reads: the rules without their Kubernetes object.
fn rules() -> Result<Value> {
    let mut object: Value = serde_saphyr::from_str(include_str!("../../deploy/monitoring/prometheusrule.yaml"))?;
    Ok(object["spec"].take())
}

fn alerts(rules: &Value) -> BTreeSet<&str> {
    let groups = rules["groups"].as_array().into_iter().flatten();
    let rules = groups.flat_map(|group| group["rules"].as_array().into_iter().flatten());
    rules.filter_map(|rule| rule["alert"].as_str()).collect()
}

/// Has promtool do this in a directory with these files. What is YAML to it may be JSON.
fn promtool(prometheus: &Path, what: &[&str], files: &[(&str, &Value)]) -> Result<()> {
    let dir = TempDir::new()?;
    for (name, content) in files {
        fs::write(dir.path().join(name), content.to_string())?;
    }
    let promtool = prometheus.with_file_name("promtool");
    let output = Command::new(&promtool)
        .args(what)
        .current_dir(dir.path())
        .output()
        .with_context(|| format!("{}, which belongs beside Prometheus", promtool.display()))?;
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    ensure!(
        output.status.success(),
        "promtool {}: {}",
        what.join(" "),
        said.concat()
    );
    Ok(())
}

pub(crate) fn the_rules_are_rules(prometheus: &Path) -> Result<()> {
    let rules = rules()?;
    let what = ["check", "rules", "--lint=all", "--lint-fatal", "rules.yaml"];
    promtool(prometheus, &what, &[("rules.yaml", &rules)])
}

/// A test of promtool's: these clusters, of which the second, or the only one, is different.
fn test(number: usize, clusters: &[&str], (different, firing): &Case) -> Value {
    let troubled = clusters.get(1).or(clusters.first()).copied().unwrap_or_default();
    let is_said = |series: &str| different.iter().any(|(other, _)| *other == series);
    let series = clusters.iter().flat_map(|cluster| {
        let is_troubled = *cluster == troubled;
        let well = WELL.iter().filter(move |(series, _)| !is_troubled || !is_said(series));
        let series = well.chain(different.iter().filter(move |_| is_troubled));
        let series = series.filter(|(_, values)| !values.is_empty());
        series.map(move |(series, values)| json!({"series": of_cluster(series, cluster), "values": values}))
    });
    let firing = firing.iter().map(|alert| {
        let labels = of_cluster(&format!("{{alertname=\"{alert}\"}}"), troubled);
        json!({"labels": labels, "value": 1})
    });
    json!({
        "name": format!("case {number}"),
        "interval": "30s",
        "input_series": series.collect::<Value>(),
        "promql_expr_test": [{
            "expr": "max by (alertname, cluster) (ALERTS{alertstate=\"firing\"})",
            "eval_time": "30m",
            "exp_samples": firing.collect::<Value>(),
        }],
    })
}

/// The series with the label `cluster`; as it is where that is empty.
fn of_cluster(series: &str, cluster: &str) -> String {
    let label = format!("cluster=\"{cluster}\"");
    match series.strip_suffix('}') {
        _ if cluster.is_empty() => series.to_owned(),
        Some(labels) => format!("{labels},{label}}}"),
        None => format!("{series}{{{label}}}"),
    }
}

/// In each case its alerts fire and no other, for the cluster that is different and no other.
pub(crate) fn each_alert_fires_in_its_case_alone(prometheus: &Path) -> Result<()> {
    let rules = rules()?;
    let known = alerts(&rules);
    let tried: BTreeSet<_> = CASES.iter().flat_map(|(_, alerts)| *alerts).copied().collect();
    ensure!(known == tried, "the rules have {known:?}, and tried are {tried:?}");

    // What is different is so in the second.
    let alone: &[&str] = &[""];
    let three: &[&str] = &["one", "two", "three"];
    let cases = CASES.iter().map(|case| (three, case));
    let cases = cases.chain(CASES.iter().take(ALONE).map(|case| (alone, case)));
    let nowhere: Case = (&[], &["EdgewardNoReplicaReady"]);
    let none: &[&str] = &[];
    let cases = cases.chain([(none, &nowhere)]);
    let tests: Value = cases
        .enumerate()
        .map(|(number, (clusters, case))| test(number, clusters, case))
        .collect();
    let tests = json!({"rule_files": ["rules.yaml"], "evaluation_interval": "30s", "tests": tests});
    let files = [("rules.yaml", &rules), ("tests.yaml", &tests)];
    promtool(prometheus, &["test", "rules", "tests.yaml"], &files)
}

pub(crate) fn the_dashboard_asks_in_promql(prometheus: &Path) -> Result<()> {
    let dashboard: Value = serde_json::from_str(include_str!("../../deploy/monitoring/dashboard.json"))?;
    let panels = dashboard["panels"].as_array().into_iter().flatten();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let queries = targets.filter_map(|target| target["expr"].as_str());
    let record = |(number, query): (usize, &str)| {
        let query = query.replace("$__rate_interval", "5m").replace("$cluster", "one");
        json!({"record": format!("query_{number}"), "expr": query})
    };
    let queries: Vec<Value> = queries.enumerate().map(record).collect();
    ensure!(queries.len() > 20, "{} queries", queries.len());
    let rules = json!({"groups": [{"name": "dashboard", "rules": queries}]});
    promtool(prometheus, &["check", "rules", "rules.yaml"], &[("rules.yaml", &rules)])
}
