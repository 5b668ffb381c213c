//! Files of the learned scorer: what the commands say of them.

use edgeward_decision::testkit::scorer;
use edgeward_harness::prelude::*;

use crate::program::edgeward;

/// Exit code, and both outputs.
fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let output = edgeward().args(arguments).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn check_tells_provenance_or_every_fault() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("scorer.json");
    let check = || run(&["scorer", "check", file.to_str().unwrap()]);
    let (code, said) = check();
    assert!(code == Some(1) && said.contains("No such file"), "{said}");
    let mut scorer = scorer("costOverDearest", 1);
    scorer.provenance.command = "edgeward-lab train".to_owned();
    let scorer = scorer.sealed();
    fs::write(&file, json!(scorer).to_string()).unwrap();
    let (code, said) = check();
    assert!(code == Some(0) && said.contains("made by edgeward-lab train"), "{said}");
    assert!(said.contains(&scorer.sha256), "{said}");
    let mut faulty = json!(scorer);
    faulty["ranges"][2] = json!([5, 4]);
    faulty["features"][0] = json!("cpu");
    fs::write(&file, faulty.to_string()).unwrap();
    let (code, said) = check();
    assert_eq!(code, Some(1), "{said}");
    for fault in [
        "features[0]: \"cpu\" is not \"cpuOverFree\"",
        "ranges[2]: 5 is above 4",
        "sha256: ",
    ] {
        assert!(said.contains(fault), "{said}");
    }
}
