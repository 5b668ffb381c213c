//! The command line of `edgeward-lab train`.
#![allow(clippy::panic, clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use edgeward_decision::model::scorer::Scorer;
use tempfile::tempdir;

fn lab(args: &[&str], folder: &Path, threads: Option<usize>) -> Output {
    let mut lab = Command::new(env!("CARGO_BIN_EXE_edgeward-lab"));
    lab.args(args).current_dir(folder).env_remove("RAYON_NUM_THREADS");
    if let Some(threads) = threads {
        lab.env("RAYON_NUM_THREADS", threads.to_string());
    }
    lab.output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn thread_count_does_not_change_training() {
    let folder = tempdir().unwrap();
    for (out, threads) in [("one", Some(1)), ("two", Some(2)), ("any", None)] {
        let args = format!("train --algo deepsets-ppo --env reward=cost,scaled=true --seed 3 --steps 1600 --out {out}");
        let args: Vec<_> = args.split(' ').collect();
        let output = lab(&args, folder.path(), threads);
        assert!(output.status.success(), "{}", said(&output));
        assert!(said(&output).contains("1600 of 1600 steps"), "{}", said(&output));
    }
    let read = |out: &str, file: &str| fs::read(folder.path().join(out).join(file)).unwrap();
    for file in ["checkpoint.safetensors", "training.json", "curve.svg"] {
        assert!(read("one", file) == read("two", file), "{file}");
        assert!(read("one", file) == read("any", file), "{file}");
    }
    let curve = String::from_utf8(read("one", "curve.svg")).unwrap();
    assert!(
        curve.starts_with("<svg ") && curve.contains("deepsets-ppo, cost reward"),
        "{curve}"
    );

    // The training is finished, so resuming it does nothing. A new training does not overwrite it.
    let output = lab(&["train", "--resume", "one"], folder.path(), None);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(said(&output), "one: all 1600 steps are done\n");
    let again = ["train", "--algo", "mlp-a2c", "--steps", "40", "--out", "one"];
    let output = lab(&again, folder.path(), None);
    assert!(!output.status.success());
    let expected = "error: --out one: training.json is there already; --resume goes on with that training\n";
    assert_eq!(said(&output), expected);
    fs::remove_file(folder.path().join("one/training.json")).unwrap();
    let output = lab(&again, folder.path(), None);
    let expected = "error: --out one: checkpoint.safetensors is there already\n";
    assert_eq!(said(&output), expected);
}

#[test]
fn trained_checkpoint_is_evaluated_or_refused() {
    let folder = tempdir().unwrap();
    for out in ["one", "two"] {
        let args = ["train", "--algo", "mlp-a2c", "--steps", "40", "--out", out];
        let output = lab(&args, folder.path(), None);
        assert!(output.status.success(), "{}", said(&output));
        assert_eq!(said(&output), "40 of 40 steps: no episode ended\n");
    }
    let evaluate = |args: &str| {
        let args: Vec<_> = args.split(' ').collect();
        lab(
            &[&["evaluate", "--episodes", "1"], &args[..]].concat(),
            folder.path(),
            None,
        )
    };
    for (args, expected) in [
        (
            "--checkpoint one --checkpoint two",
            "error: one and two have the same plan",
        ),
        ("--checkpoint one --clusters 4,4", "error: --clusters: 4 is given twice"),
        ("--checkpoint one --clusters -4", "'-4' for '--clusters <CLUSTERS>'"),
        ("--checkpoint one --env mode=stay", "cannot be used with"),
        ("--clusters 4,8 --policies min-cost", "not provided:\n  --checkpoint"),
    ] {
        let output = evaluate(args);
        assert!(!output.status.success() && output.stdout.is_empty(), "{args}");
        assert!(said(&output).contains(expected), "{args}: {}", said(&output));
    }
    let output = evaluate("--checkpoint one -o json");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document[0]["policies"][0]["policy"], "mlp-a2c");
}

#[test]
fn placement_training_repeats_by_seed() {
    let folder = tempdir().unwrap();
    let run = |args: &str| lab(&args.split(' ').collect::<Vec<_>>(), folder.path(), None);
    let output = run("scenarios --count 2 --seed 3 --clouds 2 --out drawn");
    assert!(output.status.success(), "{}", said(&output));
    let train = |out: &str, seed: u64| {
        let args = format!("train --env placement --scenarios drawn --steps 100 --seed {seed} --out {out}");
        let output = run(&args);
        assert!(output.status.success(), "{}", said(&output));
        let text = fs::read_to_string(folder.path().join(out).join("scorer.json")).unwrap();
        Scorer::read(&text).unwrap()
    };
    let one = train("one", 1);
    assert_eq!(one.sha256, train("again", 1).sha256);
    assert_ne!(one.network, train("other", 2).network);
    assert_eq!((one.provenance.scenarios.len(), &*one.provenance.seeds), (2, &[1][..]));
    for (args, expected) in [
        ("--scenarios drawn --out one", "--out one: scorer.json is there already"),
        ("--scenarios nowhere --out new", "nowhere"),
        ("--out new", "needs --scenarios"),
    ] {
        let output = run(&format!("train --env placement {args}"));
        assert!(
            !output.status.success() && said(&output).contains(expected),
            "{}",
            said(&output)
        );
    }
    let simulated =
        run("simulate drawn/0001.json --seeds 2 --scorer one/scorer.json --against edgeward-lowest-cost -o json");
    assert!(simulated.status.success(), "{}", said(&simulated));
    let document: serde_json::Value = serde_json::from_slice(&simulated.stdout).unwrap();
    let policies = document["loads"][0]["policies"].as_array().unwrap();
    let of = |name: &str| policies.iter().find(|policy| policy["policy"] == name).unwrap();
    let cost = |name: &str, run: usize| of(name)["runs"][run]["measures"]["cost"].as_f64().unwrap();
    let difference = |run| cost("edgeward-learned", run) - cost("edgeward-lowest-cost", run);
    let mean = (difference(0) + difference(1)) / 2.0;
    let shown = of("edgeward-learned")["measures"]["cost"]["mean"].as_f64().unwrap();
    assert!((shown - mean).abs() < 2e-6 && mean != 0.0, "{shown} {mean}");
}

#[test]
fn invalid_train_argument_names_value() {
    let folder = tempdir().unwrap();
    for (args, expected) in [
        ("--algo deepsets-ppo --steps 0", "'0' for '--steps <STEPS>'"),
        (
            "--algo deepsets-ppo --env clusters=200",
            "is not a number from 1 to 128",
        ),
        ("--algo deepsets-ppo --resume out", "cannot be used with"),
        ("--algo deepsets-ppo --seed -1", "'-1' for '--seed <SEED>'"),
        ("--algo sarsa", "'sarsa' for '--algo <ALGORITHM>'"),
    ] {
        let args = format!("train --out out {args}");
        let output = lab(&args.split(' ').collect::<Vec<_>>(), folder.path(), None);
        assert!(
            !output.status.success() && said(&output).contains(expected),
            "{}",
            said(&output)
        );
    }
    let output = lab(&["train", "--resume", "nowhere"], folder.path(), None);
    assert!(said(&output).contains("nowhere/training.json"), "{}", said(&output));
    assert!(!folder.path().join("out").exists());
}
