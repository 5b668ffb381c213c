//! actionlint, Helm, cert-manager, Karmada, kube-router, Liqo and the constant webhook, each built from its Go module.
//!
//! A recipe is part of the cache key. Raise its number when the build changes its result.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cache::ready_made;
use crate::go::{Module, copy_out};
use crate::shell::workspace;

pub(crate) const HELM: &str = "EDGEWARD_HELM";
pub(crate) const CERT_MANAGER: &str = "EDGEWARD_CERT_MANAGER";
pub(crate) const ACTIONLINT: &str = "EDGEWARD_ACTIONLINT";
pub(crate) const LIQO: &str = "EDGEWARD_LIQO";
pub(crate) const KARMADA: &str = "EDGEWARD_KARMADA";
pub(crate) const DEFINITIONS: &str = "EDGEWARD_DEFINITIONS";

/// Returns the program `helm` (two minutes on two cores).
pub(crate) fn helm() -> Result<PathBuf> {
    let (package, recipe) = ("helm.sh/helm/v3/cmd/helm", "1: trimpath, stripped, version flags");
    flagged_program("helm", HELM, "tests/helm", package, recipe, |module| {
        let version = module.required("helm.sh/helm/v3", "Version")?;
        let mut flags = format!(" -X helm.sh/helm/v3/internal/version.version={version}");
        // The Kubernetes version that Helm assumes without a cluster: the client's, as in Helm's own build. Without this flag
        // it is 1.20.
        let client = module.required("k8s.io/client-go", "Version")?;
        let minor = client.split('.').nth(1).context("a version has dots")?;
        for package in ["lint/rules", "chartutil"] {
            let variable = format!("helm.sh/helm/v3/pkg/{package}.k8sVersion");
            flags += &format!(" -X {variable}Major=1 -X {variable}Minor={minor}");
        }
        Ok(flags)
    })
}

/// Returns the directory with `crds/` and one program that holds cert-manager's controllers and cainjector (four minutes).
pub(crate) fn cert_manager() -> Result<PathBuf> {
    const DEFINITIONS: [&str; 4] = ["certificaterequests", "certificates", "clusterissuers", "issuers"];
    let module = Module {
        name: "cert-manager",
        variable: CERT_MANAGER,
        folder: workspace().join("tests/certmanager"),
        cache: "cert-manager",
    };
    if let Some(dir) = ready_made(module.variable)? {
        return Ok(dir);
    }
    module.built(&["1: trimpath, stripped", &DEFINITIONS.join(" ")], |partial| {
        module.build(&["."], "", &partial.join("cert-manager"))?;
        let sources = PathBuf::from(module.required("github.com/cert-manager/cert-manager", "Dir")?);
        let definition = |name| sources.join(format!("deploy/crds/cert-manager.io_{name}.yaml"));
        copy_out(&DEFINITIONS.map(definition), &partial.join("crds"))
    })
}

/// Returns the directory with the four Liqo programs that need no network between clusters, `crds/`, and `roles/`, which its
/// chart grants (five minutes).
pub(crate) fn liqo() -> Result<PathBuf> {
    let module = Module {
        name: "Liqo",
        variable: LIQO,
        folder: workspace().join("tests/liqo"),
        cache: "liqo",
    };
    if let Some(dir) = ready_made(module.variable)? {
        return Ok(dir);
    }
    module.built(&["1: trimpath, stripped"], |partial| {
        module.build(&["tool"], "", partial)?;
        let sources = PathBuf::from(module.required("github.com/liqotech/liqo", "Dir")?);
        for (folder, name) in [("charts/liqo-crds/crds", "crds"), ("files", "roles")] {
            let folder = Path::new("deployments/liqo").join(folder);
            let entries = fs::read_dir(sources.join(&folder)).with_context(|| folder.display().to_string())?;
            let files: Vec<_> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
            copy_out(&files, &partial.join(name))?;
        }
        Ok(())
    })
}

/// Returns the directory with Karmada's `scheduler` and `scheduler-estimator`, and `crds/` for the scheduler (five minutes).
pub(crate) fn karmada() -> Result<PathBuf> {
    const DEFINITIONS: [&str; 2] = ["clusterresourcebindings", "resourcebindings"];
    // As Karmada builds them. Without it, they cannot send the messages of Kubernetes.
    const TAG: &str = "-tags=kubernetes_protomessage_one_more_release";
    let module = Module {
        name: "Karmada",
        variable: KARMADA,
        folder: workspace().join("tests/karmada"),
        cache: "karmada",
    };
    if let Some(dir) = ready_made(module.variable)? {
        return Ok(dir);
    }
    module.built(&["1: trimpath, stripped", TAG, &DEFINITIONS.join(" ")], |partial| {
        module.build(&[TAG, "tool"], "", partial)?;
        let sources = PathBuf::from(module.required("github.com/karmada-io/karmada", "Dir")?);
        let folder = sources.join("charts/karmada/_crds/bases").join("work");
        let definition = |name| folder.join(format!("work.karmada.io_{name}.yaml"));
        copy_out(&DEFINITIONS.map(definition), &partial.join("crds"))
    })
}

/// Returns a directory with definitions of other projects: `ocm.yaml` is AddOnPlacementScore of Open Cluster Management, and
/// `diktyo.yaml` is NetworkTopology of the network-aware scheduler plugins.
pub(crate) fn definitions() -> Result<PathBuf> {
    const FILES: [(&str, &str, &str); 2] = [
        (
            "ocm.yaml",
            "open-cluster-management.io/api",
            "cluster/v1alpha1/0000_05_clusters.open-cluster-management.io_addonplacementscores.crd.yaml",
        ),
        (
            "diktyo.yaml",
            "sigs.k8s.io/scheduler-plugins",
            "manifests/networktopology/crd.yaml",
        ),
    ];
    let module = Module {
        name: "definitions",
        variable: DEFINITIONS,
        folder: workspace().join("tests/definitions"),
        cache: "definitions",
    };
    if let Some(dir) = ready_made(module.variable)? {
        return Ok(dir);
    }
    module.built(&["1"], |partial| {
        for (name, source, path) in FILES {
            let definition = Path::new(&module.downloaded(source)?).join(path);
            // `fs::copy` would keep the module cache's read-only mode.
            let text = fs::read(&definition).with_context(|| definition.display().to_string())?;
            fs::write(partial.join(name), text)?;
        }
        Ok(())
    })
}

/// Returns the program `kube-router`, which enforces network policies on a real node (four minutes).
pub(crate) fn kube_router() -> Result<PathBuf> {
    let package = "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router";
    program("kube-router", "EDGEWARD_KUBE_ROUTER", "tests/node/kube-router", package)
}

/// Returns the program `actionlint`, which checks workflows (half a minute).
pub(crate) fn actionlint() -> Result<PathBuf> {
    let package = "github.com/rhysd/actionlint/cmd/actionlint";
    program("actionlint", ACTIONLINT, "xtask/actionlint", package)
}

/// Returns the webhook that always gives the same answer. Benchmarks compare edgeward with it. It builds in seconds.
pub(crate) fn constant_webhook() -> Result<PathBuf> {
    program("constant-webhook", "EDGEWARD_CONSTANT_WEBHOOK", "benches/constant", ".")
}

/// Returns the only program of the module in this folder. In the cache it has this name.
fn program(name: &'static str, variable: &'static str, folder: &str, package: &str) -> Result<PathBuf> {
    let flags = |_: &Module| Ok(String::new());
    flagged_program(name, variable, folder, package, "2: trimpath, stripped", flags)
}

/// The same, linked with these flags.
fn flagged_program(
    name: &'static str,
    variable: &'static str,
    folder: &str,
    package: &str,
    recipe: &str,
    flags: impl FnOnce(&Module) -> Result<String>,
) -> Result<PathBuf> {
    if let Some(program) = ready_made(variable)? {
        return Ok(program);
    }
    let module = Module {
        name,
        variable,
        folder: workspace().join(folder),
        cache: name,
    };
    let dir = module.built(&[recipe], |partial| {
        module.build(&[package], &flags(&module)?, &partial.join(name))
    })?;
    Ok(dir.join(name))
}
