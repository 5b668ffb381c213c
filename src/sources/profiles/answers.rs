//! Answers of the Prometheus server to the queries of profiles.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Display;
use std::sync::Arc;

use arc_swap::ArcSwap;
use edgeward_core::config::Prometheus;
use edgeward_core::units::{Micros, Moment};
use edgeward_profiles::Series;

use crate::instruments::metrics::Metrics;
use crate::platform::clock::Clock;
use crate::sources::prometheus::{Connection, Failure, Outcome, answer};

/// How long to wait for an answer.
const TIMEOUT: Micros = Micros::from_secs(5);

/// The labels that match a series to a site or node. Other labels are dropped.
const LABELS: [&str; 3] = ["site", "node", "instance"];

/// The client for queries, or the reason why there is none.
pub(super) type Client = Result<Arc<ArcSwap<prometheus_http_query::Client>>, Failure>;

/// Result of a query.
pub(super) type Answer = Result<Vec<Series>, Failure>;

/// Each query with its last answer. A clone does not copy the series.
#[derive(Debug, Default, Clone)]
pub(super) struct Answers {
    known: BTreeMap<Arc<str>, Known>,
    wanted: VecDeque<Arc<str>>,
}

#[derive(Debug, Default, Clone)]
struct Known {
    /// The last usable answer.
    series: Arc<[Series]>,
    /// Why the last answer could not be used.
    fault: Option<Arc<str>>,
    /// When the query was last sent; `None` before the first time.
    asked: Option<Moment>,
    /// Whether an answer is pending.
    is_awaited: bool,
}

impl Answers {
    /// Forgets all queries except these.
    pub(super) fn retain<'q>(&mut self, queries: impl Iterator<Item = &'q str>) {
        let mut known = BTreeMap::new();
        for query in queries {
            if let Some((query, answer)) = self.known.remove_entry(query) {
                known.insert(query, answer);
            }
        }
        self.known = known;
        self.wanted.retain(|query| self.known.contains_key(query));
    }

    /// Queues the query, unless it was sent within the last nine tenths of this period.
    pub(super) fn want(&mut self, query: &str, now: Moment, period: Micros) {
        let known = self.known.entry(query.into()).or_default();
        let is_recent = known.asked.is_some_and(|asked| now.since(asked).0 < period.0 / 10 * 9);
        if !known.is_awaited && !is_recent {
            known.is_awaited = true;
            known.asked = Some(now);
            self.wanted.push_back(query.into());
        }
    }

    pub(super) fn next_to_ask(&mut self) -> Option<Arc<str>> {
        self.wanted.pop_front()
    }

    /// Queues all pending queries again, because their answers will not arrive.
    pub(super) fn ask_again(&mut self) {
        let awaited = self.known.iter().filter(|(_, known)| known.is_awaited);
        self.wanted = awaited.map(|(query, _)| Arc::clone(query)).collect();
    }

    pub(super) fn is_awaited(&self, query: &str) -> bool {
        self.known.get(query).is_some_and(|known| known.is_awaited)
    }

    /// Records an answer or a failure. A failure leaves the last usable answer in place.
    pub(super) fn take(&mut self, query: &str, answer: Answer, metrics: &Metrics) {
        let outcome = answer.as_ref().err().map_or(Outcome::Ok, |failure| failure.outcome);
        metrics.prometheus_queries.at(["profile", outcome.as_str()]).inc();
        let Some(known) = self.known.get_mut(query) else { return };
        known.is_awaited = false;
        let fault = match answer {
            Ok(series) => {
                known.series = series.into();
                None
            }
            Err(failure) => Some(format!("{}: {}", failure.outcome.as_str(), failure.detail).into()),
        };
        if known.fault.is_some() != fault.is_some() {
            match &fault {
                Some(fault) => tracing::warn!(query, %fault, "Prometheus does not answer for performance profiles"),
                None => tracing::info!(query, "Prometheus answers for performance profiles again"),
            }
        }
        known.fault = fault;
    }

    /// The last usable answer, and why the latest answer could not be used.
    pub(super) fn get(&self, query: &str) -> Option<(&[Series], Option<&str>)> {
        let known = self.known.get(query)?;
        Some((&known.series, known.fault.as_deref()))
    }
}

/// Connects to the server of the configuration, or returns why that is impossible.
pub(super) async fn open(prometheus: Option<&Prometheus>) -> Result<Connection, Failure> {
    let unreachable = |why: &dyn Display| Failure::new(Outcome::Unreachable, why);
    let prometheus = prometheus.ok_or_else(|| unreachable(&"the configuration names no server (prometheus.url)"))?;
    let opened = Connection::open(prometheus).await;
    opened.map_err(|error| unreachable(&format_args!("{error:#}")))
}

/// Sends the query once. Returns it with its answer.
pub(super) async fn ask(client: Client, query: Arc<str>, clock: Clock) -> (Arc<str>, Answer) {
    let asked_at = clock.moment();
    let answer = async {
        let client = client?.load_full();
        let series = answer::ask(&client, &query, TIMEOUT).await?;
        let received = clock.now();
        Ok(series
            .into_iter()
            .map(|series| {
                let (labels, sample) = series.into_inner();
                // The age is the difference of both machines' wall clocks. A sample from the future has age zero.
                let age = Micros((received.wall.as_microsecond() as f64 - sample.timestamp() * 1e6) as u64);
                Series {
                    labels: labels
                        .into_iter()
                        .filter(|(name, _)| LABELS.contains(&&**name))
                        .collect(),
                    value: sample.value(),
                    at: received.moment.before(age).min(asked_at),
                }
            })
            .collect())
    };
    (Arc::clone(&query), answer.await)
}
