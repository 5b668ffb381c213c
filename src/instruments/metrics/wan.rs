//! What probes say of the WAN. Sites and endpoints are named as in the configuration.

use std::sync::atomic::AtomicU64;

use edgeward_core::cluster::wan::{Cause, Statistics};
use edgeward_core::model::link::{Link, LinkState};
use edgeward_core::units::{Micros, Permille};
use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::instruments::metrics::{Description, Kind, register};

pub(super) const STATE: Description = Description {
    name: "edgeward_wan_state",
    kind: Kind::Gauge,
    labels: &["site", "state"],
    help: "1 for the state that the link to the site is in, 0 for the others; absent before the first round of probes",
};
pub(super) const RTT: Description = Description {
    name: "edgeward_wan_rtt_seconds",
    kind: Kind::Gauge,
    labels: &["site"],
    help: "Round-trip time to the site that decisions read: of its best endpoint, the mean of the last 5 answers",
};
pub(super) const LOSS: Description = Description {
    name: "edgeward_wan_loss_ratio",
    kind: Kind::Gauge,
    labels: &["site"],
    help: "Loss towards the site that decisions read: of its best endpoint, over the last 100 probes",
};
pub(super) const PROBES: Description = Description {
    name: "edgeward_wan_probes_total",
    kind: Kind::Counter,
    labels: &["site", "endpoint", "outcome"],
    help: "Probes that came to an end, by outcome: answered, or why they were lost",
};
pub(super) const PROBE_RTT: Description = Description {
    name: "edgeward_wan_probe_rtt_seconds",
    kind: Kind::Gauge,
    labels: &["site", "endpoint", "statistic"],
    help: "Round-trip times of the answered among the last 100 probes",
};
pub(super) const PROBE_JITTER: Description = Description {
    name: "edgeward_wan_probe_jitter_seconds",
    kind: Kind::Gauge,
    labels: &["site", "endpoint"],
    help: "Mean absolute difference of consecutive round-trip times among the last 100 probes",
};
pub(super) const PROBE_LOSS: Description = Description {
    name: "edgeward_wan_probe_loss_ratio",
    kind: Kind::Gauge,
    labels: &["site", "endpoint"],
    help: "Lost ones among the last 100 probes",
};
pub(super) const LAST_ANSWER: Description = Description {
    name: "edgeward_wan_last_answer_timestamp_seconds",
    kind: Kind::Gauge,
    labels: &["site", "endpoint"],
    help: "When a probe was last answered, in seconds since the Unix epoch",
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SiteLabel {
    site: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    site: String,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndpointLabels {
    site: String,
    endpoint: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    site: String,
    endpoint: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatisticLabels {
    site: String,
    endpoint: String,
    statistic: &'static str,
}

type Decimal = Gauge<f64, AtomicU64>;

/// The WAN's part of the process's metrics. Every method costs a few microseconds: labels are strings.
#[derive(Debug)]
pub struct WanMetrics {
    state: Family<StateLabels, Gauge>,
    rtt: Family<SiteLabel, Decimal>,
    loss: Family<SiteLabel, Decimal>,
    probes: Family<OutcomeLabels, Counter>,
    probe_rtt: Family<StatisticLabels, Decimal>,
    probe_jitter: Family<EndpointLabels, Decimal>,
    probe_loss: Family<EndpointLabels, Decimal>,
    last_answer: Family<EndpointLabels, Gauge>,
}

impl WanMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        Self {
            state: register(registry, &STATE, Family::default()),
            rtt: register(registry, &RTT, Family::default()),
            loss: register(registry, &LOSS, Family::default()),
            probes: register(registry, &PROBES, Family::default()),
            probe_rtt: register(registry, &PROBE_RTT, Family::default()),
            probe_jitter: register(registry, &PROBE_JITTER, Family::default()),
            probe_loss: register(registry, &PROBE_LOSS, Family::default()),
            last_answer: register(registry, &LAST_ANSWER, Family::default()),
        }
    }

    /// Other links are probed from now on, or the same ones otherwise: what is known of them is told anew.
    pub fn forget(&self) {
        self.state.clear();
        self.last_answer.clear();
        self.probe_rtt.clear();
        for family in [&self.rtt, &self.loss] {
            family.clear();
        }
        for family in [&self.probe_jitter, &self.probe_loss] {
            family.clear();
        }
    }

    /// This endpoint will be probed: its counters begin at zero.
    pub fn endpoint(&self, site: &str, endpoint: &str) {
        drop(self.outcomes(site, endpoint, None));
        for cause in Cause::ALL {
            drop(self.outcomes(site, endpoint, Some(cause)));
        }
    }

    /// A probe was answered at this moment.
    pub fn answered(&self, site: &str, endpoint: &str, at: Timestamp) {
        self.outcomes(site, endpoint, None).inc();
        self.last_answer
            .get_or_create(&endpoint_labels(site, endpoint))
            .set(at.as_second());
    }

    /// A probe was lost.
    pub fn lost(&self, site: &str, endpoint: &str, cause: Cause) {
        self.outcomes(site, endpoint, Some(cause)).inc();
    }

    /// The numbers of an endpoint are these now.
    pub fn statistics(&self, site: &str, endpoint: &str, statistics: &Statistics) {
        let labels = endpoint_labels(site, endpoint);
        if let Some(loss) = statistics.loss {
            self.probe_loss.get_or_create(&labels).set(ratio(loss));
        }
        let Some(round_trips) = statistics.round_trips else {
            return;
        };
        self.probe_jitter
            .get_or_create(&labels)
            .set(seconds(round_trips.jitter));
        for (statistic, time) in [
            ("last5", round_trips.decision),
            ("mean", round_trips.mean),
            ("p50", round_trips.p50),
            ("p95", round_trips.p95),
        ] {
            let labels = StatisticLabels {
                site: site.to_owned(),
                endpoint: endpoint.to_owned(),
                statistic,
            };
            self.probe_rtt.get_or_create(&labels).set(seconds(time));
        }
    }

    /// The link to a site is this now.
    pub fn link(&self, site: &str, link: &Link) {
        for state in LinkState::ALL {
            let labels = StateLabels {
                site: site.to_owned(),
                state: state.as_str(),
            };
            self.state.get_or_create(&labels).set(i64::from(state == link.state));
        }
        let labels = SiteLabel { site: site.to_owned() };
        if let Some(rtt) = link.rtt {
            self.rtt.get_or_create(&labels).set(seconds(rtt));
        }
        if let Some(loss) = link.loss {
            self.loss.get_or_create(&labels).set(ratio(loss));
        }
    }

    fn outcomes(&self, site: &str, endpoint: &str, lost: Option<Cause>) -> impl std::ops::Deref<Target = Counter> {
        self.probes.get_or_create(&OutcomeLabels {
            site: site.to_owned(),
            endpoint: endpoint.to_owned(),
            outcome: lost.map_or("answered", Cause::as_str),
        })
    }
}

fn endpoint_labels(site: &str, endpoint: &str) -> EndpointLabels {
    EndpointLabels {
        site: site.to_owned(),
        endpoint: endpoint.to_owned(),
    }
}

fn seconds(time: Micros) -> f64 {
    time.as_millis_f64() / 1_000.0
}

fn ratio(ratio: Permille) -> f64 {
    f64::from(ratio.0) / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instruments::metrics::Metrics;
    use edgeward_core::units::Moment;

    #[test]
    fn one_state_at_a_time_and_base_units() {
        let metrics = Metrics::new();
        let mut link = Link {
            state: LinkState::Unreachable,
            rtt: None,
            loss: None,
            as_of: Moment(0),
        };
        metrics.wan().link("cloud", &link);
        assert!(!metrics.encode().contains("edgeward_wan_rtt_seconds{"));
        link = Link {
            state: LinkState::Degraded,
            rtt: Some(Micros(12_500)),
            loss: Some(Permille(25)),
            ..link
        };
        metrics.wan().link("cloud", &link);
        metrics.wan().endpoint("cloud", "tcp://gw:1");
        let page = metrics.encode();
        for line in [
            "edgeward_wan_state{site=\"cloud\",state=\"healthy\"} 0",
            "edgeward_wan_state{site=\"cloud\",state=\"degraded\"} 1",
            "edgeward_wan_state{site=\"cloud\",state=\"unreachable\"} 0",
            "edgeward_wan_rtt_seconds{site=\"cloud\"} 0.0125",
            "edgeward_wan_loss_ratio{site=\"cloud\"} 0.025",
            "edgeward_wan_probes_total{site=\"cloud\",endpoint=\"tcp://gw:1\",outcome=\"refused\"} 0",
        ] {
            assert!(page.contains(line), "{line}\n{page}");
        }
        metrics.wan().answered("cloud", "tcp://gw:1", Timestamp::UNIX_EPOCH);
        metrics.wan().forget();
        let page = metrics.encode();
        let mut left = page.lines().filter(|line| line.contains("{site=\"cloud\""));
        assert!(left.all(|line| line.starts_with("edgeward_wan_probes_total")), "{page}");
    }
}
