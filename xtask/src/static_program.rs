//! `cargo xtask static`: builds the program that the image contains, and checks that it runs without other files.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::shell::{cargo, output, run, workspace};

const GOAL: u64 = 30_000_000;

/// Builds the program for this machine and returns its path.
pub(crate) fn build_for_this_machine() -> Result<PathBuf> {
    build(&format!("{}-unknown-linux-musl", env::consts::ARCH))
}

/// Builds the program for a target that this machine runs, from the image's sources, and starts it in an otherwise empty
/// root. Returns its path.
pub(crate) fn build(target: &str) -> Result<PathBuf> {
    add_target(target)?;
    let compiler = output(Command::new("musl-gcc").arg("--version"))?;
    ensure!(compiler.is_some(), "there is no musl-gcc (Debian: musl-tools)");
    let built = target_folder();
    run(distributed(target)
        .current_dir(context()?)
        .env("CARGO_TARGET_DIR", &built))?;
    let program = built.join(target).join("dist/edgeward");
    let bytes = fs::metadata(&program)
        .with_context(|| program.display().to_string())?
        .len();
    eprintln!("{} bytes, {:.1} MiB", bytes, bytes as f64 / f64::from(1 << 20));
    ensure!(bytes < GOAL, "the goal is less than {GOAL} bytes");
    start_alone(&program)?;
    Ok(program)
}

/// cargo's arguments for the released program. The Rust target follows.
pub(crate) const DISTRIBUTED: [&str; 6] = ["--profile", "dist", "--locked", "--bin", "edgeward", "--target"];

/// The command that builds the program as it is released, for this target of Rust.
pub(crate) fn distributed(target: &str) -> Command {
    let mut build = cargo(["build"]);
    build.args(DISTRIBUTED).arg(target);
    build
}

/// Installs Rust's standard library for this target, if rustup manages the toolchain.
pub(crate) fn add_target(target: &str) -> Result<()> {
    if output(Command::new("rustup").arg("--version"))?.is_none() {
        return Ok(());
    }
    run(Command::new("rustup")
        .args(["target", "add", target])
        .current_dir(workspace()))
}

/// Where cargo builds.
pub(crate) fn target_folder() -> PathBuf {
    workspace().join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Copies what `docker build` would see of the checkout, which is everything that `.dockerignore` does not exclude. Returns the
/// folder. Files whose content is there already keep their times, so that cargo does not compile them again.
pub(crate) fn context() -> Result<PathBuf> {
    let into = target_folder().join("image");
    fs::create_dir_all(&into)?;
    let ignored = fs::read_to_string(workspace().join(".dockerignore")).context(".dockerignore")?;
    let admitted: BTreeSet<_> = ignored.lines().filter_map(|line| line.strip_prefix('!')).collect();
    for name in names(&into)? {
        if !admitted.iter().any(|path| Path::new(path).starts_with(&name)) {
            remove(&into.join(name))?;
        }
    }
    for path in admitted {
        let to = into.join(path);
        fs::create_dir_all(to.parent().context("a path has a folder")?)?;
        mirror(&workspace().join(path), &to)?;
    }
    Ok(into)
}

/// Makes `to` equal to `from`, and leaves equal files alone.
fn mirror(from: &Path, to: &Path) -> Result<()> {
    if from.is_dir() {
        fs::create_dir_all(to)?;
        let wanted = names(from)?;
        for gone in names(to)?.difference(&wanted) {
            remove(&to.join(gone))?;
        }
        return wanted
            .iter()
            .try_for_each(|name| mirror(&from.join(name), &to.join(name)));
    }
    let content = fs::read(from).with_context(|| from.display().to_string())?;
    if fs::read(to).is_ok_and(|old| old == content) {
        return Ok(());
    }
    Ok(fs::write(to, content)?)
}

fn names(folder: &Path) -> Result<BTreeSet<OsString>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect()
}

fn remove(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    }
}

/// Starts the program in a root directory with no other files, as in the image. It runs three scenarios against its own TLS
/// server.
fn start_alone(program: &Path) -> Result<()> {
    let root = program.with_file_name("edgeward-alone");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    fs::create_dir(&root)?;
    fs::copy(program, root.join("edgeward"))?;
    // Tries it as root, then as an unprivileged user in a user namespace.
    let ways: [&[&str]; 2] = [&[], &["--map-root-user"]];
    let alone = |way: &[&str], arg: &str| {
        let mut command = Command::new("unshare");
        command.args(way).arg("--root").arg(&root).args(["/edgeward", arg]);
        command.env_clear();
        command
    };
    let way = ways
        .into_iter()
        .find(|way| output(&mut alone(way, "--version")).is_ok_and(|said| said.is_some()))
        .context("it does not start alone, or `unshare --root` (util-linux) is not permitted")?;
    // The program's output goes to stderr, because stdout carries the program's path.
    run(alone(way, "demo").stdout(io::stderr()))
}
