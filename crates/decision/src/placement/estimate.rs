//! Estimates the pod's time at a site ("Time" in docs/guide/decide.md).

use crate::config::Config;
use crate::model::link::{Link, LinkState};
use crate::model::site::SiteKind;
use crate::model::slo::{Class, Slo};
use crate::model::snapshot::{JobTime, ProcessingTime, Site, Snapshot};
use crate::model::workload::Workload;
use crate::placement::verdict::Estimate;
use edgeward_kube::units::{Micros, Millicores, Moment, Permille};

/// The pod's estimated time at `site`. `fits` says whether a node has room for the pod now. The pod's own `processingMs`
/// refers to the speed of the edge, and its input comes from there.
pub(super) fn estimate(
    workload: &Workload<'_>,
    slo: &Slo,
    site: &Site,
    fits: bool,
    elsewhere: &Elsewhere<'_>,
    config: &Config,
    now: Moment,
) -> Estimate {
    let speed = site.definition.speed;
    let model = || ProcessingTime::all(model(slo.class, workload.request.cpu, site, config)).into();
    let observed = of_class(workload, slo.class, site)
        .or_else(|| Some(elsewhere.in_namespace?.rescaled(Permille::ONE, speed).into()));
    let of_class = observed.unwrap_or_else(model);
    let of_job = || {
        let of_others = || Some(elsewhere.of_job?.rescaled(Permille::ONE, speed));
        of_job(workload, site).or_else(of_others)
    };
    let known = match slo.processing {
        Some(stated) => {
            let edge_speed = elsewhere.edge.map_or(Permille::ONE, |edge| edge.definition.speed);
            Some(ProcessingTime::all(stated.rescaled(edge_speed, speed)).into())
        }
        None => of_job().or(observed),
    };
    let processing = known.unwrap_or(of_class);
    let wan = wan(slo.class, site, config);
    let transfer = transfer(workload, site, elsewhere.edge, config);
    let [wan, wan_p95] = [0, 1].map(|quantile| Some(wan?[quantile] + transfer?));
    Estimate {
        queue: of_class.time.mean.times(pods_ahead(workload, slo, site, fits, config)),
        processing: processing.time.mean,
        is_guess: known.is_none(),
        // Of skewed times, the mean may be the longer one.
        processing_p95: processing.time.p95.max(processing.time.mean),
        aged: aged(processing, now),
        wan,
        wan_p95,
    }
}

/// What the estimate for a site takes from other sites.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Elsewhere<'s> {
    pub(super) edge: Option<&'s Site>,
    /// The time of the pod's Job at the site where it was observed last, at speed factor 1.
    of_job: Option<JobTime>,
    /// The time of its namespace and class at another site, as measured, at speed factor 1.
    in_namespace: Option<ProcessingTime>,
}

impl<'s> Elsewhere<'s> {
    /// Cost: a few searches for each site.
    pub(super) fn of(workload: &Workload<'_>, class: Class, snapshot: &'s Snapshot) -> Self {
        let mut sites = snapshot.sites.iter();
        let of_job = |site: &Site| {
            let speed = site.definition.speed;
            Some(of_job(workload, site)?.rescaled(speed, Permille::ONE))
        };
        let in_namespace = |site: &Site| {
            let speed = site.definition.speed;
            Some(in_namespace(workload, class, site)?.rescaled(speed, Permille::ONE))
        };
        Self {
            edge: snapshot.edge(),
            // The first site, if none states when.
            of_job: sites.clone().rev().filter_map(of_job).max_by_key(|time| time.as_of),
            in_namespace: sites.find_map(in_namespace),
        }
    }
}

/// The processing time of the pod's Job, as observed at the site.
fn of_job(workload: &Workload<'_>, site: &Site) -> Option<JobTime> {
    site.job_times
        .of_jobs
        .get(&workload.namespace, workload.job.as_deref()?)
        .copied()
}

/// The processing time of the pod's namespace and class, as measured or observed at the site.
fn of_class(workload: &Workload<'_>, class: Class, site: &Site) -> Option<JobTime> {
    let measured = in_namespace(workload, class, site).or(site.observed[class]);
    let of_jobs = || site.job_times.classes.get(&*workload.namespace)?[class];
    measured.map(JobTime::from).or_else(of_jobs)
}

fn in_namespace(workload: &Workload<'_>, class: Class, site: &Site) -> Option<ProcessingTime> {
    site.observed_in.get(&*workload.namespace)?[class]
}

/// How long after the last observation nothing is known of the present time.
const AGED: Micros = Micros::from_secs(3_600);

/// How much shorter the mean may have become since the last observation: in proportion to its age.
fn aged(observed: JobTime, now: Moment) -> Micros {
    let age = observed.as_of.map_or(Micros(0), |as_of| now.since(as_of)).min(AGED);
    Micros((u128::from(observed.time.mean.0) * u128::from(age.0) / u128::from(AGED.0)) as u64)
}

/// The ETA at `site` of a pod of this class that requests one core and queues behind all pods of the class there.
/// Performance profiles read it. No job times count, because they belong to namespaces. `None` if the site's RTT is
/// unknown.
pub fn eta_of_class(class: Class, site: &Site, config: &Config) -> Option<Micros> {
    let observed = site.observed[class].map(|time| time.mean);
    let mean = observed.unwrap_or_else(|| model(class, Millicores(1_000), site, config));
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
    let elsewhere = Elsewhere::of(workload, slo.class, snapshot);
    let may_leave = config.may_offload(slo);
    let sites = snapshot.sites.iter();
    let sites = sites.filter(|site| site.kind() == SiteKind::Edge || may_leave);
    let sites = sites.filter(|site| workload.may_be_at(&site.definition));
    let estimates = sites.map(|site| estimate(workload, slo, site, true, &elsewhere, config, Moment(0)));
    let times = estimates.filter_map(|estimate| estimate.eta_at(config.confidence));
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
