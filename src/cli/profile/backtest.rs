//! `edgeward profile backtest`: whether a forecast in a profile was better than no forecast.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use edgeward_decision::config::Prometheus;
use edgeward_kube::units::Micros;
use edgeward_profiles::Profile;
use edgeward_profiles::backtest::{Comparison, Course, backtest};
use edgeward_profiles::profile::{By, Source};
use jiff::Timestamp;
use prometheus_http_query::response::RangeVector;
use serde::Serialize;

use crate::cli::installed::Installed;
use crate::cli::{Cluster, Output, note, read_config, read_text, table};
use crate::platform::yaml;
use crate::prometheus::Connection;
use crate::prometheus::answer::{Range, ask_range};
use crate::serve::tokio_runtime;

/// How long to wait for an answer.
const TIMEOUT: Micros = Micros::from_secs(60);

/// Shortest time between two forecasts, in seconds.
const MIN_STEP: i64 = 60;

/// Maximum number of forecasts per site. Prometheus returns at most 11,000 points per series.
const MAX_TIMES: i64 = 10_000;

/// Compare a forecast in a profile with the values that came, and with no forecast.
///
/// A forecast is a promQL metric that is about a later time, as `predict_linear(…, 900)`. The query is evaluated every minute
/// of the last day, and compared with the actual value a horizon later. Persistence takes the actual value at the time of the
/// forecast for the later one. Skill is 1 - error / error of persistence: 1 is perfect, 0 is no better than no forecast.
///
/// Only times at which all three values exist count. The server is that of the configuration; with --config, no cluster is
/// needed.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the forecast is better than persistence; 1 nothing to compare, or no answer; 2 it is not \
                        better, or wrong usage."
)]
pub(super) struct Backtest {
    /// A PerformanceProfile, YAML or JSON; `-` is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Query for the actual values, with the same label per site.
    #[arg(long, value_name = "PROMQL")]
    actual: String,

    /// Name of the metric to test. Required if several metrics have promQL.
    #[arg(long, value_name = "NAME")]
    metric: Option<String>,

    /// How far the forecast looks ahead; 900 in `predict_linear(…, 900)` is 15m.
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = seconds)]
    horizon: i64,

    /// How far to look back.
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = seconds)]
    last: i64,

    #[command(flatten)]
    installed: Installed,

    #[command(flatten)]
    cluster: Cluster,

    /// Output format; `json` and `yaml` are for programs (docs/reference/output.md).
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Parses a duration of at least a second. A fraction of a second is dropped.
fn seconds(text: &str) -> Result<i64, String> {
    let seconds = Micros::parse(text).map(|duration| duration.signed() / 1_000_000);
    let fault = "not a duration from 1s to 365 days, such as 15m or 24h";
    seconds
        .filter(|seconds| (1..=365 * 86_400).contains(seconds))
        .ok_or_else(|| fault.to_owned())
}

/// Result of a backtest, in a stable form.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    metric: String,
    horizon_seconds: i64,
    step_seconds: i64,
    sites: Vec<Row>,
    overall: Row,
}

/// Errors at one place, or at all.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    #[serde(skip_serializing_if = "Option::is_none")]
    site: Option<String>,
    pairs: usize,
    missing: usize,
    unusable: usize,
    error: Option<f64>,
    persistence_error: Option<f64>,
    skill: Option<f64>,
}

impl Backtest {
    /// Prints the comparison.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let (name, query, by) = self.forecast()?;
        let settings = self.settings()?;
        let now = Timestamp::now().as_second();
        let range = range(now, self.last, self.horizon)?;
        let connection = Connection::new(&settings);
        let (forecast, actual) = tokio_runtime()?.block_on(async {
            let ask = async |what: &str, promql: &str| {
                let answer = ask_range(&connection, promql, range, TIMEOUT).await;
                let series = answer.map_err(|failure| {
                    let outcome = failure.outcome.as_str();
                    anyhow::anyhow!("Prometheus, query of the {what}: {outcome}: {}", failure.detail)
                })?;
                Ok::<_, anyhow::Error>(courses(what, series, by))
            };
            tokio::try_join!(ask("forecast", &query), ask("actual values", &self.actual))
        })?;
        let times: Vec<_> = (range.first..=range.last - self.horizon)
            .step_by(range.step as usize)
            .collect();
        let compared = backtest(&forecast, &actual, &times, self.horizon);
        let overall: Comparison = compared.values().copied().sum();
        let report = Report {
            metric: name,
            horizon_seconds: self.horizon,
            step_seconds: range.step,
            sites: compared
                .into_iter()
                .map(|(site, found)| row(Some(site), &found))
                .collect(),
            overall: row(None, &overall),
        };
        self.output.print(&report, Report::text)?;
        if overall.pairs == 0 {
            bail!(
                "nothing to compare: {} forecasts have no value or no actual value {} s later, and {} are not finite",
                overall.missing,
                self.horizon,
                overall.unusable
            );
        }
        let is_better = overall.skill().is_some_and(|skill| skill > 0.0);
        Ok(if is_better { ExitCode::SUCCESS } else { 2.into() })
    }

    /// Returns the name, the query and the label of the forecast.
    fn forecast(&self) -> anyhow::Result<(String, String, By)> {
        let source = self.file.display().to_string();
        let object = yaml::parse_one(&read_text(&self.file)?, &source)?;
        let profile = Profile::read(&object["spec"]).map_err(|faults| yaml::faulty(&source, &faults))?;
        let queries = profile.metrics.into_iter().filter_map(|metric| match metric.source {
            Source::PromQl(query, by) => Some((metric.name, query, by)),
            _ => None,
        });
        let is_chosen = |name: &str| self.metric.as_deref().is_none_or(|chosen| chosen == name);
        let mut chosen: Vec<_> = queries.filter(|(name, ..)| is_chosen(name)).collect();
        let names: Vec<_> = chosen.iter().map(|(name, ..)| &**name).collect();
        ensure!(
            names.len() <= 1,
            "{source}: choose a metric with --metric: {}",
            names.join(", ")
        );
        chosen.pop().with_context(|| match &self.metric {
            Some(name) => format!("{source}: {name:?} is no metric with promQL"),
            None => format!("{source}: no metric has promQL"),
        })
    }

    fn settings(&self) -> anyhow::Result<Prometheus> {
        let config = match self.installed.file() {
            Some(path) => read_config(Some(path))?,
            None => {
                let found = self
                    .cluster
                    .ask(async |connection| self.installed.read(connection).await)?;
                if let Some(assumption) = found.assumption() {
                    note(&assumption);
                }
                found.config
            }
        };
        config
            .prometheus
            .context("the configuration names no server (prometheus.url)")
    }
}

/// Returns the times of both queries. The step divides the horizon, so that each forecast meets an actual value.
fn range(now: i64, last: i64, horizon: i64) -> anyhow::Result<Range> {
    ensure!(horizon < last, "--last must be longer than --horizon");
    let shortest = MIN_STEP.max(last / MAX_TIMES + 1);
    let most = (horizon / shortest).max(1);
    let parts = (1..=most).rev().find(|parts| horizon % parts == 0).unwrap_or(1);
    let step = horizon / parts;
    ensure!(
        last / step <= MAX_TIMES,
        "--last is more than {MAX_TIMES} times --horizon"
    );
    Ok(Range {
        first: now - last / step * step,
        last: now,
        step,
    })
}

/// Groups the series by place. A time with several values has no usable value.
fn courses(what: &str, series: Vec<RangeVector>, by: By) -> BTreeMap<String, Course> {
    let mut courses = BTreeMap::<String, Course>::new();
    let mut unlabelled = 0;
    for series in series {
        let (mut labels, samples) = series.into_inner();
        let Some(place) = labels.remove(by.as_str()) else {
            unlabelled += 1;
            continue;
        };
        let course = courses.entry(place).or_default();
        for sample in samples {
            let at = sample.timestamp().round() as i64;
            let value = if course.contains_key(&at) {
                f64::NAN
            } else {
                sample.value()
            };
            course.insert(at, value);
        }
    }
    if unlabelled > 0 {
        note(&format!(
            "{what}: {unlabelled} series without the label {} are left out",
            by.as_str()
        ));
    }
    courses
}

fn row(site: Option<String>, found: &Comparison) -> Row {
    Row {
        site,
        pairs: found.pairs,
        missing: found.missing,
        unusable: found.unusable,
        error: found.error(),
        persistence_error: found.persistence_error(),
        skill: found.skill(),
    }
}

impl Report {
    fn text(&self) -> String {
        let number = |number: Option<f64>| number.map_or("-".to_owned(), |number| format!("{number:.3}"));
        let cells = |row: &Row| {
            let site = row.site.clone().unwrap_or_else(|| "(overall)".to_owned());
            let counts = [row.pairs, row.missing, row.unusable].map(|count| count.to_string());
            let [pairs, missing, unusable] = counts;
            let [error, persistence] = [row.error, row.persistence_error].map(number);
            [site, pairs, missing, unusable, error, persistence, number(row.skill)]
        };
        let rows = self.sites.iter().chain([&self.overall]).map(cells);
        let mut text = table("SITE,PAIRS,MISSING,UNUSABLE,ERROR,PERSISTENCE,SKILL", rows);
        if self.overall.pairs > 0 && self.overall.skill.is_none() {
            text += "The skill is undefined: persistence makes no error.\n";
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_divides_the_horizon_and_bounds_the_points() {
        for (last, horizon, step) in [
            (86_400, 900, 60),
            (86_400, 300, 60),
            (86_400, 90, 90),
            (86_400, 1_020, 60),
            (86_400, 1_021, 1_021),
            (30 * 86_400, 3_600, 300),
            (120, 30, 30),
        ] {
            let range = range(1_000_000_007, last, horizon).unwrap();
            assert_eq!(range.step, step, "{last} {horizon}");
            assert_eq!((range.last - range.first) % step + horizon % step, 0);
            assert!((range.last - range.first) / step <= 10_000 && range.first >= range.last - last);
        }
        assert!(range(0, 900, 900).is_err());
        assert!(range(0, 365 * 86_400, 60).is_err());
    }
}
