//! Reports, and the example scenarios.

// Failures of tests panic. Clippy exempts test functions only, not their helpers.
#![allow(clippy::panic, clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

use edgeward_harness::documentation::script;
use edgeward_lab::experiment::{Experiment, Plan, at_loads};
use edgeward_lab::policy::Policy;
use edgeward_lab::report;
use edgeward_lab::scenario::{Scenario, read};
use serde_json::Value;

fn experiment(scenario: &Scenario, policies: &[Policy], factors: &[f64], stop_after: Option<usize>) -> Experiment {
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
    at_loads(scenario, factors, &plan, &stop, progress).unwrap()
}

fn small() -> Scenario {
    let document = serde_json::from_str(include_str!("small.json")).unwrap();
    read(&document, &|_| Err("there are no files".into())).unwrap()
}

fn folder(name: &str) -> PathBuf {
    // Read at run time, because several checkouts may share the compiled test.
    PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap()).join(name)
}

fn policies(scenario: &Scenario) -> Vec<Policy> {
    Policy::of(scenario).collect()
}

#[test]
fn report_table_matches_recording() {
    let scenario = small();
    let found = report::table(&experiment(&scenario, &policies(&scenario), &[1.0], None));
    let path = folder("tests/golden/small.txt");
    if std::env::var_os("EDGEWARD_BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &found).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, expected, "EDGEWARD_BLESS=1 records it anew");
}

fn edgeward_lab(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_edgeward-lab"));
    command.args(arguments).output().unwrap()
}

/// Runs the command of a shell block of the guide in this folder.
fn shown(page: &str, words: &str, folder: &Path) -> String {
    let block = script(page, words).unwrap().replace('\\', " ");
    let (_, arguments) = block.split_once(" edgeward-lab -- ").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_edgeward-lab"));
    command.args(arguments.split_whitespace()).current_dir(folder);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn evaluation_table_includes_paper_row() {
    let words = "cargo run --release -p edgeward-lab -- evaluate --env";
    let found = shown("learn.md", words, &folder("."));
    let page = include_str!("../../../docs/guide/learn.md");
    let is_table = |paragraph: &&str| paragraph.starts_with("| policy          |");
    let table = page.split("\n\n").find(is_table).unwrap();
    assert!(found.ends_with(&format!("{table}\n")), "{found}");
}

#[test]
fn simulation_of_the_guide_writes_its_report() {
    let home = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(folder("../../examples"), home.path().join("examples")).unwrap();
    let words = "cargo run --release -p edgeward-lab -- simulate examples/scenarios";
    let found = shown("simulate.md", words, home.path());
    assert!(found.contains("\nrelaxed (bound) "), "{found}");
    let page = fs::read_to_string(home.path().join("report.html")).unwrap();
    assert!(page.contains("<svg"), "{page}");
}

#[test]
fn invalid_evaluate_option_names_value() {
    for (option, value, code, words) in [
        (
            "--env",
            "clusters=129",
            2,
            "clusters: 129 is not a number from 1 to 128",
        ),
        ("--policies", "min-cost,max-cost", 2, "'max-cost' for '--policies"),
        ("--seeds", "1,x", 2, "'x' for '--seeds <SEEDS>': is not a whole number"),
        ("--seeds", "-1,2", 2, "'-1' for '--seeds <SEEDS>'"),
        ("--episodes", "-5", 2, "'-5' for '--episodes <EPISODES>'"),
        ("--seeds", "1,2,1", 1, "error: --seeds: 1 is given twice\n"),
        ("--policies", "random,random", 1, "random is given twice\n"),
    ] {
        let output = edgeward_lab(&["evaluate", option, value]);
        assert_eq!(output.status.code(), Some(code), "{option} {value}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains(words), "{stderr}");
    }
}

fn runs(json: &Value) -> Vec<usize> {
    let loads = json["loads"].as_array().unwrap().iter();
    let count = |load: &Value| {
        let policies = load["policies"].as_array().unwrap().iter();
        policies.map(|policy| policy["runs"].as_array().unwrap().len()).sum()
    };
    loads.map(count).collect()
}

#[test]
fn early_end_reports_finished_runs() {
    let scenario = small();
    let experiment = experiment(&scenario, &policies(&scenario), &[0.5, 1.0, 2.0], Some(15));
    assert!(experiment.is_incomplete);
    let json = report::json(&experiment);
    assert_eq!(json["incomplete"], true);
    let runs = runs(&json);
    assert!(
        runs[0] == 10 && (3..8).contains(&runs[1]) && runs.len() == 2,
        "{runs:?}"
    );
    let table = report::table(&experiment);
    assert_eq!(table.matches("ended early").count(), 1);
    assert!(
        table.contains("load × 0.5: 2 seeds") && table.contains("load × 1: "),
        "{table}"
    );
    assert!(report::page(&experiment).contains("ended early"));
}

#[test]
fn higher_load_lowers_attainment() {
    let scenario = small();
    let experiment = experiment(&scenario, &[Policy::EdgeOnly], &[0.5, 1.0, 2.0], None);
    assert!(!experiment.is_incomplete);
    let json = report::json(&experiment);
    assert_eq!(runs(&json), [2, 2, 2]);
    let loads = json["loads"].as_array().unwrap();
    let of = |pointer: &str| -> Vec<f64> {
        loads
            .iter()
            .map(|load| load.pointer(pointer).unwrap().as_f64().unwrap())
            .collect()
    };
    assert_eq!(of("/loadFactor"), [0.5, 1.0, 2.0]);
    let asked = of("/policies/0/runs/0/asked");
    assert!(asked[1] > 1.5 * asked[0] && asked[2] > 1.5 * asked[1], "{asked:?}");
    let attained = of("/policies/0/measures/attainment/mean");
    assert!(attained.is_sorted_by(|one, next| one > next), "{attained:?}");
}

/// The page loads nothing from elsewhere. With one load, it has no scripts.
#[test]
fn report_page_is_self_contained() {
    let scenario = small();
    let page = |factors: &[f64]| report::page(&experiment(&scenario, &policies(&scenario), factors, None));
    let (one, several) = (page(&[1.0]), page(&[0.5, 1.0]));
    assert!(!one.contains("<script") && several.contains("<script>"));
    // Without scripts, the page shows all loads, one after the other.
    assert!(several.contains("<div class=slider hidden>") && several.contains("<div data-load=0.5><h2>"));
    for page in [one, several] {
        assert!(page.contains("<title>A small edge &lt;&amp; a cloud&gt;</title>"));
        for foreign in [
            "src=", "href=", "http://", "https://", "url(", "@import", "<link", "<img", "NaN", "inf",
        ] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        let count = |text: &str| page.matches(text).count();
        assert_eq!(count("<svg"), count("</svg>"));
        assert!(count("<svg") >= 9, "{}", count("<svg"));
        assert!(Policy::of(&scenario).all(|policy| page.contains(policy.as_str())));
    }
}

#[test]
fn example_scenarios_run() {
    let examples = folder("../../examples/scenarios");
    let mut count = 0;
    for entry in fs::read_dir(&examples).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let mut document: Value = serde_saphyr::from_str(&text).unwrap();
        document["warmupSeconds"] = 10.into();
        // The requests of a service are checked from a minute after it opens.
        document["durationSeconds"] = 90.into();
        document["drainSeconds"] = 30.into();
        let load = |name: &str| fs::read_to_string(examples.join(name)).map_err(|error| error.to_string());
        let scenario = read(&document, &load).unwrap_or_else(|faults| panic!("{}: {faults}", path.display()));
        let results = &experiment(&scenario, &[Policy::Edgeward], &[1.0], None).loads[0].results;
        let asked = results.relaxed[&1].0.iter().map(|class| class.asked).sum::<u64>();
        assert!(asked > 0, "{}: {asked}", path.display());
        count += 1;
    }
    assert!(count >= 9, "{count}");
}
