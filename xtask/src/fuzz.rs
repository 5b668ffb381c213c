//! `cargo xtask fuzz`: runs each target of `fuzz/` with libFuzzer and the pinned toolchain.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::report::Report;
use crate::shell::{cargo, output, run, workspace};
use crate::static_program::target_folder;

/// Default duration of each target, in seconds.
pub(crate) const SECONDS: u64 = 60;

const TARGETS: [&str; 5] = ["configuration", "peers", "pod", "quantity", "review"];

/// Instrumentation that guides libFuzzer: edge counters and comparisons. cargo-fuzz passes the same flags, and also a
/// sanitizer. The sanitizer is unstable, and useless for code without `unsafe`.
const INSTRUMENTATION: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// Runs `cargo xtask fuzz [TARGET...] [--seconds N]`.
pub(crate) fn fuzz(args: &[String]) -> Result<()> {
    let (names, seconds) = match args.iter().position(|arg| arg == "--seconds") {
        None => (args, SECONDS),
        Some(at) => {
            let seconds = args.get(at + 1).context("--seconds needs a number")?;
            ensure!(args.len() == at + 2, "--seconds N comes last");
            (&args[..at], seconds.parse().context("--seconds")?)
        }
    };
    Report::of(|report| targets(report, names, seconds))
}

/// Runs these targets, or all if there are no names, for `seconds` each.
pub(crate) fn targets(report: &mut Report, names: &[String], seconds: u64) -> Result<()> {
    for name in names {
        ensure!(
            TARGETS.contains(&name.as_str()),
            "there is no target {name}; there are {}",
            TARGETS.join(", ")
        );
    }
    let version = output(Command::new("rustc").arg("-vV").current_dir(workspace()))?.context("there is no rustc")?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.context("rustc does not name its host")?;
    // A separate build directory, because other programs are not instrumented.
    let built = target_folder().join("fuzz");
    report.stage("build of the targets", || {
        // With an explicit target, build scripts and proc macros are not instrumented.
        run(cargo([
            "build",
            "--release",
            "--locked",
            "--manifest-path",
            "fuzz/Cargo.toml",
            "--target",
            host,
        ])
        .env("CARGO_TARGET_DIR", &built)
        .env("CARGO_ENCODED_RUSTFLAGS", INSTRUMENTATION.join("\x1f")))
    })?;
    for name in TARGETS {
        if !names.is_empty() && !names.iter().any(|wanted| wanted == name) {
            continue;
        }
        // Inputs are kept from run to run.
        let work = built.join("work").join(name);
        fs::create_dir_all(work.join("inputs"))?;
        let mut command = Command::new(built.join(host).join("release").join(name));
        command
            .args([work.join("inputs"), workspace().join("fuzz/corpus").join(name)])
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-artifact_prefix={}/", work.display()))
            // On a busy machine, one input may wait for a minute.
            .args([
                "-timeout=300",
                "-rss_limit_mb=2048",
                "-verbosity=0",
                "-print_final_stats=1",
            ]);
        // A target that finds something does not keep the others from running.
        let _ = report.stage(&format!("fuzz {name}"), || run(&mut command));
    }
    report.verdict()
}
