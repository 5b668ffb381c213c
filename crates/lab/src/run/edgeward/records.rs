//! Pods as edgeward reads them. The readers of the production code make their records. A record is read once for each
//! workload and placement, and pods then differ in name, times and node. Each gated pod is read by itself.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use edgeward_cluster::pod_record;
use edgeward_cluster::pod_record::{Member, Phase as RecordPhase, PodRecord};
use edgeward_decision::keys::Keys;
use edgeward_decision::model::decision_id::DecisionId;
use edgeward_decision::model::remote_room::Start;
use edgeward_decision::model::site::SiteDefinition;
use edgeward_decision::model::workload::Workload;
use edgeward_decision::pod::Pod as WirePod;
use edgeward_kube::pod::JobRun;
use edgeward_kube::units::Micros;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{START, clock};
use crate::cluster::{Phase, Pod, PodNumber, Work};
use crate::scenario::Scenario;

/// The default grace period of a pod.
const GRACE: jiff::SignedDuration = jiff::SignedDuration::from_secs(30);

pub(super) struct Records {
    keys: Keys,
    /// Whether pods have members, because pods may be moved.
    can_move: bool,
    manifests: Vec<Value>,
    namespaces: Vec<Box<str>>,
    /// The name of the Jobs of each workload that is a CronJob, and their key.
    cron_jobs: Vec<Option<[Box<str>; 2]>>,
    sites: Vec<Arc<SiteDefinition>>,
    workloads: Vec<Workload<'static>>,
    /// Records by workload and placement, as read from pods without a node.
    forms: HashMap<(usize, Option<usize>), PodRecord>,
}

/// Returns the uid of a pod. It has the form of a UUID, sorts in the order of creation, and its first part is
/// distinct.
pub(super) fn uid(number: PodNumber) -> String {
    format!("{:08x}-0000-4000-8000-{:012x}", number & 0xffff_ffff, number >> 32)
}

pub(super) fn number(uid: &str) -> Option<PodNumber> {
    let low = usize::from_str_radix(uid.get(..8)?, 16).ok()?;
    let high = usize::from_str_radix(uid.get(24..)?, 16).ok()?;
    Some((high << 32) | low)
}

/// The uid and the kind of the pod's controller.
fn controller(pod: &Pod) -> (String, &'static str) {
    match pod.work {
        Work::Task(_) => (format!("job-{:x}", pod.job), "Job"),
        Work::Replica { service, revision, .. } => (format!("rs-{service}-{revision}"), "ReplicaSet"),
        Work::Initial => (format!("initial-{}", pod.workload), "ReplicaSet"),
    }
}

impl Records {
    /// Creates the records. Pods that state an SLO name this profile, if any.
    pub(super) fn new(scenario: &Scenario, profile: Option<&str>, can_move: bool) -> Self {
        let keys = scenario.config.keys.clone();
        let manifests: Vec<_> = scenario
            .workloads
            .iter()
            .map(|workload| {
                let mut manifest = workload.manifest.clone();
                let annotations = &mut manifest["metadata"]["annotations"];
                if let (Some(profile), true) = (profile, annotations.is_object()) {
                    annotations[format!("{}profile", keys.slo_prefix)] = profile.into();
                }
                manifest
            })
            .collect();
        let namespaces: Vec<Box<str>> = scenario
            .workloads
            .iter()
            .map(|workload| (*workload.namespace).into())
            .collect();
        let cron_jobs = scenario.workloads.iter();
        let cron_jobs = cron_jobs.map(|workload| workload.is_cron_job.then(|| cron_job(&workload.name)));
        let workloads = manifests.iter().zip(&namespaces).map(|(manifest, name)| {
            let text = manifest.to_string();
            let pod = read(&text);
            let namespace = Cow::Owned(name.to_string());
            pod.workload(namespace, &keys).into_owned()
        });
        Self {
            workloads: workloads.collect(),
            namespaces,
            cron_jobs: cron_jobs.collect(),
            sites: scenario.sites.iter().map(|site| Arc::clone(&site.definition)).collect(),
            forms: HashMap::new(),
            manifests,
            can_move,
            keys,
        }
    }

    pub(super) fn workload(&self, pod: &Pod) -> Workload<'static> {
        let (uid, _) = controller(pod);
        Workload {
            controller: Some(Cow::Owned(uid)),
            job: self.job_key(pod).map(String::from).map(Cow::Owned),
            ..self.workloads[pod.workload].clone()
        }
    }

    /// The record of a pod as it is now.
    pub(super) fn record(
        &mut self,
        number: PodNumber,
        pod: &Pod,
        node: Option<&str>,
        nominated: Option<&str>,
        now: Micros,
    ) -> PodRecord {
        let member = self.can_move.then(|| self.member(number, pod)).flatten();
        PodRecord {
            member: member.map(Arc::new),
            ..self.record_without_member(number, pod, node, nominated, now)
        }
    }

    fn job_key(&self, pod: &Pod) -> Option<Box<str>> {
        match (&pod.work, &self.cron_jobs[pod.workload]) {
            (Work::Task(_), Some([_, key])) => Some(key.clone()),
            (Work::Task(_), None) => Some(controller(pod).0.into()),
            _ => None,
        }
    }

    fn member(&self, number: PodNumber, pod: &Pod) -> Option<Member> {
        let workload = self.workload(pod);
        workload.intent.as_ref()?;
        let Work::Replica { service, .. } = pod.work else {
            return None;
        };
        let (uid, is_ready) = (uid(number), pod.phase == Phase::Running);
        Some(Member {
            name: (*uid).into(),
            uid: uid.into(),
            owner: format!("service-{service}").into(),
            is_ready,
            blocker: None,
            decision: pod.decision.map(DecisionId),
            reason: Some(pod.reason.into()),
            workload: is_ready.then(|| Arc::new(workload)),
        })
    }

    fn record_without_member(
        &mut self,
        number: PodNumber,
        pod: &Pod,
        node: Option<&str>,
        nominated: Option<&str>,
        now: Micros,
    ) -> PodRecord {
        let uid = uid(number);
        let (controller, kind) = controller(pod);
        if pod.phase == Phase::Gated {
            return self.gated(&uid, pod, &controller, kind);
        }
        let key = (pod.workload, pod.site);
        if !self.forms.contains_key(&key) {
            let form = self.form(pod, kind);
            self.forms.insert(key, form);
        }
        let form = &self.forms[&key];
        let (started, ended) = (pod.started.map(seconds), seconds(now));
        PodRecord {
            name: (*uid).into(),
            uid: uid.into(),
            controller: Some(controller.into()),
            created: Some(created(pod)),
            node: node.map(Into::into),
            nominated: nominated.map(Into::into),
            phase: match pod.phase {
                Phase::Running => RecordPhase::Running,
                Phase::Finished => RecordPhase::Finished,
                _ => RecordPhase::Pending,
            },
            job_run: started.filter(|_| pod.phase == Phase::Finished).map(|started| JobRun {
                key: self.job_key(pod),
                time: Micros::from_secs(ended - started),
                finished: whole_second(clock(now).wall),
            }),
            terminating: pod.deleted.map(|at| clock(at).wall.checked_add(GRACE).ok()),
            start: Start::Begun,
            unschedulable: pod.refused.filter(|_| node.is_none()).map(|_| 1),
            undecided: form.undecided && pod.decision.is_none(),
            decision: pod.decision.map(|id| DecisionId(id).to_string().into()),
            placement: form.placement.clone().filter(|_| node.is_none()),
            ..form.clone()
        }
    }

    /// Reads the record of pods with this placement, or without one.
    fn form(&self, pod: &Pod, kind: &str) -> PodRecord {
        let mut manifest = self.manifest(pod, "form", "form", kind);
        if let Some(site) = pod.site {
            let site = &self.sites[site];
            manifest["metadata"]["labels"][&self.keys.placed] = "true".into();
            let spec = &mut manifest["spec"];
            for (key, value) in site.selector() {
                spec["nodeSelector"][key] = value.into();
            }
            let tolerations = site.tolerations.iter().map(|toleration| {
                json!({
                    "key": toleration.key, "operator": toleration.operator,
                    "value": toleration.value, "effect": toleration.effect,
                })
            });
            let mut all: Vec<Value> = spec["tolerations"].as_array().cloned().unwrap_or_default();
            all.extend(tolerations);
            spec["tolerations"] = all.into();
        }
        self.read_record(&manifest)
    }

    fn gated(&self, uid: &str, pod: &Pod, controller: &str, kind: &str) -> PodRecord {
        let mut manifest = self.manifest(pod, uid, controller, kind);
        manifest["spec"]["schedulingGates"] = json!([{"name": self.keys.gate}]);
        let since = whole_second(clock(pod.gated).wall);
        manifest["metadata"]["annotations"][&self.keys.timestamp] = since.to_string().into();
        manifest["metadata"]["annotations"][&self.keys.reason] = pod.reason.into();
        self.read_record(&manifest)
    }

    fn manifest(&self, pod: &Pod, uid: &str, controller: &str, kind: &str) -> Value {
        let mut manifest = self.manifests[pod.workload].clone();
        let group = if kind == "Job" { "batch/v1" } else { "apps/v1" };
        let cron_job = self.cron_jobs[pod.workload].as_ref().filter(|_| kind == "Job");
        let name = cron_job.map_or(controller, |[name, _]| &**name);
        let owner = json!([{"apiVersion": group, "kind": kind, "name": name, "uid": controller, "controller": true}]);
        let metadata = json!({
            "name": uid, "uid": uid, "namespace": *self.namespaces[pod.workload], "resourceVersion": pod.version.to_string(),
            "creationTimestamp": created(pod).to_string(), "ownerReferences": owner,
        });
        if let (Some(into), Value::Object(more)) = (manifest["metadata"].as_object_mut(), metadata) {
            into.extend(more);
        }
        manifest
    }

    fn read_record(&self, manifest: &Value) -> PodRecord {
        let text = manifest.to_string();
        let record = pod_record::record(&read(&text), &self.keys);
        // The manifest has a uid and a namespace. A manifest that is not a pod has already been reported as a fault of
        // the scenario.
        let mut record = record.ok().flatten().unwrap_or_else(|| unreachable!("{text}"));
        // The stated decision serves Events only, and the simulation emits none.
        record.decided = None;
        record
    }
}

/// The name of a Job of this CronJob, and the key of all of them.
fn cron_job(name: &str) -> [Box<str>; 2] {
    let job = format!("{name}-29000000");
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": name, "controller": true});
    let pod = json!({"metadata": {"ownerReferences": [owner]}, "spec": {}}).to_string();
    let key = read(&pod).job_key().map_or_else(|| name.into(), Box::from);
    [job.into(), key]
}

fn read(text: &str) -> WirePod<'_> {
    WirePod::from_json(text).unwrap_or_else(|error| unreachable!("{text}: {error}"))
}

fn created(pod: &Pod) -> Timestamp {
    whole_second(clock(pod.created).wall)
}

fn whole_second(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(START.wall)
}

fn seconds(at: Micros) -> u64 {
    at.0 / 1_000_000
}

#[cfg(test)]
mod tests {
    use edgeward_decision::config::Config;
    use edgeward_decision::fleet_file;
    use edgeward_decision::placement::decide::decide;
    use edgeward_decision::placement::patch::{Stamp, patch};
    use edgeward_decision::placement::room::Room;

    use super::*;
    use crate::scenario::read as read_scenario;

    fn scenario() -> Scenario {
        let document = json!({
            "name": "records", "durationSeconds": 60,
            "sites": [
                {"name": "edge", "kind": "edge", "nodes": [{"allocatable": {"cpu": 2, "memory": "4Gi"}}]},
                {"name": "cloud", "kind": "cloud", "wan": {"rttMs": 20}, "nodes": [{"allocatable": {"cpu": 64, "memory": "9Gi"}}]},
            ],
            "workloads": [{
                "name": "camera", "class": "latency", "latencyTargetMs": 200, "requests": {"cpu": "200m", "memory": "1Gi"},
                "nodeSelector": {"arch": "arm"}, "serviceMs": 100, "jobs": {"poisson": {"perSecond": 1}},
            }],
        });
        read_scenario(&document, &|_| Err("no files".into())).unwrap()
    }

    fn patched(manifest: &Value, cpu: &str) -> Value {
        let fleet = json!({
            "sites": [{"name": "edge", "kind": "edge"}, {"name": "cloud", "kind": "cloud", "wan": {"rttMs": 20, "lossPct": 0}}],
            "nodes": [
                {"name": "e", "labels": {"node.role/edge": "true", "arch": "arm"}, "allocatable": {"cpu": cpu, "memory": "9Gi", "pods": 9}},
                {"name": "c", "labels": {"node.role/cloud": "true", "arch": "arm"}, "allocatable": {"cpu": 9, "memory": "9Gi", "pods": 9},
                 "taints": [{"key": "cloud", "value": "cloud", "effect": "NoSchedule"}]},
            ],
        });
        let (config, text) = (Config::default(), manifest.to_string());
        let snapshot = fleet_file::read(&fleet, &config, START.moment).unwrap();
        let pod = read(&text);
        let workload = pod.workload("camera".into(), &config.keys);
        let verdict = decide(&workload, &Room::of(&snapshot), &config, START);
        let stamp = Stamp {
            at: START.wall,
            id: DecisionId(7).to_string(),
        };
        let mut patched = manifest.clone();
        json_patch::patch(&mut patched, &patch(&pod, &verdict, &config, &stamp)).unwrap();
        patched
    }

    #[test]
    fn placed_pod_record_matches_patched_pod() {
        let mut records = Records::new(&scenario(), None, false);
        for (site, cpu) in [(0, "2"), (1, "0")] {
            let mut pod = Pod::new(0, Work::Task(0), Micros(0));
            (pod.site, pod.decision) = (Some(site), Some(7));
            let found = records.record(5, &pod, None, None, Micros(0));
            let uid = uid(5);
            let (controller, kind) = controller(&pod);
            let text = patched(&records.manifest(&pod, &uid, &controller, kind), cpu).to_string();
            let mut expected = pod_record::record(&read(&text), &records.keys).unwrap().unwrap();
            assert!(expected.decided.take().is_some());
            assert_eq!(format!("{found:?}"), format!("{expected:?}"));
        }
    }

    #[test]
    fn pod_uid_round_trips_to_number() {
        for pod in [0, 1, 0xffff_ffff, 0x1_0000_0000, 0x1234_5678_9abc] {
            assert_eq!((uid(pod).len(), number(&uid(pod))), (36, Some(pod)));
        }
    }

    #[test]
    fn gated_pod_record_has_waitlist_entry() {
        let mut records = Records::new(&scenario(), None, false);
        let mut pod = Pod::new(0, Work::Task(0), Micros(0));
        (pod.phase, pod.reason, pod.gated) = (Phase::Gated, "held_no_capacity", Micros::from_secs(9));
        let record = records.record(5, &pod, None, None, Micros::from_secs(9));
        let gated = record.gated_pod.unwrap();
        assert!(record.gated && record.decision.is_none());
        assert_eq!((&*gated.uid, &*gated.resource_version), (&*uid(5), "1"));
        assert_eq!(gated.stated, Some(clock(pod.gated).wall));
        assert_eq!(gated.reason.as_deref(), Some("held_no_capacity"));
    }
}
