//! Queries a Prometheus server off the request path and publishes the results.
//!
//! Every failure has an [`Outcome`], which is counted. Each change of the outcome is logged once. A value that could
//! not be renewed counts until it is stale.

pub(crate) mod answer;
mod client;
mod outcome;
mod reading;

use std::sync::Arc;
use std::time::Duration;

use edgeward_cluster::engine::Change;
use edgeward_cluster::telemetry::Telemetry;
use edgeward_decision::config::{Config, Input, Prometheus};
use edgeward_kube::units::Micros;
use tokio::sync::watch;

use crate::config::Versions;
use crate::instruments::metrics::Metrics;
use crate::observer::Changes;
use crate::platform::clock::Clock;
use crate::platform::random;
pub(crate) use client::Connection;

pub use outcome::{Failure, Outcome};

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

/// Queries the server of this configuration. Never returns.
async fn ask_by(config: &Arc<Config>, clock: Clock, metrics: &Arc<Metrics>, changes: &Changes) {
    let Some(prometheus) = &config.prometheus else {
        changes.send(Change::Telemetry(Box::default())).await;
        return std::future::pending().await;
    };
    let poller = Poller::new(prometheus, Arc::clone(config), clock, Arc::clone(metrics));
    let mut telemetry = poller.telemetry();
    let sent = async {
        loop {
            let now = telemetry.borrow_and_update().clone();
            changes.send(Change::Telemetry(Box::new(now))).await;
            if telemetry.changed().await.is_err() {
                return;
            }
        }
    };
    tokio::join!(sent, poller.follow());
}

/// Runs the queries of the section `prometheus` and publishes the answers.
pub struct Poller {
    connection: Connection,
    prometheus: Prometheus,
    config: Arc<Config>,
    clock: Clock,
    metrics: Arc<Metrics>,
    telemetry: watch::Sender<Telemetry>,
}

impl Poller {
    /// Sends no query yet. `config` supplies the sites and the thresholds.
    pub fn new(prometheus: &Prometheus, config: Arc<Config>, clock: Clock, metrics: Arc<Metrics>) -> Self {
        Self {
            connection: Connection::new(prometheus),
            prometheus: prometheus.clone(),
            config,
            clock,
            metrics,
            telemetry: watch::Sender::new(Telemetry::new(prometheus.required_inputs())),
        }
    }

    /// The latest values. The channel is marked as changed after every answer and every failure, so that a subscriber
    /// notices stale values.
    pub fn telemetry(&self) -> watch::Receiver<Telemetry> {
        self.telemetry.subscribe()
    }

    /// Runs the queries. Never returns.
    pub async fn follow(self) {
        let queries = self.prometheus.queries.iter();
        let asking = queries.map(|(input, promql)| self.ask_on(*input, promql));
        futures::future::join_all(asking).await;
        // There may be no queries.
        std::future::pending::<()>().await;
    }

    async fn ask_on(&self, input: Input, promql: &str) {
        let mut before = Outcome::Ok;
        loop {
            let asked = self.ask(input, promql).await;
            let outcome = asked.as_ref().err().map_or(Outcome::Ok, |failure| failure.outcome);
            let name = input.as_str();
            self.metrics.prometheus_queries.at([name, outcome.as_str()]).inc();
            match asked {
                _ if outcome == before => {}
                Ok(()) => tracing::info!(query = name, "Prometheus gives usable answers again"),
                Err(failure) => tracing::warn!(
                    query = name,
                    result = outcome.as_str(),
                    detail = failure.detail,
                    "an answer of Prometheus is not used; the last value stays until it is stale"
                ),
            }
            before = outcome;
            let period = jittered(self.prometheus.period, random());
            tokio::time::sleep(Duration::from_micros(period.0)).await;
        }
    }

    /// Sends the query once and records every usable value. Fails with the first unusable one.
    async fn ask(&self, input: Input, promql: &str) -> Result<(), Failure> {
        // The values were valid at some time between question and answer. The earlier time is the safe choice.
        let asked_at = self.clock.moment();
        let answer = answer::ask(&self.connection, promql, self.prometheus.timeout).await;
        let received = self.clock.now();
        let staleness = self.prometheus.staleness;
        let (readings, faults) = match answer {
            Ok(series) => reading::read(input, staleness, &series, &self.config.sites, received.wall),
            Err(failure) => (vec![], Err(failure)),
        };
        self.telemetry.send_modify(|telemetry| {
            for (measurement, age) in readings {
                let as_of = received.moment.before(age).min(asked_at);
                telemetry.record(measurement, as_of, as_of.after(staleness), &self.config);
            }
        });
        faults
    }
}

/// A duration between nine and eleven tenths of the period, so that replicas do not query at the same time.
fn jittered(period: Micros, random: u64) -> Micros {
    let tenth = period.0 / 10;
    Micros(period.0 - tenth + random % (2 * tenth).max(1))
}

#[cfg(test)]
mod tests;
