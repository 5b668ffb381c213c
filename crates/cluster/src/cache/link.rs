//! The WAN towards a site: here the results of probes, measurements and reports come together.
//!
//! `src/wan.rs` probes, and sends each result as [`Change::Link`](crate::engine::Change::Link), which
//! [`Cache::apply_link`] takes in.

use crate::cache::Cache;
use edgeward_decision::model::link::{Link, LinkSource, LinkState, Thresholds};
use edgeward_decision::model::liqo::{ApiServerStatus, RemoteCluster};
use edgeward_decision::model::snapshot::Site;
use edgeward_kube::units::{Micros, Moment};

impl Cache {
    /// Applies the WAN towards a site as probes measure it. The site may belong to a configuration that is yet to come.
    pub fn apply_link(&mut self, site: &str, link: Option<Link>) {
        match link {
            Some(link) => drop(self.measured.probed.insert(site.into(), link)),
            None => drop(self.measured.probed.remove(site)),
        }
    }

    /// The WAN towards a site by probes, Prometheus and Liqo, and what Liqo reports about the API server there.
    pub(super) fn link(&self, site: &Site, now: Moment) -> (Option<Link>, Option<ApiServerStatus>) {
        let (measured, ttl) = (&self.measured, self.config.telemetry_ttl);
        let probed = measured.probed.get(site.name()).copied();
        let link = measured.telemetry.link(site.name(), probed, now);
        let of_cluster = site.definition.remote_cluster().zip(measured.liqo.as_ref());
        let cluster = of_cluster.and_then(|(id, liqo)| liqo.clusters.get(id));
        let cluster = cluster.copied().unwrap_or_default();
        let thresholds = Thresholds::from(&*self.config).with(site.definition.thresholds);
        (beside(link, &cluster, thresholds, now, ttl), cluster.api_server)
    }
}

/// Combines the link with Liqo's report on the cluster behind it. If its API server is not reached, the link is
/// unreachable. Liqo's RTT counts only if no other fresh RTT is known. Liqo measures no loss, and without a loss the link
/// is degraded.
fn beside(
    link: Option<Link>,
    cluster: &RemoteCluster,
    thresholds: Thresholds,
    now: Moment,
    ttl: Micros,
) -> Option<Link> {
    let latency = cluster.latency.filter(|(_, at)| now.since(*at) <= ttl);
    let is_down = cluster
        .api_server
        .is_some_and(|status| status != ApiServerStatus::Established);
    let link = match (link, latency) {
        (None, Some((rtt, as_of))) => Some(Link {
            state: LinkState::judge(true, Some(rtt), None, thresholds),
            rtt: Some(rtt),
            source: LinkSource::Liqo,
            as_of,
            ..Link::default()
        }),
        (Some(link), Some((rtt, as_of))) if link.rtt.is_none() => Some(Link {
            state: link.state.max(LinkState::judge(true, Some(rtt), link.loss, thresholds)),
            rtt: Some(rtt),
            source: LinkSource::Liqo,
            as_of: link.as_of.min(as_of),
            ..link
        }),
        (link, _) => link,
    };
    link.map(|link| Link {
        state: if is_down { LinkState::Unreachable } else { link.state },
        ..link
    })
}
