//! How long the pod would take at a site ("Time" in docs/guide/decide.md).

use crate::config::Config;
use crate::model::site::SiteKind;
use crate::model::slo::{Class, Slo};
use crate::model::snapshot::{Site, Snapshot};
use crate::model::workload::Workload;
use crate::placement::verdict::Estimate;
use crate::units::{Micros, Millicores, Permille};

/// The pod's time at `site`, where it `fits` a node now or does not. `edge_speed` is the speed factor of the edge, which the
/// pod's own `processingMs` is stated for.
pub(super) fn estimate(
    workload: &Workload<'_>,
    slo: &Slo,
    site: &Site,
    fits: bool,
    edge_speed: Permille,
    config: &Config,
) -> Estimate {
    let model = model(slo.class, workload.request.cpu, site, config);
    let namespace = &*workload.namespace;
    let of_namespace = site.job_times.classes.get(namespace);
    let of_class = site.observed[slo.class].or_else(|| of_namespace?[slo.class]);
    let mean = of_class.unwrap_or(model);
    let of_controller = || {
        site.job_times
            .controllers
            .get(namespace, workload.controller.as_deref()?)
    };
    let processing = match slo.processing {
        Some(stated) => stated.rescaled(edge_speed, site.definition.speed),
        None => of_controller().copied().unwrap_or(mean),
    };
    Estimate {
        queue: mean.times(pods_ahead(workload, slo, site, fits, config)),
        processing,
        wan: wan(slo.class, site),
    }
}

/// The time that a pod of this class would have at `site` that asks for one core and stands behind all that wait there: what a
/// performance profile may go by. It is of no namespace, so no Job's time counts. `None` where its RTT is not known.
pub fn eta_of_class(class: Class, site: &Site, config: &Config) -> Option<Micros> {
    let mean = site.observed[class].unwrap_or_else(|| model(class, Millicores(1_000), site, config));
    let groups = site.queues.iter().filter(|group| group.class == class);
    let ahead: u64 = groups.map(|group| group.waiting).sum();
    Some(mean.times(ahead) + mean + wan(class, site)?)
}

/// For how long the pod can be gated at most and still meet its deadline at any site that it may go to, in microseconds; below zero
/// where it cannot at all. `None` without a deadline: then it is never late. Cost: a search for each site.
pub(crate) fn slack(workload: &Workload<'_>, snapshot: &Snapshot, config: &Config) -> Option<i64> {
    let slo = &workload.intent.as_ref()?.slo;
    let deadline = slo.deadline?.signed();
    let edge = snapshot.sites.iter().find(|site| site.kind() == SiteKind::Edge)?;
    let may_leave = config.may_offload(slo);
    let sites = snapshot.sites.iter();
    let sites = sites.filter(|site| site.kind() == SiteKind::Edge || may_leave);
    let sites = sites.filter(|site| workload.may_be_at(&site.definition));
    let latencies =
        sites.filter_map(|site| estimate(workload, slo, site, true, edge.definition.speed, config).latency());
    let shortest = latencies.min()?;
    Some(deadline.saturating_sub(shortest.signed()))
}

/// Whether a pod that was gated for so long misses its deadline even if it starts now, wherever it does.
pub(crate) fn is_late(workload: &Workload<'_>, snapshot: &Snapshot, config: &Config, gated: Micros) -> bool {
    slack(workload, snapshot, config).is_some_and(|slack| gated.signed() > slack)
}

/// `alpha · cpu + beta`, at the site's speed.
fn model(class: Class, cpu: Millicores, site: &Site, config: &Config) -> Micros {
    let model = config.models[class];
    let millicores = u64::try_from(cpu.0).unwrap_or(0);
    (Micros(model.alpha_us).times(millicores) + model.beta).rescaled(Permille::ONE, site.definition.speed)
}

/// Pods of the class that are served before this one. It is the youngest, so its equals are ahead; but kube-scheduler binds a pod
/// at once that fits, whoever waits for more.
fn pods_ahead(workload: &Workload<'_>, slo: &Slo, site: &Site, fits: bool, config: &Config) -> u64 {
    if fits {
        return 0;
    }
    let key = (workload.priority, workload.slo_priority(&config.priority_caps));
    let of_class = site.queues.iter().filter(|group| group.class == slo.class);
    let ahead = of_class.filter(|group| (group.priority, group.slo_priority) >= key);
    ahead.map(|group| group.waiting).sum()
}

/// Interactive and steady work crosses the WAN both ways twice, batch once; at the edge there is none.
fn wan(class: Class, site: &Site) -> Option<Micros> {
    let round_trips = match (site.kind(), class) {
        (SiteKind::Edge, _) => return Some(Micros(0)),
        (SiteKind::Cloud, Class::Latency | Class::Throughput) => 2,
        (SiteKind::Cloud, Class::Batch) => 1,
    };
    Some(site.link?.rtt?.times(round_trips))
}
