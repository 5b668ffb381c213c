//! A run of tests on real control planes. Each test has its own namespace, webhook registration and edgeward processes.
//!
//! Most tests run in parallel in one cluster. Tests that need a cluster for themselves take turns in three others. Tests that
//! need a cluster peered with others share one more.

use std::cmp::Reverse;
use std::iter;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tokio::runtime::Runtime;

use crate::checkout::is_ci;
use crate::control_plane::{self, ControlPlane, Shape};
use crate::fixture::Domain;
use crate::helm::NoHelm;
use crate::peering::{Layout, Peering};
use crate::prelude::*;
use crate::scripts::{TooBusy, timed};
use crate::side_by_side::{CLUSTERS, Needs, SideBySide};

/// A test, as [`e2e!`](crate::e2e) registers it.
#[derive(Clone, Copy)]
pub struct Test {
    /// The test's full name. Its last part names the test's namespace.
    pub name: &'static str,
    pub needs: Needs,
    /// Tests with a higher weight start first. Use it for long tests.
    pub weight: u32,
    pub script: Script,
}

inventory::collect!(Test);

/// Registers a test of this program, next to its function: the name, what it needs, its weight if it is long, and the function.
#[macro_export]
macro_rules! e2e {
    ($name:literal, $needs:ident, $script:ident) => {
        $crate::e2e!($name, $needs, 0, $script);
    };
    ($name:literal, $needs:ident, $weight:literal, $script:ident) => {
        $crate::inventory::submit! {
            $crate::clusters::Test {
                name: $name,
                needs: $crate::side_by_side::Needs::$needs,
                weight: $weight,
                script: $script,
            }
        }
    };
}

pub type Script = fn(&Fixture<'_>) -> Result<()>;

pub struct Suite {
    pub target: &'static str,
    pub edgeward: &'static str,
    pub uses_every_right: bool,
    pub peering: Layout,
    /// Whether the tests measure. The control planes then have no audit log, and no rate limit on calls by controllers and
    /// scheduler.
    pub measures: bool,
}

struct Run {
    // The first field, so that the tests' servers are dropped before the control planes.
    runtime: Runtime,
    shared: ControlPlane,
    own: Vec<ControlPlane>,
    peering: Mutex<Option<Peering>>,
    layout: &'static Layout,
    binaries: PathBuf,
    side_by_side: SideBySide,
    edgeward: &'static Path,
    too_busy: Mutex<Vec<String>>,
}

/// Runs the registered tests that the arguments select. After all tests have passed, checks that together they used every right
/// of the manifests.
pub fn run(suite: &'static Suite) -> ExitCode {
    let target = suite.target;
    let mut tests: Vec<Test> = inventory::iter::<Test>().copied().collect();
    tests.sort_by_key(|test| (Reverse(test.weight), test.name));
    let mut args = Arguments::from_args();
    // Each test waits for its turn by itself.
    args.test_threads.get_or_insert(tests.len());

    let is_wanted = |test: &&Test| !args.is_filtered_out(&Trial::test(test.name, || Ok(())));
    let wanted: Vec<_> = tests
        .iter()
        .filter(is_wanted)
        .map(|test| (test.name, test.needs))
        .collect();
    let run = if args.list || wanted.is_empty() {
        Ok(None)
    } else {
        start(suite, wanted)
    };
    let run = match run {
        Ok(run) => run.map(Arc::new),
        Err(error) => {
            eprintln!("{target}: {error:#}");
            return ExitCode::FAILURE;
        }
    };

    let listed = tests.iter().map(|test| listed(*test, run.clone())).collect();
    let conclusion = libtest_mimic::run(&args, listed);

    // All tests are dropped, so this is the last owner, and everything ends here.
    let Some(mut run) = run.and_then(Arc::into_inner) else {
        return conclusion.exit_code();
    };
    for told in run.too_busy.get_mut().unwrap_or_else(PoisonError::into_inner) {
        println!("too busy to tell: {told}");
    }
    let everything = suite.uses_every_right && conclusion.num_passed == tests.len() as u64;
    let proven = run.rights_are_proven(everything);
    if let Err(error) = &proven {
        eprintln!("rights: {error:#}");
    }
    if conclusion.has_failed() || proven.is_err() {
        run.keep();
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

/// Runs a script in another cluster, which is set up for measuring and ends with the script. With `runs_pods` kwok runs its
/// pods; otherwise they stay Pending on their nodes.
pub fn in_another<T>(
    fixture: &Fixture<'_>,
    name: &str,
    runs_pods: bool,
    script: impl FnOnce(&Fixture<'_>) -> Result<T>,
) -> Result<T> {
    let shape = Shape {
        is_measured: true,
        runs_pods,
        ..Shape::default()
    };
    in_cluster_of(fixture, name, &shape, script)
}

/// Runs a script in another cluster, where Kubernetes' own gangs are served and scheduled.
pub fn in_another_with_gangs<T>(
    fixture: &Fixture<'_>,
    name: &str,
    script: impl FnOnce(&Fixture<'_>) -> Result<T>,
) -> Result<T> {
    let shape = Shape {
        has_gangs: true,
        ..Shape::default()
    };
    in_cluster_of(fixture, name, &shape, script)
}

/// Runs a script in a peered cluster of its own, in the network namespace of the caller. edgeward must stay within its rights.
pub fn peered(
    program: &Path,
    layout: &Layout,
    name: &str,
    script: impl FnOnce(&Fixture<'_>) -> Result<()>,
) -> Result<()> {
    let binaries = control_plane::binaries()?.context("there is no control plane to be had")?;
    let runtime = runtime()?;
    let peering = Peering::start(&runtime, &binaries, layout)?;
    let fixture = Fixture::open_peered(&peering, &runtime, program, name)?;
    script(&fixture).map_err(|error| fixture.with_logs(error))?;
    let plane = peering.consumer();
    let calls = plane.calls_of_edgeward()?;
    plane.rights.prove(&calls, &plane.rights.homes(), false)
}

fn runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
}

fn in_cluster_of<T>(
    fixture: &Fixture<'_>,
    name: &str,
    shape: &Shape,
    script: impl FnOnce(&Fixture<'_>) -> Result<T>,
) -> Result<T> {
    let binaries = control_plane::binaries()?.context("there is no control plane to be had")?;
    let plane = ControlPlane::start(fixture.runtime, &binaries, shape)?;
    let fixture = Fixture::open(&plane, fixture.runtime, fixture.program, name, Domain::Shared)?;
    script(&fixture).map_err(|error| fixture.with_logs(error))
}

/// Returns `None` if a control plane is unavailable and not required.
fn start(suite: &'static Suite, wanted: Vec<(&'static str, Needs)>) -> Result<Option<Run>> {
    let Some(binaries) = control_plane::binaries()? else {
        anyhow::ensure!(
            !is_ci(),
            "there is no Go to build the control plane with, and CI runs every test"
        );
        println!(
            "{}: skipped, there is no Go to build the control plane with and EDGEWARD_CONTROL_PLANE is not set",
            suite.target
        );
        return Ok(None);
    };
    let provider = rustls::crypto::ring::default_provider();
    provider
        .install_default()
        .ok()
        .context("another TLS provider is installed")?;
    let runtime = runtime()?;
    let shape = Shape {
        is_measured: suite.measures,
        ..Shape::default()
    };
    let plane = || ControlPlane::start(&runtime, &binaries, &shape);
    let shared = plane()?;
    let own = wanted.iter().filter(|(_, needs)| *needs == Needs::Cluster).count();
    let own = (0..own.min(CLUSTERS)).map(|_| plane()).collect::<Result<Vec<_>>>()?;
    Ok(Some(Run {
        runtime,
        shared,
        own,
        peering: Mutex::default(),
        layout: &suite.peering,
        binaries,
        side_by_side: SideBySide::of(wanted),
        edgeward: Path::new(suite.edgeward),
        too_busy: Mutex::default(),
    }))
}

fn listed(test: Test, run: Option<Arc<Run>>) -> Trial {
    let Test {
        name, needs, script, ..
    } = test;
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
    fn tried(&self, plane: &ControlPlane, name: &str, needs: Needs, script: Script) -> Result<()> {
        let domain = match needs {
            Needs::Domain => Domain::Own,
            Needs::Nodes | Needs::Cluster | Needs::Machine => Domain::Shared,
            Needs::Peering => {
                let mut peering = self.peering.lock().unwrap_or_else(PoisonError::into_inner);
                let peering = match &mut *peering {
                    Some(peering) => peering,
                    none => none.insert(Peering::start(&self.runtime, &self.binaries, self.layout)?),
                };
                return play(
                    &Fixture::open_peered(peering, &self.runtime, self.edgeward, name)?,
                    script,
                );
            }
        };
        play(
            &Fixture::open(plane, &self.runtime, self.edgeward, name, domain)?,
            script,
        )
    }

    fn keep(&mut self) {
        iter::once(&mut self.shared)
            .chain(&mut self.own)
            .for_each(ControlPlane::keep);
        let peering = self.peering.get_mut().unwrap_or_else(PoisonError::into_inner);
        peering.iter_mut().for_each(Peering::keep);
    }

    /// Fails unless edgeward stayed within the manifests' rights. If everything was run, also fails unless it needs all of
    /// them.
    fn rights_are_proven(&self, everything: bool) -> Result<()> {
        let (mut calls, mut homes) = (Vec::new(), BTreeSet::new());
        let peering = self.peering.lock().unwrap_or_else(PoisonError::into_inner);
        let peered = peering.as_ref().map(Peering::consumer);
        for plane in iter::once(&self.shared).chain(&self.own).chain(peered) {
            let made = plane.calls_of_edgeward()?.into_iter();
            calls.extend(made.filter(|call| !plane.rights.is_taken_away(call)));
            homes.extend(plane.rights.homes());
        }
        self.shared.rights.prove(&calls, &homes, everything)
    }
}

fn play(fixture: &Fixture<'_>, script: Script) -> Result<()> {
    let ended = script(fixture).and_then(|()| fixture.kept_to_its_domain());
    let ended = ended.map_err(|error| fixture.with_logs(error));
    let cleared = fixture.clear();
    ended.and(cleared)
}
