//! A site in a fleet file: what it is, and what is seen of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use crate::config::Config;
use crate::config::site_definition::{self, WrittenSite, some_of};
use crate::document::{Checks, Decimal, Fault};
use crate::fleet_file::Age;
use crate::fleet_file::node::Resources;
use crate::model::component::Component;
use crate::model::group::{Members, Membership, NEAR, Near};
use crate::model::link::{Link, LinkState, Thresholds};
use crate::model::liqo::ApiServerStatus;
use crate::model::remote_room::{Bound, FullFrom, MAX_BOUNDS};
use crate::model::report::{Shapes, SiteReport, Source};
use crate::model::site::{SiteDefinition, SiteKind, SiteSource};
use crate::model::slo::{ByClass, Class, PerClass};
use crate::model::snapshot::{ByNamespace, Free, JobTime, JobTimes, ProcessingTime, QueueGroup, Site};
use crate::model::traits::{self, Traits};
use edgeward_kube::units::{Bytes, Micros, Millicores, Moment, Permille};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SiteEntry {
    /// Every other field: those of the definition, which alone says which there are.
    #[serde(flatten)]
    definition: Value,
    source: Option<SiteSource>,
    api_server_status: Option<ApiServerStatus>,
    wan: Option<Wan>,
    queues: Option<Vec<QueueGroup>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    measured_namespace_proc_ms: BTreeMap<Box<str>, ByClass<StatedTime>>,
    observed_proc_ms: Option<ByClass<StatedTime>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    observed_namespace_proc_ms: BTreeMap<Box<str>, ByClass<StatedTime>>,
    #[serde(default, skip_serializing_if = "ByNamespace::is_empty")]
    observed_controller_proc_ms: ByNamespace<StatedTime>,
    measured_free: Option<Resources>,
    #[serde(default, skip_serializing_if = "ByNamespace::is_empty")]
    closed: ByNamespace<u64>,
    full: Option<Vec<Full>>,
    #[serde(default, skip_serializing_if = "ByNamespace::is_empty")]
    controller_pods: ByNamespace<u64>,
    #[serde(default, skip_serializing_if = "ByNamespace::is_empty")]
    owned_pods: ByNamespace<u64>,
    #[serde(default, skip_serializing_if = "ByNamespace::is_empty")]
    labelled_pods: ByNamespace<u64>,
    group_pods: Option<Vec<GroupPods>>,
    reported: Option<Reported>,
    components: Option<Vec<ComponentEntry>>,
}

/// The report of the cluster behind the site.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reported {
    room: Shapes,
    #[serde(default)]
    traits: Vec<String>,
    #[serde(default, skip_serializing_if = "is_of_itself")]
    source: Source,
}

fn is_of_itself(source: &Source) -> bool {
    *source == Source::Report
}

/// Milliseconds, up to a day.
type ProcMs = Decimal<3, 1, 86_400_000_000>;

/// A processing time: its mean, or its mean and p95.
#[derive(Clone, Copy, Serialize)]
#[serde(untagged)]
enum StatedTime {
    Mean(ProcMs),
    Both(MeanAndP95),
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MeanAndP95 {
    mean: ProcMs,
    p95: ProcMs,
}

/// Says what is wrong with the number or field, which serde does not for untagged enums.
impl<'de> Deserialize<'de> for StatedTime {
    fn deserialize<D: Deserializer<'de>>(stated: D) -> Result<Self, D::Error> {
        let stated = Value::deserialize(stated)?;
        let read = match stated {
            Value::Object(_) => MeanAndP95::deserialize(stated).map(Self::Both),
            stated => <ProcMs as Deserialize>::deserialize(stated).map(Self::Mean),
        };
        read.map_err(D::Error::custom)
    }
}

impl From<StatedTime> for ProcessingTime {
    fn from(stated: StatedTime) -> Self {
        match stated {
            StatedTime::Mean(mean) => Self::all(mean.into()),
            StatedTime::Both(MeanAndP95 { mean, p95 }) => Self {
                mean: mean.into(),
                p95: p95.into(),
            },
        }
    }
}

impl From<ProcessingTime> for StatedTime {
    fn from(time: ProcessingTime) -> Self {
        let [mean, p95] = [time.mean, time.p95].map(ProcMs::from);
        if mean == p95 {
            Self::Mean(mean)
        } else {
            Self::Both(MeanAndP95 { mean, p95 })
        }
    }
}

/// The longest round trip that a fleet file states, in µs; no threshold is above it.
const LONGEST_RTT: i64 = 60_000_000;

/// A round-trip time in a fleet file.
pub(super) type RttMs = Decimal<3, 0, LONGEST_RTT>;

/// A packet loss in a fleet file.
pub(super) type LossPct = Decimal<1, 0, 1_000>;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Wan {
    reachable: Option<bool>,
    rtt_ms: Option<RttMs>,
    rtt_p95_ms: Option<RttMs>,
    loss_pct: Option<LossPct>,
    jitter_ms: Option<RttMs>,
    age_seconds: Option<Age>,
    health: Option<LinkState>,
}

/// From where on a site is full.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Full {
    refused: Resources,
    pods: Option<u32>,
}

/// Pods of one component of a group.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GroupPods {
    namespace: Box<str>,
    group: Box<str>,
    component: Option<Box<str>>,
    near: Option<String>,
    class: Option<Class>,
    size: Option<u32>,
    gang: Option<bool>,
    pods: Option<u64>,
}

/// A component that runs at the site.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ComponentEntry {
    name: Box<str>,
    traits: Option<String>,
    clients: Option<u32>,
    clients_max: Option<u32>,
}

impl ComponentEntry {
    /// `None` if only the name is known.
    fn of(component: &Component) -> Option<Self> {
        let traits = component.traits.as_ref()?.to_string();
        Some(Self {
            name: component.name.clone(),
            traits: Some(traits).filter(|traits| !traits.is_empty()),
            clients: Some(component.clients),
            clients_max: component.clients_max,
        })
    }
}

impl GroupPods {
    fn of((namespace, member, pods): (&str, &Arc<Membership>, u64)) -> Self {
        let near: Vec<_> = member.near.iter().map(ToString::to_string).collect();
        Self {
            namespace: namespace.into(),
            group: member.group.clone(),
            component: Some(member.component.clone()).filter(|name| !name.is_empty()),
            near: Some(near.join(", ")).filter(|near| !near.is_empty()),
            class: Some(member.class),
            size: member.size,
            gang: member.is_gang.then_some(true),
            pods: Some(pods),
        }
    }
}

impl SiteEntry {
    /// The site, without its nodes.
    pub(super) fn site(self, config: &Config, now: Moment, at: &str, faults: &mut Vec<Fault>) -> Option<Site> {
        let definition = site_definition::read(&self.definition, 0, at, faults)?;
        let definition = SiteDefinition {
            source: self.source.unwrap_or(SiteSource::Config),
            ..definition
        };
        let mut checks = Checks { at, faults };
        let is_edge = definition.kind == SiteKind::Edge;
        if is_edge && self.wan.is_some() {
            checks.fault("wan", "is not for the edge site, which no WAN leads to");
        }
        if is_edge && self.full.is_some() {
            checks.fault("full", "is not for the edge site, whose nodes are no promises");
        }
        if is_edge && self.reported.is_some() {
            checks.fault("reported", "is not for the edge site, whose nodes are known");
        }
        let report = self.reported.map(|reported| SiteReport {
            as_of: now,
            room: reported.room,
            traits: reported.traits,
            source: reported.source,
        });
        let thresholds = Thresholds::from(config).with(definition.thresholds);
        let link = self.wan.map(|wan| wan.link(thresholds, now, &mut checks));
        let of_jobs = |stated: &StatedTime| JobTime::from(ProcessingTime::from(*stated));
        let classes = self.observed_namespace_proc_ms.into_iter();
        let classes =
            classes.map(|(namespace, stated)| (namespace, stated.stated().map(|time| time.as_ref().map(of_jobs))));
        let job_times = JobTimes {
            classes: classes.collect(),
            of_jobs: self.observed_controller_proc_ms.map(of_jobs),
        };
        let measured = self.measured_namespace_proc_ms.into_iter();
        let full = full_from(self.full.unwrap_or_default(), &mut checks);
        let members = members(self.group_pods.unwrap_or_default(), &mut checks);
        let components = components(self.components.unwrap_or_default(), &mut checks);
        let free = self.measured_free.unwrap_or_default();
        Some(Site {
            link,
            api_server: self.api_server_status,
            queues: self.queues.unwrap_or_default(),
            observed: self.observed_proc_ms.map(times).unwrap_or_default(),
            observed_in: Arc::new(measured.map(|(name, stated)| (name, times(stated))).collect()),
            job_times: Arc::new(job_times),
            free: Free {
                cpu: free.get("cpu").map(|cpu| Millicores(cpu.millis())),
                memory: free.get("memory").map(|memory| Bytes(memory.units())),
            },
            closed: Arc::new(self.closed),
            full: Arc::new(full),
            pods_of: Arc::new(self.controller_pods),
            owned: Arc::new(self.owned_pods),
            labelled: Arc::new(self.labelled_pods),
            members: Arc::new(members),
            report: report.map(Arc::new),
            components: Arc::new(components),
            ..Site::new(Arc::new(definition))
        })
    }

    pub(super) fn of(site: &Site, now: Moment) -> Self {
        let definition = &site.definition;
        let is_cloud = definition.kind == SiteKind::Cloud;
        let is_observed = site.observed != PerClass::default();
        let times = |known: PerClass<Option<ProcessingTime>>| known.map(|time| time.map(StatedTime::from)).into();
        let measured = site.observed_in.iter();
        let classes = site.job_times.classes.iter();
        let classes = classes.map(|(name, known)| (name, known.map(|of_jobs| of_jobs.map(|of_jobs| of_jobs.time))));
        let controllers = &site.job_times.of_jobs;
        // What is promised may be more than what was measured.
        let cpu = site.free.cpu.map(|cpu| ("cpu", cpu.0.max(0)));
        let memory = site.free.memory.map(|memory| ("memory", memory.0.max(0)));
        let free = cpu.into_iter().chain(memory).collect();
        let full = site.full.iter().map(|full| Full {
            refused: full.bound.amounts().collect(),
            pods: Some(u32::try_from(full.pods).unwrap_or(u32::MAX)),
        });
        Self {
            definition: json!(WrittenSite::of(definition)),
            source: Some(definition.source).filter(|source| *source != SiteSource::Config),
            api_server_status: site.api_server,
            wan: site.link.filter(|_| is_cloud).map(|link| Wan::of(&link, now)),
            queues: some_of(site.queues.iter().copied()),
            observed_proc_ms: is_observed.then(|| times(site.observed)),
            measured_namespace_proc_ms: measured.map(|(name, known)| (name.clone(), times(*known))).collect(),
            observed_namespace_proc_ms: classes.map(|(name, known)| (name.clone(), times(known))).collect(),
            observed_controller_proc_ms: controllers.map(|of_jobs| of_jobs.time.into()),
            measured_free: (site.free != Free::default()).then_some(free),
            closed: (*site.closed).clone(),
            full: some_of(full),
            controller_pods: (*site.pods_of).clone(),
            owned_pods: (*site.owned).clone(),
            labelled_pods: (*site.labelled).clone(),
            group_pods: some_of(site.members.iter().map(GroupPods::of)),
            reported: site.report.as_ref().map(|report| Reported {
                room: report.room.clone(),
                traits: report.traits.clone(),
                source: report.source,
            }),
            components: some_of(site.components.iter().filter_map(ComponentEntry::of)),
        }
    }
}

impl Wan {
    fn link(self, thresholds: Thresholds, now: Moment, checks: &mut Checks<'_>) -> Link {
        let is_reachable = self.reachable.unwrap_or(true);
        let rtt = self.rtt_ms.map(Micros::from);
        let loss = self.loss_pct.map(Permille::from);
        if is_reachable && self.health.is_none() && rtt.is_none() {
            checks.fault("wan.rttMs", "is missing");
        }
        if !is_reachable && self.health.is_some_and(|state| state != LinkState::Unreachable) {
            checks.fault("wan.health", "contradicts `reachable: false`");
        }
        let judged = || LinkState::judge(is_reachable, rtt, loss, thresholds);
        Link {
            state: self.health.unwrap_or_else(judged),
            rtt,
            rtt_p95: self.rtt_p95_ms.map(Micros::from),
            loss,
            jitter: self.jitter_ms.map(Micros::from),
            as_of: self.age_seconds.map_or(now, |age| age.before(now)),
            ..Link::default()
        }
    }

    fn of(link: &Link, now: Moment) -> Self {
        Self {
            reachable: (link.state == LinkState::Unreachable).then_some(false),
            rtt_ms: link.rtt.map(rtt_ms),
            rtt_p95_ms: link.rtt_p95.map(rtt_ms),
            loss_pct: link.loss.map(Decimal::from),
            jitter_ms: link.jitter.map(rtt_ms),
            age_seconds: Some(Age::of(link.as_of, now)),
            health: Some(link.state),
        }
    }
}

/// How a round-trip time is written.
pub(super) fn rtt_ms(rtt: Micros) -> RttMs {
    Decimal(rtt.signed().min(LONGEST_RTT))
}

fn members(entries: Vec<GroupPods>, checks: &mut Checks<'_>) -> Members {
    let mut members = Members::default();
    for (i, entry) in entries.into_iter().enumerate() {
        let near = match entry.near.as_deref().map(Near::parse_list) {
            Some(None) => {
                checks.fault(format_args!("groupPods[{i}].near"), format_args!("is not {NEAR}"));
                continue;
            }
            Some(Some(near)) => near,
            None => vec![],
        };
        let membership = Membership {
            group: entry.group,
            component: entry.component.unwrap_or_default(),
            near,
            class: entry.class.unwrap_or(Class::Batch),
            size: entry.size,
            is_gang: entry.gang.unwrap_or(false),
        };
        let pods = i64::try_from(entry.pods.unwrap_or(1)).unwrap_or(i64::MAX);
        members.change(&entry.namespace, &Arc::new(membership), pods);
    }
    members
}

fn components(entries: Vec<ComponentEntry>, checks: &mut Checks<'_>) -> Vec<Component> {
    let mut components = vec![];
    for (i, entry) in entries.into_iter().enumerate() {
        let Some(traits) = entry.traits.as_deref().map_or(Some(Traits::default()), Traits::parse) else {
            checks.fault(
                format_args!("components[{i}].traits"),
                format_args!("is not {}", traits::ALLOWED),
            );
            continue;
        };
        components.push(Component {
            name: entry.name,
            traits: Some(traits),
            clients: entry.clients.unwrap_or(0),
            clients_max: entry.clients_max,
        });
    }
    components
}

fn full_from(full: Vec<Full>, checks: &mut Checks<'_>) -> Vec<FullFrom> {
    if full.len() > MAX_BOUNDS {
        checks.fault("full", format_args!("has more than {MAX_BOUNDS} entries"));
    }
    let mut bounds = vec![];
    for (i, entry) in full.into_iter().enumerate() {
        match Bound::of(&entry.refused.amounts(), entry.refused.pods()) {
            Some(bound) => bounds.push(FullFrom {
                bound: Arc::new(bound),
                pods: entry.pods.unwrap_or(1).into(),
            }),
            None => checks.fault(format_args!("full[{i}].refused"), "names no amount above zero"),
        }
    }
    bounds.sort_by(|one, other| one.bound.cmp(&other.bound));
    bounds
}

fn times(stated: ByClass<StatedTime>) -> PerClass<Option<ProcessingTime>> {
    stated.stated().map(|time| time.map(ProcessingTime::from))
}
