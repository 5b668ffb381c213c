//! Runs `prometheus` against a real Prometheus server that scrapes a small exporter: its values, and its answers
//! to wrong queries. promtool also checks the alerts and the dashboard.
//!
//! `EDGEWARD_PROMETHEUS=<program>` uses a ready-made server.

mod alerts;
mod backtest;
mod fixture;
mod queries;

use std::process::ExitCode;

use edgeward_harness::checkout::xtask;
use edgeward_harness::prelude::*;
use edgeward_harness::scripts;
use edgeward_harness::scripts::Script;
use tokio::runtime::Runtime;

use crate::fixture::Fixture;

/// promtool, which answers most of the last four, is in the same directory as Prometheus.
const SCRIPTS: &[(&str, Script<Run>)] = &[
    ("query_results_are_converted_to_units", |run| {
        run.serving(queries::query_results_are_converted_to_units)
    }),
    ("documented_queries_give_expected_values", |run| {
        run.serving(queries::documented_queries_give_expected_values)
    }),
    ("wrong_queries_are_refused_with_cause", |run| {
        run.serving(queries::wrong_queries_are_refused_with_cause)
    }),
    ("alert_rules_pass_promtool_lint", alerts::alert_rules_pass_promtool_lint),
    (
        "each_alert_fires_only_in_its_case",
        alerts::each_alert_fires_only_in_its_case,
    ),
    (
        "dashboard_queries_are_valid_promql",
        alerts::dashboard_queries_are_valid_promql,
    ),
    (
        "backtest_finds_skill_on_ramp_and_none_on_noise",
        backtest::backtest_finds_skill_on_ramp_and_none_on_noise,
    ),
];

pub(crate) struct Run {
    runtime: Runtime,
    pub(crate) program: PathBuf,
}

impl Run {
    fn serving(&self, script: fn(&Fixture) -> Result<()>) -> Result<()> {
        let fixture = Fixture::open(&self.program, self.runtime.handle().clone())?;
        script(&fixture).with_context(|| fixture.server.tail())
    }
}

fn main() -> ExitCode {
    let missing = "there is no Prometheus to be had";
    scripts::run("prometheus", missing, SCRIPTS, || {
        let Some(program) = xtask("prometheus")? else {
            return Ok(None);
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        Ok(Some(Run { runtime, program }))
    })
}
