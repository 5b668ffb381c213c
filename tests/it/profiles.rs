//! Performance profiles in files: the examples, and the commands that take them.

use edgeward_harness::prelude::*;
use edgeward_profiles::Profile;
use edgeward_profiles::profile::{BuiltIn, Source};

use crate::program::edgeward;

fn examples() -> Vec<(String, Value)> {
    let files = fs::read_dir("examples/profiles").unwrap();
    let files = files.map(|file| file.unwrap().path());
    let mut read: Vec<_> = files
        .map(|path| {
            let object: Value = serde_saphyr::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
            (path.display().to_string(), object)
        })
        .collect();
    read.sort_by(|one, other| one.0.cmp(&other.0));
    read
}

#[test]
fn example_profiles_are_accepted_and_match_file_name() {
    let examples = examples();
    assert_eq!(examples.len(), 8);
    for (path, object) in &examples {
        Profile::read(&object["spec"]).unwrap_or_else(|faults| panic!("{path}: {faults}"));
        let name = Path::new(path).file_stem().unwrap().to_str().unwrap();
        assert_eq!(object["metadata"]["name"], name);
    }
}

/// The reference weights. A missing optional trait costs 10,000 and each ms costs 10. A node without memory, or without CPU,
/// costs about 1,000; this falls to 95 at half of the sufficient amount and to 5 at all of it.
#[test]
fn flocky_scored_has_reference_weights() {
    let examples = examples();
    let (_, object) = examples
        .iter()
        .find(|(path, _)| path.ends_with("flocky-scored.yaml"))
        .unwrap();
    let profile = Profile::read(&object["spec"]).unwrap();
    let score = |missing: f64, memory_gib: f64, cpu: f64, rtt: f64| {
        let row = profile.metrics.iter().map(|metric| {
            let value = match metric.source {
                Source::BuiltIn(BuiltIn::MissingOptionalTraits) => missing,
                Source::BuiltIn(BuiltIn::FreeMemory) => memory_gib * f64::from(1 << 30),
                Source::BuiltIn(BuiltIn::FreeCpu) => cpu,
                Source::BuiltIn(BuiltIn::Rtt) => rtt,
                _ => panic!("{}", metric.name),
            };
            ((value - metric.norm_min) / (metric.norm_max - metric.norm_min)).clamp(0.0, 1.0)
        });
        let row: Vec<f64> = row.collect();
        profile.equation.evaluate([&row[..]])[0].unwrap()
    };
    let plenty = score(0.0, 64.0, 64.0, 0.0);
    let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1.0, "{found}, not {expected}");
    near(plenty, 0.0);
    near(score(2.0, 64.0, 64.0, 0.0), 20_000.0);
    near(score(0.0, 64.0, 64.0, 25.0), 250.0);
    for (free, memory, cpu) in [(0.0, 1_001.8, 1_000.0), (1.0, 95.0, 94.9), (2.0, 5.0, 4.9)] {
        near(score(0.0, free, 64.0, 0.0), memory);
        near(score(0.0, 64.0, free, 0.0), cpu);
    }
}

#[test]
fn codeco_import_reports_faults_and_fix_corrects_them() {
    let figure = "crates/profiles/testdata/codeco-fig7.yaml";
    let import = |arguments: &[&str]| {
        let output = edgeward()
            .args(["profile", "import", figure])
            .args(arguments)
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, profiles, findings) = import(&[]);
    assert_eq!((code, findings.lines().count()), (Some(3), 4), "{findings}");
    assert!(findings.contains("write sum by (node) (…)"), "{findings}");
    let object: Value = serde_saphyr::from_str(&profiles).unwrap();
    assert_eq!(object["metadata"]["name"], "user-defined");
    let (code, profiles, _) = import(&["--fix"]);
    assert_eq!(code, Some(0));
    let object: Value = serde_saphyr::from_str(&profiles).unwrap();
    Profile::read(&object["spec"]).unwrap();
}
