//! Runs the cases of `tests/golden/oam/<case>/`: an application of OAM, and what `edgeward oam plan` prints for a fleet file of
//! the folder above. `EDGEWARD_BLESS=1` records the current output.

use edgeward_decision::model::slo;
use edgeward_harness::prelude::*;

use crate::program::{edgeward, is_recorded};

/// The cases, with the fleet and the exit code of each.
const CASES: [(&str, &str, i32); 5] = [
    ("order", "fleet", 1),
    ("reordered", "fleet", 0),
    ("relaxed", "fleet", 0),
    ("reuse", "running", 0),
    ("far", "running", 1),
];

fn run(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = edgeward().current_dir(folder).args(arguments).output().unwrap();
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    (output.status.code(), stdout, stderr)
}

fn plan(case: &str, fleet: &str, output: &str) -> (Option<i32>, String) {
    let (app, fleet) = (format!("{case}/app.yaml"), format!("{fleet}.yaml"));
    let arguments = ["oam", "plan", &app, "--fleet", &fleet, "-o", output];
    let (code, stdout, stderr) = run(&workspace().join("tests/golden/oam"), &arguments);
    assert_eq!(stderr, "");
    (code, stdout)
}

#[test]
fn every_oam_case_is_planned_as_recorded() {
    for (case, fleet, expected) in CASES {
        let (code, found) = plan(case, fleet, "text");
        let file = workspace().join("tests/golden/oam").join(case).join("plan.txt");
        assert!(is_recorded(&file, &found), "{case}: differs; now it is\n{found}");
        assert_eq!(code, Some(expected), "{case}: {found}");
    }
}

#[test]
fn oam_plan_document_names_each_place() {
    let document = |case: &str, fleet: &str| -> Value { serde_json::from_str(&plan(case, fleet, "json").1).unwrap() };
    let expected = json!({
        "apiVersion": "edgeward.io/v1alpha1",
        "kind": "OamPlan",
        "complete": true,
        "components": [
            {"name": "web", "outcome": "place", "pods": {"n2": 1}, "reason": "cloud_edge_no_capacity"},
            {"name": "relay", "outcome": "place", "pods": {"n4": 1}, "reason": "cloud_pinned_by_pod"},
            {"name": "vault", "outcome": "reuse", "pods": {"n4": 1}, "reason": null},
        ],
    });
    assert_eq!(document("reuse", "running"), expected);
    let failed = document("order", "fleet");
    let vault = &failed["components"][2];
    assert_eq!(
        (&failed["complete"], &vault["outcome"]),
        (&json!(false), &json!("none"))
    );
    assert_eq!(vault["sites"][4]["refusals"][0]["code"], "no_room", "{vault}");
}

#[test]
fn unmanaged_component_passes_and_another_type_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = workspace().join("examples/fleet.yaml").display().to_string();
    let component = |name: &str, kind: &str| json!({"name": name, "type": kind, "properties": {"image": "i"}});
    let plan = |components: &[Value]| {
        let app = json!({
            "apiVersion": "core.oam.dev/v1beta1", "kind": "Application", "metadata": {"name": "shop"},
            "spec": {"components": components},
        });
        fs::write(folder.path().join("app.yaml"), app.to_string()).unwrap();
        let (code, plan, stderr) = run(
            folder.path(),
            &["oam", "plan", "app.yaml", "--fleet", &fleet, "-o", "json"],
        );
        let plan: Value = serde_json::from_str(&plan).unwrap();
        (code, plan, stderr)
    };
    let web = component("web", "webservice");
    let (code, alone, _) = plan(std::slice::from_ref(&web));
    assert_eq!(
        (code, &alone["components"][0]["outcome"]),
        (Some(0), &json!("pass")),
        "{alone}"
    );
    let (code, both, stderr) = plan(&[web, component("chart", "helm")]);
    assert_eq!(
        (code, &both["skipped"], &both["complete"]),
        (Some(1), &json!(["chart"]), &json!(false)),
        "{both}"
    );
    assert!(stderr.contains("component chart of type helm"), "{stderr}");
}

/// The guide shows an application, and its plan.
#[test]
fn guide_shows_oam_plan_as_recorded() {
    let guide = fs::read_to_string(workspace().join("docs/guide/groups.md")).unwrap();
    let plan = fs::read_to_string(workspace().join("tests/golden/oam/order/plan.txt")).unwrap();
    let table: String = plan.split_inclusive('\n').take(4).collect();
    let block = format!("```text\n{table}```");
    assert!(guide.contains(&block), "groups.md does not have\n{block}");
}

#[test]
fn faulty_application_fails_with_field_and_value() {
    let folder = tempfile::tempdir().unwrap();
    let fleet = workspace().join("examples/fleet.yaml");
    let component = |text: &str| format!("spec: {{components: [{{name: web, type: webservice, {text}}}]}}");
    let slo = |text: &str| {
        component(&format!(
            "properties: {{image: i}}, traits: [{{type: edgeward, properties: {text}}}]"
        ))
    };
    let first = "app.yaml#1: spec.components[0]";
    for (text, words) in [
        ("spec: {}".to_owned(), "app.yaml#1: spec: missing field `components`"),
        (component("traits: []"), "properties: missing field `image`"),
        (
            component("properties: {image: i, cpu: 1}"),
            "properties.cpu: invalid type: integer `1`, expected a string",
        ),
        (
            component("properties: {image: i, cpu: one}"),
            "properties.cpu: `one` is not a quantity",
        ),
        (component("properties: 7"), "properties: invalid type: integer `7`"),
        (
            component("traits: 7"),
            "traits: invalid type: integer `7`, expected a sequence",
        ),
        (
            slo("{class: batch, traits: [{name: A, required: \"true\"}]}"),
            "traits[0].properties.traits[0].required: invalid type: string \"true\", expected a boolean",
        ),
        (
            slo("{class: batch, traits: [{name: A, Required: true}]}"),
            "traits[0].properties.traits[0].Required: unknown field `Required`",
        ),
        (
            slo("{class: batch, deadline: 5m}"),
            "traits[0].properties.deadline: invalid type: string \"5m\"",
        ),
        (
            slo("{class: batch, deadlineMs: 5}"),
            "traits[0].properties.deadlineMs: unknown field `deadlineMs`",
        ),
        (slo("{deadline: 5}"), "traits[0].properties: missing field `class`"),
        (
            slo("{class: batch, traits: [{name: \"A, B\"}]}"),
            "traits[0].properties.traits[0].name: \"A, B\" is not the name of one trait",
        ),
        (
            component("properties: {image: i, volumeMounts: {pvc: [{name: d, mountPath: /d}]}}"),
            "properties.volumeMounts.pvc[0]: missing field `claimName`",
        ),
    ] {
        let head = "apiVersion: core.oam.dev/v1beta1\nkind: Application\nmetadata: {name: shop}\n";
        fs::write(folder.path().join("app.yaml"), format!("{head}{text}\n")).unwrap();
        let (code, stdout, stderr) = run(
            folder.path(),
            &["review", "-f", "app.yaml", "--fleet", fleet.to_str().unwrap()],
        );
        assert_eq!((code, &*stdout), (Some(1), ""), "{text}");
        let is_named = words.starts_with("app.yaml") || stderr.contains(&format!("{first}.{words}"));
        assert!(is_named && stderr.contains(words), "{text}: {stderr}");
    }
}

/// What KubeVela's definitions make of the application is recorded in a file.
#[test]
fn application_is_reviewed_as_its_rendered_workloads() {
    let folder = workspace().join("tests/golden/oam-application");
    let items = |file: &str| {
        let (_, stdout, stderr) = run(&folder, &["review", "-f", file, "--fleet", "fleet.yaml", "-o", "json"]);
        let mut list: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stderr}"));
        for item in list["items"].as_array_mut().unwrap() {
            let item = item.as_object_mut().unwrap();
            // The place in the file, and the time and id in the patch.
            item.retain(|key, _| key != "source" && key != "patch");
        }
        list["items"].take()
    };
    assert_eq!(items("input.yaml").as_array().unwrap().len(), 5);
    assert_eq!(items("input.yaml"), items("rendered.yaml"));
}

#[test]
fn trait_definition_writes_only_known_annotations() {
    let file = workspace().join("deploy/kubevela/traitdefinition.yaml");
    let definition: Value = serde_saphyr::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(definition["apiVersion"], "core.oam.dev/v1beta1");
    let template = definition["spec"]["schematic"]["cue"]["template"].as_str().unwrap();
    let written: Vec<_> = template
        .split("\"slo.example.io/")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    let expected = [
        "class",
        "deadlineMs",
        "latencyTargetMs",
        "priority",
        "sites",
        "profile",
        "traits",
    ];
    assert_eq!(written, expected);
    assert!(expected.iter().all(|name| slo::NAMES.contains(name)));
}
