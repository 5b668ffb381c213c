//! Compares the pages of `docs/reference` with what they list: annotations, fields of custom resources and fleet files, and
//! keys of the output. Other pages have tests of their own: settings, command line, metrics and codes.

use edgeward_decision::config::Config;
use edgeward_decision::fleet_file;
use edgeward_decision::keys::Keys;
use edgeward_decision::model::slo;
use edgeward_decision::testkit;
use edgeward_harness::documentation::unnamed_keys;
use edgeward_harness::prelude::*;
use edgeward_kube::ties::Tie;
use edgeward_kube::units::Moment;
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;

fn page(name: &str) -> String {
    fs::read_to_string(workspace().join("docs/reference").join(name)).unwrap()
}

/// Whether a page names a field: in a table, a sentence or an example.
fn names(page: &str, field: &str) -> bool {
    [format!("`{field}`"), format!("].{field}`"), format!("{field}:")]
        .iter()
        .any(|text| page.contains(text))
}

#[test]
fn annotations_page_names_every_key() {
    let (page, keys) = (page("annotations.md"), Keys::new("example.io"));
    let written = [
        &keys.managed,
        &keys.policies,
        &keys.placed,
        &keys.decision,
        &keys.site,
        &keys.reason,
        &keys.timestamp,
        &keys.wan_rtt_ms,
        &keys.decision_id,
        &keys.explain,
    ];
    let written = written.map(|key| key.split_once('/').unwrap().1);
    for name in slo::NAMES.iter().chain(&written) {
        let is_label = page.contains(&format!("`{name}: ")) || page.contains(&format!("/{name}: "));
        assert!(is_label || names(&page, name), "annotations.md does not name {name}");
    }
    let read = page.split("\n## ").find(|section| section.starts_with("Read")).unwrap();
    let rows = read.lines().filter_map(|line| line.strip_prefix("| `"));
    for name in rows.filter_map(|row| row.split_once('`')).map(|(name, _)| name) {
        let is_key = slo::is_read(name) || written.contains(&name.split(':').next().unwrap());
        assert!(is_key || name.ends_with('…'), "annotations.md names {name}");
    }
}

#[test]
fn custom_resources_page_names_every_field() {
    // Standard fields of Kubernetes, and those of `sites` in the settings.
    let page = page("crds.md") + &page("settings.md");
    for file in ["sites", "slopolicies", "performanceprofiles", "clusterreports", "peers"] {
        let path = workspace().join("deploy/crds").join(file).with_extension("yaml");
        let crd: Value = serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap();
        let fields = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        for part in ["spec", "status"] {
            for (field, _) in fields[part]["properties"].as_object().into_iter().flatten() {
                let is_standard = ["conditions", "observedGeneration"].contains(&&**field);
                assert!(
                    is_standard || names(&page, field),
                    "crds.md does not name {part}.{field} of {file}"
                );
            }
        }
    }
}

/// An unknown field is a fault that lists all fields of its object.
#[test]
fn fleet_file_page_names_every_field() {
    let page = page("fleet-file.md") + &page("settings.md");
    let site = json!({"name": "edge", "kind": "edge"});
    let of_site = |field: &str, value: Value| {
        let mut site = site.clone();
        site[field] = value;
        json!({ "sites": [site] })
    };
    let of_node = |field: &str, value: Value| json!({"sites": [site], "nodes": [{"name": "n", "allocatable": {"pods": 1}, field: value}]});
    let odd = || json!({"odd": 1});
    let documents = [
        odd(),
        of_site("wan", odd()),
        of_site("queues", json!([odd()])),
        of_site("full", json!([odd()])),
        of_node("odd", json!(1)),
        of_node("usedByPriority", json!([odd()])),
        of_node("placeholders", json!([odd()])),
        json!({"sites": [site], "liqo": odd()}),
        json!({"sites": [site], "persistentVolumeClaims": [odd()]}),
        json!({"sites": [site], "persistentVolumes": [odd()]}),
        json!({"sites": [site], "storageClasses": [odd()]}),
        json!({"sites": [site], "profiles": [odd()]}),
    ];
    for document in documents {
        let fault = fleet_file::read(&document, &Config::default(), Moment(0))
            .unwrap_err()
            .to_string();
        let (_, expected) = fault
            .split_once("expected ")
            .unwrap_or_else(|| panic!("{document}: {fault}"));
        for field in expected.split('`').skip(1).step_by(2) {
            assert!(names(&page, field), "fleet-file.md does not name {field} ({fault})");
        }
    }
    // The fault of a site lists only the fields that define it, so generated fleets tell the others.
    let mut runner = TestRunner::deterministic();
    for _ in 0..64 {
        let fleet = testkit::fleet().new_tree(&mut runner).unwrap().current();
        let sites = fleet["sites"].as_array().unwrap();
        for field in sites.iter().flat_map(|site| site.as_object().unwrap().keys()) {
            assert!(names(&page, field), "fleet-file.md does not name {field} of a site");
        }
    }
}

#[test]
fn output_page_names_every_key_of_a_review() {
    let page = page("output.md");
    let mut cases = 0;
    for case in fs::read_dir(workspace().join("tests/golden")).unwrap() {
        let Ok(text) = fs::read_to_string(case.unwrap().path().join("output.json")) else {
            continue;
        };
        let output: Value = serde_json::from_str(&text).unwrap();
        let items = output["items"].as_array().unwrap();
        for item in items {
            let mut item = item.clone();
            item.as_object_mut().unwrap().remove("patch");
            let mut unnamed = unnamed_keys(&page, &item);
            // Numbers of `not_offloadable` are named by the ties of the pod.
            unnamed.retain(|key| Tie::of_word(key).is_none());
            assert_eq!(unnamed, BTreeSet::new());
        }
        cases += items.len();
    }
    assert!(cases > 8, "{cases}");
}
