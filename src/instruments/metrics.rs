//! Prometheus metrics: one registry per process, handed around by `Arc`, so that a test can hold two.
//!
//! Label sets are closed: each value is a `&'static str` of ours or a name from the configuration, never part of a pod.
//! `docs/metrics.md` describes every metric; a test compares it with what is registered.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use edgeward_core::engine::SharedState;
use edgeward_core::words;
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};
use tracing_appender::non_blocking::ErrorCounter;

mod configuration;
mod controllers;
mod guards;
mod sites;
mod tls;
mod view;
mod waitlist;
mod wan;

pub use configuration::ConfigurationMetrics;
pub use controllers::{ControllerMetrics, EventResult};
pub use guards::{Found, GuardMetrics};
pub use tls::{TlsMaterial, TlsMetrics};
pub use view::ViewMetrics;
pub use waitlist::{ReleaseOutcome, UNREAD, WaitlistMetrics};
pub use wan::ProbeMetrics;

use sites::SiteMetrics;
use wan::LinkMetrics;

/// `Content-Type` of what [`Metrics::encode`] returns.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper bounds of the review histogram in seconds: from 50 µs, where a review should be, to 1 s, the webhook's timeout.
const REVIEW_BUCKETS: [f64; 14] = [
    50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1.0,
];

/// Label names with their values.
type Labels<const N: usize> = [(&'static str, Cow<'static, str>); N];

/// Counters that `N` labels tell apart.
type Counters<const N: usize> = Family<Labels<N>, Counter>;

/// Gauges that `N` labels tell apart.
type Gauges<const N: usize> = Family<Labels<N>, Gauge>;

/// Fractional gauges that `N` labels tell apart.
type Decimals<const N: usize> = Family<Labels<N>, Gauge<f64, AtomicU64>>;

/// Registers a new metric. The encoder appends `_total` to the names of counters.
fn register<M: Metric + Default + Clone>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

words! {
    /// What became of the new content of something watched: the label `result`.
    pub enum Reload {
        /// It is in use.
        Loaded = "loaded",
        /// It has faults; the old content stays in use.
        Refused = "refused",
        /// It could not be read; the old content stays in use.
        Unreadable = "unreadable",
    }
}

words! {
    /// Why a handshake on the admission port failed: the label `cause`.
    pub enum HandshakeFailure {
        /// The client refused our certificate: its CA bundle, the name it expects, or its clock differ from ours.
        Rejected = "rejected",
        /// Client and server have no protocol, version or cipher in common, or what came is not TLS.
        Protocol = "protocol",
        /// The client hung up first. TCP health checks do.
        Closed = "closed",
        /// The handshake took too long.
        Timeout = "timeout",
        /// The client showed no certificate, or none that `--client-ca` vouches for.
        Client = "client",
    }
}

/// The process's metrics. Every method may be called from any thread; each that counts takes well under a microsecond.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Taken while a page is written: some gauges are filled just before.
    page: Mutex<()>,
    shared: OnceLock<Arc<SharedState>>,
    reviews: Counters<4>,
    review_duration: Histogram,
    connections_refused: Counters<1>,
    handshake_failures: Counters<1>,
    http_errors: Counters<1>,
    sites: SiteMetrics,
    links: LinkMetrics,
    reservations: Gauge,
    reservations_expired: Counter,
    prometheus_queries: Counters<2>,
    ready: Gauge,
    log_lines_dropped: Counter,
    dropped_lines: OnceLock<ErrorCounter>,
    /// Certificates.
    pub tls: TlsMetrics,
    /// The live view.
    pub view: ViewMetrics,
    /// Gated pods.
    pub waitlist: WaitlistMetrics,
    /// WAN probes.
    pub probes: ProbeMetrics,
    /// The configuration.
    pub configuration: ConfigurationMetrics,
    /// Writers to the API server.
    pub controllers: ControllerMetrics,
    /// What becomes of pods after their creation.
    pub guards: GuardMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// A registry with every metric, all at zero.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let to = &mut registry;
        let review_duration = Histogram::new(REVIEW_BUCKETS);
        let help = "Time from a complete request body to the answer's bytes";
        to.register("edgeward_review_duration_seconds", help, review_duration.clone());
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        to.register("edgeward_build", "Version that is running", version);
        let metrics = Self {
            page: Mutex::default(),
            shared: OnceLock::new(),
            reviews: register(to, "edgeward_reviews", "Admission reviews answered"),
            review_duration,
            connections_refused: register(
                to,
                "edgeward_connections_refused",
                "Connections closed because a port had too many",
            ),
            handshake_failures: register(to, "edgeward_tls_handshake_failures", "TLS handshakes that failed"),
            http_errors: register(to, "edgeward_http_errors", "Reviews answered with an HTTP error"),
            sites: SiteMetrics::new(to),
            links: LinkMetrics::new(to),
            reservations: register(
                to,
                "edgeward_reservations",
                "Reservations whose pod has not been seen yet",
            ),
            reservations_expired: register(
                to,
                "edgeward_reservations_expired",
                "Reservations whose pod was not seen in time",
            ),
            prometheus_queries: register(to, "edgeward_prometheus_queries", "Queries to the Prometheus server"),
            ready: register(to, "edgeward_ready", "1 while this replica is ready, else 0"),
            log_lines_dropped: register(
                to,
                "edgeward_log_lines_dropped",
                "Log lines that standard error did not take fast enough",
            ),
            dropped_lines: OnceLock::new(),
            tls: TlsMetrics::new(to),
            view: ViewMetrics::new(to),
            waitlist: WaitlistMetrics::new(to),
            probes: ProbeMetrics::new(to),
            configuration: ConfigurationMetrics::new(to),
            controllers: ControllerMetrics::new(to),
            guards: GuardMetrics::new(to),
            registry,
        };
        // A counter that is absent until it first counts hides its first increase from `rate()`.
        for cause in HandshakeFailure::ALL {
            metrics.failures_of(cause);
        }
        metrics
    }

    /// Counts an answered review. `verdict`, `reason` and `class` come from enums, `site` from the configuration (empty
    /// when the verdict names none); `elapsed` runs from the complete body to the answer's bytes.
    pub fn review(
        &self,
        verdict: &'static str,
        reason: &'static str,
        class: &'static str,
        site: &str,
        elapsed: Duration,
    ) {
        let labels = [
            ("verdict", verdict.into()),
            ("reason", reason.into()),
            ("class", class.into()),
            ("site", site.to_owned().into()),
        ];
        self.reviews.get_or_create(&labels).inc();
        self.review_duration.observe(elapsed.as_secs_f64());
    }

    /// Counts a connection to this port that was closed because too many were open.
    pub fn connection_refused(&self, port: &'static str) {
        self.connections_refused.get_or_create(&[("port", port.into())]).inc();
    }

    /// Counts a handshake on the admission port that failed.
    pub fn handshake_failure(&self, cause: HandshakeFailure) {
        self.failures_of(cause).inc();
    }

    fn failures_of(&self, cause: HandshakeFailure) -> Counter {
        self.handshake_failures
            .get_or_create_owned(&[("cause", cause.as_str().into())])
    }

    /// Counts a request to the admission port that was answered with this HTTP status, 400 or above.
    pub fn http_error(&self, code: u16) {
        self.http_errors
            .get_or_create(&[("code", code.to_string().into())])
            .inc();
    }

    /// Counts a query by its name in the configuration, or `profile`, and its result.
    pub fn prometheus_query(&self, query: &'static str, result: &'static str) {
        let labels = [("query", query.into()), ("result", result.into())];
        self.prometheus_queries.get_or_create(&labels).inc();
    }

    /// Reads snapshot and reservations from there for every page. Only the first call counts.
    pub fn follow(&self, shared: Arc<SharedState>) {
        // There is one in a process.
        let _ = self.shared.set(shared);
    }

    /// Says whether this replica is ready.
    pub fn ready(&self, is_ready: bool) {
        self.ready.set(is_ready.into());
    }

    /// Reads the number of lost log lines there for every page. Only the first call counts.
    pub fn count_dropped_lines(&self, counter: ErrorCounter) {
        let _ = self.dropped_lines.set(counter);
    }

    /// Every metric, in the OpenMetrics text format; see [`CONTENT_TYPE`]. Cost: a pass over all nodes.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut out = String::with_capacity(8 * 1024);
        // Writing into a String cannot fail. If an encoder fails all the same, the scraper refuses the page, which
        // lacks its `# EOF`.
        if let Err(error) = self.write(&mut out) {
            tracing::error!(%error, "metrics could not be encoded");
        }
        out
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        let _alone = self.page.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = self.shared.get() {
            let snapshot = shared.snapshot();
            self.sites.show(&snapshot);
            self.links.show(&snapshot);
            let ledger = shared.ledger();
            self.reservations.set(count(ledger.open()));
            let expired = self.reservations_expired.inner();
            expired.store(ledger.expired(), Ordering::Relaxed);
        }
        if let Some(counter) = self.dropped_lines.get() {
            let lines = u64::try_from(counter.dropped_lines()).unwrap_or(u64::MAX);
            self.log_lines_dropped.inner().store(lines, Ordering::Relaxed);
        }
        text::encode(out, &self.registry)
    }
}

/// A number of things, as gauges have it.
fn count<N: TryInto<i64>>(things: N) -> i64 {
    things.try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
