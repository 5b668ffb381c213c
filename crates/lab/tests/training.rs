//! `edgeward-lab train`, as it is called.
#![cfg(feature = "learning")]
#![allow(clippy::panic, clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::tempdir;

/// With so many threads; as many as it likes without.
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
fn the_number_of_threads_changes_nothing() {
    let folder = tempdir().unwrap();
    for (out, threads) in [("one", Some(1)), ("two", Some(2)), ("any", None)] {
        let args = [
            "train",
            "--algo",
            "deepsets-ppo",
            "--reward",
            "cost",
            "--scaled",
            "--seed",
            "3",
            "--steps",
            "1600",
            "--out",
            out,
        ];
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

    // It is over, so there is nothing left to do; and it is not begun again where it was.
    let output = lab(&["train", "--resume", "one"], folder.path(), None);
    assert!(output.status.success(), "{}", said(&output));
    let again = ["train", "--algo", "mlp-a2c", "--steps", "40", "--out", "one"];
    let output = lab(&again, folder.path(), None);
    assert!(!output.status.success());
    assert!(
        said(&output).contains("--out one: a training is there already"),
        "{}",
        said(&output)
    );
}

#[test]
fn a_wrong_argument_is_named_with_its_value() {
    let folder = tempdir().unwrap();
    let train = |more: &[&str]| {
        let args = ["train", "--algo", "deepsets-ppo", "--out", "out"];
        let output = lab(&[&args[..], more].concat(), folder.path(), None);
        assert!(!output.status.success());
        said(&output)
    };
    for (more, expected) in [
        (&["--steps", "0"][..], "'0' for '--steps <STEPS>'"),
        (&["--clusters", "0"], "'0' for '--clusters <CLUSTERS>'"),
        (&["--clusters", "200"], "is not a whole number from 1 to 128"),
        (
            &["--reward", "fame"],
            "'fame' for '--reward <REWARD>': is none of latency",
        ),
        (&["--mode", "later"], "'later' for '--mode <MODE>'"),
        (&["--resume", "out"], "cannot be used with"),
    ] {
        let said = train(more);
        assert!(said.contains(expected), "{said}");
    }
    let output = lab(&["train", "--algo", "sarsa", "--out", "out"], folder.path(), None);
    assert!(
        said(&output).contains("'sarsa' for '--algo <ALGORITHM>': is none of deepsets-ppo"),
        "{}",
        said(&output)
    );
    let output = lab(&["train", "--resume", "nowhere"], folder.path(), None);
    assert!(said(&output).contains("nowhere/training.json"), "{}", said(&output));
    assert!(!folder.path().join("out").exists());
}
