//! Reports, and the scenarios that come with the program.

// A test says what it expects by failing; clippy's own exception covers test functions, not their helpers.
#![allow(clippy::panic, clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use edgeward_lab::experiment::{Plan, Results, carry_out};
use edgeward_lab::policy::Policy;
use edgeward_lab::report;
use edgeward_lab::scenario::{Scenario, read};
use serde_json::{Value, json};

fn results(scenario: &Scenario, policies: &[Policy], stop_after: Option<usize>) -> Results {
    let plan = Plan {
        policies: policies.to_vec(),
        seeds: vec![1, 2],
        threads: 2,
    };
    let stop = AtomicBool::new(false);
    let progress = |done: usize, _: usize| {
        if stop_after.is_some_and(|most| done >= most) {
            stop.store(true, Ordering::Relaxed);
        }
    };
    carry_out(scenario, &plan, &stop, progress).unwrap()
}

fn small() -> Scenario {
    let document = json!({
        "name": "A small edge <& a cloud>", "description": "More than it can hold.",
        "warmupSeconds": 20, "durationSeconds": 200, "drainSeconds": 120,
        "sites": [
            {"name": "edge", "kind": "edge", "nodes": [{"count": 2, "allocatable": {"cpu": "2", "memory": "4Gi"}}]},
            {"name": "cloud", "kind": "cloud", "costPerCpuHour": 1, "wan": {"rttMs": 20},
             "nodes": [{"allocatable": {"cpu": "64", "memory": "256Gi"}}]},
        ],
        "workloads": [
            {"name": "camera", "class": "latency", "latencyTargetMs": 150, "requests": {"cpu": "500m"},
             "serviceMs": 120, "deployment": {"replicas": 4}},
            {"name": "report", "class": "batch", "deadlineMs": 30_000, "requests": {"cpu": "500m"},
             "serviceMs": {"uniform": {"fromMs": 5_000, "toMs": 15_000}}, "jobs": {"poisson": {"perSecond": 0.8}}},
        ],
    });
    read(&document, &|_| Err("there are no files".into())).unwrap()
}

fn folder(name: &str) -> PathBuf {
    // Not when it was compiled: several checkouts may share that.
    PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join(name)
}

#[test]
fn the_table_is_as_recorded() {
    let scenario = small();
    let found = report::table(&scenario, &results(&scenario, &Policy::ALL, None));
    let path = folder("tests/golden/small.txt");
    if std::env::var_os("EDGEWARD_BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &found).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, expected, "EDGEWARD_BLESS=1 records it anew");
}

#[test]
fn what_was_over_is_reported_when_it_is_ended_early() {
    let scenario = small();
    let results = results(&scenario, &Policy::ALL, Some(3));
    assert!(results.is_incomplete);
    let json = report::json(&scenario, &results);
    assert_eq!(json["incomplete"], true);
    let runs = json["policies"].as_array().unwrap().iter();
    let runs: usize = runs.map(|policy| policy["runs"].as_array().unwrap().len()).sum();
    assert!((3..8).contains(&runs), "{runs}");
    assert!(report::table(&scenario, &results).contains("ended early"));
}

/// It has no scripts and asks for nothing from elsewhere.
#[test]
fn the_page_is_self_contained() {
    let scenario = small();
    let page = report::page(&scenario, &results(&scenario, &Policy::ALL, None));
    assert!(page.contains("<title>A small edge &lt;&amp; a cloud&gt;</title>"));
    for foreign in [
        "<script", "http://", "https://", "url(", "@import", "<link", "<img", "NaN", "inf",
    ] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    let count = |text: &str| page.matches(text).count();
    assert_eq!(count("<svg"), count("</svg>"));
    assert!(count("<svg") >= 9, "{}", count("<svg"));
    assert!(Policy::ALL.iter().all(|policy| page.contains(policy.as_str())));
}

/// Each of them is read, and the first minutes of it run.
#[test]
fn the_scenarios_that_come_along_run() {
    let examples = folder("../../examples/scenarios");
    let mut count = 0;
    for entry in fs::read_dir(&examples).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let mut document: Value = serde_saphyr::from_str(&text).unwrap();
        document["warmupSeconds"] = 10.into();
        document["durationSeconds"] = 60.into();
        document["drainSeconds"] = 30.into();
        let load = |name: &str| fs::read_to_string(examples.join(name)).map_err(|error| error.to_string());
        let scenario = read(&document, &load).unwrap_or_else(|faults| panic!("{}: {faults}", path.display()));
        let results = results(&scenario, &[Policy::Edgeward], None);
        let asked = results.relaxed[&1].0.iter().map(|class| class.asked).sum::<u64>();
        assert!(asked > 0, "{}: {asked}", path.display());
        count += 1;
    }
    assert!(count >= 9, "{count}");
}
