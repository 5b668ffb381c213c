//! Many performance profiles over many sites, evaluated during a load of reviews.

use edgeward_harness::load::replicas::nodes;
use edgeward_harness::load::{highest_steady, under_load};
use edgeward_harness::prelude::*;
use edgeward_harness::prometheus::{Exporter, Server, program};
use edgeward_harness::tables::Table;

const PROFILES: usize = 100;
const SITES: usize = 100;
const METRICS: usize = 5;

/// Seconds between two rounds of a profile (the default).
const PERIOD: u64 = 30;

const ROUNDS: u64 = 3;

fn profile(number: usize) -> Value {
    let metrics = (0..METRICS).map(|metric| {
        let query = format!("max by (site) (metric_{metric} * {})", number + 1);
        json!({"name": format!("m{metric}"), "normMin": 0, "normMax": 1000, "by": "site", "promQL": query})
    });
    let terms: Vec<String> = (0..METRICS).map(|metric| format!("cm_normalized_m{metric}")).collect();
    json!({
        "apiVersion": "edgeward.io/v1alpha1",
        "kind": "PerformanceProfile",
        "metadata": {"name": format!("profile-{number}")},
        "spec": {
            "better": "lower",
            "equation": terms.join(" + "),
            "metrics": metrics.collect::<Vec<_>>(),
            "period": format!("{PERIOD}s"),
        },
    })
}

e2e! { "profiles::profile_refresh_delays_no_review", Machine, profile_refresh_delays_no_review }
/// A hundred profiles with five metrics each, over a hundred sites, are refreshed in every period. No review is late meanwhile.
fn profile_refresh_delays_no_review(fixture: &Fixture<'_>) -> Result<()> {
    let exporter = Exporter::start(fixture.runtime.handle())?;
    fixture.install_custom_resources()?;
    let nodes = nodes(fixture)?;
    let mut config = nodes.config();
    let sites = config["sites"].as_array_mut().context("sites")?;
    for number in sites.len()..SITES {
        let far = format!("far-{number}");
        sites.push(json!({"name": far, "kind": "cloud", "nodeSelector": {"edgeward.test/far": far}}));
    }
    let names: Vec<&str> = sites.iter().filter_map(|site| site["name"].as_str()).collect();
    let says = |metric: usize| {
        let line =
            move |(site, name): (usize, &&str)| format!("metric_{metric}{{site=\"{name}\"}} {}", (site + metric) % 10);
        names.iter().enumerate().map(line).collect::<Vec<_>>()
    };
    let lines: Vec<String> = (0..METRICS).flat_map(says).collect();
    exporter.says(&lines.iter().map(|line| &**line).collect::<Vec<_>>());
    let server = Server::start(&program()?, &exporter)?;
    config["prometheus"] = json!({"url": format!("http://{}", server.address)});

    let pace = highest_steady(fixture, &nodes)?;
    let edgeward = fixture.live_edgeward(&config)?;
    let _registered = fixture.register_with_its_timeout(&edgeward.url, &edgeward.ca)?;
    let profiles: Vec<Value> = (0..PROFILES).map(profile).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": profiles});
    fixture.kubectl.run(&["create", "-f", "-"], &list.to_string())?;
    let asks = json!({
        "apiVersion": "edgeward.io/v1alpha1",
        "kind": "SloPolicy",
        "metadata": {"name": "all"},
        "spec": {"selector": {}, "slo": {"class": "latency", "profile": "profile-0"}},
    });
    fixture.kubectl.create(&asks)?;
    let all_are_scored = || -> Result<()> {
        let list: Value = serde_json::from_str(
            &fixture
                .kubectl
                .run(&["get", "performanceprofiles", "-o", "json"], "")?
                .stdout,
        )?;
        for profile in list["items"].as_array().context("items")? {
            let (name, status) = (&profile["metadata"]["name"], &profile["status"]);
            let scores = status["scores"].as_array().into_iter().flatten();
            let scored = scores.filter(|score| score["score"].is_number()).count();
            ensure!(
                scored == SITES,
                "{name}: {scored} sites have a score; {}",
                status["fault"]
            );
        }
        Ok(())
    };
    eventually(
        "all have scores",
        BOUND + Duration::from_secs(2 * PERIOD),
        all_are_scored,
    )?;

    let answered = || {
        edgeward.count(
            "edgeward_prometheus_queries_total",
            &[("query", "profile"), ("result", "ok")],
        )
    };
    let before = answered()?;
    let report = under_load(fixture, &nodes, pace, |load| {
        load.lasts(Duration::from_secs(ROUNDS * PERIOD))
    })?;
    let answered = answered()? - before;
    println!("load: beside {PROFILES} profiles of {METRICS} metrics and {SITES} sites: {answered} answers: {report}");
    Table::Profiles.row(
        &format!("{PROFILES} profiles, {SITES} sites, {METRICS} metrics"),
        &[&answered, &report.created, &report.undecided.len()],
    );
    all_are_scored()?;
    let expected = (ROUNDS - 1) * (PROFILES * METRICS) as u64;
    ensure!(answered >= expected, "{answered} answers, and not {expected}");
    report.is_clean()
}
