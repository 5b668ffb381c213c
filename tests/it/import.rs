//! Runs the cases of `tests/golden/import/<case>/`: a file of another scheduler, and what `edgeward import` makes of it with and
//! without `--fix`. `EDGEWARD_BLESS=1` records the current output.

use std::io::Write as _;
use std::process::Stdio;

use edgeward_harness::prelude::*;

use crate::program::{edgeward, is_recorded};

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn run(arguments: &[&str], stdin: &str) -> (Option<i32>, String, String) {
    let mut command = edgeward();
    command.current_dir(workspace()).args(arguments);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    let output = child.wait_with_output().unwrap();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn every_import_case_is_converted_as_recorded() {
    let root = workspace().join("tests/golden/import");
    let mut names: Vec<_> = fs::read_dir(&root)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names.len(), 5);
    for name in names {
        let (from, _) = name.split_once('-').unwrap_or((&name, ""));
        let input = format!("tests/golden/import/{name}/input.yaml");
        for (output, option) in [("stated", None), ("fixed", Some("--fix"))] {
            let arguments: Vec<_> = ["import", from, &input].into_iter().chain(option).collect();
            let (code, stdout, stderr) = run(&arguments, "");
            let findings = format!("{stderr}exit code {}\n", code.unwrap());
            for (file, found) in [
                (format!("{output}.yaml"), &stdout),
                (format!("{output}.txt"), &findings),
            ] {
                let recorded = is_recorded(&root.join(&name).join(&file), found);
                assert!(recorded, "{name}/{file}: differs; now it is\n{found}");
            }
            is_accepted(&stdout);
        }
    }
}

/// Reviews what was printed. A class is added where there is none, because other pods are not read. A patch gets a container.
fn is_accepted(printed: &str) {
    let manifests: Vec<Value> = serde_saphyr::from_multiple(printed).unwrap();
    let items = manifests.into_iter().map(|mut manifest| {
        let template = &mut manifest["spec"]["template"];
        let class = &mut template["metadata"]["annotations"]["slo.example.io/class"];
        if class.is_null() {
            *class = json!("latency");
        }
        if template["spec"].is_null() {
            template["spec"] = json!({"containers": [{"name": "c", "image": "i"}]});
        }
        manifest
    });
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items.collect::<Vec<_>>()});
    let review = ["review", "--fleet", "examples/fleet.yaml", "-o", "json", "-f", "-"];
    let (code, stdout, stderr) = run(&review, &list.to_string());
    assert_eq!(code, Some(0), "{stderr}\n{stdout}");
    let review: Value = serde_json::from_str(&stdout).unwrap();
    for item in review["items"].as_array().unwrap() {
        assert_eq!((&item["faults"], &item["hints"]), (&json!([]), &json!([])), "{item}");
        assert!(!item["warnings"].to_string().contains("is not an annotation"), "{item}");
    }
}

/// The guide shows two cases: each document, and the findings without `--fix`.
#[test]
fn guide_shows_imports_as_recorded() {
    let guide = fs::read_to_string(workspace().join("docs/guide/groups.md")).unwrap();
    for case in ["codeco-app", "appgroup"] {
        let folder = workspace().join("tests/golden/import").join(case);
        let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap();
        let findings = read("stated.txt").replace("exit code 3\n", "");
        for (language, block) in [("yaml", read("input.yaml")), ("text", findings)] {
            let block = format!("```{language}\n{block}```");
            assert!(guide.contains(&block), "groups.md does not have\n{block}");
        }
    }
}

#[test]
fn unreadable_import_fails_with_its_place() {
    let group = "tests/golden/import/appgroup/input.yaml";
    for (arguments, stdin, words) in [
        (["import", "codeco", "-"], "a: [", "error: -: "),
        (
            ["import", "appgroup", "nowhere.yaml"],
            "",
            "error: nowhere.yaml: No such file",
        ),
        (["import", "appgroup", "-"], "", "error: -: has no AppGroup"),
        (
            ["import", "codeco", group],
            "",
            "input.yaml: has no CodecoApp or Application",
        ),
    ] {
        let (code, stdout, stderr) = run(&arguments, stdin);
        assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
        assert!(stderr.contains(words), "{stderr}");
    }
}

#[test]
fn import_writes_the_configured_domain() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.yaml");
    fs::write(&config, "domain: corp.example\n").unwrap();
    let group = "tests/golden/import/appgroup/input.yaml";
    let (_, stdout, stderr) = run(&["import", "appgroup", group, "--config", config.to_str().unwrap()], "");
    assert!(stdout.contains("slo.corp.example/group: boutique"), "{stdout}{stderr}");
}
