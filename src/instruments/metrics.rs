//! What we measure. One registry per process, handed around by `Arc`; no global statics, so a test can hold two.
//!
//! A group declares its metrics by `metrics!`, from which each is registered and with which `docs/metrics.md` is compared.
//! What is known anyway, of sites, links and the configuration, is read when the page is asked for. Label sets are closed:
//! every value is a `&'static str` of ours or a name from the configuration, never anything a pod brings along.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use edgeward_core::engine::SharedState;
use edgeward_core::words;
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

mod configuration;
mod controllers;
mod declaration;
mod guards;
mod prometheus;
mod sites;
mod spans;
mod tls;
mod view;
mod waitlist;
mod wan;

pub use configuration::ConfigurationMetrics;
pub use controllers::{ControllerMetrics, EventResult};
pub use declaration::{Description, Kind};
pub use guards::{Found, GuardMetrics};
pub use prometheus::PrometheusMetrics;
pub use spans::{SpanMetrics, SpanResult};
pub use tls::{Kept, TlsCa, TlsMaterial, TlsMetrics};
pub use view::ViewMetrics;
pub use waitlist::{ReleaseOutcome, UNREAD, WaitlistMetrics};
pub use wan::WanMetrics;

use declaration::{Counters, Metric, Version, metrics};
use sites::SiteMetrics;

/// `Content-Type` of what [`Metrics::encode`] returns.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

metrics! {
    struct RequestMetrics {
        reviews: Counters<4> = "edgeward_reviews_total" ["verdict", "reason", "class", "site"]
            "Admission reviews answered, by verdict, reason code, workload class and chosen site";
        review_duration: Histogram = "edgeward_review_duration_seconds" []
            "Time from a complete request body to the answer's bytes";
        connections: Counters<1> = "edgeward_connections_total" ["protocol"]
            "TLS handshakes completed on the admission port, by negotiated application protocol (none: the client offered none)";
        connections_refused: Counters<1> = "edgeward_connections_refused_total" ["port"]
            "Connections closed because too many were open, by port: one that was never answered with success, or the new one where there is none";
        handshake_failures: Counters<1> = "edgeward_tls_handshake_failures_total" ["cause"]
            "Connections to the admission port that ended before a handshake was complete (rejected: the client refused our certificate, most often a wrong caBundle; client: it showed none that --client-ca vouches for)";
        http_errors: Counters<1> = "edgeward_http_errors_total" ["code"]
            "Requests to the admission port that were answered with an HTTP error, by status code";
    }
}

metrics! {
    struct FleetMetrics {
        revision: Gauge = "edgeward_fleet_revision" []
            "Revision of the fleet snapshot that decisions read, 0 before the first";
        reloads: Counters<1> = "edgeward_fleet_reloads_total" ["result"]
            "Changes of the fleet file, by what became of them (anything but loaded keeps the old fleet)";
    }
}

metrics! {
    struct ReservationMetrics {
        open: Gauge = "edgeward_reservations" []
            "Reservations whose pod has not been seen yet";
        expired: Counter = "edgeward_reservations_expired_total" []
            "Reservations whose pod was not seen in time";
        beyond_share: Gauge = "edgeward_reservations_beyond_share" []
            "Reservations whose pod has not been seen yet that count for their own namespace alone, which has more than its share";
    }
}

metrics! {
    struct ProcessMetrics {
        ready: Gauge = "edgeward_ready" []
            "1 while this replica is ready, else 0";
        log_lines_dropped: Counter = "edgeward_log_lines_dropped_total" []
            "Log lines that standard error did not take, or not fast enough";
        _build_info: Version = "edgeward_build_info" ["version"]
            "The version that is running";
    }
}

/// Every metric there is, in the order of the documentation.
pub fn list() -> impl Iterator<Item = Description> {
    let groups = [
        &RequestMetrics::LIST[..],
        &TlsMetrics::LIST,
        &FleetMetrics::LIST,
        &SiteMetrics::LIST,
        &ViewMetrics::LIST,
        &WaitlistMetrics::LIST,
        &ReservationMetrics::LIST,
        &wan::LinkMetrics::LIST,
        &wan::ProbeMetrics::LIST,
        &wan::EndpointMetrics::LIST,
        &configuration::VersionMetrics::LIST,
        &configuration::ReloadMetrics::LIST,
        &configuration::FaultMetrics::LIST,
        &configuration::GateMetrics::LIST,
        &PrometheusMetrics::LIST,
        &ControllerMetrics::LIST,
        &GuardMetrics::LIST,
        &SpanMetrics::LIST,
        &ProcessMetrics::LIST,
    ];
    groups.into_iter().flatten().copied()
}

/// Upper bounds of the review histogram in seconds: 50 µs, where a review should be, to 1 s, the webhook's timeout.
const REVIEW_BUCKETS: [f64; 14] = [
    50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 25e-3, 50e-3, 100e-3, 250e-3, 500e-3, 1.0,
];

/// There is one: of reviews.
impl Metric for Histogram {
    const KIND: Kind = Kind::Histogram;

    fn register(of: &'static Description, registry: &mut Registry) -> Self {
        of.register(registry, Self::new(REVIEW_BUCKETS))
    }
}

words! {
    /// What became of the new content of something watched: the label `result`.
    pub enum Reload {
        /// It is in use.
        Loaded = "loaded",
        /// It was read and found wanting; the old content stays in use.
        Refused = "refused",
        /// It could not be read; the old content stays in use.
        Unreadable = "unreadable",
    }
}

words! {
    /// Why a connection to the admission port never became one: the label `cause`.
    pub enum HandshakeFailure {
        /// The client refused our certificate: its CA bundle, the name it expects, or its clock differ from ours.
        Rejected = "rejected",
        /// Client and server have no protocol, version or cipher in common, or what came is not TLS.
        Protocol = "protocol",
        /// The client hung up first. TCP health checks do.
        Closed = "closed",
        /// The handshake took too long.
        Timeout = "timeout",
        /// The client showed no certificate, or none that counts here.
        Client = "client",
    }
}

/// The process's metrics. Every method is safe from any thread, and every one that counts costs well under a microsecond.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    shared: OnceLock<Arc<SharedState>>,
    requests: RequestMetrics,
    /// Certificates.
    pub tls: TlsMetrics,
    fleet: FleetMetrics,
    /// What the live view holds.
    pub view: ViewMetrics,
    /// Held pods.
    pub waitlist: WaitlistMetrics,
    reservations: ReservationMetrics,
    /// What probes say of the WAN.
    pub wan: WanMetrics,
    /// What becomes of the configuration.
    pub configuration: ConfigurationMetrics,
    /// What becomes of the questions that a Prometheus server is asked.
    pub prometheus: PrometheusMetrics,
    /// What the writers to the API server do.
    pub controllers: ControllerMetrics,
    /// What becomes of pods after they were created.
    pub guards: GuardMetrics,
    /// What becomes of spans.
    pub spans: SpanMetrics,
    process: ProcessMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// A registry with every metric of [`list`], all at zero.
    #[must_use]
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let to = &mut registry;
        let metrics = Self {
            shared: OnceLock::new(),
            requests: RequestMetrics::new(to),
            tls: TlsMetrics::new(to),
            fleet: FleetMetrics::new(to),
            view: ViewMetrics::new(to),
            waitlist: WaitlistMetrics::new(to),
            reservations: ReservationMetrics::new(to),
            wan: WanMetrics::new(to),
            configuration: ConfigurationMetrics::new(to),
            prometheus: PrometheusMetrics::new(to),
            controllers: ControllerMetrics::new(to),
            guards: GuardMetrics::new(to),
            spans: SpanMetrics::new(to),
            process: ProcessMetrics::new(to),
            registry,
        };
        // A counter that is absent until it first counts hides its first increase from `rate()`.
        metrics.tls.start_at_zero();
        metrics.waitlist.start_at_zero();
        metrics.guards.start_at_zero();
        metrics.spans.start_at_zero();
        for result in Reload::ALL {
            metrics.fleet.reloads.of([result.as_str().into()]);
        }
        for cause in HandshakeFailure::ALL {
            metrics.requests.handshake_failures.of([cause.as_str().into()]);
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
        let labels = [verdict.into(), reason.into(), class.into(), site.to_owned().into()];
        self.requests.reviews.of(labels).inc();
        self.requests.review_duration.observe(elapsed.as_secs_f64());
    }

    /// A TLS handshake on the admission port completed with this application protocol, `none` if the client
    /// offered none.
    pub fn connection(&self, protocol: &'static str) {
        self.requests.connections.of([protocol.into()]).inc();
    }

    /// A connection to this port was closed because too many were open.
    pub fn connection_refused(&self, port: &'static str) {
        self.requests.connections_refused.of([port.into()]).inc();
    }

    /// A connection to the admission port ended before its handshake was complete.
    pub fn handshake_failure(&self, cause: HandshakeFailure) {
        self.requests.handshake_failures.of([cause.as_str().into()]).inc();
    }

    /// A request to the admission port was answered with this HTTP status, 400 or above.
    pub fn http_error(&self, code: u16) {
        self.requests.http_errors.of([code.to_string().into()]).inc();
    }

    /// What is shown of snapshot and reservations is read here when it is asked for. Only the first such place counts.
    pub fn follow(&self, shared: Arc<SharedState>) {
        // There is one in a process.
        let _ = self.shared.set(shared);
    }

    /// The fleet file changed.
    pub fn fleet_reload(&self, result: Reload) {
        self.fleet.reloads.of([result.as_str().into()]).inc();
    }

    /// Whether this replica is ready.
    pub fn ready(&self, is_ready: bool) {
        self.process.ready.set(is_ready.into());
    }

    /// So many log lines were lost.
    pub fn log_lines_dropped(&self, lines: usize) {
        let lines = u64::try_from(lines).unwrap_or(u64::MAX);
        self.process.log_lines_dropped.inc_by(lines);
    }

    /// Everything, in the OpenMetrics text format; see [`CONTENT_TYPE`]. Cost: a pass over all nodes.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut out = String::with_capacity(8 * 1024);
        // Writing into a String cannot fail; should an encoder do so all the same, a cut-off page without its
        // `# EOF` is refused by the scraper, which is the truth.
        if let Err(error) = self.write(&mut out) {
            tracing::error!(%error, "metrics could not be encoded");
        }
        out
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        let mut now = Registry::default();
        if let Some(shared) = self.shared.get() {
            let snapshot = shared.snapshot();
            self.fleet.revision.set(count(snapshot.revision));
            SiteMetrics::new(&mut now).show(&snapshot);
            wan::LinkMetrics::new(&mut now).show(&snapshot);
            let ledger = shared.ledger();
            self.reservations.open.set(count(ledger.open()));
            self.reservations.beyond_share.set(count(ledger.beyond_share()));
            let expired = self.reservations.expired.inner();
            expired.store(ledger.expired(), Ordering::Relaxed);
        }
        self.wan.show(&mut now);
        self.configuration.show(&mut now);
        text::encode_registry(out, &self.registry)?;
        text::encode(out, &now)
    }
}

/// A number of things, as gauges have it.
fn count<N: TryInto<i64>>(things: N) -> i64 {
    things.try_into().unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
