//! What `sources::prometheus` makes of a real Prometheus server, which scrapes a small exporter: values, and everything
//! that can go wrong on either side. And what promtool says of our alerts and our dashboard.
//!
//! `EDGEWARD_PROMETHEUS=<program>` uses a ready-made one.

mod alerts;
mod exporter;
#[path = "../e2e/patience.rs"]
mod patience;
#[path = "../e2e/process.rs"]
#[allow(dead_code, reason = "the end-to-end tests need more of it")]
mod process;
mod proxy;
mod scene;
#[path = "../e2e/timing.rs"]
mod timing;
mod trials;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tokio::runtime::Runtime;

use crate::scene::Scene;
use crate::timing::timed;

type Script = fn(&mut Scene) -> Result<()>;
type Question = fn(&Path) -> Result<()>;

/// Every trial, with a server of its own.
const SCRIPTS: &[(&str, Script)] = &[
    ("values_arrive_in_their_units", trials::values_arrive_in_their_units),
    ("a_wrong_exporter", trials::a_wrong_exporter),
    ("the_documented_questions", trials::the_documented_questions),
    ("wrong_questions", trials::wrong_questions),
    ("stopped_and_started_again", trials::stopped_and_started_again),
    ("slow_broken_and_right_again", trials::slow_broken_and_right_again),
];

/// What promtool is asked, which is beside Prometheus.
const QUESTIONS: &[(&str, Question)] = &[
    ("the_rules_are_rules", alerts::the_rules_are_rules),
    (
        "each_alert_fires_in_its_case_alone",
        alerts::each_alert_fires_in_its_case_alone,
    ),
    ("the_dashboard_asks_in_promql", alerts::the_dashboard_asks_in_promql),
];

/// What the trials share.
struct Run {
    runtime: Runtime,
    program: PathBuf,
}

fn main() -> ExitCode {
    let mut args = Arguments::from_args();
    args.test_threads.get_or_insert(2);
    let run = if args.list { Ok(None) } else { start() };
    let run = match run {
        Ok(run) => run.map(Arc::new),
        Err(error) => {
            eprintln!("prometheus: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    let scripts = SCRIPTS.iter().map(|&(name, script)| {
        trial(&run, name, move |run| {
            let mut scene = Scene::open(&run.program, run.runtime.handle().clone())?;
            script(&mut scene).with_context(|| scene.tail())
        })
    });
    let questions = QUESTIONS
        .iter()
        .map(|&(name, question)| trial(&run, name, move |run| question(&run.program)));
    libtest_mimic::run(&args, scripts.chain(questions).collect()).exit_code()
}

fn trial(run: &Option<Arc<Run>>, name: &'static str, body: impl FnOnce(&Run) -> Result<()> + Send + 'static) -> Trial {
    let run = run.clone();
    Trial::ignorable_test(name, move || match run {
        None => Ok(Completion::ignored_with("no Prometheus")),
        Some(run) => match timed(name, || body(&run)) {
            Ok(()) => Ok(Completion::Completed),
            Err(error) => Err(Failed::from(format!("{error:#}"))),
        },
    })
}

/// `None`: there is no Prometheus to be had and nobody insists.
fn start() -> Result<Option<Run>> {
    let Some(program) = program()? else {
        ensure!(
            env::var_os("CI").is_none_or(|ci| ci != "true"),
            "there is no Prometheus to be had, and CI runs every test"
        );
        println!("prometheus: skipped, there is none to be had and EDGEWARD_PROMETHEUS is not set");
        return Ok(None);
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    Ok(Some(Run { runtime, program }))
}

/// `cargo xtask prometheus` knows where it is, brings it once and says on stderr what it does.
fn program() -> Result<Option<PathBuf>> {
    const NO_TOOL: i32 = 3;
    let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["xtask", "prometheus"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start `cargo xtask prometheus`")?;
    match output.status.code() {
        Some(0) => Ok(Some(PathBuf::from(String::from_utf8(output.stdout)?.trim_end()))),
        Some(NO_TOOL) => Ok(None),
        _ => bail!("`cargo xtask prometheus`: {}", output.status),
    }
}
