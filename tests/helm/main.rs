//! The chart as Helm renders it. It gives the same objects as kustomize, every value has an effect, and wrong values are
//! refused by name.
//!
//! `EDGEWARD_HELM=<program>` and `EDGEWARD_CONTROL_PLANE=<dir>` (for its kubectl) use ready-made tools.

mod kustomize;
mod refusals;
mod rendered;

use std::process::ExitCode;

use edgeward_harness::checkout::xtask;
use edgeward_harness::helm::{Helm, NoHelm};
use edgeward_harness::prelude::*;
use edgeward_harness::scripts;
use edgeward_harness::scripts::Script;
use tempfile::TempDir;

const SCRIPTS: &[(&str, Script<Tools>)] = scripts![
    kustomize::chart_renders_same_objects_as_kustomize,
    kustomize::kustomize_folders_match_chart_values,
    kustomize::kustomize_components_match_chart_values,
    kustomize::components_match_chart_values,
    kustomize::custom_ports_match_kustomize_patch,
    kustomize::excluded_namespaces_pass_strict_sites,
    kustomize::reduced_rights_match_kustomize_components,
    kustomize::monitoring_switches_match_kustomize,
    kustomize::narrowed_ingress_matches_kustomize_patch,
    kustomize::custom_namespace_replaces_default,
    rendered::every_value_has_an_effect,
    rendered::helm_lint_accepts_all_values_files,
    rendered::packed_chart_renders_like_checkout,
    rendered::hook_jobs_are_deleted_with_their_rights,
    refusals::wrong_values_are_refused_by_name,
];

pub(crate) struct Tools {
    pub(crate) helm: Helm,
    pub(crate) kubectl: PathBuf,
    pub(crate) dir: TempDir,
}

fn main() -> ExitCode {
    let missing = "there is no Go to build Helm and kubectl with";
    scripts::run("helm", missing, SCRIPTS, || {
        let dir = tempfile::tempdir()?;
        let helm = match Helm::obtain(dir.path()) {
            Err(error) if error.is::<NoHelm>() => return Ok(None),
            helm => helm?,
        };
        let binaries = xtask("control-plane")?;
        Ok(binaries.map(|binaries| Tools {
            helm,
            kubectl: binaries.join("kubectl"),
            dir,
        }))
    })
}
