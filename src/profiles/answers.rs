//! Answers of the Prometheus server to the queries of profiles.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use edgeward_kube::units::Micros;
use edgeward_profiles::Series;
use prometheus_http_query::response::InstantVector;

use crate::instruments::metrics::Metrics;
use crate::platform::clock::Clock;
use crate::prometheus::{Connection, Failure, Outcome, answer};

/// How long to wait for an answer.
const TIMEOUT: Micros = Micros::from_secs(5);

/// The labels that match a series to a site or node. Other labels are dropped.
const LABELS: [&str; 3] = ["site", "node", "instance"];

/// Result of a query.
pub(super) type Answer = Result<Vec<Series>, Failure>;

/// Each query with its last answer. A clone does not copy the series.
#[derive(Debug, Default, Clone)]
pub(super) struct Answers(BTreeMap<Arc<str>, Latest>);

#[derive(Debug, Default, Clone)]
struct Latest {
    /// The last usable answer.
    series: Arc<[Series]>,
    /// Why the last answer could not be used.
    fault: Option<Arc<str>>,
}

impl Answers {
    /// Forgets all queries except these.
    pub(super) fn retain(&mut self, queries: &BTreeSet<&str>) {
        self.0.retain(|query, _| queries.contains(&**query));
    }

    /// Records an answer or a failure. A failure leaves the last usable answer in place.
    pub(super) fn take(&mut self, query: Arc<str>, answer: Answer, metrics: &Metrics) {
        let outcome = answer.as_ref().err().map_or(Outcome::Ok, |failure| failure.outcome);
        metrics.prometheus_queries.at(["profile", outcome.as_str()]).inc();
        let known = self.0.entry(Arc::clone(&query)).or_default();
        let had_fault = known.fault.is_some();
        match answer {
            Ok(series) => {
                (known.series, known.fault) = (series.into(), None);
                if had_fault {
                    tracing::info!(query = &*query, "Prometheus answers for performance profiles again");
                }
            }
            Err(failure) => {
                let fault = format!("{}: {}", failure.outcome.as_str(), failure.detail);
                if !had_fault {
                    tracing::warn!(
                        query = &*query,
                        fault,
                        "Prometheus does not answer for performance profiles"
                    );
                }
                known.fault = Some(fault.into());
            }
        }
    }

    /// The last usable answer, and why the latest answer could not be used.
    pub(super) fn get(&self, query: &str) -> Option<(&[Series], Option<&str>)> {
        let known = self.0.get(query)?;
        Some((&known.series, known.fault.as_deref()))
    }
}

/// Sends the query once. Returns it with its answer.
pub(super) async fn ask(server: Option<&Connection>, query: Arc<str>, clock: Clock) -> (Arc<str>, Answer) {
    let asked_at = clock.moment();
    let answer = async {
        let none = "the configuration names no server (prometheus.url)";
        let server = server.ok_or_else(|| Failure::new(Outcome::Unreachable, none))?;
        let series = answer::ask(server, &query, TIMEOUT).await?;
        let received = clock.now();
        let read = |series: InstantVector| {
            let (mut labels, sample) = series.into_inner();
            labels.retain(|name, _| LABELS.contains(&&**name));
            // The age is the difference of both machines' wall clocks. A sample from the future has age zero.
            let age = Micros((received.wall.as_microsecond() as f64 - sample.timestamp() * 1e6) as u64);
            Series {
                labels: labels.into_iter().collect(),
                value: sample.value(),
                at: received.moment.before(age).min(asked_at),
            }
        };
        Ok(series.into_iter().map(read).collect())
    };
    let answer = answer.await;
    (query, answer)
}
