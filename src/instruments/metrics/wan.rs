//! The WAN as decisions read it, and what probes say of it. Sites and endpoints are named as in the configuration.

use std::sync::OnceLock;

use edgeward_core::cluster::wan::{Cause, Links, Statistics};
use edgeward_core::model::link::LinkState;
use edgeward_core::model::snapshot::Snapshot;
use edgeward_core::units::{Micros, Now, Permille};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use crate::instruments::metrics::declaration::{Counters, Decimals, Gauges, metrics};
use crate::platform::clock::Clock;

metrics! {
    pub(super) struct LinkMetrics {
        state: Gauges<2> = "edgeward_wan_state" ["site", "state"]
            "1 for the state that the link to the site is in by all that is known of it, 0 for the others; absent while nothing is";
        rtt: Decimals<1> = "edgeward_wan_rtt_seconds" ["site"]
            "Round-trip time to the site that decisions read: of its best endpoint, the mean of the last 5 answers, or what others have measured";
        loss: Decimals<1> = "edgeward_wan_loss_ratio" ["site"]
            "Loss towards the site that decisions read: of its best endpoint, over the last 100 probes, or what others have measured";
    }
}

metrics! {
    pub(super) struct ProbeMetrics {
        outcomes: Counters<3> = "edgeward_wan_probes_total" ["site", "endpoint", "outcome"]
            "Probes that came to an end, by outcome: answered, or why they were lost";
    }
}

metrics! {
    pub(super) struct EndpointMetrics {
        rtt: Decimals<3> = "edgeward_wan_probe_rtt_seconds" ["site", "endpoint", "statistic"]
            "Round-trip times of the answered among the last 100 probes";
        jitter: Decimals<2> = "edgeward_wan_probe_jitter_seconds" ["site", "endpoint"]
            "Mean absolute difference of consecutive round-trip times among the last 100 probes";
        loss: Decimals<2> = "edgeward_wan_probe_loss_ratio" ["site", "endpoint"]
            "Lost ones among the last 100 probes";
        last_answer: Gauges<2> = "edgeward_wan_last_answer_timestamp_seconds" ["site", "endpoint"]
            "When a probe was last answered, in seconds since the Unix epoch";
    }
}

/// The WAN's part of the process's metrics.
#[derive(Debug)]
pub struct WanMetrics {
    probes: ProbeMetrics,
    links: OnceLock<(watch::Receiver<Links>, Clock)>,
}

impl WanMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        Self {
            probes: ProbeMetrics::new(registry),
            links: OnceLock::new(),
        }
    }

    /// What is shown of links is read here when it is asked for; their moments are of this clock. Only the first such place
    /// counts.
    pub fn follow(&self, links: watch::Receiver<Links>, clock: Clock) {
        // There is one in a process.
        let _ = self.links.set((links, clock));
    }

    /// This endpoint will be probed: its counters begin at zero.
    pub fn endpoint(&self, site: &str, endpoint: &str) {
        self.outcomes(site, endpoint, None);
        for cause in Cause::ALL {
            self.outcomes(site, endpoint, Some(cause));
        }
    }

    /// A probe was answered, or lost for this cause.
    pub fn probed(&self, site: &str, endpoint: &str, lost: Option<Cause>) {
        self.outcomes(site, endpoint, lost).inc();
    }

    fn outcomes(&self, site: &str, endpoint: &str, lost: Option<Cause>) -> Counter {
        let outcome = lost.map_or("answered", Cause::as_str);
        let labels = [site.to_owned().into(), endpoint.to_owned().into(), outcome.into()];
        self.probes.outcomes.of(labels)
    }

    /// Registers what probes say now.
    pub(super) fn show(&self, registry: &mut Registry) {
        let Some((links, clock)) = self.links.get() else { return };
        let of_endpoints = EndpointMetrics::new(registry);
        for (site, known) in &*links.borrow() {
            for (endpoint, statistics) in &known.endpoints {
                of_endpoints.show(site, &endpoint.to_string(), statistics, clock.now());
            }
        }
    }
}

impl LinkMetrics {
    /// The links as of this snapshot.
    pub(super) fn show(&self, snapshot: &Snapshot) {
        for site in &snapshot.sites {
            let Some(link) = site.link else { continue };
            let name = || site.name().to_owned().into();
            for state in LinkState::ALL {
                let is_in = state == link.state;
                self.state.of([name(), state.as_str().into()]).set(is_in.into());
            }
            if let Some(rtt) = link.rtt {
                self.rtt.of([name()]).set(seconds(rtt));
            }
            if let Some(loss) = link.loss {
                self.loss.of([name()]).set(ratio(loss));
            }
        }
    }
}

impl EndpointMetrics {
    fn show(&self, site: &str, endpoint: &str, statistics: &Statistics, now: Now) {
        let labels = || [site.to_owned().into(), endpoint.to_owned().into()];
        if let Some(loss) = statistics.loss {
            self.loss.of(labels()).set(ratio(loss));
        }
        if let Some(answered) = statistics.last_answer {
            let ago = now.moment.since(answered);
            let at = now.wall.as_microsecond().saturating_sub_unsigned(ago.0);
            self.last_answer.of(labels()).set(at / 1_000_000);
        }
        let Some(round_trips) = statistics.round_trips else {
            return;
        };
        self.jitter.of(labels()).set(seconds(round_trips.jitter));
        for (statistic, time) in [
            ("last5", round_trips.decision),
            ("mean", round_trips.mean),
            ("p50", round_trips.p50),
            ("p95", round_trips.p95),
        ] {
            let [site, endpoint] = labels();
            self.rtt.of([site, endpoint, statistic.into()]).set(seconds(time));
        }
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
    use std::sync::Arc;

    use edgeward_core::cluster::wan::SiteLink;
    use edgeward_core::engine::SharedState;
    use edgeward_core::model::endpoint::Endpoint;
    use edgeward_core::model::link::Link;
    use edgeward_core::model::site::SiteDefinition;
    use edgeward_core::model::snapshot::Site;
    use edgeward_core::units::Moment;

    use super::*;
    use crate::instruments::metrics::Metrics;

    #[test]
    fn one_state_at_a_time_and_base_units() {
        let metrics = Metrics::new();
        let shared = Arc::<SharedState>::default();
        metrics.follow(Arc::clone(&shared));
        let publish = |link: Option<Link>| {
            let mut cloud = Site::new(Arc::new(SiteDefinition::cloud()));
            cloud.link = link;
            shared.set_snapshot(Arc::new(Snapshot {
                sites: vec![cloud],
                ..Snapshot::default()
            }));
            metrics.encode()
        };
        let mut link = Link {
            state: LinkState::Unreachable,
            rtt: None,
            loss: None,
            as_of: Moment(0),
        };
        assert!(!publish(Some(link)).contains("edgeward_wan_rtt_seconds{"));
        link = Link {
            state: LinkState::Degraded,
            rtt: Some(Micros(12_500)),
            loss: Some(Permille(25)),
            ..link
        };
        let page = publish(Some(link));
        for line in [
            "edgeward_wan_state{site=\"cloud\",state=\"healthy\"} 0",
            "edgeward_wan_state{site=\"cloud\",state=\"degraded\"} 1",
            "edgeward_wan_state{site=\"cloud\",state=\"unreachable\"} 0",
            "edgeward_wan_rtt_seconds{site=\"cloud\"} 0.0125",
            "edgeward_wan_loss_ratio{site=\"cloud\"} 0.025",
        ] {
            assert!(page.contains(line), "{line}\n{page}");
        }
        assert!(!publish(None).contains("edgeward_wan_state{"));
    }

    #[test]
    fn of_endpoints_what_their_probes_say_now() {
        let metrics = Metrics::new();
        let links = watch::Sender::<Links>::default();
        metrics.wan.follow(links.subscribe(), Clock::start());
        metrics.wan.endpoint("cloud", "tcp://gw:1");
        let statistics = Statistics {
            last_answer: Some(Moment(0)),
            ..Statistics::default()
        };
        let known = SiteLink {
            link: None,
            endpoints: vec![(Endpoint::parse("tcp://gw:1").unwrap(), statistics)],
        };
        links.send_replace(Links::from([("cloud".to_owned(), known)]));
        let page = metrics.encode();
        for line in [
            "edgeward_wan_last_answer_timestamp_seconds{site=\"cloud\",endpoint=\"tcp://gw:1\"} ",
            "edgeward_wan_probes_total{site=\"cloud\",endpoint=\"tcp://gw:1\",outcome=\"refused\"} 0",
        ] {
            assert!(page.contains(line), "{line}\n{page}");
        }
        links.send_replace(Links::new());
        let page = metrics.encode();
        let mut left = page.lines().filter(|line| line.contains("{site=\"cloud\""));
        assert!(left.all(|line| line.starts_with("edgeward_wan_probes_total")), "{page}");
    }
}
