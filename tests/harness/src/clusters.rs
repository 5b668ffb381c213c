//! A run of tests on real control planes: each has a namespace, a registration of the webhook and edgeward processes of its own.
//!
//! Most run side by side in one cluster; those that need a cluster for themselves take turns in two others.

use std::collections::BTreeSet;
use std::iter;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tokio::runtime::Runtime;

use crate::checkout::is_ci;
use crate::control_plane::{self, ControlPlane};
use crate::fixture::{Domain, Fixture};
use crate::helm::NoHelm;
use crate::side_by_side::{CLUSTERS, Needs, SideBySide};
use crate::timing::{TooBusy, timed};

/// A test: the name that it is listed under, the last part of which is its namespace, what it needs, and what it does.
pub type Test = (&'static str, Needs, Script);

/// What a test does.
pub type Script = fn(&Fixture<'_>) -> Result<()>;

/// What the tests share.
struct Run {
    // First, so that the servers of the tests are gone before the control planes are.
    runtime: Runtime,
    shared: ControlPlane,
    /// For those that need a cluster, where there are any.
    own: Vec<ControlPlane>,
    side_by_side: SideBySide,
    /// The program under test.
    edgeward: &'static Path,
    /// Tests that the machine was too busy for, with their figures.
    too_busy: Mutex<Vec<String>>,
}

/// Runs those of the tests that the arguments of this process ask for, with this program. Whether all of them together use
/// every right of the manifests is asked when all have passed, and only where `uses_every_right`.
pub fn run(target: &str, edgeward: &'static str, tests: &'static [Test], uses_every_right: bool) -> ExitCode {
    let mut args = Arguments::from_args();
    // Each waits for its turn by itself.
    args.test_threads.get_or_insert(tests.len());

    let is_wanted = |(name, ..): &&Test| !args.is_filtered_out(&Trial::test(*name, || Ok(())));
    let wanted: Vec<_> = tests
        .iter()
        .filter(is_wanted)
        .map(|&(name, needs, _)| (name, needs))
        .collect();
    let run = if args.list || wanted.is_empty() {
        Ok(None)
    } else {
        start(target, Path::new(edgeward), wanted)
    };
    let run = match run {
        Ok(run) => run.map(Arc::new),
        Err(error) => {
            eprintln!("{target}: {error:#}");
            return ExitCode::FAILURE;
        }
    };

    let listed = tests.iter().map(|test| listed(test, run.clone())).collect();
    let conclusion = libtest_mimic::run(&args, listed);

    // The tests are gone, so this is the last owner: everything ends here.
    let Some(mut run) = run.and_then(Arc::into_inner) else {
        return conclusion.exit_code();
    };
    for told in run.too_busy.get_mut().unwrap_or_else(PoisonError::into_inner) {
        println!("too busy to tell: {told}");
    }
    let everything = uses_every_right && conclusion.num_passed == tests.len() as u64;
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
fn start(target: &str, edgeward: &'static Path, wanted: Vec<(&'static str, Needs)>) -> Result<Option<Run>> {
    let Some(binaries) = control_plane::binaries()? else {
        anyhow::ensure!(
            !is_ci(),
            "there is no Go to build the control plane with, and CI runs every test"
        );
        println!(
            "{target}: skipped, there is no Go to build the control plane with and EDGEWARD_CONTROL_PLANE is not set"
        );
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
        edgeward,
        too_busy: Mutex::default(),
    }))
}

fn listed(&(name, needs, script): &Test, run: Option<Arc<Run>>) -> Trial {
    Trial::ignorable_test(name, move || {
        let Some(run) = run else {
            return Ok(Completion::ignored_with("no control plane"));
        };
        let turn = run.side_by_side.turn(name, needs);
        let plane = turn.cluster.map_or(&run.shared, |own| &run.own[own]);
        let error = match timed(name, || run.tried(plane, name, needs, script)) {
            Ok(()) => return Ok(Completion::Completed),
            Err(error) => error,
        };
        if let Some(TooBusy(figures)) = error.downcast_ref() {
            let mut too_busy = run.too_busy.lock().unwrap_or_else(PoisonError::into_inner);
            too_busy.push(format!("{name}: {figures}"));
            return Ok(Completion::ignored_with("too busy to tell"));
        }
        if error.is::<NoHelm>() && !is_ci() {
            return Ok(Completion::ignored_with("no Helm"));
        }
        Err(Failed::from(format!("{error:#}")))
    })
}

impl Run {
    /// Runs a test, and leaves nothing of its pods.
    fn tried(&self, plane: &ControlPlane, name: &str, needs: Needs, script: Script) -> Result<()> {
        let domain = match needs {
            Needs::Domain => Domain::Own,
            Needs::Nodes | Needs::Cluster | Needs::Machine => Domain::Shared,
        };
        let fixture = Fixture::open(plane, &self.runtime, self.edgeward, name, domain)?;
        let ended = script(&fixture).and_then(|()| fixture.kept_to_its_domain());
        let ended = ended.map_err(|error| fixture.with_logs(error));
        let cleared = fixture.clear();
        ended.and(cleared)
    }

    fn planes(&self) -> impl Iterator<Item = &ControlPlane> {
        iter::once(&self.shared).chain(&self.own)
    }

    fn planes_mut(&mut self) -> impl Iterator<Item = &mut ControlPlane> {
        iter::once(&mut self.shared).chain(&mut self.own)
    }

    /// Fails unless edgeward has done what the manifests allow and nothing else and, if everything was run, needs all of it.
    fn rights_are_proven(&self, everything: bool) -> Result<()> {
        let (mut calls, mut homes) = (Vec::new(), BTreeSet::new());
        for plane in self.planes() {
            calls.extend(plane.calls_of_edgeward()?);
            homes.extend(plane.rights.homes());
        }
        self.shared.rights.prove(&calls, &homes, everything)
    }
}
