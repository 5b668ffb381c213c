//! The programs that `cargo test` would run one after the other, so that they can be run otherwise.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::shell::{cargo, output};

/// A test program that is built.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// `e2e`, or of unit tests `edgeward (lib)`.
    pub(crate) name: String,
    program: PathBuf,
    /// Of its package, where it is to run.
    folder: PathBuf,
}

/// Builds what `cargo test ARGS` would run, by name. Cargo itself says which these are, so that none is forgotten.
///
/// Nothing is built when they run: cargo locks the build directory only while it builds.
pub(crate) fn build(args: &[&str]) -> Result<Vec<Target>> {
    let mut build = cargo([
        "test",
        "--locked",
        "--no-run",
        "--message-format",
        "json-render-diagnostics",
    ]);
    eprintln!("$ cargo test --locked --no-run {}", args.join(" "));
    let built = build
        .args(args)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    ensure!(built.status.success(), "`cargo test --no-run`: {}", built.status);
    let messages = String::from_utf8(built.stdout).context("cargo's messages")?;
    let mut targets: Vec<_> = messages.lines().filter_map(read).collect();
    ensure!(!targets.is_empty(), "cargo named no tests");
    targets.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(targets)
}

/// A test program out of a message of cargo, which is one line of JSON. That of a program which tests start has no `test`
/// in its profile.
fn read(message: &str) -> Option<Target> {
    let (target, profile) = message.split_once("\"profile\":{")?;
    profile
        .split('}')
        .next()
        .filter(|profile| profile.contains("\"test\":true"))?;
    let program = text(profile, "\"executable\":\"")?;
    let folder = Path::new(text(target, "\"manifest_path\":\"")?).parent()?;
    let name = text(target, "\"name\":\"")?;
    let name = match text(target, "\"kind\":[\"")? {
        "test" => name.to_owned(),
        kind => format!("{name} ({kind})"),
    };
    let (program, folder) = (program.into(), folder.into());
    Some(Target { name, program, folder })
}

fn text<'a>(json: &'a str, before: &str) -> Option<&'a str> {
    json.split_once(before)?.1.split('"').next()
}

impl Target {
    /// The command that runs its tests. libtest is asked for the time of each; that is unstable, and allowed to this process
    /// alone, since cargo would compile everything again for it.
    pub(crate) fn command(&self) -> Result<Command> {
        let help = output(Command::new(&self.program).arg("--help"))?;
        let mut command = Command::new(&self.program);
        command
            .current_dir(&self.folder)
            .env("CARGO_MANIFEST_DIR", &self.folder);
        if help.is_some_and(|help| help.contains("--report-time")) {
            command
                .env("RUSTC_BOOTSTRAP", "1")
                .args(["-Zunstable-options", "--report-time"]);
        }
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: &str, name: &str, is_test: bool, executable: &str) -> String {
        format!(
            "{{\"reason\":\"compiler-artifact\",\"package_id\":\"path+file:///src/shop/xtask#0.0.0\",\
             \"manifest_path\":\"/src/shop/xtask/Cargo.toml\",\"target\":{{\"kind\":[\"{kind}\"],\
             \"crate_types\":[\"bin\"],\"name\":\"{name}\",\"src_path\":\"/src/shop/xtask/src/main.rs\",\
             \"edition\":\"2024\",\"doc\":true,\"doctest\":false,\"test\":true}},\"profile\":{{\"opt_level\":\"0\",\
             \"debuginfo\":2,\"debug_assertions\":true,\"overflow_checks\":true,\"test\":{is_test}}},\
             \"features\":[],\"filenames\":[\"/t/debug/x\"],\"executable\":{executable},\"fresh\":true}}"
        )
    }

    #[test]
    fn test_programs_are_named_by_target_and_those_that_tests_start_are_none() {
        let target = |name: &str| {
            Some(Target {
                name: name.into(),
                program: "/t/debug/deps/x-1".into(),
                folder: "/src/shop/xtask".into(),
            })
        };
        let built = "\"/t/debug/deps/x-1\"";
        assert_eq!(read(&message("test", "e2e", true, built)), target("e2e"));
        assert_eq!(read(&message("bin", "xtask", true, built)), target("xtask (bin)"));
        assert_eq!(read(&message("bin", "xtask", false, built)), None);
        assert_eq!(read(&message("lib", "serde", false, "null")), None);
        assert_eq!(read("{\"reason\":\"build-finished\",\"success\":true}"), None);
    }
}
