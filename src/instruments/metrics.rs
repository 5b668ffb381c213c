//! Prometheus metrics: one registry per process, handed around by `Arc`, so that a test can hold two.
//!
//! Label sets are closed: each value is a word of ours or a name from the configuration, never part of a pod.
//! `docs/metrics.md` describes every metric; a test compares it with what is registered.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use edgeward_core::engine::SharedState;
use edgeward_core::placement::verdict::Reason;
use edgeward_core::words;
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};
use tracing_appender::non_blocking::ErrorCounter;

mod sites;

/// `Content-Type` of what [`Metrics::encode`] returns.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper bounds of the review histogram in seconds: from 50 µs, where a review should be, to 1 s, the webhook's timeout.
const REVIEW_BUCKETS: [f64; 14] = [
    50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1.0,
];

/// How many series the faults of a configuration make at most.
const FAULTS: usize = 32;

/// Metrics of one name that `N` labels tell apart.
#[derive(Debug)]
pub struct Labelled<M, const N: usize> {
    labels: [&'static str; N],
    family: Family<[(&'static str, String); N], M>,
}

impl<M: Metric + Clone + Default, const N: usize> Labelled<M, N> {
    /// The one whose labels have these values. A counter is 0 from then on: one that is absent until it first counts hides its
    /// first increase from `rate()`.
    pub fn at(&self, values: [&str; N]) -> M {
        let mut labels = self.labels.map(|label| (label, String::new()));
        for ((_, label), value) in labels.iter_mut().zip(values) {
            value.clone_into(label);
        }
        self.family.get_or_create_owned(&labels)
    }

    fn clear(&self) {
        self.family.clear();
    }
}

type Counters<const N: usize> = Labelled<Counter, N>;
type Gauges<const N: usize> = Labelled<Gauge, N>;
/// Fractional gauges.
type Decimals<const N: usize> = Labelled<Gauge<f64, AtomicU64>, N>;

/// Registers a new metric. The encoder appends `_total` to the names of counters.
fn register<M: Metric + Default + Clone>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

/// Registers metrics that these labels tell apart.
fn labelled<M, const N: usize>(
    registry: &mut Registry,
    name: &str,
    labels: [&'static str; N],
    help: &str,
) -> Labelled<M, N>
where
    M: Metric + Default + Clone,
    Family<[(&'static str, String); N], M>: Metric + Default,
{
    let family = register(registry, name, help);
    Labelled { labels, family }
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
    /// What is read again when it changes: the label `of`.
    pub enum TlsMaterial {
        /// The certificate that is served, with its key.
        Certificate = "certificate",
        /// The authorities of clients.
        ClientCa = "client_ca",
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

words! {
    /// What became of an Event: the label `result`.
    pub enum EventResult {
        /// It is written.
        Written = "written",
        /// It was there: another replica wrote it, or this one before it was started again.
        Duplicate = "duplicate",
        /// The API server does not take it.
        Refused = "refused",
        /// It was not written: there were too many.
        Dropped = "dropped",
    }
}

words! {
    /// What became of a patch of a gated pod: the label `result`.
    pub enum ReleaseOutcome {
        /// The pod is changed.
        Changed = "changed",
        /// The pod had changed meanwhile, and is looked at again.
        Outdated = "outdated",
        /// The API server refused it, or did not answer; it is tried again.
        Refused = "refused",
    }
}

/// The process's metrics. Each may be changed from any thread, in well under a microsecond.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Taken while a page is written: some gauges are filled just before.
    page: Mutex<()>,
    shared: OnceLock<Arc<SharedState>>,
    dropped_lines: OnceLock<ErrorCounter>,
    sites: sites::SiteMetrics,
    reviews: Counters<4>,
    review_duration: Histogram,
    reservations: Gauge,
    reservations_expired: Counter,
    log_lines_dropped: Counter,
    config_info: Gauges<1>,
    config_faults: Gauges<1>,
    backstop_pods: Gauges<1>,
    tls_reloads: Counters<2>,
    /// Connections to a port that were closed because it had too many.
    pub connections_refused: Counters<1>,
    /// By [`HandshakeFailure`].
    pub handshake_failures: Counters<1>,
    /// Requests to the admission port, by their HTTP status of 400 or above.
    pub http_errors: Counters<1>,
    /// By the query's name in the configuration, or `profile`, and its result.
    pub prometheus_queries: Counters<2>,
    /// Whether this replica is ready.
    pub ready: Gauge,
    /// Whether this replica holds the Lease.
    pub leader: Gauge,
    /// By the Event's reason and [`EventResult`].
    pub events: Counters<2>,
    /// When the certificate that is served expires, in seconds since the Unix epoch.
    pub certificate_not_after: Gauge,
    /// Versions of the configuration, by [`Reload`].
    pub config_reloads: Counters<1>,
    /// How many pods the cache has.
    pub cached_pods: Gauge,
    /// When the watch of a kind had its last event, in seconds since the Unix epoch.
    pub watch_heard: Gauges<1>,
    /// Lists of everything of a kind that began.
    pub watch_lists: Counters<1>,
    /// Failures of a watch or list of a kind.
    pub watch_failures: Counters<1>,
    /// By how many seconds our clock is ahead of the API server's.
    pub clock_difference: Gauge,
    /// How many pods carry our gate.
    pub gated_pods: Gauge,
    /// Since when the first of them carries it, in seconds since the Unix epoch.
    pub gated_oldest: Gauge,
    /// Patches of gated pods, by the reason of the change and [`ReleaseOutcome`].
    pub gated_pod_changes: Counters<2>,
    /// Probes by site, endpoint, and cause of the loss or `answered`.
    pub wan_probes: Counters<3>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// A registry with every metric, all at zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("edgeward");
        let to = &mut registry;
        let review_duration = Histogram::new(REVIEW_BUCKETS);
        let help = "Time from a complete request body to the answer's bytes";
        to.register("review_duration_seconds", help, review_duration.clone());
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        to.register("build", "Version that is running", version);
        let review = ["verdict", "reason", "class", "site"];
        let metrics = Self {
            page: Mutex::default(),
            shared: OnceLock::new(),
            dropped_lines: OnceLock::new(),
            sites: sites::SiteMetrics::new(to),
            reviews: labelled(to, "reviews", review, "Admission reviews answered"),
            review_duration,
            reservations: register(to, "reservations", "Reservations whose pod has not been seen yet"),
            reservations_expired: register(
                to,
                "reservations_expired",
                "Reservations whose pod was not seen in time",
            ),
            log_lines_dropped: register(
                to,
                "log_lines_dropped",
                "Log lines that standard error did not take in time",
            ),
            config_info: labelled(
                to,
                "config_info",
                ["version"],
                "Always 1; the version of the configuration in use",
            ),
            config_faults: labelled(
                to,
                "config_faults",
                ["path"],
                "Faults of the newest version of the configuration",
            ),
            backstop_pods: labelled(to, "backstop_pods", ["finding"], "Pods that the backstop finds"),
            connections_refused: labelled(
                to,
                "connections_refused",
                ["port"],
                "Connections closed because a port was full",
            ),
            handshake_failures: labelled(to, "tls_handshake_failures", ["cause"], "TLS handshakes that failed"),
            http_errors: labelled(to, "http_errors", ["code"], "Reviews answered with an HTTP error"),
            prometheus_queries: labelled(to, "prometheus_queries", ["query", "result"], "Queries to Prometheus"),
            ready: register(to, "ready", "1 while this replica is ready, else 0"),
            leader: register(to, "leader", "1 while this replica holds the Lease, else 0"),
            events: labelled(to, "events", ["reason", "result"], "Kubernetes Events on pods"),
            tls_reloads: labelled(
                to,
                "tls_reloads",
                ["of", "result"],
                "Changes of the certificate and of --client-ca",
            ),
            certificate_not_after: register(
                to,
                "tls_certificate_not_after_seconds",
                "When the certificate expires, in Unix seconds",
            ),
            config_reloads: labelled(to, "config_reloads", ["result"], "Versions of the configuration seen"),
            cached_pods: register(to, "cached_pods", "Pods that are cached"),
            watch_heard: labelled(
                to,
                "watch_heard_timestamp_seconds",
                ["kind"],
                "Last event of the watch, in Unix seconds",
            ),
            watch_lists: labelled(
                to,
                "watch_lists",
                ["kind"],
                "Lists of everything of a kind that were begun",
            ),
            watch_failures: labelled(to, "watch_failures", ["kind"], "Failures of a watch or list"),
            clock_difference: register(
                to,
                "clock_difference_seconds",
                "By how much our clock is ahead of the API server's, within a second",
            ),
            gated_pods: register(to, "gated_pods", "Pods that carry our scheduling gate"),
            gated_oldest: register(
                to,
                "gated_oldest_timestamp_seconds",
                "Since when the oldest is gated, in Unix seconds",
            ),
            gated_pod_changes: labelled(to, "gated_pod_changes", ["reason", "result"], "Patches of gated pods"),
            wan_probes: labelled(
                to,
                "wan_probes",
                ["site", "endpoint", "outcome"],
                "WAN probes answered or lost",
            ),
            registry,
        };
        metrics.start_counters();
        metrics
    }

    fn start_counters(&self) {
        for cause in HandshakeFailure::ALL {
            self.handshake_failures.at([cause.as_str()]);
        }
        for result in Reload::ALL.map(Reload::as_str) {
            self.config_reloads.at([result]);
            for of in TlsMaterial::ALL {
                self.tls_reloads.at([of.as_str(), result]);
            }
        }
        let releases: [_; 3] = [
            Reason::EdgeFeasibleSloMet,
            Reason::CloudEdgeNoCapacity,
            Reason::ReleasedTimeout,
        ];
        for reason in releases {
            for result in [ReleaseOutcome::Changed, ReleaseOutcome::Refused] {
                self.gated_pod_changes.at([reason.as_str(), result.as_str()]);
            }
        }
        self.backstop_finds([0; 3]);
    }

    /// Counts an answered review. `site` is empty when the verdict names none; `elapsed` runs from the complete body to the answer's
    /// bytes.
    pub fn review(&self, verdict: &str, reason: &str, class: &str, site: &str, elapsed: Duration) {
        self.reviews.at([verdict, reason, class, site]).inc();
        self.review_duration.observe(elapsed.as_secs_f64());
    }

    /// Names the version of the configuration in use, a hash of its content. It has no faults.
    pub fn config_version(&self, version: u64) {
        self.config_info.clear();
        self.config_info.at([&format!("{version:016x}")]).set(1);
        self.config_faults.clear();
    }

    /// Shows where the first faults of the newest version of the configuration are.
    pub fn config_faults<'p>(&self, paths: impl Iterator<Item = &'p str>) {
        self.config_faults.clear();
        for path in paths.take(FAULTS) {
            self.config_faults.at([path]).inc();
        }
    }

    /// Counts a change of a certificate or of authorities.
    pub fn tls_reload(&self, of: TlsMaterial, result: Reload) {
        self.tls_reloads.at([of.as_str(), result.as_str()]).inc();
    }

    /// Shows how many pods the backstop finds: Unschedulable while another site would take them, with a decision and without one,
    /// and bound without a decision.
    pub fn backstop_finds(&self, pods: [usize; 3]) {
        for (finding, pods) in ["misplaced", "undecided", "bound"].into_iter().zip(pods) {
            self.backstop_pods.at([finding]).set(count(pods));
        }
    }

    /// Reads snapshot and reservations from there for every page. Only the first call counts.
    pub fn follow(&self, shared: Arc<SharedState>) {
        // There is one in a process.
        let _ = self.shared.set(shared);
    }

    /// Reads the number of lost log lines there for every page. Only the first call counts.
    pub fn count_dropped_lines(&self, counter: ErrorCounter) {
        let _ = self.dropped_lines.set(counter);
    }

    /// Every metric, in the OpenMetrics text format; see [`CONTENT_TYPE`]. Cost: a pass over all nodes.
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
            self.sites.show(&shared.snapshot());
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
pub fn count<N: TryInto<i64>>(things: N) -> i64 {
    things.try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
