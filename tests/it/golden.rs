//! Runs the cases of `tests/golden/<case>/`: an input, a fleet, optionally a configuration, and the expected output of
//! `edgeward review -o json`. New folders are found automatically. `EDGEWARD_BLESS=1` records the current output.

use edgeward_harness::prelude::*;

use crate::program::{edgeward, is_recorded};

#[test]
fn every_case_is_decided_as_recorded() {
    let root = workspace().join("tests/golden");
    let mut cases = 0;
    for entry in fs::read_dir(root).unwrap() {
        let case = entry.unwrap().path();
        if case.join("input.yaml").exists() {
            check(&case);
            cases += 1;
        }
    }
    assert!(cases >= 8, "only {cases} cases found");
}

fn check(case: &Path) {
    let mut command = edgeward();
    command
        .current_dir(case)
        .args(["review", "-f", "input.yaml", "--fleet", "fleet.yaml", "-o", "json"]);
    if case.join("config.yaml").exists() {
        command.args(["--config", "config.yaml"]);
    }
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let found = serde_json::from_slice(&output.stdout);
    let mut found: Value = found.unwrap_or_else(|_| panic!("{}: {stderr}", case.display()));
    let items = found["items"].as_array().unwrap();
    let faulty = items.iter().any(|item| item["faults"] != serde_json::json!([]));
    assert_eq!(
        output.status.code(),
        Some(if faulty { 3 } else { 0 }),
        "{}: {stderr}",
        case.display()
    );
    mask(&mut found);
    let found = serde_json::to_string_pretty(&found).unwrap() + "\n";

    let recorded = is_recorded(&case.join("output.json"), &found);
    assert!(recorded, "{}: differs; now it is\n{found}", case.display());
}

/// Masks what differs from run to run: the decision's time and id.
fn mask(value: &mut Value) {
    let is_volatile = |key: &str| key.ends_with("/timestamp") || key.ends_with("/decision-id");
    match value {
        Value::Array(list) => list.iter_mut().for_each(mask),
        Value::Object(map) => {
            let path = map
                .get("path")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .replace("~1", "/");
            if is_volatile(&path) {
                map.insert("value".into(), "<masked>".into());
            }
            for (key, value) in map {
                if is_volatile(key) {
                    *value = "<masked>".into();
                } else {
                    mask(value);
                }
            }
        }
        _ => {}
    }
}
