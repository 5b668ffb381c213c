//! A real Kubernetes control plane, built from the Go module in `tests/controlplane`.
//!
//! The module has no Go code of its own: its `tool` directives name the commands, those of a real node among them. The result has
//! the programs under the names that envtest uses, and kwok's stages.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::cache::ready_made;
use crate::go::{Module, copy_out};
use crate::shell::workspace;

/// The environment variable that names a directory with ready-made programs.
pub(crate) const VARIABLE: &str = "EDGEWARD_CONTROL_PLANE";

/// The Go module for the newest Kubernetes. Each subfolder has the module for an older minor version.
const MODULE: &str = "tests/controlplane";

const SERVERS: [&str; 4] = [
    "go.etcd.io/etcd/server/v3",
    "k8s.io/kubernetes/cmd/kube-apiserver",
    "k8s.io/kubernetes/cmd/kube-controller-manager",
    "k8s.io/kubernetes/cmd/kube-scheduler",
];

const CLIENTS: [&str; 2] = ["k8s.io/kubernetes/cmd/kubectl", "sigs.k8s.io/kwok/cmd/kwok"];

const OF_NODE: [&str; 2] = ["k8s.io/kubernetes/cmd/kubelet", "k8s.io/kubernetes/cmd/kube-proxy"];

/// Lifecycle stages of fake nodes and pods, from kwok's module.
const STAGES: [&str; 5] = [
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
];

/// Part of the cache key. Raise the number when the build below changes its result.
const RECIPE: &str = "2: trimpath, stripped, version flag, without a node's programs";

/// Returns the directory with the programs and `stages/` of the newest Kubernetes. The first build takes 15 minutes on two
/// cores and 5 GB of Go caches.
pub(crate) fn obtain() -> Result<PathBuf> {
    if let Some(dir) = ready_made(VARIABLE)? {
        return Ok(dir);
    }
    let module = module(workspace().join(MODULE));
    module.built(&[RECIPE, &STAGES.join(" ")], |partial| {
        build(&module, &[&SERVERS[..], &CLIENTS].concat(), partial)?;
        let kwok = PathBuf::from(module.required("sigs.k8s.io/kwok", "Dir")?);
        let stages = STAGES.map(|stage| kwok.join("kustomize/stage").join(stage));
        copy_out(&stages, &partial.join("stages"))
    })
}

/// Returns `kubectl` alone, which builds in a minute or two.
pub(crate) fn kubectl() -> Result<PathBuf> {
    if let Some(dir) = ready_made(VARIABLE)? {
        return Ok(dir.join("kubectl"));
    }
    let module = Module {
        name: "kubectl",
        cache: "kubectl",
        ..module(workspace().join(MODULE))
    };
    let dir = module.built(&[RECIPE], |partial| {
        module.build(&CLIENTS[..1], &version_flag(&module)?, &partial.join("kubectl"))
    })?;
    Ok(dir.join("kubectl"))
}

/// Returns the directory with kubelet and kube-proxy of the newest Kubernetes (two minutes beside a control plane's caches).
pub(crate) fn of_node() -> Result<PathBuf> {
    let module = Module {
        name: "kubelet",
        cache: "kubelet",
        ..module(workspace().join(MODULE))
    };
    module.built(&["1: trimpath, stripped, version flag"], |partial| {
        module.build(&OF_NODE, &version_flag(&module)?, partial)
    })
}

/// Returns an older Kubernetes, such as `1.33`, with kubectl and kwok of the newest.
pub(crate) fn obtain_older(minor: &str) -> Result<PathBuf> {
    let module = module(workspace().join(MODULE).join(minor));
    ensure!(
        module.folder.is_dir(),
        "--kubernetes {minor}: {MODULE} has no such folder"
    );
    let newest = obtain()?;
    module.built(&[RECIPE, &STAGES.join(" ")], |partial| {
        build(&module, &SERVERS, partial)?;
        for name in ["kubectl", "kwok"] {
            fs::copy(newest.join(name), partial.join(name)).context(name)?;
        }
        let entries = fs::read_dir(newest.join("stages")).context("stages")?;
        let stages: Vec<_> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        copy_out(&stages, &partial.join("stages"))
    })
}

fn module(folder: PathBuf) -> Module {
    Module {
        name: "control plane",
        variable: VARIABLE,
        folder,
        cache: "control-plane",
    }
}

/// Without the version, the server reports "v0.0.0-master+$Format:%H$", which clients cannot parse.
fn version_flag(module: &Module) -> Result<String> {
    let version = module.required("k8s.io/kubernetes", "Version")?;
    Ok(format!(" -X k8s.io/component-base/version.gitVersion={version}"))
}

fn build(module: &Module, commands: &[&str], into: &Path) -> Result<()> {
    module.build(commands, &version_flag(module)?, into)?;
    // The module go.etcd.io/etcd/server is named after its last element.
    fs::rename(into.join("server"), into.join("etcd")).context("go build produced no etcd")
}
