//! Answers of the Prometheus server to the queries of profiles.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use edgeward_kube::units::Micros;
use edgeward_profiles::Series;

use crate::instruments::metrics::Metrics;
use crate::platform::clock::Clock;
use crate::prometheus::{Connection, Failure, Outcome, answer, report};

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
    /// Why the last answer could not be used, if it could not.
    fault: Option<(Outcome, Arc<str>)>,
}

impl Answers {
    /// Forgets all queries except these.
    pub(super) fn retain(&mut self, queries: &BTreeSet<&str>) {
        self.0.retain(|query, _| queries.contains(&**query));
    }

    /// Records an answer or a failure. A failure leaves the last usable answer in place.
    pub(super) fn take(&mut self, query: Arc<str>, answer: Answer, metrics: &Metrics) {
        let known = self.0.entry(Arc::clone(&query)).or_default();
        let before = known.fault.as_ref().map_or(Outcome::Ok, |(outcome, _)| *outcome);
        let outcome = report(metrics, ["profile", &query], before, answer.as_ref().err());
        match answer {
            Ok(mut series) => {
                for series in &mut series {
                    series.labels.retain(|name, _| LABELS.contains(&&**name));
                }
                (known.series, known.fault) = (series.into(), None);
            }
            Err(failure) => {
                let fault = format!("{}: {}", outcome.as_str(), failure.detail);
                known.fault = Some((outcome, fault.into()));
            }
        }
    }

    /// The last usable answer, and why the latest answer could not be used.
    pub(super) fn get(&self, query: &str) -> Option<(&[Series], Option<&str>)> {
        let known = self.0.get(query)?;
        Some((&known.series, known.fault.as_ref().map(|(_, fault)| &**fault)))
    }
}

/// Sends the query once. Returns it with its answer.
pub(super) async fn ask(server: Option<&Connection>, query: Arc<str>, clock: Clock) -> (Arc<str>, Answer) {
    let none = "the configuration names no server (prometheus.url)";
    let answer = match server {
        Some(server) => answer::ask(server, &query, TIMEOUT, clock).await,
        None => Err(Failure::new(Outcome::Unreachable, none)),
    };
    (query, answer)
}
