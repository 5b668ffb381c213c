//! The features of clouds that the learned scorer reads. They come from the snapshot alone, so scores can be computed before the
//! ledger's lock is taken.

use std::sync::Arc;

use crate::config::Config;
use crate::model::link::Thresholds;
use crate::model::scorer::{Features, MAX_FEATURE, ONE, Scores};
use crate::model::site::{SiteDefinition, SiteKind};
use crate::model::slo::{Class, Slo};
use crate::model::snapshot::{Site, Snapshot};
use crate::model::workload::Workload;
use crate::placement::estimate::{Elsewhere, estimate};
use crate::placement::verdict::Estimate;
use edgeward_kube::resources::Amounts;
use edgeward_kube::units::{Micros, Moment};

/// Scores of the clouds for one pod, by one snapshot.
#[derive(Debug, Clone)]
pub struct CloudScores {
    /// The clouds, in the order of the snapshot.
    clouds: Vec<Arc<SiteDefinition>>,
    /// Their scores, in this order.
    pub(super) scores: Scores,
}

impl CloudScores {
    /// The scores of the clouds for this pod. `None` without a scorer, with fewer than two clouds, or for a pod that may not leave
    /// the edge. Cost: a pass over the nodes of the clouds, and 0.3 µs for each cloud.
    pub fn of(workload: &Workload<'_>, snapshot: &Snapshot, config: &Config, now: Moment) -> Option<Self> {
        let scorer = snapshot.scorer.as_ref().filter(|_| config.scorer.is_on())?;
        clouds(snapshot).nth(1)?;
        workload
            .intent
            .as_ref()
            .filter(|intent| config.may_offload(&intent.slo))?;
        Some(Self {
            clouds: clouds(snapshot).map(|site| Arc::clone(&site.definition)).collect(),
            scores: scorer.scores(&features(workload, snapshot, config, now)?),
        })
    }

    /// Whether the snapshot has the clouds that were scored.
    pub(super) fn is_of(&self, snapshot: &Snapshot) -> bool {
        let scored = self.clouds.iter().map(|cloud| &*cloud.name);
        clouds(snapshot).map(Site::name).eq(scored)
    }
}

/// The features of each cloud of the snapshot for this pod. `None` for a pod without an SLO.
///
/// Times are divided by the lower of the pod's bounds, or by the highest ETA of a cloud if it has none. An unknown time, RTT or
/// loss counts as the largest value.
pub fn features(workload: &Workload<'_>, snapshot: &Snapshot, config: &Config, now: Moment) -> Option<Vec<Features>> {
    let slo = &workload.intent.as_ref()?.slo;
    let elsewhere = Elsewhere::of(workload, slo.class, snapshot);
    let seen = clouds(snapshot).map(|site| {
        let room = CloudRoom::of(&workload.request, site);
        let mut estimate = estimate(workload, slo, site, room.fitting > 0, &elsewhere, config, now);
        if site.fresh_link(config.telemetry_ttl, now).is_none() {
            estimate.wan = None;
        }
        (site, room, estimate)
    });
    let seen: Vec<_> = seen.collect();
    let etas = seen.iter().filter_map(|(_, _, estimate)| estimate.eta());
    let bounds = [slo.deadline, slo.latency_target];
    let bound = bounds.into_iter().flatten().min().or(etas.max());
    let fleet = Fleet {
        bound: bound.unwrap_or_default(),
        dearest: clouds(snapshot).filter_map(cost).max().unwrap_or(0),
        owned: clouds(snapshot).map(|site| owned(workload, site)).sum(),
        gated: snapshot.claims_before.values().sum(),
    };
    let priority = workload.slo_priority(&config.priority_caps);
    let of_pod = of_pod(slo, priority);
    let of_site = |(site, room, estimate): &(&Site, CloudRoom, Estimate)| {
        let thresholds = Thresholds::from(config).with(site.definition.thresholds);
        let time = |time: Option<Micros>| known(time.map(|time| time.0), fleet.bound.0);
        let link = site.fresh_link(config.telemetry_ttl, now);
        [
            ratio(workload.request.cpu.0, room.cpu),
            ratio(workload.request.memory.0, room.memory),
            ratio(room.fitting, 16),
            time(Some(estimate.processing)),
            time(Some(estimate.queue)),
            time(estimate.wan),
            time(estimate.eta()),
            known(link.and_then(|link| Some(link.rtt?.0)), thresholds.rtt.0),
            known(
                link.and_then(|link| Some(link.loss?.0.into())),
                thresholds.loss.0.into(),
            ),
            cost(site).map_or(ONE, |cost| share(cost, fleet.dearest)),
            share(owned(workload, site), fleet.owned),
            share(
                snapshot.claims_before.get(site.name()).copied().unwrap_or(0),
                fleet.gated,
            ),
            of_pod[0],
            of_pod[1],
            of_pod[2],
            of_pod[3],
        ]
    };
    Some(seen.iter().map(of_site).collect())
}

/// Sums and bounds that features of each cloud are divided by.
struct Fleet {
    /// The lower of the pod's time bounds, or else the highest ETA of a cloud.
    bound: Micros,
    /// The highest cost of a cloud, as its definition states it.
    dearest: u64,
    /// Pods of the pod's controller at all clouds.
    owned: u64,
    /// [`Snapshot::claims_before`] of all sites.
    gated: u64,
}

/// The clouds, in the order of the snapshot.
pub(super) fn clouds(snapshot: &Snapshot) -> impl Iterator<Item = &Site> {
    snapshot.sites.iter().filter(|site| site.kind() == SiteKind::Cloud)
}

/// What a cloud has free, whatever the pod's constraints are.
struct CloudRoom {
    /// The most CPU that a usable node has free, in millicores.
    cpu: i64,
    /// The most memory that a usable node has free, in bytes. It may be another node.
    memory: i64,
    /// The number of usable nodes on which the request fits.
    fitting: i64,
}

impl CloudRoom {
    /// Reads the room of a cloud. A report of the cluster behind it bounds all three numbers. Cost: a pass over its nodes.
    fn of(request: &Amounts, site: &Site) -> Self {
        let mut room = Self {
            cpu: 0,
            memory: 0,
            fitting: 0,
        };
        for node in site.usable_nodes() {
            let used = &node.charges.used;
            room.cpu = room.cpu.max(node.allocatable.cpu.0.saturating_sub(used.cpu.0));
            room.memory = room.memory.max(node.allocatable.memory.0.saturating_sub(used.memory.0));
            let fits = node.charges.pods < node.slots && request.fits(&node.allocatable, used);
            room.fitting += i64::from(fits);
        }
        let reported = |name: &str| site.report.as_ref().and_then(|report| report.room.largest(name));
        room.cpu = room.cpu.min(reported("cpu").unwrap_or(i64::MAX));
        room.memory = room.memory.min(reported("memory").unwrap_or(i64::MAX));
        if request.cpu.0 > room.cpu || request.memory.0 > room.memory {
            room.fitting = 0;
        }
        room
    }
}

/// The last four features: class, whether each bound is stated, and SLO priority.
fn of_pod(slo: &Slo, priority: u8) -> [i64; 4] {
    let class = match slo.class {
        Class::Latency => 0,
        Class::Throughput => ONE / 2,
        Class::Batch => ONE,
    };
    let flag = |is_set: bool| if is_set { ONE } else { 0 };
    [
        class,
        flag(slo.deadline.is_some()),
        flag(slo.latency_target.is_some()),
        ratio(priority.into(), 10),
    ]
}

/// The cost of a cloud, as its definition states it.
fn cost(site: &Site) -> Option<u64> {
    site.definition.cost.map(|cost| cost.0)
}

/// The number of pods of the pod's controller at the cloud.
fn owned(workload: &Workload<'_>, site: &Site) -> u64 {
    let controller = workload.controller.as_deref();
    let pods = controller.and_then(|uid| site.owned.get(&workload.namespace, uid));
    pods.copied().unwrap_or(0)
}

/// `part / whole` as a feature. 0 if the whole is 0.
fn share(part: u64, whole: u64) -> i64 {
    if whole == 0 { 0 } else { known(Some(part), whole) }
}

/// `amount / unit` as a feature. The largest value for an unknown amount.
fn known(amount: Option<u64>, unit: u64) -> i64 {
    let amount = amount.map(|amount| {
        ratio(
            amount.try_into().unwrap_or(i64::MAX),
            unit.try_into().unwrap_or(i64::MAX),
        )
    });
    amount.unwrap_or(MAX_FEATURE)
}

/// `amount / unit` as a feature, rounded down. 0 if the amount is not positive; otherwise the largest value if the unit is not.
fn ratio(amount: i64, unit: i64) -> i64 {
    if amount <= 0 {
        return 0;
    }
    let ratio = (i128::from(amount) * i128::from(ONE)).checked_div(unit.max(0).into());
    ratio.map_or(MAX_FEATURE, |ratio| ratio.min(MAX_FEATURE.into()) as i64)
}
