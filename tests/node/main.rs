//! edgeward in its image on a real node: kubelet, containerd and kube-proxy, with the manifests as they stand.
//!
//! The tests run one after another in a sandbox that ends with this process. Without root they are skipped, and the output
//! says what is missing. Under `CI=true` this is a failure.

mod installed;
mod real_node;
mod scenarios;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use crate::installed::RELEASE;
use crate::real_node::{KUBE_ROUTER, PROGRAMS, RealNode};
use anyhow::{Context as _, Result};
use edgeward_harness::checkout::xtask;
use edgeward_harness::sandbox;
use edgeward_harness::scripts::{Script, timed, trials};
use libtest_mimic::{Arguments, Trial};

const SCRIPTS: &[(&str, Script<RealNode>)] = &[
    ("self_managed::every_pod_is_decided_and_runs", scenarios::self_managed),
    ("cert_manager::every_pod_is_decided_and_runs", scenarios::cert_manager),
    ("chart::every_pod_is_decided_and_runs", scenarios::chart),
    ("files::every_pod_is_decided_and_runs", scenarios::files),
    ("self_managed::network_policies_hold", scenarios::network_policies),
    (
        "self_managed::hostile_bodies_stay_within_the_limit",
        scenarios::hostile_bodies,
    ),
    ("one_node::stopped_process_is_restarted", scenarios::stopped_process),
    ("one_node::drain_ends", scenarios::drain),
];

/// Why the tests are skipped.
const NO_SANDBOX: &str = "no sandbox";

fn main() -> ExitCode {
    let (args, inside) = sandbox::arguments();
    let mut arguments = Arguments::from_iter(&args);
    arguments.test_threads = Some(1);
    let is_wanted = |name: &str| !arguments.is_filtered_out(&Trial::test(name, || Ok(())));
    let starts = !arguments.list && SCRIPTS.iter().any(|(name, _)| is_wanted(name));
    if starts && !inside {
        let missing = match tools() {
            Ok(tools) => sandbox::enter(sandbox::OF_NODE, &args[1..], &tools),
            Err(error) => error,
        };
        if sandbox::report_missing("node", &missing) {
            return ExitCode::FAILURE;
        }
    }
    if !starts || !inside {
        return libtest_mimic::run(&arguments, trials(SCRIPTS, NO_SANDBOX, None)).exit_code();
    }
    run(&arguments).unwrap_or_else(|error| {
        eprintln!("node: {error:#}");
        ExitCode::FAILURE
    })
}

/// Everything that is built or fetched, for which the sandbox has no network.
fn tools() -> Result<Vec<(&'static str, PathBuf)>> {
    let tool = |command: &str| xtask(command)?.with_context(|| format!("`cargo xtask {command}` lacks its means"));
    tool("program")?;
    Ok(vec![
        ("EDGEWARD_CONTROL_PLANE", tool("control-plane")?),
        ("EDGEWARD_CERT_MANAGER", tool("cert-manager")?),
        ("EDGEWARD_HELM", tool("helm")?),
        (PROGRAMS, tool("node")?),
        (KUBE_ROUTER, tool("kube-router")?),
        (RELEASE, tool("release --dry-run")?),
    ])
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    edgeward::testkit::install_crypto_provider();
    let runtime = tokio::runtime::Runtime::new()?;
    let node = timed("start of the node", || {
        RealNode::start(&runtime, &installed::archive()?)
    })?;
    let node = Arc::new(node);
    let conclusion = libtest_mimic::run(arguments, trials(SCRIPTS, NO_SANDBOX, Some(&node)));
    // All tests are dropped, so this is the last owner.
    if let Some(mut node) = Arc::into_inner(node).filter(|_| conclusion.has_failed()) {
        node.keep();
    }
    Ok(conclusion.exit_code())
}
