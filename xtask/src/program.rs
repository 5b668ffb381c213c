//! `cargo xtask program`: the program of a release, for this machine or, cross-compiled, for another Linux.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cache::{self, ready_made};
use crate::cargo_tools;
use crate::debian;
use crate::shell::{run, without_own_environment, workspace};
use crate::static_program::{self, target_folder};

const CARGO_ZIGBUILD: &str = "0.24.1";

/// Version of the Python package `ziglang`.
const ZIG: &str = "0.13.0";

/// A platform in the words of Go, which images and Krew use too, and Rust's target.
pub(crate) struct Platform {
    pub(crate) os: &'static str,
    pub(crate) arch: &'static str,
    pub(crate) target: &'static str,
}

/// The platforms of a release. The program uses Unix signals, so Windows is not among them.
pub(crate) const PLATFORMS: [Platform; 5] = [
    platform("linux", "amd64", "x86_64-unknown-linux-musl"),
    platform("linux", "arm64", "aarch64-unknown-linux-musl"),
    platform("linux", "arm", "armv7-unknown-linux-musleabihf"),
    platform("darwin", "amd64", "x86_64-apple-darwin"),
    platform("darwin", "arm64", "aarch64-apple-darwin"),
];

const fn platform(os: &'static str, arch: &'static str, target: &'static str) -> Platform {
    Platform { os, arch, target }
}

impl Platform {
    /// Where the release folder has its program, once that is built.
    pub(crate) fn program(&self, release: &Path) -> PathBuf {
        [PROGRAMS, self.os, self.arch, "edgeward"]
            .iter()
            .fold(release.to_owned(), |path, part| path.join(part))
    }

    pub(crate) fn is_this_machine(&self) -> bool {
        let os = env::consts::OS.replace("macos", "darwin");
        os == self.os && self.target.starts_with(env::consts::ARCH)
    }
}

/// Subfolder of the release folder: programs by platform. It is the build context of the Dockerfile's target `prebuilt`.
pub(crate) const PROGRAMS: &str = "programs";

/// The folder that `program`, `image` and `release` share: `$EDGEWARD_RELEASE` or `target/publish`.
pub(crate) fn release_folder() -> Result<PathBuf> {
    Ok(ready_made("EDGEWARD_RELEASE")?.unwrap_or_else(|| workspace().join("target/publish")))
}

/// Builds the program into the release folder and returns its path there. `named` is `OS/ARCH`; the default is this machine.
pub(crate) fn build(named: Option<&str>) -> Result<PathBuf> {
    let is_wanted = |platform: &&Platform| match named {
        Some(name) => name == format!("{}/{}", platform.os, platform.arch),
        None => platform.is_this_machine(),
    };
    let platform = PLATFORMS.iter().find(is_wanted);
    let platform = platform.context("a release has no program for this platform")?;
    let built = target_folder().join(platform.target).join("dist/edgeward");
    if !platform.is_this_machine() {
        ensure!(
            platform.os == "linux",
            "{} is built on its own system only",
            platform.os
        );
        cross_compile(platform.target)?;
        start_emulated(platform, &built)?;
    } else if platform.os == "linux" {
        static_program::build(platform.target)?;
    } else {
        run(&mut static_program::distributed(platform.target))?;
    }
    let program = platform.program(&release_folder()?);
    fs::create_dir_all(program.parent().context("a file has a folder")?)?;
    fs::copy(built, &program)?;
    Ok(program)
}

/// Builds for another Linux with zig as the C compiler and linker, which has the C library of each.
fn cross_compile(target: &str) -> Result<()> {
    static_program::add_target(target)?;
    let zigbuild = cargo_tools::obtain("cargo-zigbuild", CARGO_ZIGBUILD, None, &[])?;
    let zig = cache::root()?.join("zig").join(ZIG);
    cache::once("zig", &zig, |partial| {
        cargo_tools::pip("zig", &[&format!("ziglang=={ZIG}")], partial)
    })?;
    let mut build = Command::new(zigbuild);
    without_own_environment(&mut build);
    build
        .arg("zigbuild")
        .args(static_program::DISTRIBUTED)
        .arg(target)
        .current_dir(static_program::context()?)
        .env("CARGO_TARGET_DIR", target_folder())
        .env("CARGO_ZIGBUILD_ZIG_PATH", zig.join("ziglang/zig"));
    run(&mut build)
}

/// Runs the program on an emulated processor: as a server in its demonstration, and on the golden cases of the tests.
fn start_emulated(platform: &Platform, program: &Path) -> Result<()> {
    let (processor, _) = platform.target.split_once('-').context("a target has parts")?;
    let emulator = debian::qemu(processor.trim_end_matches("v7"))?;
    let emulated = |args: &[&str]| {
        let mut start = Command::new(&emulator);
        start.arg(program).args(args);
        start
    };
    for arg in ["--version", "demo"] {
        run(emulated(&[arg]).stdout(io::stderr()))?;
    }
    for case in fs::read_dir(workspace().join("tests/golden"))? {
        let case = case?.path();
        let mut args = vec!["review", "-f", "input.yaml", "--fleet", "fleet.yaml", "-o", "json"];
        if case.join("config.yaml").exists() {
            args.extend(["--config", "config.yaml"]);
        }
        if case.join("input.yaml").exists() {
            let output = emulated(&args).current_dir(&case).output()?;
            let is_golden = equals_golden(&output.stdout, &case.join("output.json"));
            let is_golden = is_golden.with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
            ensure!(is_golden, "{}: decided otherwise", case.display());
            eprintln!("{}: decided as recorded", case.display());
        }
    }
    Ok(())
}

/// Whether the decisions are the recorded ones, apart from their times and ids, which the record masks.
fn equals_golden(decided: &[u8], record: &Path) -> Result<bool> {
    let lines = |json: &[u8]| anyhow::Ok(format!("{:#}", serde_json::from_slice::<serde_json::Value>(json)?));
    let (decided, recorded) = (lines(decided)?, lines(&fs::read(record)?)?);
    let is_equal = |(decided, recorded): (&str, &str)| decided == recorded || recorded.contains("\"<masked>\"");
    Ok(decided.lines().count() == recorded.lines().count() && decided.lines().zip(recorded.lines()).all(is_equal))
}
