//! Estimates the pod's time at a site ("Time" in docs/guide/decide.md).

use crate::config::Config;
use crate::model::link::{Link, LinkState};
use crate::model::site::SiteKind;
use crate::model::slo::{Class, Slo};
use crate::model::snapshot::{Site, Snapshot};
use crate::model::workload::Workload;
use crate::placement::verdict::Estimate;
use edgeward_kube::units::{Micros, Millicores, Permille};

/// The pod's estimated time at `site`. `fits` says whether a node has room for the pod now. The pod's own `processingMs`
/// refers to the speed of the edge, and its input comes from there.
pub(super) fn estimate(
    workload: &Workload<'_>,
    slo: &Slo,
    site: &Site,
    fits: bool,
    edge: Option<&Site>,
    config: &Config,
) -> Estimate {
    let edge_speed = edge.map_or(Permille::ONE, |edge| edge.definition.speed);
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
    let wan = wan(slo.class, site, config);
    let transfer = transfer(workload, site, edge, config);
    let [wan, wan_p95] = [0, 1].map(|quantile| Some(wan?[quantile] + transfer?));
    Estimate {
        queue: mean.times(pods_ahead(workload, slo, site, fits, config)),
        processing,
        wan,
        wan_p95,
    }
}

/// The ETA at `site` of a pod of this class that requests one core and queues behind all pods of the class there.
/// Performance profiles read it. No job times count, because they belong to namespaces. `None` if the site's RTT is
/// unknown.
pub fn eta_of_class(class: Class, site: &Site, config: &Config) -> Option<Micros> {
    let mean = site.observed[class].unwrap_or_else(|| model(class, Millicores(1_000), site, config));
    let groups = site.queues.iter().filter(|group| group.class == class);
    let ahead: u64 = groups.map(|group| group.waiting).sum();
    Some(mean.times(ahead) + mean + wan(class, site, config)?[0])
}

/// The longest time, in microseconds, that the pod can be gated and still meet its deadline at a site where it may run.
/// Negative if it misses the deadline in any case. `None` without a deadline or a known latency. Cost: a search for each
/// site.
pub fn slack(workload: &Workload<'_>, snapshot: &Snapshot, config: &Config) -> Option<i64> {
    let slo = &workload.intent.as_ref()?.slo;
    let deadline = slo.deadline?.signed();
    let edge = snapshot.edge();
    let may_leave = config.may_offload(slo);
    let sites = snapshot.sites.iter();
    let sites = sites.filter(|site| site.kind() == SiteKind::Edge || may_leave);
    let sites = sites.filter(|site| workload.may_be_at(&site.definition));
    let times = sites.filter_map(|site| estimate(workload, slo, site, true, edge, config).eta());
    let shortest = times.min()?;
    Some(deadline.saturating_sub(shortest.signed()))
}

/// Whether a pod that has been gated for `gated` misses its deadline even if it starts now at its fastest site.
pub fn is_late(workload: &Workload<'_>, snapshot: &Snapshot, config: &Config, gated: Micros) -> bool {
    slack(workload, snapshot, config).is_some_and(|slack| gated.signed() > slack)
}

/// The processing time by the model `alpha · cpu + beta`, scaled to the site's speed.
fn model(class: Class, cpu: Millicores, site: &Site, config: &Config) -> Micros {
    let model = config.models[class];
    let millicores = u64::try_from(cpu.0).unwrap_or(0);
    (Micros(model.alpha_us).times(millicores) + model.beta).rescaled(Permille::ONE, site.definition.speed)
}

/// The number of waiting pods of the class that start before this one. Zero if the pod fits, because kube-scheduler then
/// binds it at once. This pod is the youngest, so pods with equal priorities are ahead of it.
fn pods_ahead(workload: &Workload<'_>, slo: &Slo, site: &Site, fits: bool, config: &Config) -> u64 {
    if fits {
        return 0;
    }
    let key = (workload.priority, workload.slo_priority(&config.priority_caps));
    let of_class = site.queues.iter().filter(|group| group.class == slo.class);
    let ahead = of_class.filter(|group| (group.priority, group.slo_priority) >= key);
    ahead.map(|group| group.waiting).sum()
}

/// The time until the pod's input has come from the edge to the site: zero at the edge, and at a site that has the data. `None`
/// if the bandwidth is unknown.
pub(super) fn transfer(workload: &Workload<'_>, site: &Site, edge: Option<&Site>, config: &Config) -> Option<Micros> {
    let input = workload.intent.as_ref().and_then(|intent| intent.input.as_ref());
    let has_it = |name: &str| site.definition.traits_now().any(|known| known == name);
    match input {
        Some(input) if site.kind() == SiteKind::Cloud && !input.at.as_deref().is_some_and(has_it) => {
            let both = [edge.and_then(|edge| edge.uplink), site.downlink];
            let narrowest = both.into_iter().flatten().min()?;
            let under_loss = degraded(site, config).and_then(|link| link.degraded_bandwidth());
            Some(narrowest.min(under_loss.unwrap_or(narrowest)).time_for(input.bytes))
        }
        _ => Some(Micros(0)),
    }
}

/// Time on the WAN, and the time that 19 of 20 requests do not exceed: two round trips for latency and throughput pods, one for
/// batch pods, and zero at the edge. `None` if unknown. A degraded link is judged by the latter alone.
fn wan(class: Class, site: &Site, config: &Config) -> Option<[Micros; 2]> {
    let round_trips = match (site.kind(), class) {
        (SiteKind::Edge, _) => return Some([Micros(0); 2]),
        (SiteKind::Cloud, Class::Latency | Class::Throughput) => 2,
        (SiteKind::Cloud, Class::Batch) => 1,
    };
    if let Some(link) = degraded(site, config) {
        return link.degraded_crossing(round_trips).map(|time| [time; 2]);
    }
    let link = site.link?;
    let rtt = link.rtt?;
    Some([rtt, rtt.max(link.rtt_p95.unwrap_or(rtt))].map(|rtt| rtt.times(round_trips)))
}

/// The WAN, if it is degraded and pods may still use it.
fn degraded(site: &Site, config: &Config) -> Option<Link> {
    site.link
        .filter(|link| link.state == LinkState::Degraded && config.can_use(link))
}
