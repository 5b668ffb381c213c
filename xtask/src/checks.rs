//! `cargo xtask check`: everything that can be said about the code without running it.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo_tools;
use crate::report::{Report, timed};
use crate::shell::{cargo, output, run, run_beside, side_by_side, workspace};
use crate::suite::{CLUSTER, SOAK};

const CARGO_DENY: &str = "0.20.2";

/// The manifest of the fuzz targets, a workspace of their own.
const FUZZ: &str = "fuzz/Cargo.toml";

/// In stages that say how long they took; the first that fails is the last.
pub(crate) fn check() -> Result<()> {
    let mut report = Report::new();
    let checked = stages(&mut report);
    println!("{report}");
    checked
}

fn stages(report: &mut Report) -> Result<()> {
    report.stage("fmt", || {
        run(&mut cargo(["fmt", "--all", "--check"]))?;
        run(&mut cargo(["fmt", "--manifest-path", FUZZ, "--check"]))
    })?;
    // It compiles nothing of ours, and the first time is itself compiled.
    let ((stage, dependencies), code) = side_by_side(|| timed("deny", dependencies), || code(report));
    report.add([stage]);
    code.and(dependencies)
}

fn code(report: &mut Report) -> Result<()> {
    const STRICT: [&str; 3] = ["--", "-D", "warnings"];
    report.stage("clippy", || {
        run(cargo(["clippy", "--workspace", "--all-targets", "--locked"]).args(STRICT))?;
        // Of what is no test for `cargo test` and no benchmark for `cargo bench`, the other does not know.
        run(cargo(["clippy", "--workspace", "--test", SOAK, "--bench", CLUSTER, "--locked"]).args(STRICT))
    })?;
    report.stage("the core is pure", core_is_pure)?;
    report.stage("the webhook is without the lab's libraries", webhook_learns_nothing)?;
    report.stage("doc", || {
        run(cargo(["doc", "--workspace", "--no-deps", "--locked"]).env("RUSTDOCFLAGS", "-D warnings"))
    })
}

/// The core names no crate that does I/O. What the standard library does is in its `clippy.toml`.
fn core_is_pure() -> Result<()> {
    const CRATES: [&str; 5] = ["edgeward-core", "jiff", "serde", "serde_json", "thiserror"];
    let args = [
        "tree",
        "--locked",
        "--package",
        CRATES[0],
        "--all-features",
        "--target",
        "all",
        "--edges",
        "normal",
        "--depth",
        "1",
        "--prefix",
        "none",
    ];
    let tree = output(&mut cargo(args))?.context("`cargo tree` failed")?;
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    for name in names {
        ensure!(
            CRATES.contains(&name),
            "edgeward-core depends on {name}: it may on {CRATES:?} alone"
        );
    }
    Ok(())
}

/// Neither the webhook nor its tests have what the lab learns with.
fn webhook_learns_nothing() -> Result<()> {
    const LIBRARIES: [&str; 1] = ["candle-core"];
    let args = [
        "tree",
        "--locked",
        "--target",
        "all",
        "--prefix",
        "none",
        "--format",
        "{lib}",
        "--package",
    ];
    let names = |package: &[&str]| {
        let tree = output(cargo(args).args(package))?.context("`cargo tree` failed")?;
        anyhow::Ok(tree.lines().map(str::trim).map(ToOwned::to_owned).collect::<Vec<_>>())
    };
    let of_lab = names(&["edgeward-lab", "--edges", "normal"])?;
    let of_webhook = names(&["edgeward", "--edges", "normal,build,dev"])?;
    for name in LIBRARIES.map(|name| name.replace('-', "_")) {
        ensure!(
            of_lab.contains(&name),
            "edgeward-lab does not depend on {name}: what is to be looked for?"
        );
        ensure!(
            !of_webhook.contains(&name),
            "edgeward depends on {name}, which the lab learns with"
        );
    }
    Ok(())
}

/// Also those of the fuzz targets, whose lock file must be as complete.
fn dependencies() -> Result<()> {
    let program = cargo_tools::obtain("cargo-deny", CARGO_DENY)?;
    ["Cargo.toml", FUZZ].into_iter().try_for_each(|manifest| {
        let mut deny = Command::new(&program);
        deny.args(["--locked", "--workspace", "--manifest-path", manifest])
            .args(["check", "bans", "licenses", "sources"])
            .current_dir(workspace());
        run_beside("deny", deny)
    })
}
