//! The cost map: what is known of the way from each site to each other.

use std::ops::Add as _;

use crate::config::Input;
use crate::model::link::{Bandwidth, Link, LinkFigures, LinkSource, LinkState};
use crate::model::site::SiteKind;
use crate::model::snapshot::{Site, Snapshot};
use edgeward_kube::units::{Micros, Moment, Permille};

/// What is known of the way from one site to another. Unknown figures are `None`, never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route<'s> {
    /// Name of the site that sends.
    pub source: &'s str,
    /// Name of the site that receives.
    pub target: &'s str,
    /// Round-trip time.
    pub rtt: Figure<Micros>,
    /// Mean difference between successive round-trip times.
    pub jitter: Figure<Micros>,
    /// Packet loss.
    pub loss: Figure<Permille>,
    /// Bandwidth in this direction.
    pub bandwidth: Figure<Bandwidth>,
    /// Power that the source takes to send what it sends, in microwatts.
    pub microwatts: Option<u64>,
}

/// A figure and where it comes from, if it is known.
pub type Figure<T> = Option<(T, Origin)>;

/// Where a figure comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// Its source.
    pub source: LinkSource,
    /// When it was measured; of several measurements, the oldest. `None` if it was stated, or the time is not known.
    pub as_of: Option<Moment>,
}

impl Snapshot {
    /// The ways of which anything is known, by source and target. Measurements of the WAN count for `ttl`. Cost: a few
    /// searches for each pair of sites.
    pub fn cost_map(&self, ttl: Micros, now: Moment) -> Vec<Route<'_>> {
        let pairs = self
            .sites
            .iter()
            .flat_map(|from| self.sites.iter().map(move |to| (from, to)));
        let pairs = pairs.filter(|(from, to)| from.name() != to.name());
        let routes = pairs.map(|(from, to)| self.route(from, to, ttl, now));
        routes.filter(Route::is_known).collect()
    }

    fn route<'s>(&'s self, from: &'s Site, to: &'s Site, ttl: Micros, now: Moment) -> Route<'s> {
        let average = |link: &Link| link.live_rtt().map(|rtt| link.average_rtt.unwrap_or(rtt));
        let jitter = |link: &Link| link.live_rtt().and(link.jitter);
        Route {
            source: from.name(),
            target: to.name(),
            rtt: self.figure(
                (from, to),
                average,
                |figures| figures.rtt,
                Input::LinkRtt,
                Micros::add,
                (ttl, now),
            ),
            // No query measures jitter.
            jitter: self.figure((from, to), jitter, |_| None, Input::LinkRtt, Micros::add, (ttl, now)),
            loss: self.figure(
                (from, to),
                loss_of,
                |figures| figures.loss,
                Input::LinkLoss,
                combined,
                (ttl, now),
            ),
            bandwidth: self.bandwidth(from, to),
            microwatts: self.microwatts(from, to),
        }
    }

    /// RTT from one site to another. To or from the edge it is the RTT of the WAN. Between clouds it is the measured one of
    /// either direction. Without one it is unknown, unless both are Liqo's, whose traffic passes through the edge.
    pub fn rtt(&self, from: &Site, to: &Site, ttl: Micros, now: Moment) -> Figure<Micros> {
        let measured = |figures: &LinkFigures| figures.rtt;
        self.figure(
            (from, to),
            Link::live_rtt,
            measured,
            Input::LinkRtt,
            Micros::add,
            (ttl, now),
        )
    }

    /// A figure of the WAN, of Prometheus, or of two ways through the edge.
    fn figure<T>(
        &self,
        (from, to): (&Site, &Site),
        of_wan: impl Fn(&Link) -> Option<T>,
        measured: impl Fn(&LinkFigures) -> Option<T>,
        input: Input,
        sum: impl Fn(T, T) -> T,
        (ttl, now): (Micros, Moment),
    ) -> Figure<T> {
        let wan = |site: &Site| {
            let link = site.fresh_link(ttl, now)?;
            let as_of = Some(link.as_of).filter(|_| link.source != LinkSource::Stated);
            let source = link.source;
            Some((of_wan(&link)?, Origin { source, as_of }))
        };
        match (from.kind(), to.kind()) {
            (SiteKind::Edge, _) => return wan(to),
            (_, SiteKind::Edge) => return wan(from),
            _ => {}
        }
        let measured = |from: &Site, to: &Site| measured(self.links.get(from.name(), to.name())?);
        if let Some(value) = measured(from, to).or_else(|| measured(to, from)) {
            return Some((value, self.measured_by(input)));
        }
        if !(from.definition.is_of_liqo() && to.definition.is_of_liqo()) {
            return None;
        }
        let ((one, one_origin), (other, other_origin)) = (wan(from)?, wan(to)?);
        Some((sum(one, other), one_origin.through_hub(other_origin)))
    }

    /// The origin of what this query of Prometheus measures. A fleet file states it, without a time.
    fn measured_by(&self, input: Input) -> Origin {
        let as_of = self.links_as_of.get(&input).copied();
        let source = match as_of {
            Some(_) => LinkSource::Prometheus,
            None => LinkSource::Stated,
        };
        Origin { source, as_of }
    }

    /// Bandwidth from one site to another, measured or stated. The narrowest link on the way counts.
    fn bandwidth(&self, from: &Site, to: &Site) -> Figure<Bandwidth> {
        let measured = self
            .links
            .get(from.name(), to.name())
            .and_then(|figures| figures.bandwidth);
        if let Some(bandwidth) = measured {
            return Some((bandwidth, self.measured_by(Input::LinkBandwidth)));
        }
        if from.kind() == SiteKind::Edge || to.kind() == SiteKind::Edge {
            let stated = [from.definition.uplink, to.definition.downlink];
            let origin = Origin {
                source: LinkSource::Stated,
                as_of: None,
            };
            return Some((stated.into_iter().flatten().min()?, origin));
        }
        let are_of_liqo = from.definition.is_of_liqo() && to.definition.is_of_liqo();
        let edge = self.edge().filter(|_| are_of_liqo)?;
        let ((one, one_origin), (other, other_origin)) = (self.bandwidth(from, edge)?, self.bandwidth(edge, to)?);
        Some((one.min(other), one_origin.through_hub(other_origin)))
    }

    /// Power that `from` takes for what it sends to `to`, in microwatts. `None` if its energy is not stated or its traffic not
    /// measured.
    pub fn microwatts(&self, from: &Site, to: &Site) -> Option<u64> {
        let traffic = self.links.get(from.name(), to.name())?;
        from.definition.energy?.microwatts(traffic)
    }

    /// Power that a site takes for all that it sends: the sum over its links with measured traffic. `None` if there is none, or
    /// the power of one is unknown.
    pub fn network_microwatts(&self, site: &Site) -> Option<u64> {
        let energy = site.definition.energy?;
        let links = self
            .sites
            .iter()
            .filter_map(|to| self.links.get(site.name(), to.name()));
        let links = links.filter(|figures| figures.bytes.is_some() || figures.packets.is_some());
        let powers: Option<Vec<_>> = links.map(|figures| energy.microwatts(figures)).collect();
        powers?.into_iter().reduce(u64::saturating_add)
    }
}

/// Watts, for people and metrics.
pub fn watts(microwatts: u64) -> f64 {
    microwatts as f64 / 1e6
}

impl Route<'_> {
    fn is_known(&self) -> bool {
        let has_time = self.rtt.is_some() || self.jitter.is_some();
        has_time || self.loss.is_some() || self.bandwidth.is_some() || self.microwatts.is_some()
    }
}

impl Origin {
    /// The origin of a figure of two ways that meet at the edge.
    fn through_hub(self, other: Self) -> Self {
        Self {
            source: LinkSource::Hub,
            as_of: self.as_of.into_iter().chain(other.as_of).min(),
        }
    }
}

fn loss_of(link: &Link) -> Option<Permille> {
    match link.state {
        LinkState::Unreachable => Some(Permille::ONE),
        LinkState::Healthy | LinkState::Degraded => link.loss,
    }
}

/// Loss over two links, rounded up.
fn combined(one: Permille, other: Permille) -> Permille {
    let arrives = |loss: Permille| Permille::ONE.0.saturating_sub(loss.0);
    Permille(1_000 - arrives(one) * arrives(other) / 1_000)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::model::link::Energy;
    use crate::testkit::{self, NOW};

    fn fleet(links: &Value) -> Snapshot {
        testkit::snapshot(&json!({
            "sites": [
                {"name": "edge", "kind": "edge", "uplink": "20M"},
                {"name": "far", "kind": "liqo", "wan": {"rttMs": 80, "lossPct": 10, "jitterMs": 4}, "downlink": "50M", "uplink": "9M"},
                {"name": "near", "kind": "liqo", "wan": {"rttMs": 12, "lossPct": 50, "jitterMs": 1}, "downlink": "8M"},
                {"name": "other", "kind": "cloud", "wan": {"reachable": false, "lossPct": 3}},
            ],
            "links": links,
        }))
    }

    /// The route as `RTT JITTER LOSS BANDWIDTH`, each with its source.
    fn shown(snapshot: &Snapshot, source: &str, target: &str) -> Option<String> {
        fn figure<T: Into<Value>>(figure: Figure<T>) -> String {
            figure.map_or("-".to_owned(), |(value, origin)| {
                format!("{}/{}", value.into(), origin.source.as_str())
            })
        }
        let map = snapshot.cost_map(Micros::from_secs(60), NOW.moment);
        let route = map
            .into_iter()
            .find(|route| (route.source, route.target) == (source, target))?;
        let bandwidth = route.bandwidth.map(|(bandwidth, from)| (String::from(bandwidth), from));
        Some(
            [
                figure(route.rtt),
                figure(route.jitter),
                figure(route.loss),
                figure(bandwidth),
            ]
            .join(" "),
        )
    }

    #[test]
    fn route_has_the_figures_of_its_best_source() {
        let snapshot = fleet(&json!([]));
        for (source, target, expected) in [
            ("edge", "far", Some("80/stated 4/stated 10/stated \"20M\"/stated")),
            ("far", "edge", Some("80/stated 4/stated 10/stated \"9M\"/stated")),
            // Between Liqo's clouds the traffic passes through the edge.
            ("far", "near", Some("92/hub 5/hub 55/hub \"8M\"/hub")),
            ("edge", "other", Some("- - 100/stated \"20M\"/stated")),
            ("near", "other", None),
        ] {
            assert_eq!(
                shown(&snapshot, source, target).as_deref(),
                expected,
                "{source} {target}"
            );
        }
        let measured = fleet(&json!([
            {"source": "far", "target": "near", "rttMs": 7, "bandwidth": "3M"},
            {"source": "other", "target": "near", "lossPct": 0.2},
        ]));
        for (source, target, expected) in [
            ("far", "near", "7/stated 5/hub 55/hub \"3M\"/stated"),
            ("near", "far", "7/stated 5/hub 55/hub -"),
            ("near", "other", "- - 0.2/stated -"),
        ] {
            assert_eq!(
                shown(&measured, source, target).as_deref(),
                Some(expected),
                "{source} {target}"
            );
        }
    }

    #[test]
    fn pods_use_the_measured_bandwidth() {
        let snapshot = fleet(&json!([{"source": "edge", "target": "far", "bandwidth": "30M"}]));
        let far = &snapshot.sites[1];
        let [up, down] = [far.uplink, far.downlink].map(|bandwidth| bandwidth.map(String::from));
        assert_eq!((up.as_deref(), down.as_deref()), (Some("9M"), Some("30M")));
    }

    #[test]
    fn stale_link_has_no_figures() {
        let mut snapshot = fleet(&json!([]));
        for site in &mut snapshot.sites {
            site.link = site.link.map(|link| Link {
                as_of: NOW.moment.before(Micros::from_secs(61)),
                ..link
            });
        }
        assert_eq!(shown(&snapshot, "edge", "far").as_deref(), Some("- - - \"20M\"/stated"));
    }

    proptest! {
        #[test]
        fn power_of_a_site_is_the_sum_of_its_links(
            traffic in prop::collection::vec((0_u64..1 << 40, 0_u64..1 << 40), 3),
            (bytes, packets, idle) in (0_i64..1 << 30, 0_i64..1 << 30, 0_i64..1 << 20),
        ) {
            let links: Vec<_> = ["far", "near", "other"].iter().zip(&traffic).map(|(target, (bytes, packets))| {
                json!({"source": "edge", "target": target, "bytesPerSecond": bytes, "packetsPerSecond": packets})
            }).collect();
            let mut snapshot = fleet(&json!(links));
            let energy = json!({
                "joulesPerGigabyte": bytes as f64 / 1e3,
                "joulesPerMillionPackets": packets as f64 / 1e3,
                "idleWatts": idle as f64 / 1e3,
            });
            let definition = std::sync::Arc::make_mut(&mut snapshot.sites[0].definition);
            definition.energy = serde_json::from_value(energy).unwrap();
            let routes = snapshot.cost_map(Micros::from_secs(60), NOW.moment);
            let sum: u64 = routes.iter().filter_map(|route| route.microwatts).sum();
            prop_assert_eq!(snapshot.network_microwatts(&snapshot.sites[0]), Some(sum));
            prop_assert_eq!(snapshot.network_microwatts(&snapshot.sites[1]), None);
            // The third link: bytes in pJ, packets in nJ, idle in mW.
            let of = |amount: u64, cost: i64| u128::from(amount) * u128::from(cost.unsigned_abs());
            let expected = of(traffic[2].0, bytes) / 1_000_000 + of(traffic[2].1, packets) / 1_000 + of(1_000, idle);
            let third = routes.iter().find(|route| (route.source, route.target) == ("edge", "other"));
            prop_assert_eq!(third.and_then(|route| route.microwatts).map(u128::from), Some(expected));
        }
    }

    #[test]
    fn power_is_unknown_without_a_measurement_it_needs() {
        let energy = |packets: Option<f64>| Energy {
            joules_per_gigabyte: 2_000.0.try_into().unwrap(),
            joules_per_million_packets: packets.map(|joules| joules.try_into().unwrap()),
            idle_watts: None,
        };
        let traffic = |packets| LinkFigures {
            bytes: Some(1_000_000),
            packets,
            ..LinkFigures::default()
        };
        // 2,000 J a gigabyte are 2 W at a megabyte a second.
        assert_eq!(energy(None).microwatts(&traffic(None)), Some(2_000_000));
        assert_eq!(energy(Some(1.0)).microwatts(&traffic(None)), None);
        assert_eq!(energy(Some(1.0)).microwatts(&traffic(Some(1_000_000))), Some(3_000_000));
        assert_eq!(energy(Some(500.0)).of_a_gigabyte(), 3_000.0);
        let links = json!([{"source": "edge", "target": "far", "bytesPerSecond": 1}, {"source": "edge", "target": "near", "packetsPerSecond": 1}]);
        let mut snapshot = fleet(&links);
        std::sync::Arc::make_mut(&mut snapshot.sites[0].definition).energy = Some(energy(None));
        assert_eq!(snapshot.network_microwatts(&snapshot.sites[0]), None);
    }
}
