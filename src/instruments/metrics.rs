//! Prometheus metrics: one registry per process, handed around by `Arc`, so that a test can hold two.
//!
//! Label sets are closed: each value is a word of ours or a name from the configuration, never part of a pod.
//! `docs/reference/metrics.md` describes every metric; a test compares it with what is registered.

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

/// What [`Metrics`] has under one name.
trait Registered<const N: usize> {
    /// A new one. The encoder appends `_total` to the names of counters.
    fn register(to: &mut Registry, name: &str, labels: [&'static str; N], help: &str) -> Self;
}

impl<M: Metric + Default + Clone> Registered<0> for M {
    fn register(to: &mut Registry, name: &str, _: [&'static str; 0], help: &str) -> Self {
        let metric = M::default();
        to.register(name, help, metric.clone());
        metric
    }
}

impl<M, const N: usize> Registered<N> for Labelled<M, N>
where
    Family<[(&'static str, String); N], M>: Registered<0>,
{
    fn register(to: &mut Registry, name: &str, labels: [&'static str; N], help: &str) -> Self {
        let family = Family::register(to, name, [], help);
        Self { labels, family }
    }
}

/// Declares [`Metrics`]. A metric has a field, a type, a name, labels and a help text.
macro_rules! metrics {
    ($($vis:vis $field:ident: $type:ty = $name:literal $labels:tt $help:literal;)*) => {
        /// The process's metrics. Each may be changed from any thread, in well under a microsecond.
        #[derive(Debug)]
        pub struct Metrics {
            registry: Registry,
            /// Taken while a page is written: some gauges are filled just before.
            page: Mutex<()>,
            shared: OnceLock<Arc<SharedState>>,
            dropped_lines: OnceLock<ErrorCounter>,
            review_duration: Histogram,
            $(#[doc = $help] $vis $field: $type,)*
        }

        impl Metrics {
            /// All at zero.
            fn register(mut registry: Registry, review_duration: Histogram) -> Self {
                Self {
                    page: Mutex::default(),
                    shared: OnceLock::new(),
                    dropped_lines: OnceLock::new(),
                    review_duration,
                    $($field: Registered::register(&mut registry, $name, $labels, $help),)*
                    registry,
                }
            }
        }
    };
}

metrics! {
    reviews: Counters<4> = "reviews" ["verdict", "reason", "class", "site"] "Admission reviews answered";
    reservations: Gauge = "reservations" [] "Reservations whose pod has not been seen yet";
    reservations_expired: Counter = "reservations_expired" [] "Reservations whose pod was not seen in time";
    log_lines_dropped: Counter = "log_lines_dropped" [] "Log lines that standard error did not take in time";
    pub http_errors: Counters<1> = "http_errors" ["code"] "Reviews answered with an HTTP error";
    pub connections_refused: Counters<1> = "connections_refused" ["port"] "Connections closed because a port was full";
    pub handshake_failures: Counters<1> = "tls_handshake_failures" ["cause"] "TLS handshakes that failed";
    tls_reloads: Counters<2> = "tls_reloads" ["of", "result"] "Changes of the certificate and of --client-ca";
    pub certificate_not_after: Gauge = "tls_certificate_not_after_seconds" []
        "When the certificate expires, in Unix seconds";
    config_info: Gauges<1> = "config_info" ["version"] "Always 1; the version of the configuration in use";
    config_faults: Gauges<1> = "config_faults" ["path"] "Faults of the newest version of the configuration";
    pub config_reloads: Counters<1> = "config_reloads" ["result"] "Versions of the configuration seen";
    pub prometheus_queries: Counters<2> = "prometheus_queries" ["query", "result"] "Queries to Prometheus";
    pub ready: Gauge = "ready" [] "1 while this replica is ready, else 0";
    pub leader: Gauge = "leader" [] "1 while this replica holds the Lease, else 0";
    pub events: Counters<2> = "events" ["reason", "result"] "Kubernetes Events on pods";
    backstop_pods: Gauges<1> = "backstop_pods" ["finding"] "Pods that the backstop finds";
    pub gated_pods: Gauge = "gated_pods" [] "Pods that carry our scheduling gate";
    pub gated_oldest: Gauge = "gated_oldest_timestamp_seconds" [] "Since when the oldest is gated, in Unix seconds";
    pub gated_pod_changes: Counters<2> = "gated_pod_changes" ["reason", "result"] "Patches of gated pods";
    pub cached_pods: Gauge = "cached_pods" [] "Pods that are cached";
    pub watch_heard: Gauges<1> = "watch_heard_timestamp_seconds" ["kind"] "Last event of the watch, in Unix seconds";
    pub watch_lists: Counters<1> = "watch_lists" ["kind"] "Lists of everything of a kind that were begun";
    pub watch_failures: Counters<1> = "watch_failures" ["kind"] "Failures of a watch or list";
    pub clock_difference: Gauge = "clock_difference_seconds" []
        "By how much our clock is ahead of the API server's, within a second";
    site_nodes: Gauges<2> = "site_nodes" ["site", "usable"] "Nodes of the site";
    site_free_cpu: Decimals<1> = "site_free_cpu_cores" ["site"] "CPU that charges leave free";
    site_free_memory: Gauges<1> = "site_free_memory_bytes" ["site"] "Memory that charges leave free";
    queue: Gauges<2> = "queue_pods" ["site", "class"] "Managed pods that wait for room at the site";
    closed: Gauges<1> = "closed_controllers" ["site"] "Controllers whose pods the site does not take";
    refused: Gauges<1> = "site_refused_pods" ["site"] "Pods that the cluster behind a cloud refuses";
    wan_state: Gauges<2> = "wan_state" ["site", "state"] "1 for the state of the link to the site, else 0";
    wan_rtt: Decimals<1> = "wan_rtt_seconds" ["site"] "Round-trip time to the site";
    wan_loss: Decimals<1> = "wan_loss_ratio" ["site"] "Loss towards the site";
    pub wan_probes: Counters<3> = "wan_probes" ["site", "endpoint", "outcome"] "WAN probes answered or lost";
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

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// A registry with every metric, all at zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("edgeward");
        let review_duration = Histogram::new(REVIEW_BUCKETS);
        let help = "Time from a complete request body to the answer's bytes";
        registry.register("review_duration_seconds", help, review_duration.clone());
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "Version that is running", version);
        let metrics = Self::register(registry, review_duration);
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
            for result in ["changed", "refused"] {
                self.gated_pod_changes.at([reason.as_str(), result]);
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
            self.show_sites(&shared.snapshot());
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
