//! edgeward on a real control plane: etcd, kube-apiserver, kube-controller-manager and kube-scheduler as processes on
//! loopback, and kwok for nodes that run pods without running anything.
//!
//! Each trial has a namespace, a registration of the webhook and edgeward processes of its own. Most run side by side in one
//! cluster; those that need a cluster for themselves take turns in two others. `EDGEWARD_CONTROL_PLANE=<dir>` uses
//! ready-made binaries; `EDGEWARD_BLESS=1` rewrites the goldens; `EDGEWARD_SOAK=1` runs what takes long instead.

mod api_server;
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
mod decision;
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
mod side_by_side;
mod stage;
mod tables;
mod timing;
mod trials;
mod untouched;
mod validation;
#[allow(clippy::expect_used)]
#[path = "../it/volume.rs"]
mod volume;
mod why;
mod workloads;

use std::collections::BTreeSet;
use std::env;
use std::iter;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tokio::runtime::Runtime;

use crate::control_plane::ControlPlane;
use crate::load::TooBusy;
use crate::program::NoHelm;
use crate::scene::{Domain, Scene};
use crate::side_by_side::{CLUSTERS, Needs, SideBySide};
use crate::timing::timed;
use crate::trials::{Row, SOAK, Script, TRIALS};

/// What the trials share.
struct Run {
    // First, so that the servers of the trials are gone before the control planes are.
    runtime: Runtime,
    shared: ControlPlane,
    /// For those that need a cluster, where there are any.
    own: Vec<ControlPlane>,
    side_by_side: SideBySide,
    /// Trials that the machine was too busy for, with their figures.
    too_busy: Mutex<Vec<String>>,
}

fn main() -> ExitCode {
    let is_soak = env::var_os("EDGEWARD_SOAK").is_some_and(|soak| soak == "1");
    let rows = if is_soak { SOAK } else { TRIALS };
    let mut args = Arguments::from_args();
    // Each waits for its turn by itself.
    args.test_threads.get_or_insert(rows.len());

    let is_wanted = |(name, ..): &&Row| !args.is_filtered_out(&Trial::test(*name, || Ok(())));
    let wanted: Vec<_> = rows
        .iter()
        .filter(is_wanted)
        .map(|&(name, needs, _)| (name, needs))
        .collect();
    let run = if args.list || wanted.is_empty() {
        Ok(None)
    } else {
        start(wanted)
    };
    let run = match run {
        Ok(run) => run.map(Arc::new),
        Err(error) => {
            eprintln!("e2e: {error:#}");
            return ExitCode::FAILURE;
        }
    };

    let trials = rows.iter().map(|row| trial(row, run.clone())).collect();
    let conclusion = libtest_mimic::run(&args, trials);

    // The trials are gone, so this is the last owner: everything ends here.
    let Some(mut run) = run.and_then(Arc::into_inner) else {
        return conclusion.exit_code();
    };
    for told in run.too_busy.get_mut().unwrap_or_else(PoisonError::into_inner) {
        println!("too busy to tell: {told}");
    }
    if is_soak {
        tables::print();
    }
    let everything = !is_soak && conclusion.num_passed == TRIALS.len() as u64;
    let proven = run.rights_are_proven(everything);
    if let Err(error) = &proven {
        eprintln!("rights: {error:#}");
    }
    if conclusion.has_failed() || proven.is_err() {
        run.planes_mut().for_each(ControlPlane::keep);
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

/// `None`: there is no control plane to be had and nobody insists.
fn start(wanted: Vec<(&'static str, Needs)>) -> Result<Option<Run>> {
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
    let shared = ControlPlane::start(&runtime, &binaries)?;
    let own = wanted.iter().filter(|(_, needs)| *needs == Needs::Cluster).count();
    let own = (0..own.min(CLUSTERS)).map(|_| ControlPlane::start(&runtime, &binaries));
    let own = own.collect::<Result<Vec<_>>>()?;
    Ok(Some(Run {
        runtime,
        shared,
        own,
        side_by_side: SideBySide::of(wanted),
        too_busy: Mutex::default(),
    }))
}

fn trial(&(name, needs, script): &Row, run: Option<Arc<Run>>) -> Trial {
    Trial::ignorable_test(name, move || {
        let Some(run) = run else {
            return Ok(Completion::ignored_with("no control plane"));
        };
        let turn = run.side_by_side.turn(name, needs);
        let plane = turn.cluster.map_or(&run.shared, |own| &run.own[own]);
        let error = match timed(name, || tried(plane, &run.runtime, name, needs, script)) {
            Ok(()) => return Ok(Completion::Completed),
            Err(error) => error,
        };
        if let Some(TooBusy(figures)) = error.downcast_ref() {
            let mut too_busy = run.too_busy.lock().unwrap_or_else(PoisonError::into_inner);
            too_busy.push(format!("{name}: {figures}"));
            return Ok(Completion::ignored_with("too busy to tell"));
        }
        if error.is::<NoHelm>() && env::var_os("CI").is_none_or(|ci| ci != "true") {
            return Ok(Completion::ignored_with("no Helm"));
        }
        Err(Failed::from(format!("{error:#}")))
    })
}

/// Plays a trial, and leaves nothing of its pods.
fn tried(plane: &ControlPlane, runtime: &Runtime, name: &str, needs: Needs, script: Script) -> Result<()> {
    let domain = match needs {
        Needs::Domain => Domain::Own,
        Needs::Nodes | Needs::Cluster | Needs::Machine => Domain::Shared,
    };
    let scene = Scene::open(plane, runtime, name, domain)?;
    let ended = script(&scene).and_then(|()| scene.kept_to_its_domain());
    let ended = ended.map_err(|error| scene.with_logs(error));
    let cleared = scene.clear();
    ended.and(cleared)
}

impl Run {
    fn planes(&self) -> impl Iterator<Item = &ControlPlane> {
        iter::once(&self.shared).chain(&self.own)
    }

    fn planes_mut(&mut self) -> impl Iterator<Item = &mut ControlPlane> {
        iter::once(&mut self.shared).chain(&mut self.own)
    }

    /// Fails unless edgeward has done what the manifests allow and nothing else and, if every trial was run, needs all of it.
    fn rights_are_proven(&self, everything: bool) -> Result<()> {
        let (mut calls, mut homes) = (Vec::new(), BTreeSet::new());
        for plane in self.planes() {
            calls.extend(plane.calls_of_edgeward()?);
            homes.extend(plane.rights.homes());
        }
        self.shared.rights.prove(&calls, &homes, everything)
    }
}
