//! The command line as its users meet it: outputs, errors, exit codes.

use std::io::Write as _;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;

use crate::program::{self, is_recorded};

fn edgeward(arguments: &[&str], stdin: &str) -> Output {
    let mut child = program::edgeward()
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that refuses its arguments may be gone before it reads.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn error(arguments: &[&str], stdin: &str) -> String {
    let output = edgeward(arguments, stdin);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    text(&output.stderr)
}

const REVIEW: [&str; 5] = ["review", "--fleet", "examples/fleet.yaml", "-f", "-"];

#[test]
fn the_demo_plays_three_scenarios() {
    let output = edgeward(&["demo"], "");
    let stdout = text(&output.stdout);
    assert!(output.status.success(), "{stdout}{}", text(&output.stderr));
    let verdicts: Vec<Vec<&str>> = [
        "good WAN, low load",
        "edge overloaded, good WAN",
        "edge overloaded, bad WAN",
    ]
    .map(|title| {
        let rows = stdout.split(title).nth(1).unwrap().trim().lines().skip(1).take(3);
        rows.map(|row| {
            row.split_whitespace()
                .find(|word| ["edge", "cloud"].contains(word))
                .unwrap()
        })
        .collect()
    })
    .into();
    assert_eq!(verdicts, [["edge"; 3], ["cloud"; 3], ["edge"; 3]], "{stdout}");
    let shown_in_the_readme = stdout.split("edge overloaded, bad WAN").next().unwrap().lines().skip(1);
    for line in shown_in_the_readme {
        let readme = include_str!("../../README.md");
        assert!(
            readme.contains(line.trim()),
            "README.md does not show what the demo prints: {line}"
        );
    }
    assert!(
        !stdout
            .split("edge overloaded, bad WAN")
            .next()
            .unwrap()
            .contains("best_effort")
    );
    assert!(
        stdout.contains(r#"{"op":"add","path":"/spec/nodeSelector","value":{"node.role/cloud":"true"}}"#),
        "{stdout}"
    );
}

#[test]
fn every_output_tells_the_same() {
    let output = |format: &str| {
        let output = edgeward(
            &[
                "review",
                "-f",
                "examples/pods.yaml",
                "--fleet",
                "examples/fleet.yaml",
                "-o",
                format,
            ],
            "",
        );
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let json: Value = serde_json::from_str(&output("json")).unwrap();
    let yaml: Value = serde_saphyr::from_str(&output("yaml")).unwrap();
    let reasons = |list: &Value| {
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["reason"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(reasons(&json), ["edge_feasible_slo_met"; 3]);
    assert_eq!(reasons(&json), reasons(&yaml));
    let patches = output("patch");
    assert_eq!(
        patches
            .lines()
            .filter(|line| line.starts_with(r#"[{"op":"add""#))
            .count(),
        3,
        "{patches}"
    );
    let table = output("table");
    assert!(
        table.contains("shop/camera-inference") && table.contains("edge_feasible_slo_met"),
        "{table}"
    );
}

#[test]
fn pods_lists_and_admission_reviews_from_standard_input() {
    let pod =
        r#"{"kind": "Pod", "metadata": {"name": "a", "annotations": {"slo.example.io/class": "batch"}}, "spec": {}}"#;
    let review = format!(
        r#"{{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {{"uid": "u", "operation": "CREATE",
            "namespace": "ns", "resource": {{"group": "", "version": "v1", "resource": "pods"}}, "object": {pod}}}}}"#
    );
    let documents = [
        pod.to_owned(),
        format!(r#"{{"kind": "List", "items": [{pod}, {review}]}}"#),
        format!(
            r#"{{"kind": "PodList", "items": [{}]}}"#,
            pod.replacen(r#""kind": "Pod", "#, "", 1)
        ),
        review,
    ];
    let output = edgeward(
        &[&REVIEW[..], &["-o", "json", "-n", "here"]].concat(),
        &documents.join("\n---\n"),
    );
    assert!(output.status.success(), "{}", text(&output.stderr));
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    let items = list["items"].as_array().unwrap();
    let found: Vec<_> = items
        .iter()
        .map(|item| (item["source"].as_str().unwrap(), item["namespace"].as_str().unwrap()))
        .collect();
    assert_eq!(
        found,
        [
            ("stdin#1", "here"),
            ("stdin#2.items[0]", "here"),
            ("stdin#2.items[1]", "ns"),
            ("stdin#3.items[0]", "here"),
            ("stdin#4", "ns"),
        ]
    );
    // What the API server has defaulted leaves nothing to assume.
    assert_eq!(items[4]["assumptions"], serde_json::json!([]));
    assert!(!items[0]["assumptions"].as_array().unwrap().is_empty());
}

#[test]
fn errors_name_the_file_the_place_and_the_value() {
    for (stdin, expected) in [
        (
            "kind: Deployment",
            "stdin#1: kind Deployment cannot be reviewed; Pods, Lists of Pods and AdmissionReviews can",
        ),
        ("metadata: {}", "stdin#1: has no kind"),
        ("", "stdin: holds no document"),
        ("kind: [", "stdin: "),
        ("{kind: List, items: 3}", "stdin#1: items is not a list"),
        (
            "{kind: Pod, metadata: {annotations: {slo.example.io/deadlineMs: 100}}, spec: {}}",
            "stdin#1: metadata.annotations.slo.example.io/deadlineMs: invalid type: integer `100`, expected a string",
        ),
        (
            "{kind: Pod, spec: {containers: [{resources: {requests: {cpu: lots}}}]}}",
            "stdin#1: spec.containers[0].resources.requests.cpu: `lots` is not a quantity",
        ),
        (
            "{kind: AdmissionReview}",
            "stdin#1: expected admission.k8s.io/v1 AdmissionReview",
        ),
    ] {
        let stderr = error(&REVIEW, stdin);
        assert!(stderr.contains(expected), "{stdin}: {stderr}");
    }
    let missing = error(&["review", "-f", "-", "--fleet", "nowhere.yaml"], "");
    assert!(missing.contains("nowhere.yaml"), "{missing}");
}

#[test]
fn every_fault_of_a_file_is_listed() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let fleet = write("fleet.yaml", "sites: [{name: 5}]\nnodes: [{}]");
    let stderr = error(&["review", "-f", "-", "--fleet", &fleet], "");
    for fault in [
        "sites[0].name: 5 is not",
        "sites[0].kind: is missing",
        "nodes[0].allocatable: is missing",
    ] {
        assert!(stderr.contains(fault), "{stderr}");
    }
    let config = write("config.yaml", "onNoCapacity: hold\nexplain: loud");
    let stderr = error(&[&REVIEW[..], &["--config", &config]].concat(), "");
    assert!(
        stderr.contains(r#"onNoCapacity: "hold" is not "edge", the only value allowed"#),
        "{stderr}"
    );
    assert!(
        stderr.contains(r#"explain: "loud" is not one of off, short, full"#),
        "{stderr}"
    );
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let review = ["review", "-f", "examples/pods.yaml", "--fleet", "examples/fleet.yaml"];
    for arguments in [&["demo"][..], &review] {
        let mut child = program::edgeward()
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn a_manifest_cannot_draw_on_the_terminal() {
    let pod = r#"{"kind": "Pod", "metadata": {"name": "a\u001b[31m\nb"}, "spec": {}}"#;
    let output = edgeward(&REVIEW, pod);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(table.contains("default/a\u{fffd}[31m\u{fffd}b"), "{table}");
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for arguments in [
        &["review"][..],
        &["serve", "--fleet", "x"],
        &["dance"],
        &["serve", "--fleet", "x", "--tls-cert", "c"],
    ] {
        assert_eq!(edgeward(arguments, "").status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn serve_without_a_certificate_names_both_ways_to_one() {
    let stderr = text(&edgeward(&["serve", "--fleet", "x"], "").stderr);
    assert!(
        stderr.contains("--tls-cert <FILE>") && stderr.contains("--self-signed <DIR>"),
        "{stderr}"
    );
}

#[test]
fn the_help_is_the_one_in_the_documentation() {
    let mut found = String::from("# Command line\n\nWhat `--help` prints, recorded by a test.\n");
    for command in ["", "serve", "review", "demo"] {
        let arguments: Vec<_> = [command, "--help"]
            .into_iter()
            .filter(|argument| !argument.is_empty())
            .collect();
        let output = program::edgeward()
            .args(&arguments)
            .env("COLUMNS", "100")
            .output()
            .unwrap();
        let lines = text(&output.stdout);
        let lines: Vec<_> = lines.lines().map(str::trim_end).collect();
        found += &format!(
            "\n## `edgeward {}`\n\n```text\n{}\n```\n",
            arguments.join(" "),
            lines.join("\n")
        );
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cli.md");
    let recorded = is_recorded(&path, &found);
    assert!(recorded, "docs/cli.md lags; EDGEWARD_BLESS=1 writes it anew");
}
