//! Network and mount namespaces around the whole run, which end with its last process. From inside, the machine's own
//! interfaces, routes and settings are out of reach, and the names of `ip netns` are private.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use anyhow::{Error, anyhow};

use crate::checkout::is_ci;
use crate::prelude::*;

const INSIDE: &str = "--inside-of-the-sandbox";

/// Ways to enter a sandbox for a WAN: as root, or else as root of a user namespace. The latter needs no privilege if the kernel's
/// settings allow it.
pub const OF_WAN: &[&[&str]] = &[&["--mount", "--net"], &["--map-root-user", "--mount", "--net"]];

/// The way to enter a sandbox for a node, which takes root. All processes end with the sandbox, containers included.
pub const OF_NODE: &[&[&str]] = &[&["--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]];

/// Where `ip netns` keeps its names.
const PRIVATE_NAMES: &str = "mount -t tmpfs edgeward-wan /run";

/// Everything that the tests do to the system, tried once. Each has a name for the error.
const NEEDED: [(&str, &str); 3] = [
    ("a mount of our own", PRIVATE_NAMES),
    ("`ip netns` (Debian: iproute2)", "ip netns add test"),
    ("a TUN device (/dev/net/tun)", "ip -n test tuntap add dev test mode tun"),
];

/// The arguments of this program, and whether it runs in the sandbox.
pub fn arguments() -> (Vec<String>, bool) {
    let mut args: Vec<String> = env::args().collect();
    let is_inside = args.get(1).is_some_and(|first| first == INSIDE);
    if is_inside {
        args.remove(1);
    }
    (args, is_inside)
}

/// Reports that the tests of this target have no sandbox. Returns whether that is a failure, as in continuous integration.
pub fn report_missing(target: &str, missing: &Error) -> bool {
    if is_ci() {
        eprintln!("{target}: CI runs every test, and {missing:#}");
    } else {
        println!("{target}: skipped, {missing:#}");
    }
    is_ci()
}

/// Continues this program in the sandbox, with these variables. Returns only if there is no sandbox, with the reason for every way.
pub fn enter(ways: &[&[&str]], args: &[String], variables: &[(&str, PathBuf)]) -> Error {
    let mut reasons = Vec::new();
    for way in ways {
        match attempt(way) {
            Err(reason) => reasons.push(format!("with `unshare {}`: {reason:#}", way.join(" "))),
            Ok(()) => return start(way, args, variables),
        }
    }
    anyhow!("there are no namespaces; {}", reasons.join("; "))
}

fn attempt(way: &[&str]) -> Result<()> {
    let run = |script: &str| {
        let output = unshare(way).args(["sh", "-c", script]).output();
        let output = output.context("there is no `unshare` (Debian: util-linux)")?;
        let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', ", ");
        ensure!(output.status.success(), said);
        Ok(())
    };
    run("true").context("no network namespaces")?;
    // Each step runs together with the earlier ones, because a sandbox ends with its command.
    let mut script = String::from("true");
    for (what, step) in NEEDED {
        script = format!("{script} && {step}");
        run(&script).with_context(|| format!("no {}", what.trim_start_matches("a ")))?;
    }
    Ok(())
}

fn start(way: &[&str], args: &[String], variables: &[(&str, PathBuf)]) -> Error {
    let program = match env::current_exe() {
        Ok(program) => program,
        Err(error) => return error.into(),
    };
    let script = format!("{PRIVATE_NAMES} && exec \"$0\" {INSIDE} \"$@\"");
    unshare(way)
        .args(["sh", "-c", &script])
        .arg(program)
        .args(args)
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .exec()
        .into()
}

fn unshare(way: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(way).arg("--");
    command
}
