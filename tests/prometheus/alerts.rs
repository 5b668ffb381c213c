//! promtool checks the rules and the dashboard of `deploy/monitoring`.

use std::process::Command;

use edgeward_harness::prelude::*;
use serde::Deserialize;
use tempfile::TempDir;

use crate::Run;

/// The cases for the alerts. The YAML file explains its fields.
#[derive(Deserialize)]
struct Table {
    well: Series,
    cases: Vec<Case>,
}

type Series = BTreeMap<String, String>;

#[derive(Default, Deserialize)]
struct Case {
    fires: Vec<String>,
    #[serde(default)]
    with: Series,
}

/// How many cases are also tried with a single cluster.
const ALONE: usize = 5;

/// The rules in promtool's format, without their Kubernetes object.
fn rules() -> Result<Value> {
    let mut object: Value = serde_saphyr::from_str(include_str!("../../deploy/monitoring/prometheusrule.yaml"))?;
    Ok(object["spec"].take())
}

fn alerts(rules: &Value) -> BTreeSet<&str> {
    let groups = rules["groups"].as_array().into_iter().flatten();
    let rules = groups.flat_map(|group| group["rules"].as_array().into_iter().flatten());
    rules.filter_map(|rule| rule["alert"].as_str()).collect()
}

/// Runs promtool in a directory with these files. JSON is valid YAML.
fn promtool(run: &Run, what: &[&str], files: &[(&str, &Value)]) -> Result<()> {
    let dir = TempDir::new()?;
    for (name, content) in files {
        fs::write(dir.path().join(name), content.to_string())?;
    }
    let promtool = run.program.with_file_name("promtool");
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

pub(crate) fn alert_rules_pass_promtool_lint(run: &Run) -> Result<()> {
    let rules = rules()?;
    let what = ["check", "rules", "--lint=all", "--lint-fatal", "rules.yaml"];
    promtool(run, &what, &[("rules.yaml", &rules)])
}

/// A promtool test with these clusters. The second, or the only one, has the case's series.
fn test(number: usize, well: &Series, clusters: &[&str], case: &Case) -> Value {
    let troubled = clusters.get(1).or(clusters.first()).copied().unwrap_or_default();
    let series = clusters.iter().flat_map(|cluster| {
        let is_troubled = *cluster == troubled;
        let well = well
            .iter()
            .filter(move |(series, _)| !is_troubled || !case.with.contains_key(*series));
        let series = well.chain(case.with.iter().filter(move |_| is_troubled));
        let series = series.filter(|(_, values)| !values.is_empty());
        series.map(move |(series, values)| json!({"series": of_cluster(series, cluster), "values": values}))
    });
    let firing = case.fires.iter().map(|alert| {
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

/// The series with the label `cluster`. An empty cluster name leaves it unchanged.
fn of_cluster(series: &str, cluster: &str) -> String {
    let label = format!("cluster=\"{cluster}\"");
    match series.strip_suffix('}') {
        _ if cluster.is_empty() => series.to_owned(),
        Some(labels) => format!("{labels},{label}}}"),
        None => format!("{series}{{{label}}}"),
    }
}

/// In each case exactly the expected alerts fire, and only for the cluster with the fault.
pub(crate) fn each_alert_fires_only_in_its_case(run: &Run) -> Result<()> {
    let rules = rules()?;
    let known = alerts(&rules);
    let table: Table = serde_saphyr::from_str(include_str!("../golden/alerts.yaml"))?;
    let tried: BTreeSet<_> = table
        .cases
        .iter()
        .flat_map(|case| &case.fires)
        .map(String::as_str)
        .collect();
    ensure!(known == tried, "the rules have {known:?}, and tried are {tried:?}");

    // With two clusters, the fault is in the second.
    let alone: &[&str] = &[""];
    let three: &[&str] = &["one", "two", "three"];
    let cases = table.cases.iter().map(|case| (three, case));
    let cases = cases.chain(table.cases.iter().take(ALONE).map(|case| (alone, case)));
    let nowhere = Case {
        fires: vec!["EdgewardNoReplicaReady".to_owned()],
        ..Case::default()
    };
    let none: &[&str] = &[];
    let tests: Value = cases
        .chain([(none, &nowhere)])
        .enumerate()
        .map(|(number, (clusters, case))| test(number, &table.well, clusters, case))
        .collect();
    let tests = json!({"rule_files": ["rules.yaml"], "evaluation_interval": "30s", "tests": tests});
    let files = [("rules.yaml", &rules), ("tests.yaml", &tests)];
    promtool(run, &["test", "rules", "tests.yaml"], &files)
}

pub(crate) fn dashboard_queries_are_valid_promql(run: &Run) -> Result<()> {
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
    promtool(run, &["check", "rules", "rules.yaml"], &[("rules.yaml", &rules)])
}
