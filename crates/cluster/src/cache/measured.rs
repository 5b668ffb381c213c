//! Measured values, as opposed to counted ones: the WAN, free capacity and processing times.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::cache::entry::PodEntry;
use crate::cache::{Cache, Kind};
use crate::pod_record::{Phase, PodRecord};
use crate::processing::Processing;
use crate::telemetry::Telemetry;
use edgeward_decision::config::{Config, Input};
use edgeward_decision::model::link::{Link, LinkState, Thresholds};
use edgeward_decision::model::liqo::{ApiServerStatus, Liqo, RemoteCluster};
use edgeward_decision::model::site::SiteKind;
use edgeward_decision::model::snapshot::Free;
use edgeward_kube::resources::Amounts;
use edgeward_kube::units::{Bytes, Micros, Millicores, Moment};

/// The measurements, and the settings by which they are read.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) telemetry: Telemetry,
    /// The WAN as probed, by site.
    pub(super) probed: BTreeMap<Box<str>, Link>,
    /// The state of Liqo; `None` while it is not in use.
    pub(super) liqo: Option<Arc<Liqo>>,
    thresholds: Option<Thresholds>,
    pub(super) processing: Processing,
    pub(super) telemetry_ttl: Micros,
    /// The greatest age of a sample of free capacity.
    oldest_sample: Micros,
    /// Pods by the moment at which they first charged a node, the youngest last. A pod is kept for as long as a sample of
    /// free capacity, also a future one, may not include it.
    first_charged: VecDeque<(Moment, Arc<str>)>,
}

impl Measured {
    pub(super) fn configure(&mut self, config: &Config) {
        self.thresholds = Some(Thresholds::from(config));
        self.telemetry_ttl = config.telemetry_ttl;
        let of_room = |input: &Input| matches!(input, Input::EdgeFreeCpu | Input::EdgeFreeMemory);
        let asks = config
            .prometheus
            .as_ref()
            .filter(|asked| asked.queries.keys().any(of_room));
        self.oldest_sample = asks.map(|asked| asked.staleness).unwrap_or_default();
    }
}

impl Cache {
    /// Sets the measurements of a Prometheus server.
    pub fn set_telemetry(&mut self, telemetry: Telemetry) {
        self.measured.telemetry = telemetry;
    }

    /// Sets the state of Liqo; `None` while it is not in use. A change of offloadings matters to waiting pods.
    pub fn set_liqo(&mut self, liqo: Option<Arc<Liqo>>) {
        let offloadings = |liqo: &Option<Arc<Liqo>>| liqo.as_ref().map(|liqo| Arc::clone(&liqo.offloadings));
        self.delta.sites |= offloadings(&self.measured.liqo) != offloadings(&liqo);
        self.measured.liqo = liqo;
    }

    /// Sets the probed WAN towards a site. The site may belong to a configuration that is yet to come.
    pub fn set_link(&mut self, site: &str, link: Option<Link>) {
        match link {
            Some(link) => drop(self.measured.probed.insert(site.into(), link)),
            None => drop(self.measured.probed.remove(site)),
        }
    }

    /// Records that a pod charges a node for the first time.
    pub(super) fn record_first_charge(&mut self, uid: &Arc<str>, entry: &mut PodEntry, now: Moment) {
        if entry.first_charged.is_some() || entry.charged.is_none() {
            return;
        }
        entry.first_charged = Some(now);
        // Pods in the first list existed before.
        if self.is_listed(Kind::Pods) {
            let first_charged = &mut self.measured.first_charged;
            let at = first_charged.back().map_or(now, |(youngest, _)| now.max(*youngest));
            first_charged.push_back((at, Arc::clone(uid)));
        }
    }

    /// Records the processing time of a Job's pod that has just succeeded in an opted-in namespace.
    pub(super) fn observe_finished(&mut self, record: &PodRecord, before: Option<Phase>, now: Moment) {
        if before == Some(Phase::Finished) || !self.is_managed(&record.namespace) {
            return;
        }
        if let (Some(time), Some((class, _)), Some(site)) = (record.job_time, record.slo, self.site_of(record)) {
            let site = site.name.clone();
            let (namespace, controller) = (&record.namespace, record.controller.as_deref());
            let processing = &mut self.measured.processing;
            processing.observe(&site, class, namespace, controller, time, now);
        }
    }

    /// Writes the measurements into the sites. A link with a new state or with fresh measurements again may help waiting
    /// pods. So may more free capacity. Processing times do not.
    pub(super) fn measure(&mut self, now: Moment) {
        let limit = now.before(self.measured.oldest_sample);
        let first_charged = &mut self.measured.first_charged;
        first_charged.drain(..first_charged.partition_point(|(at, _)| *at <= limit));
        for at in 0..self.sites.len() {
            let name = self.sites[at].site.name().to_owned();
            let free = match self.sites[at].site.kind() {
                SiteKind::Edge => self.free(at, now),
                SiteKind::Cloud => Free::default(),
            };
            let (measured, entry) = (&mut self.measured, &mut self.sites[at]);
            let site = &mut entry.site;
            let link = measured
                .telemetry
                .link(&name, measured.probed.get(&*name).copied(), now);
            let of_cluster = site.definition.remote_cluster().zip(measured.liqo.as_ref());
            let cluster = of_cluster.and_then(|(id, liqo)| liqo.clusters.get(id)).copied();
            let cluster = cluster.unwrap_or_default();
            let own = measured.thresholds.map(|all| all.with(site.definition.thresholds));
            let ttl = measured.telemetry_ttl;
            let link = beside(link, &cluster, own, now, ttl);
            site.api_server = cluster.api_server;
            site.observed = measured.telemetry.processing(&name, now);
            site.job_times = Arc::new(measured.processing.times(&name, now));
            let state = |link: Option<Link>| {
                let fresh = link.filter(|link| now.since(link.as_of) <= ttl);
                fresh.map(|link| (link.state, link.rtt.is_some()))
            };
            let has_gained = state(site.link) != state(link) || free.has_more_than(&site.free);
            let has_lost = site.free.has_more_than(&free);
            site.link = link;
            site.free = free;
            self.site_changed(at, has_gained, has_lost);
        }
    }

    /// The sampled free capacity of a site, less the requests of pods that began to charge it since.
    fn free(&self, site: usize, now: Moment) -> Free {
        let since = |as_of: Moment| {
            let first_charged = &self.measured.first_charged;
            let since = first_charged.range(first_charged.partition_point(|(at, _)| *at <= as_of)..);
            let pods = since.filter_map(|(_, uid)| self.pods.get(uid));
            let site_of = |pod: &PodEntry| self.nodes.get(&pod.charged?)?.site;
            let here = pods.filter(|pod| site_of(pod) == Some(site));
            here.fold(Amounts::default(), |mut sum, pod| {
                sum.add(&pod.request, 1);
                sum
            })
        };
        let left = |input, name| {
            let sample = self.measured.telemetry.edge_free(input, now)?;
            Some(sample.value.cast_signed() - since(sample.as_of).get(name))
        };
        Free {
            cpu: left(Input::EdgeFreeCpu, "cpu").map(Millicores),
            memory: left(Input::EdgeFreeMemory, "memory").map(Bytes),
        }
    }
}

/// Combines the link with Liqo's report on the cluster behind it. If its API server is not reached, the link is
/// unreachable. Liqo's RTT counts only if no other fresh RTT is known. Liqo measures no loss, and without a loss the link
/// is degraded.
fn beside(
    link: Option<Link>,
    cluster: &RemoteCluster,
    thresholds: Option<Thresholds>,
    now: Moment,
    ttl: Micros,
) -> Option<Link> {
    let latency = cluster.latency.filter(|(_, at)| now.since(*at) <= ttl);
    let is_down = cluster
        .api_server
        .is_some_and(|status| status != ApiServerStatus::Established);
    let link = match (link, latency, thresholds) {
        (None, Some((rtt, as_of)), Some(thresholds)) => Some(Link {
            state: LinkState::judge(true, Some(rtt), None, thresholds),
            rtt: Some(rtt),
            loss: None,
            as_of,
        }),
        (Some(link), Some((rtt, as_of)), Some(thresholds)) if link.rtt.is_none() => Some(Link {
            state: link.state.max(LinkState::judge(true, Some(rtt), link.loss, thresholds)),
            rtt: Some(rtt),
            as_of: link.as_of.min(as_of),
            ..link
        }),
        (link, ..) => link,
    };
    link.map(|link| Link {
        state: if is_down { LinkState::Unreachable } else { link.state },
        ..link
    })
}
