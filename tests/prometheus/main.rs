//! Runs `prometheus` against a real Prometheus server that scrapes a small exporter: its values, and its answers
//! to wrong queries. promtool also checks the alerts and the dashboard.
//!
//! `EDGEWARD_PROMETHEUS=<program>` uses a ready-made server.

mod alerts;
mod fixture;
mod queries;

use std::process::ExitCode;

use edgeward_harness::checkout::{is_ci, xtask};
use edgeward_harness::prelude::*;
use edgeward_harness::timing::timed;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tokio::runtime::Runtime;

use crate::fixture::Fixture;

type Script = fn(&Fixture) -> Result<()>;
type Question = fn(&Path) -> Result<()>;

const SCRIPTS: &[(&str, Script)] = &[
    (
        "query_results_are_converted_to_units",
        queries::query_results_are_converted_to_units,
    ),
    (
        "documented_queries_give_expected_values",
        queries::documented_queries_give_expected_values,
    ),
    (
        "wrong_queries_are_refused_with_cause",
        queries::wrong_queries_are_refused_with_cause,
    ),
];

/// Checks by promtool, which is in the same directory as Prometheus.
const QUESTIONS: &[(&str, Question)] = &[
    ("alert_rules_pass_promtool_lint", alerts::alert_rules_pass_promtool_lint),
    (
        "each_alert_fires_only_in_its_case",
        alerts::each_alert_fires_only_in_its_case,
    ),
    (
        "dashboard_queries_are_valid_promql",
        alerts::dashboard_queries_are_valid_promql,
    ),
];

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
        test(&run, name, move |run| {
            let fixture = Fixture::open(&run.program, run.runtime.handle().clone())?;
            script(&fixture).with_context(|| fixture.server.tail())
        })
    });
    let questions = QUESTIONS
        .iter()
        .map(|&(name, question)| test(&run, name, move |run| question(&run.program)));
    libtest_mimic::run(&args, scripts.chain(questions).collect()).exit_code()
}

fn test(run: &Option<Arc<Run>>, name: &'static str, body: impl FnOnce(&Run) -> Result<()> + Send + 'static) -> Trial {
    let run = run.clone();
    Trial::ignorable_test(name, move || match run {
        None => Ok(Completion::ignored_with("no Prometheus")),
        Some(run) => match timed(name, || body(&run)) {
            Ok(()) => Ok(Completion::Completed),
            Err(error) => Err(Failed::from(format!("{error:#}"))),
        },
    })
}

/// Returns `None` if Prometheus is unavailable and not required.
fn start() -> Result<Option<Run>> {
    let Some(program) = xtask("prometheus")? else {
        ensure!(!is_ci(), "there is no Prometheus to be had, and CI runs every test");
        println!("prometheus: skipped, there is none to be had and EDGEWARD_PROMETHEUS is not set");
        return Ok(None);
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    Ok(Some(Run { runtime, program }))
}
