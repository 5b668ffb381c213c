//! Metrics of the WAN: links as decisions read them, and probes. Sites and endpoints are named as in the configuration.

use edgeward_core::cluster::wan::Cause;
use edgeward_core::model::link::LinkState;
use edgeward_core::model::snapshot::Snapshot;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

use crate::instruments::metrics::{Counters, Decimals, Gauges, register};

#[derive(Debug)]
pub(super) struct LinkMetrics {
    state: Gauges<2>,
    rtt: Decimals<1>,
    loss: Decimals<1>,
}

impl LinkMetrics {
    pub(super) fn new(to: &mut Registry) -> Self {
        Self {
            state: register(
                to,
                "edgeward_wan_state",
                "1 for the state of the link to the site, else 0",
            ),
            rtt: register(to, "edgeward_wan_rtt_seconds", "Round-trip time to the site"),
            loss: register(to, "edgeward_wan_loss_ratio", "Loss towards the site"),
        }
    }

    /// Shows the links of this snapshot, and no others.
    pub(super) fn show(&self, snapshot: &Snapshot) {
        self.state.clear();
        self.rtt.clear();
        self.loss.clear();
        for site in &snapshot.sites {
            let Some(link) = site.link else { continue };
            let of_site = ("site", site.name().to_owned().into());
            for state in LinkState::ALL {
                let labels = [of_site.clone(), ("state", state.as_str().into())];
                self.state.get_or_create(&labels).set((state == link.state).into());
            }
            if let Some(rtt) = link.rtt {
                let labels = [of_site.clone()];
                self.rtt.get_or_create(&labels).set(rtt.as_millis_f64() / 1_000.0);
            }
            if let Some(loss) = link.loss {
                self.loss.get_or_create(&[of_site]).set(f64::from(loss.0) / 1_000.0);
            }
        }
    }
}

/// The metrics of WAN probes.
#[derive(Debug)]
pub struct ProbeMetrics {
    outcomes: Counters<3>,
}

impl ProbeMetrics {
    pub(super) fn new(to: &mut Registry) -> Self {
        Self {
            outcomes: register(to, "edgeward_wan_probes", "WAN probes that were answered or lost"),
        }
    }

    /// Starts the counters of an endpoint at zero.
    pub fn endpoint(&self, site: &str, endpoint: &str) {
        self.outcomes(site, endpoint, None);
        for cause in Cause::ALL {
            self.outcomes(site, endpoint, Some(cause));
        }
    }

    /// Counts a probe that was answered, or lost for this cause.
    pub fn probed(&self, site: &str, endpoint: &str, lost: Option<Cause>) {
        self.outcomes(site, endpoint, lost).inc();
    }

    fn outcomes(&self, site: &str, endpoint: &str, lost: Option<Cause>) -> Counter {
        let labels = [
            ("site", site.to_owned().into()),
            ("endpoint", endpoint.to_owned().into()),
            ("outcome", lost.map_or("answered", Cause::as_str).into()),
        ];
        self.outcomes.get_or_create_owned(&labels)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use edgeward_core::engine::SharedState;
    use edgeward_core::model::link::Link;
    use edgeward_core::model::site::SiteDefinition;
    use edgeward_core::model::snapshot::Site;
    use edgeward_core::units::{Micros, Moment, Permille};

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
}
