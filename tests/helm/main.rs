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
    ("the_same_as_by_kustomize", kustomize::the_same_as_by_kustomize),
    ("folders_are_values", kustomize::folders_are_values),
    ("components_are_values", kustomize::components_are_values),
    ("other_ports_are_the_same", kustomize::other_ports_are_the_same),
    (
        "excluded_namespaces_are_not_judged",
        kustomize::excluded_namespaces_are_not_judged,
    ),
    ("less_is_a_value", kustomize::less_is_a_value),
    ("monitoring_is_the_same", kustomize::monitoring_is_the_same),
    ("a_narrow_way_in_is_the_same", kustomize::a_narrow_way_in_is_the_same),
    ("in_another_namespace", kustomize::in_another_namespace),
    ("every_value_has_an_effect", rendered::every_value_has_an_effect),
    ("lint_has_nothing_to_say", rendered::lint_has_nothing_to_say),
    ("packed_it_is_the_same", rendered::packed_it_is_the_same),
    ("hooks_go_with_their_rights", rendered::hooks_go_with_their_rights),
    ("wrong_values_are_named", refusals::wrong_values_are_named),
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
