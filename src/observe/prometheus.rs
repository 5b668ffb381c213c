//! Asks a Prometheus server, off the request path, and publishes what it says.
//!
//! Every question has its own rhythm. Whatever goes wrong has a word ([`Outcome`]), which is counted, and logged once
//! whenever it changes. A value that could not be renewed counts until it is stale.

mod answer;
mod client;
mod outcome;
mod reading;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::clock::Clock;
use crate::config::{Config, Prometheus, Query};
use crate::metrics::Metrics;
use crate::telemetry::Telemetry;
use crate::units::Micros;
use client::Connection;
use outcome::Failure;
use reading::Reading;

pub use outcome::Outcome;

/// Asks the questions of the section `prometheus` and publishes the answers.
pub struct Poller {
    queries: Vec<Query>,
    connection: Connection,
    config: Arc<Config>,
    clock: Clock,
    metrics: Arc<Metrics>,
    telemetry: watch::Sender<Telemetry>,
}

impl Poller {
    /// Reads the files that `prometheus` names, and asks nothing yet. `config` has the sites and the thresholds.
    ///
    /// # Errors
    /// The address is none, or a file cannot be read or holds no token or certificate.
    pub async fn open(
        prometheus: &Prometheus,
        config: Arc<Config>,
        clock: Clock,
        metrics: Arc<Metrics>,
    ) -> anyhow::Result<Self> {
        let (telemetry, _) = watch::channel(Telemetry::new(prometheus.required_inputs()));
        Ok(Self {
            queries: prometheus.queries.clone(),
            connection: Connection::open(prometheus).await?,
            config,
            clock,
            metrics,
            telemetry,
        })
    }

    /// What was answered, always the newest. It is marked as changed after every answer and every failure, so that who
    /// follows it sees a value turn stale.
    #[must_use]
    pub fn telemetry(&self) -> watch::Receiver<Telemetry> {
        self.telemetry.subscribe()
    }

    /// Asks, for ever.
    pub async fn follow(self) {
        let Self {
            queries,
            mut connection,
            config,
            clock,
            metrics,
            telemetry,
        } = self;
        let inquirer = Inquirer {
            client: connection.client(),
            config: &config,
            clock,
            metrics: &metrics,
            telemetry: &telemetry,
        };
        let asking = queries.iter().map(|query| inquirer.ask_on(query));
        tokio::join!(futures::future::join_all(asking), connection.follow());
    }
}

/// What all questions share.
struct Inquirer<'p> {
    client: Arc<client::Current>,
    config: &'p Config,
    clock: Clock,
    metrics: &'p Metrics,
    telemetry: &'p watch::Sender<Telemetry>,
}

impl Inquirer<'_> {
    async fn ask_on(&self, query: &Query) {
        let mut before = Outcome::Ok;
        loop {
            let asked = self.ask(query).await;
            let outcome = asked.as_ref().err().map_or(Outcome::Ok, |failure| failure.outcome);
            self.metrics.prometheus().asked(query.input, outcome.as_str());
            let name = query.input.as_str();
            match asked {
                _ if outcome == before => {}
                Ok(()) => tracing::info!(query = name, "Prometheus answers as it should again"),
                Err(failure) => tracing::warn!(
                    query = name,
                    result = outcome.as_str(),
                    detail = failure.detail,
                    "an answer of Prometheus is not used; the last value stays until it is stale"
                ),
            }
            before = outcome;
            tokio::time::sleep(duration(jittered(query.period, random()))).await;
        }
    }

    /// Asks once and takes in every value that can be used; fails with the first that cannot.
    async fn ask(&self, query: &Query) -> Result<(), Failure> {
        // What was true when it was answered was true a moment after it was asked: the earlier moment, to be safe.
        let asked_at = self.clock.moment();
        let client = self.client.load_full();
        let answer = answer::ask(&client, query).await;
        let received = self.clock.now();
        let (readings, faults) = match answer {
            Ok(series) => reading::read(query, &series, &self.config.sites, received.wall),
            Err(failure) => (vec![], Err(failure)),
        };
        if let Some(youngest) = readings.iter().map(|reading| reading.age).min() {
            let at = received.wall.as_microsecond().saturating_sub_unsigned(youngest.0);
            self.metrics.prometheus().sample(query.input, at as f64 / 1e6);
        }
        self.telemetry.send_modify(|telemetry| {
            for Reading { measurement, age } in readings {
                let as_of = received.moment.before(age).min(asked_at);
                telemetry.record(measurement, as_of, as_of.after(query.staleness), self.config);
            }
        });
        faults
    }
}

/// From nine to eleven tenths of the period, so that replicas do not ask in step.
fn jittered(period: Micros, random: u64) -> Micros {
    let tenth = period.0 / 10;
    Micros(period.0 - tenth + random % (2 * tenth).max(1))
}

fn random() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().1
}

fn duration(time: Micros) -> Duration {
    Duration::from_micros(time.0)
}

#[cfg(test)]
mod tests;
