//! The features of clouds that the learned scorer reads. They come from the snapshot alone, so scores can be computed before the
//! ledger's lock is taken.

use std::collections::BTreeMap;

use crate::config::Config;
use crate::model::link::Thresholds;
use crate::model::scorer::{Features, MAX_FEATURE, ONE, Scores};
use crate::model::site::SiteKind;
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
    /// The revision of the snapshot.
    pub(super) revision: u64,
    /// The scores, in the order of the clouds in the snapshot.
    pub(super) scores: Scores,
}

impl CloudScores {
    /// The scores of the clouds for this pod. `None` without a scorer or with fewer than two clouds. Cost: a pass over the nodes of
    /// the clouds and the queue claims, and 0.3 µs for each cloud.
    pub fn of(workload: &Workload<'_>, snapshot: &Snapshot, config: &Config, now: Moment) -> Option<Self> {
        let scorer = snapshot.scorer.as_ref().filter(|_| config.scorer.is_on())?;
        clouds(snapshot).nth(1)?;
        Some(Self {
            revision: snapshot.revision,
            scores: scorer.scores(&features(workload, snapshot, config, now)?),
        })
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
        let room = Room::of(&workload.request, site);
        let estimate = estimate(workload, slo, site, room.fitting > 0, &elsewhere, config, now);
        (site, room, estimate)
    });
    let seen: Vec<_> = seen.collect();
    let etas = seen.iter().filter_map(|(_, _, estimate)| estimate.eta());
    let bounds = [slo.deadline, slo.latency_target];
    let bound = bounds.into_iter().flatten().min().or(etas.max());
    let mut gated = BTreeMap::<&str, u64>::new();
    for claim in snapshot.queue_claims.iter() {
        *gated.entry(&*claim.site).or_default() += 1;
    }
    let fleet = Fleet {
        bound: bound.unwrap_or_default(),
        dearest: clouds(snapshot).filter_map(cost).max().unwrap_or(0),
        owned: clouds(snapshot).map(|site| owned(workload, site)).sum(),
        gated: gated.values().sum(),
    };
    let priority = workload.slo_priority(&config.priority_caps);
    let of_pod = of_pod(slo, priority);
    let of_site = |(site, room, estimate): &(&Site, Room, Estimate)| {
        let thresholds = Thresholds::from(config).with(site.definition.thresholds);
        let time = |time: Option<Micros>| known(time.map(|time| time.0), fleet.bound.0);
        let link = site.link.as_ref();
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
            share(gated.get(site.name()).copied().unwrap_or(0), fleet.gated),
            of_pod[0],
            of_pod[1],
            of_pod[2],
            of_pod[3],
        ]
    };
    Some(seen.iter().map(of_site).collect())
}

/// Figures of all clouds, to which features are relative.
struct Fleet {
    bound: Micros,
    dearest: u64,
    /// Pods of the pod's controller at all clouds.
    owned: u64,
    /// Queue claims at all sites.
    gated: u64,
}

fn clouds(snapshot: &Snapshot) -> impl Iterator<Item = &Site> {
    snapshot.sites.iter().filter(|site| site.kind() == SiteKind::Cloud)
}

/// The largest free amounts of a node of the site, and the number of nodes on which the request fits.
struct Room {
    cpu: i64,
    memory: i64,
    fitting: i64,
}

impl Room {
    /// A report of the cluster behind the site lowers what its nodes have free.
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
        room
    }
}

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

fn cost(site: &Site) -> Option<u64> {
    site.definition.cost.map(|cost| cost.0)
}

fn owned(workload: &Workload<'_>, site: &Site) -> u64 {
    let controller = workload.controller.as_deref();
    let pods = controller.and_then(|uid| site.pods_of.get(&workload.namespace, uid));
    pods.copied().unwrap_or(0)
}

/// A part of a whole; 0 of nothing.
fn share(part: u64, whole: u64) -> i64 {
    if whole == 0 { 0 } else { known(Some(part), whole) }
}

fn known(amount: Option<u64>, unit: u64) -> i64 {
    let amount = amount.map(|amount| {
        ratio(
            amount.try_into().unwrap_or(i64::MAX),
            unit.try_into().unwrap_or(i64::MAX),
        )
    });
    amount.unwrap_or(MAX_FEATURE)
}

/// `amount / unit`, rounded down. The largest value if there is no unit; 0 of nothing.
fn ratio(amount: i64, unit: i64) -> i64 {
    if amount <= 0 {
        return 0;
    }
    let ratio = (i128::from(amount) * i128::from(ONE)).checked_div(unit.max(0).into());
    ratio.map_or(MAX_FEATURE, |ratio| ratio.min(MAX_FEATURE.into()) as i64)
}
