//! Prometheus metrics. There is one registry per process, shared by `Arc`; a test can have several.
//!
//! Label sets are closed: each value is a fixed word or a name from the configuration, never data of a pod.
//! `docs/reference/metrics.md` describes every metric, and a test compares it with the registry.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use edgeward_cluster::engine::SharedState;
use edgeward_cluster::moves::Why;
use edgeward_decision::model::scorer::FEATURES;
use edgeward_decision::placement::verdict::{Agreement, Reason, Verdict};
use edgeward_kube::words;
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};
use tracing_appender::non_blocking::ErrorCounter;

use crate::platform::clock::Clock;

mod sites;

/// `Content-Type` of the text that [`Metrics::encode`] returns.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper bounds of the review histogram, in seconds: from 50 µs, the expected duration, to 1 s, the webhook's timeout.
const REVIEW_BUCKETS: [f64; 14] = [
    50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1.0,
];

/// Maximum number of series for configuration faults.
const FAULTS: usize = 32;

/// A metric family with `N` labels.
#[derive(Debug)]
pub struct Labelled<M, const N: usize> {
    labels: [&'static str; N],
    family: Family<[(&'static str, String); N], M>,
}

impl<M: Metric + Clone + Default, const N: usize> Labelled<M, N> {
    /// Returns the metric with these label values. A counter then exists with value 0: otherwise `rate()` would miss
    /// its first increase.
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
/// Gauges with fractional values.
type Decimals<const N: usize> = Labelled<Gauge<f64, AtomicU64>, N>;

/// A field of [`Metrics`] that is registered under one name.
trait Registered<const N: usize> {
    /// Creates and registers the metric. The encoder appends `_total` to the names of counters.
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
        /// The metrics of the process. Any thread may change them; a change takes well under a microsecond.
        #[derive(Debug)]
        pub struct Metrics {
            registry: Registry,
            shared: OnceLock<(Arc<SharedState>, Clock)>,
            dropped_lines: OnceLock<ErrorCounter>,
            review_duration: Histogram,
            $(#[doc = $help] $vis $field: $type,)*
        }

        impl Metrics {
            /// Registers all metrics, with value 0.
            fn register(mut registry: Registry, review_duration: Histogram) -> Self {
                Self {
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
    pub extender_calls: Counters<3> = "extender_calls" ["verb", "verdict", "reason"] "Calls of kube-scheduler answered";
    reservations: Gauge = "reservations" [] "Reservations whose pod has not been seen yet";
    reservations_expired: Counter = "reservations_expired" [] "Reservations whose pod was not seen in time";
    log_lines_dropped: Counter = "log_lines_dropped" [] "Log lines dropped because standard error was too slow";
    pub http_errors: Counters<1> = "http_errors" ["code"] "Reviews answered with an HTTP error";
    pub connections_refused: Counters<1> = "connections_refused" ["port"] "Connections closed because a port was full";
    pub handshake_failures: Counters<1> = "tls_handshake_failures" ["cause"] "TLS handshakes that failed";
    tls_reloads: Counters<2> = "tls_reloads" ["of", "result"] "Reloads of the certificate and of --client-ca";
    pub certificate_not_after: Gauge = "tls_certificate_not_after_seconds" []
        "When the certificate expires, in Unix seconds";
    config_info: Gauges<1> = "config_info" ["version"] "Always 1; the version of the configuration in use";
    config_faults: Gauges<1> = "config_faults" ["path"] "Faults of the newest version of the configuration";
    pub config_reloads: Counters<1> = "config_reloads" ["result"] "Versions of the configuration seen";
    pub prometheus_queries: Counters<2> = "prometheus_queries" ["query", "result"] "Queries to Prometheus";
    pub ready: Gauge = "ready" [] "1 while this replica is ready, else 0";
    pub leader: Gauge = "leader" [] "1 while this replica holds the Lease, else 0";
    pub events: Counters<2> = "events" ["reason", "result"] "Kubernetes Events on pods";
    backstop_pods: Gauges<1> = "backstop_pods" ["finding"] "Pods that the backstop found";
    pub moves: Counters<2> = "moves" ["why", "result"] "Evictions of pods for which another site is better";
    pub moves_stopped: Gauge = "moves_stopped" [] "1 while moves are stopped, else 0";
    pub near_peers: Gauge = "near_peers" [] "Clusters near this one, as the leader counts them; 0 on other replicas";
    pub ocm_writes: Counters<1> = "ocm_writes" ["result"] "Writes of scores to the OCM hub";
    pub estimates: Counters<1> = "estimates" ["result"] "Calls of Karmada's scheduler";
    pub gated_pods: Gauge = "gated_pods" [] "Pods that carry our scheduling gate";
    pub groups: Gauges<1> = "groups" ["state"] "Groups that start together and wait";
    pub gated_oldest: Gauge = "gated_oldest_timestamp_seconds" [] "When the oldest gated pod was gated, in Unix seconds";
    pub gated_pod_changes: Counters<2> = "gated_pod_changes" ["reason", "result"] "Patches of gated pods";
    pub cached_pods: Gauge = "cached_pods" [] "Pods in the cache";
    pub watch_heard: Gauges<1> = "watch_heard_timestamp_seconds" ["kind"] "Last event of the watch, in Unix seconds";
    pub watch_lists: Counters<1> = "watch_lists" ["kind"] "Full lists of a kind that were started";
    pub watch_failures: Counters<1> = "watch_failures" ["kind"] "Failures of a watch or list";
    pub clock_difference: Gauge = "clock_difference_seconds" []
        "Seconds by which our clock is ahead of the API server's, to within a second";
    site_nodes: Gauges<2> = "site_nodes" ["site", "usable"] "Nodes of the site";
    site_free_cpu: Decimals<1> = "site_free_cpu_cores" ["site"] "CPU that is not charged to pods";
    site_free_memory: Gauges<1> = "site_free_memory_bytes" ["site"] "Memory that is not charged to pods";
    queue: Gauges<2> = "queue_pods" ["site", "class"] "Managed pods that wait for room at the site";
    closed: Gauges<1> = "closed_controllers" ["site"] "Controllers whose pods are not scheduled or do not start at the site";
    refused: Gauges<1> = "site_refused_pods" ["site"] "Pods that the cluster behind a cloud refuses";
    report_age: Decimals<1> = "report_age_seconds" ["site"] "Time since the last report of the cluster behind the site arrived";
    wan_state: Gauges<2> = "wan_state" ["site", "state"] "1 for the state of the link to the site, else 0";
    wan_rtt: Decimals<1> = "wan_rtt_seconds" ["site"] "Round-trip time to the site";
    wan_loss: Decimals<1> = "wan_loss_ratio" ["site"] "Loss towards the site";
    wan_rtt_p95: Decimals<1> = "wan_rtt_p95_seconds" ["site"] "Round-trip time to the site that 19 of 20 answered probes do not exceed";
    wan_jitter: Decimals<1> = "wan_jitter_seconds" ["site"] "Mean difference between the round-trip times of successive probes";
    wan_bandwidth: Decimals<2> = "wan_bandwidth_bits" ["site", "direction"] "Measured or stated bandwidth of the site, up or down";
    network_watts: Decimals<1> = "network_watts" ["site"] "Power of what the site sends on its links";
    profile_score: Decimals<2> = "profile_score" ["profile", "site"] "Score of the site by the profile";
    profile_preferred: Gauges<2> = "profile_preferred" ["profile", "site"] "1 for the site that the profile prefers";
    pub scorer_reloads: Counters<1> = "scorer_reloads" ["result"] "Versions of the learned scorer seen";
    scorer_choices: Counters<1> = "scorer_choices" ["result"]
        "Placements with several good clouds, by how the choice of the learned scorer compares with that of sitePolicy";
    scorer_out_of_range: Counters<1> = "scorer_out_of_range" ["feature"]
        "Such placements with a value beyond the range in which the learned scorer was trained";
    pub wan_probes: Counters<3> = "wan_probes" ["site", "endpoint", "outcome"] "WAN probes answered or lost";
}

words! {
    /// Result of loading a new version of watched contents: the label `result`.
    pub enum Reload {
        /// The new contents are in use.
        Loaded = "loaded",
        /// The new contents have faults; the old contents stay in use.
        Refused = "refused",
        /// The new contents could not be read; the old contents stay in use.
        Unreadable = "unreadable",
    }
}

words! {
    /// The TLS material that is read again on a change: the label `of`.
    pub enum TlsMaterial {
        /// The serving certificate with its key.
        Certificate = "certificate",
        /// The client authorities.
        ClientCa = "client_ca",
    }
}

words! {
    /// Why a handshake on the admission port failed: the label `cause`.
    pub enum HandshakeFailure {
        /// The client refused our certificate: its CA bundle, expected name or clock differs from ours.
        Rejected = "rejected",
        /// Client and server have no common protocol, version or cipher, or the data is not TLS.
        Protocol = "protocol",
        /// The client closed the connection first, as TCP health checks do.
        Closed = "closed",
        /// The handshake took too long.
        Timeout = "timeout",
        /// The client sent no certificate, or `--client-ca` does not vouch for it.
        Client = "client",
    }
}

words! {
    /// The result of writing an Event: the label `result`.
    pub enum EventResult {
        /// The Event was written.
        Written = "written",
        /// The Event existed: another replica wrote it, or this one did before a restart.
        Duplicate = "duplicate",
        /// The API server refused the Event.
        Refused = "refused",
        /// The Event was not written, because there were too many.
        Dropped = "dropped",
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Creates a registry with every metric, all with value 0.
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
            self.scorer_reloads.at([result]);
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
        for why in Why::WORDS {
            self.moves.at([why, "evicted"]);
        }
        for result in Agreement::WORDS {
            self.scorer_choices.at([result]);
        }
        self.backstop_finds([0; 3]);
    }

    /// Counts what the learned scorer says of a placement.
    pub fn learned(&self, verdict: &Verdict<'_>) {
        let Some(learned) = &verdict.learned else { return };
        self.scorer_choices.at([learned.agreement().as_str()]).inc();
        let features = FEATURES.iter().zip(learned.outside);
        for (feature, _) in features.filter(|(_, is_outside)| *is_outside) {
            self.scorer_out_of_range.at([feature]).inc();
        }
    }

    /// Counts an answered review. `site` is empty if the verdict names none. `elapsed` runs from the complete request
    /// body to the bytes of the answer.
    pub fn review(&self, verdict: &str, reason: &str, class: &str, site: &str, elapsed: Duration) {
        self.reviews.at([verdict, reason, class, site]).inc();
        self.review_duration.observe(elapsed.as_secs_f64());
    }

    /// Sets the version of the configuration in use, a hash of its contents, and clears the faults.
    pub fn config_version(&self, version: u64) {
        self.config_info.clear();
        self.config_info.at([&format!("{version:016x}")]).set(1);
        self.config_faults.clear();
    }

    /// Sets the paths of the first faults in the newest version of the configuration.
    pub fn config_faults<'p>(&self, paths: impl Iterator<Item = &'p str>) {
        self.config_faults.clear();
        for path in paths.take(FAULTS) {
            self.config_faults.at([path]).inc();
        }
    }

    /// Counts a change of the serving certificate or of the client authorities.
    pub fn tls_reload(&self, of: TlsMaterial, result: Reload) {
        self.tls_reloads.at([of.as_str(), result.as_str()]).inc();
    }

    /// Sets the number of pods that the backstop found: Unschedulable although another site would take them, with a
    /// decision and without one; and bound without a decision.
    pub fn backstop_finds(&self, pods: [usize; 3]) {
        for (finding, pods) in ["misplaced", "undecided", "bound"].into_iter().zip(pods) {
            self.backstop_pods.at([finding]).set(count(pods));
        }
    }

    /// For every page, reads the snapshot and the reservations from `shared`. Only the first call has an effect.
    pub fn follow(&self, shared: Arc<SharedState>, clock: Clock) {
        // A process has one shared state.
        let _ = self.shared.set((shared, clock));
    }

    /// For every page, reads the number of lost log lines from `counter`. Only the first call has an effect.
    pub fn count_dropped_lines(&self, counter: ErrorCounter) {
        let _ = self.dropped_lines.set(counter);
    }

    /// Returns all metrics in the OpenMetrics text format; see [`CONTENT_TYPE`]. Cost: one pass over all nodes. The health
    /// listener writes one page at a time, because some gauges are set just before.
    pub fn encode(&self) -> String {
        let mut out = String::with_capacity(8 * 1024);
        // Writing into a String cannot fail. If an encoder fails anyway, the scraper refuses the page, because it has
        // no `# EOF`.
        if let Err(error) = self.write(&mut out) {
            tracing::error!(%error, "metrics could not be encoded");
        }
        out
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        if let Some((shared, clock)) = self.shared.get() {
            self.show_sites(&shared.snapshot(), clock.moment());
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

/// Converts a count to the type of gauges.
pub fn count<N: TryInto<i64>>(things: N) -> i64 {
    things.try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
