//! The chart as Helm renders it. It gives the same objects as kustomize, every value has an effect, and wrong values are
//! refused by name.
//!
//! `EDGEWARD_HELM=<program>` and `EDGEWARD_CONTROL_PLANE=<dir>` (for its kubectl) use ready-made tools.

mod kustomize;
mod refusals;
mod rendered;

use std::process::ExitCode;

use edgeward_harness::checkout::{is_ci, xtask};
use edgeward_harness::helm::{Helm, NoHelm};
use edgeward_harness::prelude::*;
use edgeward_harness::timing::timed;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tempfile::TempDir;

type Script = fn(&Tools) -> Result<()>;

const SCRIPTS: &[(&str, Script)] = &[
    (
        "chart_renders_same_objects_as_kustomize",
        kustomize::chart_renders_same_objects_as_kustomize,
    ),
    (
        "kustomize_folders_match_chart_values",
        kustomize::kustomize_folders_match_chart_values,
    ),
    (
        "kustomize_components_match_chart_values",
        kustomize::kustomize_components_match_chart_values,
    ),
    (
        "custom_ports_match_kustomize_patch",
        kustomize::custom_ports_match_kustomize_patch,
    ),
    (
        "excluded_namespaces_pass_strict_sites",
        kustomize::excluded_namespaces_pass_strict_sites,
    ),
    (
        "reduced_rights_match_kustomize_components",
        kustomize::reduced_rights_match_kustomize_components,
    ),
    (
        "monitoring_switches_match_kustomize",
        kustomize::monitoring_switches_match_kustomize,
    ),
    (
        "narrowed_ingress_matches_kustomize_patch",
        kustomize::narrowed_ingress_matches_kustomize_patch,
    ),
    (
        "custom_namespace_replaces_default",
        kustomize::custom_namespace_replaces_default,
    ),
    ("every_value_has_an_effect", rendered::every_value_has_an_effect),
    (
        "helm_lint_accepts_all_values_files",
        rendered::helm_lint_accepts_all_values_files,
    ),
    (
        "packed_chart_renders_like_checkout",
        rendered::packed_chart_renders_like_checkout,
    ),
    (
        "hook_jobs_are_deleted_with_their_rights",
        rendered::hook_jobs_are_deleted_with_their_rights,
    ),
    (
        "wrong_values_are_refused_by_name",
        refusals::wrong_values_are_refused_by_name,
    ),
];

pub(crate) struct Tools {
    pub(crate) helm: Helm,
    pub(crate) kubectl: PathBuf,
    pub(crate) dir: TempDir,
}

fn main() -> ExitCode {
    let mut args = Arguments::from_args();
    args.test_threads.get_or_insert(2);
    let tools = if args.list { Ok(None) } else { tools() };
    let tools = match tools {
        Ok(tools) => tools.map(Arc::new),
        Err(error) => {
            eprintln!("helm: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let test = |&(name, script): &(&'static str, Script)| {
        let tools = tools.clone();
        Trial::ignorable_test(name, move || {
            let Some(tools) = tools else {
                return Ok(Completion::ignored_with("no Helm or no kubectl"));
            };
            timed(name, || script(&tools)).map_err(|error| Failed::from(format!("{error:#}")))?;
            Ok(Completion::Completed)
        })
    };
    libtest_mimic::run(&args, SCRIPTS.iter().map(test).collect()).exit_code()
}

/// Returns `None` if the tools are unavailable and not required.
fn tools() -> Result<Option<Tools>> {
    let dir = tempfile::tempdir()?;
    let helm = match Helm::obtain(dir.path()) {
        Err(error) if error.is::<NoHelm>() => None,
        helm => Some(helm?),
    };
    let Some((helm, binaries)) = helm.zip(xtask("control-plane")?) else {
        ensure!(
            !is_ci(),
            "there is no Go to build Helm and kubectl with, and CI runs every test"
        );
        println!("helm: skipped, there is no Go to build Helm and kubectl with");
        return Ok(None);
    };
    let kubectl = binaries.join("kubectl");
    Ok(Some(Tools { helm, kubectl, dir }))
}
