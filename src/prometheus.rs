//! Queries a Prometheus server off the request path and publishes the results.
//!
//! Every failure has an [`Outcome`], which is counted. Each change of the outcome is logged once. A value that could
//! not be renewed counts until it is stale.

pub(crate) mod answer;
mod reading;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use edgeward_cluster::engine::Change;
use edgeward_cluster::telemetry::Telemetry;
use edgeward_decision::config::{Config, Input, MeasuredTrait, Prometheus};
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
    let mut telemetry = Telemetry::new(prometheus.required_inputs(), &prometheus.traits);
    changes.send(Change::Telemetry(Box::new(telemetry.clone()))).await;
    let ask = async |query, promql, before: Outcome, pause: Micros| {
        tokio::time::sleep(Duration::from_micros(pause.0)).await;
        let answer = answer::ask(&connection, promql, prometheus.timeout, clock).await;
        (query, promql, before, answer)
    };
    let mut asked: FuturesUnordered<_> = Query::all(prometheus)
        .map(|query| ask(query, query.promql(), Outcome::Ok, Micros(0)))
        .collect();
    while let Some((query, promql, before, answer)) = asked.next().await {
        let result =
            answer.and_then(|series| record(&mut telemetry, query, &series, config, prometheus.staleness, clock));
        let outcome = report(metrics, query.names(), before, result.err().as_ref());
        changes.send(Change::Telemetry(Box::new(telemetry.clone()))).await;
        asked.push(ask(query, promql, outcome, jittered(prometheus.period, random())));
    }
    // There are no queries.
    std::future::pending().await
}

/// Queries the server of this configuration once, if it names one. Returns the values, and why others are missing. The view of
/// the cluster does not count as stale without them. Takes at most `prometheus.timeout`.
pub async fn ask_once(config: &Config, clock: Clock) -> (Telemetry, Vec<anyhow::Error>) {
    let Some(prometheus) = &config.prometheus else {
        return Default::default();
    };
    let connection = &Connection::new(prometheus);
    let mut telemetry = Telemetry::new(vec![], &prometheus.traits);
    let asking = Query::all(prometheus).map(async |query| {
        let answer = answer::ask(connection, query.promql(), prometheus.timeout, clock).await;
        (query, answer)
    });
    let mut failures = BTreeMap::new();
    for (query, answer) in futures::future::join_all(asking).await {
        let recorded =
            answer.and_then(|series| record(&mut telemetry, query, &series, config, prometheus.staleness, clock));
        if let Err(failure) = recorded {
            let [_, name] = query.names();
            // A server that cannot be reached answers no query, and is named once.
            failures.entry(failure.detail).or_insert((failure.outcome, name));
        }
    }
    let error = |(detail, (outcome, name)): (String, (Outcome, &str))| {
        anyhow::anyhow!("Prometheus, query {name}: {}: {detail}", outcome.as_str())
    };
    (telemetry, failures.into_iter().map(error).collect())
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

/// What the server is asked.
#[derive(Clone, Copy)]
enum Query<'q> {
    Input(Input, &'q str),
    Trait(&'q MeasuredTrait),
}

impl<'q> Query<'q> {
    /// Everything that the server is asked.
    fn all(prometheus: &'q Prometheus) -> impl Iterator<Item = Self> {
        let inputs = prometheus.queries.iter();
        let inputs = inputs.map(|(input, promql)| Self::Input(*input, promql));
        inputs.chain(prometheus.traits.iter().map(Self::Trait))
    }

    fn promql(self) -> &'q str {
        match self {
            Self::Input(_, promql) => promql,
            Self::Trait(measured) => &measured.query,
        }
    }

    /// Its names in metrics and in logs.
    fn names(self) -> [&'q str; 2] {
        match self {
            Self::Input(input, _) => [input.as_str(); 2],
            Self::Trait(measured) => ["traits", &measured.name],
        }
    }
}

/// Records every usable value of an answer. Fails with the first unusable one.
fn record(
    telemetry: &mut Telemetry,
    query: Query<'_>,
    series: &[Series],
    config: &Config,
    staleness: Micros,
    clock: Clock,
) -> Result<(), Failure> {
    let now = clock.moment();
    match query {
        Query::Input(input, _) if input.is_of_links() => {
            let (values, oldest, faults) = reading::read_links(input, staleness, series, &config.sites, now);
            telemetry.record_links(input, &values, oldest, staleness);
            faults
        }
        Query::Input(input, _) => {
            let (readings, faults) = reading::read(input, staleness, series, &config.sites, now);
            for (measurement, as_of) in readings {
                telemetry.record(measurement, as_of, as_of.after(staleness), config);
            }
            faults
        }
        Query::Trait(measured) => {
            let (values, faults) = reading::read_trait(measured.bound(), staleness, series, &config.sites, now);
            telemetry.record_trait(&measured.name, &values, staleness);
            faults
        }
    }
}

/// A duration between nine and eleven tenths of the period, so that replicas do not query at the same time.
fn jittered(period: Micros, random: u64) -> Micros {
    let tenth = period.0 / 10;
    Micros(period.0 - tenth + random % (2 * tenth).max(1))
}

#[cfg(test)]
mod tests;
