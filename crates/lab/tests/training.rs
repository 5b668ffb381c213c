//! The command line of `edgeward-lab train`.
#![allow(clippy::panic, clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

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
