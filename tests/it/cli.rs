//! The command line from a user's point of view: output, errors, exit codes.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use clap::CommandFactory as _;
use edgeward_harness::checkout::workspace;
use serde_json::Value;

use crate::program::{self, is_recorded};

fn edgeward(arguments: &[&str], stdin: &str) -> Output {
    run(program::edgeward().current_dir(workspace()).args(arguments), stdin).unwrap()
}

fn run(command: &mut Command, stdin: &str) -> std::io::Result<Output> {
    let command = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn()?;
    // A command that refuses its arguments may exit before it reads.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    child.wait_with_output()
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
fn demo_plays_three_scenarios() {
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
                .find(|word| ["edge", "cloud", "gate"].contains(word))
                .unwrap()
        })
        .collect()
    })
    .into();
    assert_eq!(verdicts, [["edge"; 3], ["cloud"; 3], ["gate"; 3]], "{stdout}");
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
fn all_review_formats_show_same_decision() {
    let output = |format: &str| {
        let arguments = [
            "review",
            "-f",
            "examples/pods.yaml",
            "--fleet",
            "examples/fleet.yaml",
            "-o",
        ];
        let output = edgeward(&[&arguments[..], &[format]].concat(), "");
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
fn review_reads_pods_lists_and_reviews_from_stdin() {
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
    // The API server's defaults leave nothing to assume.
    assert_eq!(items[4]["assumptions"], serde_json::json!([]));
    assert!(!items[0]["assumptions"].as_array().unwrap().is_empty());
}

#[test]
fn input_errors_name_file_path_and_value() {
    for (stdin, expected) in [
        ("kind: Deployment", "stdin#1: kind Deployment without a pod template"),
        (
            "kind: Service\n---\n{kind: List, items: [{kind: ConfigMap}]}",
            "nothing here makes pods that can be reviewed: stdin#1: kind Service, stdin#2.items[0]: kind ConfigMap",
        ),
        ("metadata: {}", "stdin#1: has no kind"),
        ("", "stdin: holds no document"),
        ("kind: [", "stdin: "),
        ("{kind: List, items: 3}", "stdin#1: items is not a list"),
        ("{kind: Pod, metadata: {name: a}}", "stdin#1: missing field `spec`"),
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
    assert_eq!(missing, "error: nowhere.yaml: No such file or directory (os error 2)\n");
    let missing = error(&["serve", "--fleet", "nowhere.yaml", "--self-signed", "nowhere"], "");
    assert_eq!(missing, "error: nowhere.yaml: No such file or directory (os error 2)\n");
}

/// The only item of the review of this document.
fn reviewed(document: &str) -> Value {
    let output = edgeward(&[&REVIEW[..], &["-o", "json"]].concat(), document);
    let mut list: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    list["items"][0].take()
}

#[test]
fn workload_template_is_reviewed_as_pod() {
    let template = r#"{metadata: {annotations: {slo.example.io/class: batch}}, spec: {containers: []}}"#;
    for (kind, spec) in [
        ("Deployment", format!("{{replicas: 9, template: {template}}}")),
        ("StatefulSet", format!("{{template: {template}}}")),
        ("ReplicaSet", format!("{{template: {template}}}")),
        ("Job", format!("{{template: {template}}}")),
        (
            "CronJob",
            format!("{{jobTemplate: {{spec: {{template: {template}}}}}}}"),
        ),
        ("DaemonSet", format!("{{template: {template}}}")),
    ] {
        let item = reviewed(&format!(
            "{{kind: {kind}, metadata: {{name: web, namespace: shop}}, spec: {spec}}}"
        ));
        let expected = if kind == "DaemonSet" {
            "passthrough_daemonset"
        } else {
            "edge_no_slo_target"
        };
        assert_eq!(
            (&item["namespace"], &item["name"], &item["reason"]),
            (&"shop".into(), &"web-".into(), &expected.into()),
            "{kind}"
        );
        let assumed = item["assumptions"]
            .to_string()
            .contains("the other replicas of its workload (8)");
        assert_eq!(assumed, kind == "Deployment", "{kind}");
        let hinted = item["hints"].to_string().contains("has no effect on a DaemonSet");
        assert_eq!(hinted, kind == "DaemonSet", "{kind}");
    }
}

#[test]
fn review_of_cron_job_takes_times_of_its_earlier_jobs() {
    let fleet = std::fs::read_to_string(workspace().join("examples/fleet.yaml")).unwrap();
    let times = "kind: edge\n    observedControllerProcMs: {shop: {cronjob/nightly: 8500}}\n";
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(fleet.replacen("kind: edge\n", times, 1).as_bytes())
        .unwrap();
    let pod = "{metadata: {annotations: {slo.example.io/class: batch}}, spec: {containers: []}}";
    let spec = format!("{{jobTemplate: {{spec: {{template: {pod}}}}}}}");
    let document = format!("{{kind: CronJob, metadata: {{name: nightly, namespace: shop}}, spec: {spec}}}");
    let path = file.path().to_str().unwrap();
    let output = edgeward(&["review", "--fleet", path, "-f", "-", "-o", "json"], &document);
    let list: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    assert_eq!(list["items"][0]["sites"][0]["procMs"], 8500, "{list}");
}

#[test]
fn review_shows_how_many_pods_start_together() {
    let annotations =
        r#"{"slo.example.io/class": "batch", "slo.example.io/group": "shop", "slo.example.io/groupSize": "3"}"#;
    let pod = format!(
        r#"{{"kind": "Pod", "metadata": {{"name": "web", "annotations": {annotations}}}, "spec": {{"containers": []}}}}"#
    );
    let item = reviewed(&pod);
    assert_eq!(item["reason"], "held_group");
    let group = serde_json::json!({"name": "shop", "component": "", "placed": 0, "gated": 0, "size": 3});
    assert_eq!(item["group"], group);
    let stdout = text(&edgeward(&REVIEW, &pod).stdout);
    assert!(
        stdout.contains("of group shop: 0 placed, 0 gated; 3 start together"),
        "{stdout}"
    );
}

#[test]
fn kind_without_pods_is_skipped_and_reported() {
    let output = edgeward(
        &REVIEW,
        "kind: Service\n---\n{kind: Pod, metadata: {name: a}, spec: {}}",
    );
    assert_eq!(text(&output.stderr), "skipped stdin#1: kind Service\n");
    assert!(text(&output.stdout).contains("default/a"));
}

#[test]
fn slo_on_workload_instead_of_template_gives_hint() {
    let item = reviewed(
        "{kind: Deployment, metadata: {name: web, annotations: {slo.example.io/class: batch}}, spec: {template: {spec: {}}}}",
    );
    assert_eq!(
        item["hints"],
        serde_json::json!(["slo.example.io/class is on the Deployment; edgeward reads its pod template"])
    );
}

#[test]
fn invalid_slo_exits_with_3() {
    let pod = "{kind: Pod, metadata: {annotations: {slo.example.io/class: fast}}, spec: {}}";
    let output = edgeward(&REVIEW, pod);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("edge_invalid_slo"));
}

/// A kubeconfig. Nothing listens at its address.
fn kubeconfig(server: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let config = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "far",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "far", "context": {"cluster": "c", "user": "u"}}],
    });
    file.write_all(config.to_string().as_bytes()).unwrap();
    file
}

#[test]
fn unreachable_cluster_error_names_server() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("https://{}", listener.local_addr().unwrap());
    let refusing = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("https://{}", listener.local_addr().unwrap())
    };
    let said = |server: &str, arguments: &[&str]| {
        let kubeconfig = kubeconfig(server);
        let output = program::edgeward()
            .args(arguments)
            .env("KUBECONFIG", kubeconfig.path())
            .current_dir(workspace())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr)
    };
    for command in [
        &["fleet"][..],
        &["release", "--all"],
        &["review", "--live", "-f", "examples/pods.yaml"],
    ] {
        let stderr = said(&refusing, command);
        assert!(
            stderr.contains(&format!("{refusing}/ (context far): cannot ")),
            "{stderr}"
        );
        let stderr = said(&silent, &[command, &["--timeout", "1"]].concat());
        assert!(
            stderr.contains(&format!("{silent}/ (context far): no answer within 1 s")),
            "{stderr}"
        );
    }
    let stderr = said(&refusing, &["fleet", "--context", "near"]);
    assert!(stderr.contains(r#"context "near" of the kubeconfig"#), "{stderr}");
}

#[test]
fn every_fault_of_a_file_is_listed() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let fleet = write(
        "fleet.yaml",
        "sites: [{name: 5, kind: edge}, {name: a}]\nnodes: [{name: one, allocatable: {}}]",
    );
    let stderr = error(&["review", "-f", "-", "--fleet", &fleet], "");
    for fault in [
        "sites[0].name: 5 is not a site name: letters, digits, `-`, `_` and `.`, at most 63",
        "sites[1].kind: is missing",
        "nodes[0].allocatable: has no `pods`",
    ] {
        assert!(stderr.contains(fault), "{stderr}");
    }
    let config = write("config.yaml", "onNoCapacity: cloud\nexplain: loud");
    let stderr = error(&[&REVIEW[..], &["--config", &config]].concat(), "");
    assert!(
        stderr.contains(r#"onNoCapacity: "cloud" is not one of hold, edge"#),
        "{stderr}"
    );
    assert!(
        stderr.contains(r#"explain: "loud" is not one of off, short, full"#),
        "{stderr}"
    );
}

#[test]
fn closed_stdout_exits_with_success() {
    let review = ["review", "-f", "examples/pods.yaml", "--fleet", "examples/fleet.yaml"];
    for arguments in [&["demo"][..], &review] {
        let mut child = program::edgeward()
            .current_dir(workspace())
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
fn control_characters_of_manifest_are_replaced() {
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
        &["release"],
        &["release", "--all", "web"],
        &["release", "web/status"],
        &["serve", "--fleet", "x", "--tls-cert", "c"],
        &["review", "-f", "x", "--fleet", "x", "--live"],
        &["review", "-f", "x", "--fleet", "x", "--context", "c"],
    ] {
        assert_eq!(edgeward(arguments, "").status.code(), Some(2), "{arguments:?}");
    }
    for (arguments, words) in [
        (
            &["serve", "--self-signed", "x", "--config-map", "a/b/c"][..],
            "not the name of an object: expected NAME or NAMESPACE/NAME",
        ),
        (
            &["why", "web", "--deployment", "/b"],
            "not the name of an object: expected NAME or NAMESPACE/NAME",
        ),
        (
            &["serve", "--self-signed", "x", "--listen", "8443"],
            "not an IP address and a port, such as 0.0.0.0:8443 or [::]:8443",
        ),
    ] {
        let output = edgeward(arguments, "");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
}

#[test]
fn serve_without_certificate_names_both_options() {
    let stderr = text(&edgeward(&["serve", "--fleet", "x"], "").stderr);
    assert!(
        stderr.contains("--tls-cert <FILE>") && stderr.contains("--self-signed <DIR>"),
        "{stderr}"
    );
}

/// The names of each command and its subcommands, in order.
fn commands(command: &clap::Command, words: &[String]) -> Vec<Vec<String>> {
    let below = command.get_subcommands().filter(|command| !command.is_hide_set());
    let below = below.flat_map(|command| commands(command, &[words, &[command.get_name().to_owned()]].concat()));
    [words.to_vec()].into_iter().chain(below).collect()
}

fn every_command() -> Vec<Vec<String>> {
    commands(&edgeward::testkit::Cli::command(), &[])
}

#[test]
fn cli_help_matches_reference_page() {
    let mut found = String::from("# Command line\n\nWhat `--help` prints, recorded by a test.\n");
    for words in every_command() {
        let mut command = program::edgeward();
        command.args(&words).arg("--help").env("COLUMNS", "100");
        let help = text(&command.output().unwrap().stdout);
        let help: Vec<_> = help.lines().map(str::trim_end).collect();
        let title = [&["edgeward".to_owned()], &*words, &["--help".to_owned()]]
            .concat()
            .join(" ");
        found += &format!("\n## `{title}`\n\n```text\n{}\n```\n", help.join("\n"));
    }
    let path = workspace().join("docs/reference/cli.md");
    let recorded = is_recorded(&path, &found);
    assert!(recorded, "docs/reference/cli.md lags; EDGEWARD_BLESS=1 writes it again");
}

/// Whether `program` accepts its arguments; `None` if the program is not installed.
fn is_fine(program: &str, arguments: &[&str]) -> Option<Output> {
    let output = run(Command::new(program).args(arguments), "").ok()?;
    assert!(output.status.success(), "{program}: {}", text(&output.stderr));
    Some(output)
}

#[test]
fn every_shell_can_read_its_completions() {
    let folder = tempfile::tempdir().unwrap();
    for (shell, parse) in [
        ("bash", &["bash", "-n"][..]),
        ("zsh", &["zsh", "-n"]),
        ("fish", &["fish", "--no-execute"]),
        ("elvish", &["elvish", "-compileonly"]),
        ("powershell", &[]),
    ] {
        let output = edgeward(&["completions", shell], "");
        assert!(output.status.success(), "{}", text(&output.stderr));
        let script = text(&output.stdout);
        for word in ["release", "config-schema", "fleet"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
        let file = folder.path().join(shell);
        std::fs::write(&file, &script).unwrap();
        if let [program, arguments @ ..] = parse {
            is_fine(program, &[arguments, &[file.to_str().unwrap()]].concat());
        }
    }
    let script = "source \"$0\"; COMP_WORDS=(edgeward con) COMP_CWORD=1; _edgeward edgeward con edgeward; echo \"${COMPREPLY[@]}\"";
    let bash = folder.path().join("bash");
    let completed = is_fine("bash", &["-c", script, bash.to_str().unwrap()]).expect("bash");
    assert_eq!(text(&completed.stdout).trim(), "config-schema");
}
