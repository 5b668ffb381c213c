//! Pods as `kubectl get pod -o yaml` prints them, stored in `tests/e2e/golden`.
//!
//! Parts that differ from run to run are masked as `<key>`. `EDGEWARD_BLESS=1` updates the files.

use std::env;

use edgeward_harness::prelude::*;

const VOLATILE: [&str; 14] = [
    "batch.kubernetes.io/controller-uid",
    "controller-uid",
    "creationTimestamp",
    "finishedAt",
    "hostIP",
    "ip",
    "lastTransitionTime",
    "podIP",
    "resourceVersion",
    "scheduling.example.io/decision-id",
    "scheduling.example.io/timestamp",
    "startTime",
    "startedAt",
    "uid",
];

/// Compares kubectl's `yaml` with the golden file of this name. `random` maps words that differ in every run to their
/// placeholders.
pub(crate) fn check(name: &str, yaml: &str, random: &[(&str, &str)]) -> Result<()> {
    let masked = mask(yaml, random);
    let path = golden(name);
    if is_recording()? {
        return fs::write(&path, masked).with_context(|| format!("cannot write {}", path.display()));
    }
    let expected =
        fs::read_to_string(&path).with_context(|| format!("no golden {name}: EDGEWARD_BLESS=1 writes it"))?;
    if expected != masked {
        bail!(
            "golden {name} differs (EDGEWARD_BLESS=1 writes it again)\n{}",
            difference(&expected, &masked)
        );
    }
    Ok(())
}

fn is_recording() -> Result<bool> {
    let is_recording = env::var_os("EDGEWARD_BLESS").is_some();
    let in_ci = env::var_os("CI").is_some_and(|ci| ci == "true");
    ensure!(
        !(is_recording && in_ci),
        "EDGEWARD_BLESS is set with CI=true: nothing is recorded there"
    );
    Ok(is_recording)
}

fn golden(name: &str) -> PathBuf {
    workspace().join("tests/e2e/golden").join(format!("{name}.yaml"))
}

fn mask(yaml: &str, random: &[(&str, &str)]) -> String {
    yaml.lines().map(|line| mask_line(line, random) + "\n").collect()
}

fn mask_line(line: &str, random: &[(&str, &str)]) -> String {
    let content = line.trim_start().trim_start_matches("- ");
    if let Some((key, value)) = content.split_once(": ")
        && VOLATILE.contains(&key)
        && !value.is_empty()
    {
        let indent = &line[..line.len() - content.len()];
        return format!("{indent}{key}: <{key}>");
    }
    random
        .iter()
        .fold(line.to_owned(), |line, (word, mask)| line.replace(word, mask))
}

/// Lines that only one of the two texts has, in order.
fn difference(expected: &str, found: &str) -> String {
    let only = |sign: &str, left: &str, right: &str| {
        let lines = left.lines().filter(|line| !right.lines().any(|other| other == *line));
        lines.map(|line| format!("{sign}{line}\n")).collect::<String>()
    };
    only("-", expected, found) + &only("+", found, expected)
}
