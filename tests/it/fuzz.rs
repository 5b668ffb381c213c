//! The corpus of the fuzz targets, as it is and changed in a few places: what was found once stays found.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

use edgeward_harness::checkout::workspace;
use serde_json::Value;

/// A library of another workspace, which nothing here can depend on: its crates are not in our Cargo.lock.
#[allow(unreachable_pub)]
#[path = "../../fuzz/src/lib.rs"]
mod targets;

use targets::mutation::mutated;

/// How many changes of each document are checked as well, always the same.
const CHANGES: u32 = 20;

/// The most that the corpus takes in the repository.
const MOST_BYTES: usize = 300 << 10;

type Check = fn(&[u8]);

/// Each has a folder of this name in `fuzz/corpus`, and a program of its own in `fuzz/fuzz_targets`.
const TARGETS: [(&str, Check); 12] = [
    ("configuration", targets::configuration::check),
    ("fleet_file", targets::fleet_file::check),
    ("liqo", targets::liqo::check),
    ("node", targets::node::check),
    ("pod", targets::pod::check),
    ("prometheus", targets::prometheus::check),
    ("protobuf", targets::protobuf::check),
    ("quantity", targets::quantity::check),
    ("release_patch", targets::release_patch::check),
    ("review", targets::review::check),
    ("sites", targets::sites::check),
    ("volumes", targets::volumes::check),
];

fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = workspace().join("fuzz/corpus").join(target);
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut inputs: Vec<_> = entries
        .map(|path| (path.display().to_string(), fs::read(&path).unwrap()))
        .collect();
    inputs.sort();
    inputs
}

/// What breaks an invariant is named: as an input it can be put into the corpus.
fn holds(check: Check, name: &str, input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(input))) {
        eprintln!("{name}:\n{}", String::from_utf8_lossy(input));
        std::panic::resume_unwind(panic);
    }
}

fn check_corpus_of(target: &str) {
    let (_, check) = TARGETS.into_iter().find(|(name, _)| *name == target).unwrap();
    let inputs = corpus(target);
    assert!(inputs.len() > 3, "only {} inputs of {target}", inputs.len());
    for (name, input) in inputs {
        holds(check, &name, &input);
        let Ok(document) = serde_json::from_slice::<Value>(&input) else {
            continue;
        };
        for seed in 0..CHANGES {
            let changed = mutated(&document, seed).to_string();
            holds(check, &format!("{name}, changed by {seed}"), changed.as_bytes());
        }
    }
}

macro_rules! every_target {
    ($($target:ident)*) => {
        $(
            #[test]
            fn $target() {
                check_corpus_of(stringify!($target));
            }
        )*

        #[test]
        fn every_target_has_corpus_program_and_test() {
            let tested = [$(stringify!($target)),*];
            let folder = |path: &str| {
                let entries = fs::read_dir(workspace().join(path)).unwrap();
                let mut names: Vec<_> = entries
                    .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
                    .filter(|name| name != "mutator")
                    .collect();
                names.sort();
                names
            };
            assert_eq!(TARGETS.map(|(name, _)| name), tested);
            assert_eq!(folder("fuzz/corpus"), tested);
            assert_eq!(folder("fuzz/fuzz_targets"), tested);
        }
    };
}

every_target!(configuration fleet_file liqo node pod prometheus protobuf quantity release_patch review sites volumes);

#[test]
fn the_corpus_is_small() {
    let inputs = TARGETS.iter().flat_map(|(name, _)| corpus(name));
    let bytes: usize = inputs.map(|(_, input)| input.len()).sum();
    assert!(bytes <= MOST_BYTES, "{bytes} bytes");
}

/// What is fuzzed is what is shipped: of every crate the same version.
#[test]
fn the_fuzz_targets_are_built_of_the_same_crates() {
    let packages = |path: &str| -> std::collections::BTreeSet<String> {
        let lock = fs::read_to_string(workspace().join(path)).unwrap();
        let packages = lock.split("[[package]]").skip(1);
        packages
            .map(|package| {
                package
                    .lines()
                    .filter(|line| line.starts_with("name") || line.starts_with("version"))
                    .collect()
            })
            .collect()
    };
    let (ours, theirs) = (packages("Cargo.lock"), packages("fuzz/Cargo.lock"));
    let own: Vec<_> = theirs.difference(&ours).collect();
    let is_own = |package: &&&String| {
        ["arbitrary", "edgeward-fuzz", "libfuzzer-sys"]
            .iter()
            .any(|own| package.contains(own))
    };
    assert!(
        own.iter().all(|package| is_own(&package)),
        "only in fuzz/Cargo.lock: {own:?}"
    );
}
