//! The Python package `edgeward-gym`, with its own tests. `cargo xtask gym` builds it.

use std::process::Command;

use edgeward_harness::checkout::{is_ci, workspace, xtask};

#[test]
fn python_gym_passes_its_tests() {
    let Some(python) = xtask("gym").unwrap() else {
        assert!(!is_ci(), "there is no Python with pip");
        eprintln!("skipped: there is no Python with pip, and EDGEWARD_GYM is not set");
        return;
    };
    let mut tests = Command::new(python);
    let output = tests
        .args(["-m", "unittest", "python/test_gym.py"])
        .current_dir(workspace())
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && shown.contains("Ran 5 tests"), "{shown}");
}
