//! Queries a Prometheus server off the request path and publishes the results.
//!
//! Every failure has an [`Outcome`], which is counted. Each change of the outcome is logged once. A value that could
//! not be renewed counts until it is stale.

pub(crate) mod answer;
mod reading;

use std::sync::Arc;
use std::time::Duration;

use edgeward_cluster::engine::Change;
use edgeward_cluster::telemetry::Telemetry;
use edgeward_decision::config::{Config, Input};
use edgeward_kube::units::Micros;
use edgeward_profiles::Series;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

use crate::config::Versions;
use crate::instruments::metrics::Metrics;
use crate::observer::Changes;
use crate::platform::clock::Clock;
use crate::platform::random;
pub(crate) use answer::Connection;

pub use answer::{Failure, Outcome};

/// Queries the server of the current configuration, if it names one, and sends the results. Never returns.
pub async fn follow(mut versions: Versions, clock: Clock, metrics: Arc<Metrics>, changes: Changes) {
    let mut config = versions.next().await;
    loop {
        tokio::select! {
            next = versions.next() => config = next,
            () = ask_by(&config, clock, &metrics, &changes) => {}
        }
    }
}

/// Queries the server of this configuration, and sends all values after every answer and every failure. Never returns.
pub async fn ask_by(config: &Config, clock: Clock, metrics: &Metrics, changes: &Changes) {
    let Some(prometheus) = &config.prometheus else {
        changes.send(Change::Telemetry(Box::default())).await;
        return std::future::pending().await;
    };
    let connection = Connection::new(prometheus);
    let mut telemetry = Telemetry::new(prometheus.required_inputs());
    changes.send(Change::Telemetry(Box::new(telemetry.clone()))).await;
    let ask = async |input: Input, promql, before: Outcome, pause: Micros| {
        tokio::time::sleep(Duration::from_micros(pause.0)).await;
        let answer = answer::ask(&connection, promql, prometheus.timeout, clock).await;
        (input, promql, before, answer)
    };
    let queries = prometheus.queries.iter();
    let mut asked: FuturesUnordered<_> = queries
        .map(|(input, promql)| ask(*input, promql, Outcome::Ok, Micros(0)))
        .collect();
    while let Some((input, promql, before, answer)) = asked.next().await {
        let result = record(&mut telemetry, input, answer, config, prometheus.staleness, clock);
        let name = input.as_str();
        let outcome = report(metrics, [name, name], before, result.err().as_ref());
        changes.send(Change::Telemetry(Box::new(telemetry.clone()))).await;
        asked.push(ask(input, promql, outcome, jittered(prometheus.period, random())));
    }
    // There are no queries.
    std::future::pending().await
}

/// Counts the outcome of a query under its name in metrics, and logs it under its name in logs if it is not the one
/// `before`. Returns the outcome.
pub(crate) fn report(
    metrics: &Metrics,
    [name, query]: [&str; 2],
    before: Outcome,
    failure: Option<&Failure>,
) -> Outcome {
    let outcome = failure.map_or(Outcome::Ok, |failure| failure.outcome);
    metrics.prometheus_queries.at([name, outcome.as_str()]).inc();
    match failure {
        _ if outcome == before => {}
        None => tracing::info!(query, "Prometheus gives usable answers again"),
        Some(failure) => tracing::warn!(
            query,
            result = outcome.as_str(),
            detail = failure.detail,
            "an answer of Prometheus is not used; the last value stays until it is stale"
        ),
    }
    outcome
}

/// Records every usable value of an answer. Fails with the first unusable one.
fn record(
    telemetry: &mut Telemetry,
    input: Input,
    answer: Result<Vec<Series>, Failure>,
    config: &Config,
    staleness: Micros,
    clock: Clock,
) -> Result<(), Failure> {
    let (readings, faults) = reading::read(input, staleness, &answer?, &config.sites, clock.moment());
    for (measurement, as_of) in readings {
        telemetry.record(measurement, as_of, as_of.after(staleness), config);
    }
    faults
}

/// A duration between nine and eleven tenths of the period, so that replicas do not query at the same time.
fn jittered(period: Micros, random: u64) -> Micros {
    let tenth = period.0 / 10;
    Micros(period.0 - tenth + random % (2 * tenth).max(1))
}

#[cfg(test)]
mod tests;
