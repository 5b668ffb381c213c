//! The custom resources: the files in `deploy/crds` are what the program prints, and the schema takes what the code reads.

use edgeward::api;
use edgeward_core::config::Config;
use edgeward_core::placement::policy::Policy;
use serde_json::{Value, json};

use crate::program::{edgeward, is_recorded};

#[test]
fn the_files_are_what_is_printed() {
    let output = edgeward().arg("crds").output().unwrap();
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).unwrap();
    let documents: Vec<_> = printed.split("---\n").filter(|text| !text.is_empty()).collect();
    let files = ["sites", "slopolicies", "performanceprofiles"];
    assert_eq!(documents.len(), files.len());
    for (document, file) in documents.into_iter().zip(files) {
        let path = format!("deploy/crds/{file}.yaml");
        assert!(
            is_recorded(path.as_ref(), document),
            "{path} lags; EDGEWARD_BLESS=1 writes it again"
        );
    }
}

/// The names of the fields that the schema has at this place.
fn fields(definition: usize, place: &str) -> Vec<String> {
    let definition = serde_json::to_value(&api::definitions()[definition]).unwrap();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let schema = schema.pointer(place).unwrap()["properties"].as_object().unwrap();
    schema.keys().cloned().collect()
}

/// The names of the fields that are named in the fault of a field that does not exist.
fn read(fault: &str) -> Vec<String> {
    let (_, names) = fault.split_once("there are ").unwrap();
    let mut names: Vec<_> = names.split(", ").map(str::to_owned).collect();
    names.sort();
    names
}

#[test]
fn the_schema_has_the_fields_that_are_read() {
    let policy = |spec: Value| {
        let object = json!({"metadata": {"name": "a", "namespace": "b"}, "spec": spec});
        Policy::read(&object)
            .unwrap_err()
            .faults()
            .0
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    let faults = policy(json!({"x": 1, "selector": {"x": 1, "matchExpressions": [{"x": 1}]}, "slo": {"x": 1}}));
    let of = |start: &str| read(faults.iter().find(|fault| fault.starts_with(start)).unwrap());
    assert_eq!(of("spec.x: "), fields(1, "/properties/spec"));
    assert_eq!(of("spec.slo.x: "), fields(1, "/properties/spec/properties/slo"));
    let selector = "/properties/spec/properties/selector";
    assert_eq!(of("spec.selector.x: "), fields(1, selector));
    let expression = format!("{selector}/properties/matchExpressions/items");
    assert_eq!(of("spec.selector.matchExpressions[0].x: "), fields(1, &expression));

    let faults = Config::read(&json!({"sites": [{"x": 1, "tolerations": [{"x": 1}]}]})).unwrap_err();
    let faults: Vec<_> = faults.0.iter().map(ToString::to_string).collect();
    let of = |start: &str| read(faults.iter().find(|fault| fault.starts_with(start)).unwrap());
    // The name of a site is that of the object.
    let mut named = fields(0, "/properties/spec");
    named.push("name".to_owned());
    named.sort();
    assert_eq!(of("sites[0].x: "), named);
    let toleration = "/properties/spec/properties/tolerations/items";
    assert_eq!(of("sites[0].tolerations[0].x: "), fields(0, toleration));
}
