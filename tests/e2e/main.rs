//! edgeward on a real control plane: etcd, kube-apiserver, kube-controller-manager and kube-scheduler as processes on
//! loopback, and kwok for nodes that run pods without running anything.
//!
//! One control plane serves all trials. Each has a namespace, a registration of the webhook and an edgeward process of
//! its own. `EDGEWARD_CONTROL_PLANE=<dir>` uses ready-made binaries; `EDGEWARD_BLESS=1` rewrites the goldens;
//! `EDGEWARD_LONG=1`, as `CI`, watches the quiet cluster for five minutes.

// What keeps the inner ring pure is not for tests.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

mod backstop;
mod balancer;
mod burst;
mod cert_manager;
mod certificates;
mod chart;
mod check;
mod clients;
mod configuration;
mod connection;
mod constraints;
mod control_plane;
mod custom_resources;
mod edgeward;
mod events;
mod failure;
mod fleet;
mod fleet_command;
mod folder;
mod gate;
mod golden;
mod held;
mod history;
mod hook;
mod install;
mod installed;
mod invalid_slo;
mod kubectl;
mod leader;
mod live;
mod load;
mod loop_guard;
mod mount;
mod patience;
mod pki;
mod placement;
mod process;
#[path = "../helm/program.rs"]
#[allow(dead_code, reason = "those that only render need more of it")]
mod program;
mod proxy;
mod queue;
mod quick_start;
mod reinvocation;
mod release;
mod rights;
mod rollout;
mod scene;
mod stage;
mod untouched;
mod validation;
#[allow(clippy::expect_used)]
#[path = "../it/volume.rs"]
mod volume;
mod why;
mod workloads;

use std::env;
use std::process::ExitCode;
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::{Context, Result};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tokio::runtime::Runtime;

use crate::control_plane::ControlPlane;
use crate::program::NoHelm;
use crate::scene::Scene;

type Script = fn(&Scene<'_>) -> Result<()>;

/// Every trial, by the name it is listed under. Its last part names the trial's namespace.
const SCRIPTS: &[(&str, Script)] = &[
    // First, for they take longest.
    ("certificates::self_managed", certificates::self_managed::self_managed),
    ("live::quiet_cluster", live::connection::quiet_cluster),
    ("live::silent_connection", live::connection::silent_connection),
    ("live::cut_connection", live::connection::cut_connection),
    ("placement::good_wan_and_low_load", placement::good_wan_and_low_load),
    (
        "placement::overloaded_edge_and_good_wan",
        placement::overloaded_edge_and_good_wan,
    ),
    (
        "placement::overloaded_edge_and_bad_wan",
        placement::overloaded_edge_and_bad_wan,
    ),
    (
        "placement::fleet_file_is_read_again",
        placement::fleet_file_is_read_again,
    ),
    (
        "untouched::conditions_of_the_manifest",
        untouched::conditions_of_the_manifest,
    ),
    ("untouched::pods_of_nobody_here", untouched::pods_of_nobody_here),
    ("untouched::daemon_sets", untouched::daemon_sets),
    (
        "constraints::own_constraints_survive",
        constraints::own_constraints_survive,
    ),
    ("constraints::new_fields_survive", constraints::new_fields_survive),
    (
        "constraints::unknown_fields_survive",
        constraints::unknown_fields_survive,
    ),
    (
        "constraints::stale_annotations_are_replaced",
        constraints::stale_annotations_are_replaced,
    ),
    (
        "reinvocation::after_a_later_injector",
        reinvocation::after_a_later_injector,
    ),
    (
        "reinvocation::not_after_an_earlier_injector",
        reinvocation::not_after_an_earlier_injector,
    ),
    (
        "reinvocation::after_the_token_was_mounted",
        reinvocation::after_the_token_was_mounted,
    ),
    ("failure::frozen_and_killed", failure::frozen_and_killed),
    ("failure::edge_label_missing", failure::edge_label_missing),
    ("invalid_slo::warns", invalid_slo::warns),
    ("invalid_slo::denies", invalid_slo::denies),
    ("validation::in_the_parsers_words", validation::in_the_parsers_words),
    (
        "validation::only_what_makes_other_pods",
        validation::only_what_makes_other_pods,
    ),
    ("validation::refuses", validation::refuses),
    ("validation::where_policies_fill_in", validation::where_policies_fill_in),
    (
        "configuration::follows_its_config_map",
        configuration::follows_its_config_map,
    ),
    (
        "configuration::bad_at_the_start_is_not_ready",
        configuration::bad_at_the_start_is_not_ready,
    ),
    (
        "configuration::live_view_waits_for_it",
        configuration::live_view_waits_for_it,
    ),
    (
        "custom_resources::bad_ones_are_refused",
        custom_resources::bad_ones_are_refused,
    ),
    ("connection::speaks_http_1_1", connection::speaks_http_1_1),
    (
        "certificates::shown_by_the_api_server",
        certificates::shown::shown_by_the_api_server,
    ),
    ("live::capacity_comes_and_goes", live::capacity_comes_and_goes),
    ("live::nodes_change", live::nodes::nodes_change),
    ("live::cloud_node_states", live::nodes::cloud_node_states),
    ("live::anti_affinity", live::controllers::anti_affinity),
    ("live::quota", live::controllers::quota),
    ("live::history_is_gone", live::connection::history_is_gone),
    ("live::lists_in_pages", live::connection::lists_in_pages),
    (
        "fleet_command::a_cluster_becomes_a_file",
        fleet_command::a_cluster_becomes_a_file,
    ),
    ("fleet_command::the_real_answer", fleet_command::the_real_answer),
    ("release::uninstall", release::uninstall),
    ("release::with_kubectl_alone", release::with_kubectl_alone),
    ("leader::one_of_two", leader::one_of_two),
    ("events::told_once", events::told_once),
    ("backstop::finds_and_recreates", backstop::finds_and_recreates),
    ("why::pods_of_every_fate", why::pods_of_every_fate),
    ("held::in_turn", held::in_turn),
    ("held::until_the_wan_is_back", held::until_the_wan_is_back),
    ("held::behind_other_gates", held::behind_other_gates),
    ("queue::no_newcomer_first", queue::no_newcomer_first),
    ("queue::without_edgeward", queue::without_edgeward),
    ("gate::may_not_be_removed", gate::may_not_be_removed),
    ("gate::placement_is_refused", gate::placement_is_refused),
    ("gate::of_another_domain", gate::of_another_domain),
    ("rollout::stays_at_the_edge", rollout::stays_at_the_edge),
    ("loop_guard::ends_a_loop", loop_guard::ends_a_loop),
    ("live::restart", live::restart::restart),
    ("check::each_fault_and_its_fix", check::each_fault_and_its_fix),
    ("custom_resources::policies_decide", custom_resources::policies_decide),
    ("custom_resources::sites_change", custom_resources::sites_change),
    ("install::with_cert_manager", install::with_cert_manager),
    ("install::with_self_managed", install::with_self_managed),
    ("install::with_files", install::with_files),
    ("install::under_another_domain", install::under_another_domain),
    (
        "certificates::bad_pairs_are_refused",
        certificates::bad_pairs_are_refused,
    ),
    ("quick_start::with_kwok", quick_start::with_kwok),
    ("load::rolling_restart", load::restarts::rolling_restart),
    ("load::leader_is_lost", load::restarts::leader_is_lost),
    ("load::one_is_frozen", load::restarts::one_is_frozen),
    ("load::rotation_files", load::rotation::rotation_files),
    ("load::rotation_self_managed", load::rotation::rotation_self_managed),
    ("load::rotation_cert_manager", load::rotation::rotation_cert_manager),
    ("load::hostile_clients", load::hostile::hostile_clients),
    ("install::by_helm", chart::by_helm),
    ("install::by_helm_self_managed", chart::by_helm_self_managed),
    ("install::by_helm_with_files", chart::by_helm_with_files),
    ("burst::fills_the_edge", burst::fills_the_edge),
];

/// The trials that run alone, when all others are over; they are listed last.
const ALONE: &[&str] = &[
    "why::pods_of_every_fate",
    "held::in_turn",
    "held::until_the_wan_is_back",
    "held::behind_other_gates",
    "queue::no_newcomer_first",
    "queue::without_edgeward",
    "gate::may_not_be_removed",
    "gate::placement_is_refused",
    "gate::of_another_domain",
    "rollout::stays_at_the_edge",
    "loop_guard::ends_a_loop",
    "live::restart",
    "check::each_fault_and_its_fix",
    "custom_resources::policies_decide",
    "custom_resources::sites_change",
    "install::with_cert_manager",
    "install::with_self_managed",
    "install::with_files",
    "install::under_another_domain",
    "certificates::bad_pairs_are_refused",
    "quick_start::with_kwok",
    "load::rolling_restart",
    "load::leader_is_lost",
    "load::one_is_frozen",
    "load::rotation_files",
    "load::rotation_self_managed",
    "load::rotation_cert_manager",
    "load::hostile_clients",
    "install::by_helm",
    "install::by_helm_self_managed",
    "install::by_helm_with_files",
    "burst::fills_the_edge",
];

static STAGES: RwLock<()> = RwLock::new(());

/// What the trials share.
struct Run {
    // First, so that the servers of the trials are gone before the control plane is.
    runtime: Runtime,
    plane: ControlPlane,
}

fn main() -> ExitCode {
    let mut args = Arguments::from_args();
    // Trials mostly wait; more at once than this would only slow the API server down.
    args.test_threads.get_or_insert(4);

    let wanted = SCRIPTS
        .iter()
        .any(|(name, _)| !args.is_filtered_out(&Trial::test(*name, || Ok(()))));
    let run = if args.list || !wanted { Ok(None) } else { start() };
    let run = match run {
        Ok(run) => run.map(Arc::new),
        Err(error) => {
            eprintln!("e2e: {error:#}");
            return ExitCode::FAILURE;
        }
    };

    let trials = SCRIPTS
        .iter()
        .map(|&(name, script)| trial(name, script, run.clone()))
        .collect();
    let conclusion = libtest_mimic::run(&args, trials);

    // The trials are gone, so this is the last owner: everything ends here.
    let Some(mut run) = run.and_then(Arc::into_inner) else {
        return conclusion.exit_code();
    };
    let everything = conclusion.num_passed == SCRIPTS.len() as u64;
    let proven = run.plane.prove_rights(everything);
    if conclusion.has_failed() || !proven {
        run.plane.keep();
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

/// `None`: there is no control plane to be had and nobody insists.
fn start() -> Result<Option<Run>> {
    let Some(binaries) = control_plane::binaries()? else {
        anyhow::ensure!(
            env::var_os("CI").is_none_or(|ci| ci != "true"),
            "there is no Go to build the control plane with, and CI runs every test"
        );
        println!("e2e: skipped, there is no Go to build the control plane with and EDGEWARD_CONTROL_PLANE is not set");
        return Ok(None);
    };
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    provider
        .install_default()
        .ok()
        .context("another TLS provider is installed")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    Ok(Some(Run {
        runtime,
        plane: ControlPlane::start(&binaries)?,
    }))
}

fn trial(name: &'static str, script: Script, run: Option<Arc<Run>>) -> Trial {
    Trial::ignorable_test(name, move || {
        let Some(run) = run else {
            return Ok(Completion::ignored_with("no control plane"));
        };
        let failed = |error: anyhow::Error| Failed::from(format!("{error:#}"));
        // A burst needs the machine for itself; the others run side by side.
        let (_together, _alone);
        match ALONE.contains(&name) {
            true => _alone = STAGES.write().unwrap_or_else(PoisonError::into_inner),
            false => _together = STAGES.read().unwrap_or_else(PoisonError::into_inner),
        }
        let scene = Scene::open(&run.plane, &run.runtime, name).map_err(failed)?;
        let ended = script(&scene);
        if ended.as_ref().is_err_and(|error| error.is::<NoHelm>()) && env::var_os("CI").is_none_or(|ci| ci != "true") {
            return Ok(Completion::ignored_with("no Helm"));
        }
        let ended = ended.map_err(|error| Failed::from(format!("{error:#}\n{}", scene.tails())));
        if ALONE.contains(&name) {
            scene.clear().map_err(failed)?;
        }
        ended?;
        Ok(Completion::Completed)
    })
}
