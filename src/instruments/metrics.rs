//! What we measure. One registry per process, handed around by `Arc`; no global statics, so a test can hold two.
//!
//! [`LIST`] is the data from which every metric is registered and with which `docs/metrics.md` is compared. Label
//! sets are closed: every value is a `&'static str` of ours or a name from the configuration, never anything a pod
//! brings along.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric as Encode, Registry};

mod aftermath;
mod configuration;
mod controllers;
mod prometheus;
mod spans;
mod tls;
mod view;
mod waitlist;
mod wan;

use edgeward_core::engine::SharedState;

pub use aftermath::{AftermathMetrics, Found, RecreationOutcome};
pub use configuration::ConfigurationMetrics;
pub use controllers::{ControllerMetrics, EventResult};
pub use prometheus::PrometheusMetrics;
pub use spans::{SpanMetrics, SpanResult};
pub use tls::{Kept, TlsCa, TlsMaterial, TlsMetrics};
pub use view::ViewMetrics;
pub use waitlist::{ReleaseOutcome, WaitlistMetrics};
pub use wan::WanMetrics;

/// `Content-Type` of what [`Metrics::encode`] returns.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How a metric counts, as its `# TYPE` line says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only ever rises; zero at start.
    Counter,
    /// The value as of now.
    Gauge,
    /// Observations in buckets, with their sum and count.
    Histogram,
    /// Constant 1; its labels are the message.
    Info,
}

impl Kind {
    /// The word that the exposition and the documentation use.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

/// One metric as operators see it.
#[derive(Debug, Clone, Copy)]
pub struct Description {
    /// Full name, unit and `_total` included.
    pub name: &'static str,
    /// How it counts.
    pub kind: Kind,
    /// Its label names, in order.
    pub labels: &'static [&'static str],
    /// One sentence without the final full stop, which the exposition adds.
    pub help: &'static str,
}

const REVIEWS: Description = Description {
    name: "edgeward_reviews_total",
    kind: Kind::Counter,
    labels: &["verdict", "reason", "class", "site"],
    help: "Admission reviews answered, by verdict, reason code, workload class and chosen site",
};
const REVIEW_DURATION: Description = Description {
    name: "edgeward_review_duration_seconds",
    kind: Kind::Histogram,
    labels: &[],
    help: "Time from a complete request body to the answer's bytes",
};
const CONNECTIONS: Description = Description {
    name: "edgeward_connections_total",
    kind: Kind::Counter,
    labels: &["protocol"],
    help: "TLS handshakes completed on the admission port, by negotiated application protocol (none: the client offered none)",
};
const CONNECTIONS_REFUSED: Description = Description {
    name: "edgeward_connections_refused_total",
    kind: Kind::Counter,
    labels: &["port"],
    help: "Connections closed because too many were open, by port: one that was never answered with success, or the new one where there is none",
};
const HANDSHAKE_FAILURES: Description = Description {
    name: "edgeward_tls_handshake_failures_total",
    kind: Kind::Counter,
    labels: &["cause"],
    help: "Connections to the admission port that ended before a handshake was complete (rejected: the client refused our certificate, most often a wrong caBundle; client: it showed none that --client-ca vouches for)",
};
const HTTP_ERRORS: Description = Description {
    name: "edgeward_http_errors_total",
    kind: Kind::Counter,
    labels: &["code"],
    help: "Requests to the admission port that were answered with an HTTP error, by status code",
};
const FLEET_REVISION: Description = Description {
    name: "edgeward_fleet_revision",
    kind: Kind::Gauge,
    labels: &[],
    help: "Revision of the fleet snapshot that decisions read, 0 before the first",
};
const FLEET_RELOADS: Description = Description {
    name: "edgeward_fleet_reloads_total",
    kind: Kind::Counter,
    labels: &["result"],
    help: "Changes of the fleet file, by what became of them (anything but loaded keeps the old fleet)",
};
const RESERVATIONS: Description = Description {
    name: "edgeward_reservations",
    kind: Kind::Gauge,
    labels: &[],
    help: "Reservations whose pod has not been seen yet",
};
const RESERVATIONS_EXPIRED: Description = Description {
    name: "edgeward_reservations_expired_total",
    kind: Kind::Counter,
    labels: &[],
    help: "Reservations whose pod was not seen in time",
};
const OWNERS_SUSPENDED: Description = Description {
    name: "edgeward_reservation_owners_suspended",
    kind: Kind::Gauge,
    labels: &[],
    help: "Controllers and namespaces that get no reservations because their last three expired",
};
const READY: Description = Description {
    name: "edgeward_ready",
    kind: Kind::Gauge,
    labels: &[],
    help: "1 while this replica is ready, else 0",
};
const LOG_LINES_DROPPED: Description = Description {
    name: "edgeward_log_lines_dropped_total",
    kind: Kind::Counter,
    labels: &[],
    help: "Log lines that standard error did not take, or not fast enough",
};
const BUILD_INFO: Description = Description {
    name: "edgeward_build_info",
    kind: Kind::Info,
    labels: &["version"],
    help: "The version that is running",
};

/// Every metric there is, in the order of the documentation.
pub const LIST: &[Description] = &[
    REVIEWS,
    REVIEW_DURATION,
    CONNECTIONS,
    CONNECTIONS_REFUSED,
    HANDSHAKE_FAILURES,
    HTTP_ERRORS,
    tls::RELOADS,
    tls::NOT_AFTER,
    tls::CA_NOT_AFTER,
    tls::KEPT,
    FLEET_REVISION,
    FLEET_RELOADS,
    view::NODES,
    view::FREE_CPU,
    view::FREE_MEMORY,
    view::CHARGED_CPU,
    view::CHARGED_MEMORY,
    view::CHARGED_PODS,
    view::QUEUE,
    view::CLOSED,
    view::CACHED_PODS,
    view::NODE_FAULTS,
    view::HEARD,
    view::LISTS,
    view::FAILURES,
    view::REPLICAS,
    waitlist::HELD,
    waitlist::OLDEST,
    waitlist::CHANGES,
    RESERVATIONS,
    RESERVATIONS_EXPIRED,
    OWNERS_SUSPENDED,
    wan::STATE,
    wan::RTT,
    wan::LOSS,
    wan::PROBES,
    wan::PROBE_RTT,
    wan::PROBE_JITTER,
    wan::PROBE_LOSS,
    wan::LAST_ANSWER,
    configuration::INFO,
    configuration::RELOADS,
    configuration::FAULTS,
    prometheus::QUERIES,
    prometheus::SAMPLE,
    controllers::LEADER,
    controllers::EVENTS,
    aftermath::FOUND,
    aftermath::RECREATIONS,
    aftermath::PAUSES,
    aftermath::PAUSED,
    spans::SPANS,
    READY,
    LOG_LINES_DROPPED,
    BUILD_INFO,
];

/// Upper bounds of the review histogram in seconds: 50 µs, where a review should be, to 1 s, the webhook's timeout.
const REVIEW_BUCKETS: [f64; 14] = [
    50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1.0,
];

/// What became of the new content of something watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// It is in use.
    Loaded,
    /// It was read and found wanting; the old content stays in use.
    Refused,
    /// It could not be read; the old content stays in use.
    Unreadable,
}

impl Reload {
    /// Everything that can become of it.
    pub(crate) const ALL: [Self; 3] = [Self::Loaded, Self::Refused, Self::Unreadable];

    /// The value of the label `result`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Loaded => "loaded",
            Self::Refused => "refused",
            Self::Unreadable => "unreadable",
        }
    }
}

/// Why a connection to the admission port never became one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandshakeFailure {
    /// The client refused our certificate: its CA bundle, the name it expects, or its clock differ from ours.
    Rejected,
    /// Client and server have no protocol, version or cipher in common, or what came is not TLS.
    Protocol,
    /// The client hung up first. TCP health checks do.
    Closed,
    /// The handshake took too long.
    Timeout,
    /// The client showed no certificate, or none that counts here.
    Client,
}

impl HandshakeFailure {
    /// Every reason.
    const ALL: [Self; 5] = [
        Self::Rejected,
        Self::Protocol,
        Self::Closed,
        Self::Timeout,
        Self::Client,
    ];

    /// The value of the label `cause`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::Protocol => "protocol",
            Self::Closed => "closed",
            Self::Timeout => "timeout",
            Self::Client => "client",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReviewLabels {
    verdict: &'static str,
    reason: &'static str,
    class: &'static str,
    site: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProtocolLabel {
    protocol: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PortLabel {
    port: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabel {
    cause: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VersionLabel {
    version: &'static str,
}

/// The process's metrics. Every method is safe from any thread, and every one that counts costs well under a microsecond.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    shared: OnceLock<Arc<SharedState>>,
    reviews: Family<ReviewLabels, Counter>,
    review_duration: Histogram,
    connections: Family<ProtocolLabel, Counter>,
    connections_refused: Family<PortLabel, Counter>,
    handshake_failures: Family<CauseLabel, Counter>,
    http_errors: Family<CodeLabel, Counter>,
    tls: TlsMetrics,
    fleet_revision: Gauge<u64, AtomicU64>,
    fleet_reloads: Family<ResultLabel, Counter>,
    view: ViewMetrics,
    reservations: Gauge<u64, AtomicU64>,
    reservations_expired: Counter,
    owners_suspended: Gauge<u64, AtomicU64>,
    waitlist: WaitlistMetrics,
    wan: WanMetrics,
    configuration: ConfigurationMetrics,
    prometheus: PrometheusMetrics,
    controllers: ControllerMetrics,
    aftermath: AftermathMetrics,
    spans: SpanMetrics,
    ready: Gauge,
    log_lines_dropped: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// A registry with every metric of [`LIST`], all at zero.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let version = Info::new(VersionLabel {
            version: env!("CARGO_PKG_VERSION"),
        });
        registry.register(registered_name(&BUILD_INFO), BUILD_INFO.help, version);
        let metrics = Self {
            shared: OnceLock::new(),
            reviews: register(&mut registry, &REVIEWS, Family::default()),
            review_duration: register(&mut registry, &REVIEW_DURATION, Histogram::new(REVIEW_BUCKETS)),
            connections: register(&mut registry, &CONNECTIONS, Family::default()),
            connections_refused: register(&mut registry, &CONNECTIONS_REFUSED, Family::default()),
            handshake_failures: register(&mut registry, &HANDSHAKE_FAILURES, Family::default()),
            http_errors: register(&mut registry, &HTTP_ERRORS, Family::default()),
            tls: TlsMetrics::new(&mut registry),
            fleet_revision: register(&mut registry, &FLEET_REVISION, Gauge::default()),
            fleet_reloads: register(&mut registry, &FLEET_RELOADS, Family::default()),
            view: ViewMetrics::new(&mut registry),
            reservations: register(&mut registry, &RESERVATIONS, Gauge::default()),
            reservations_expired: register(&mut registry, &RESERVATIONS_EXPIRED, Counter::default()),
            owners_suspended: register(&mut registry, &OWNERS_SUSPENDED, Gauge::default()),
            waitlist: WaitlistMetrics::new(&mut registry),
            wan: WanMetrics::new(&mut registry),
            configuration: ConfigurationMetrics::new(&mut registry),
            prometheus: PrometheusMetrics::new(&mut registry),
            controllers: ControllerMetrics::new(&mut registry),
            aftermath: AftermathMetrics::new(&mut registry),
            spans: SpanMetrics::new(&mut registry),
            ready: register(&mut registry, &READY, Gauge::default()),
            log_lines_dropped: register(&mut registry, &LOG_LINES_DROPPED, Counter::default()),
            registry,
        };
        // A counter that is absent until it first counts hides its first increase from `rate()`.
        for result in Reload::ALL {
            drop(metrics.fleet_reloads.get_or_create(&ResultLabel {
                result: result.as_str(),
            }));
        }
        for cause in HandshakeFailure::ALL.map(HandshakeFailure::as_str) {
            drop(metrics.handshake_failures.get_or_create(&CauseLabel { cause }));
        }
        metrics
    }

    /// One review was answered. `verdict`, `reason` and `class` come from enums, `site` from the configuration
    /// (empty when the verdict names none); `elapsed` runs from the complete body to the answer's bytes.
    pub fn review(
        &self,
        verdict: &'static str,
        reason: &'static str,
        class: &'static str,
        site: &str,
        elapsed: Duration,
    ) {
        let labels = ReviewLabels {
            verdict,
            reason,
            class,
            site: site.to_owned(),
        };
        self.reviews.get_or_create(&labels).inc();
        self.review_duration.observe(elapsed.as_secs_f64());
    }

    /// A TLS handshake on the admission port completed with this application protocol, `none` if the client
    /// offered none.
    pub fn connection(&self, protocol: &'static str) {
        self.connections.get_or_create(&ProtocolLabel { protocol }).inc();
    }

    /// A connection to this port was closed because too many were open.
    pub fn connection_refused(&self, port: &'static str) {
        self.connections_refused.get_or_create(&PortLabel { port }).inc();
    }

    /// A connection to the admission port ended before its handshake was complete.
    pub fn handshake_failure(&self, cause: HandshakeFailure) {
        self.handshake_failures
            .get_or_create(&CauseLabel { cause: cause.as_str() })
            .inc();
    }

    /// A request to the admission port was answered with this HTTP status, 400 or above.
    pub fn http_error(&self, code: u16) {
        self.http_errors.get_or_create(&CodeLabel { code }).inc();
    }

    /// Certificates.
    #[must_use]
    pub fn tls(&self) -> &TlsMetrics {
        &self.tls
    }

    /// What is shown of snapshot and reservations is read here when it is asked for. Only the first such place counts.
    pub fn follow(&self, shared: Arc<SharedState>) {
        // There is one in a process.
        let _ = self.shared.set(shared);
    }

    /// The fleet file changed.
    pub fn fleet_reload(&self, result: Reload) {
        self.fleet_reloads
            .get_or_create(&ResultLabel {
                result: result.as_str(),
            })
            .inc();
    }

    /// What the live view holds.
    #[must_use]
    pub fn view(&self) -> &ViewMetrics {
        &self.view
    }

    /// Held pods.
    #[must_use]
    pub fn waitlist(&self) -> &WaitlistMetrics {
        &self.waitlist
    }

    /// What probes say of the WAN.
    #[must_use]
    pub fn wan(&self) -> &WanMetrics {
        &self.wan
    }

    /// What becomes of the configuration.
    #[must_use]
    pub fn configuration(&self) -> &ConfigurationMetrics {
        &self.configuration
    }

    /// What becomes of the questions that a Prometheus server is asked.
    pub fn prometheus(&self) -> &PrometheusMetrics {
        &self.prometheus
    }

    /// What the writers to the API server do.
    pub fn controllers(&self) -> &ControllerMetrics {
        &self.controllers
    }

    /// What becomes of pods after they were created.
    pub fn aftermath(&self) -> &AftermathMetrics {
        &self.aftermath
    }

    /// What becomes of spans.
    pub fn spans(&self) -> &SpanMetrics {
        &self.spans
    }

    /// Whether this replica is ready.
    pub fn ready(&self, is_ready: bool) {
        self.ready.set(is_ready.into());
    }

    /// So many log lines were lost.
    pub fn log_lines_dropped(&self, lines: usize) {
        self.log_lines_dropped.inc_by(u64::try_from(lines).unwrap_or(u64::MAX));
    }

    fn refresh(&self) {
        let Some(shared) = self.shared.get() else { return };
        let snapshot = shared.snapshot();
        self.fleet_revision.set(snapshot.revision);
        self.view.sites(&snapshot);
        self.aftermath.paused_controllers(snapshot.paused.iter().count());
        let ledger = shared.ledger();
        self.reservations.set(ledger.open() as u64);
        self.owners_suspended.set(ledger.suspended() as u64);
        self.reservations_expired
            .inner()
            .store(ledger.expired(), Ordering::Relaxed);
    }

    /// Everything, in the OpenMetrics text format; see [`CONTENT_TYPE`]. Cost: a pass over all nodes.
    #[must_use]
    pub fn encode(&self) -> String {
        self.refresh();
        let mut out = String::with_capacity(8 * 1024);
        // Writing into a String cannot fail; should an encoder do so all the same, a cut-off page without its
        // `# EOF` is refused by the scraper, which is the truth.
        if let Err(error) = text::encode(&mut out, &self.registry) {
            tracing::error!(%error, "metrics could not be encoded");
        }
        out
    }
}

fn register<M: Encode + Clone>(registry: &mut Registry, description: &Description, metric: M) -> M {
    registry.register(registered_name(description), description.help, metric.clone());
    metric
}

/// The encoder appends the suffix that the type demands.
fn registered_name(description: &Description) -> &'static str {
    let suffix = match description.kind {
        Kind::Counter => "_total",
        Kind::Info => "_info",
        Kind::Gauge | Kind::Histogram => "",
    };
    description.name.strip_suffix(suffix).unwrap_or(description.name)
}

#[cfg(test)]
mod tests;
