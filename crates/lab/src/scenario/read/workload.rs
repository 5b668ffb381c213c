//! The workloads of a scenario.

use std::collections::BTreeMap;

use edgeward_decision::document::{Checks, Decimal};
use edgeward_decision::model::slo::Class;
use edgeward_decision::pod::Pod;
use edgeward_kube::units::{Micros, Quantity};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Load;
use super::numbers::{LONGEST, count, number, one, quantities, table};
use crate::random::Distribution;
use crate::scenario::{Arrivals, Drift, Rate, Replicas, Scaling, Slo, Workload, WorkloadKind, tables};

type Millis = Decimal<0, 1, LONGEST>;

/// A [`Workload`] in its written form.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct StatedWorkload {
    pub(super) name: String,
    namespace: Option<String>,
    #[serde(default)]
    cron_job: bool,
    class: Option<Class>,
    deadline_ms: Option<Millis>,
    latency_target_ms: Option<Millis>,
    slo_priority: Option<Decimal<0, 0, 10>>,
    offload_allowed: Option<bool>,
    processing_ms: Option<Millis>,
    requests: BTreeMap<String, Quantity>,
    priority: Option<Decimal<0, -1_000_000_000, 1_000_000_000>>,
    preempts: Option<bool>,
    #[serde(default)]
    unknown_scheduler: bool,
    #[serde(default)]
    quota_blocked: bool,
    node_selector: Option<BTreeMap<String, String>>,
    service_ms: Distribution,
    #[serde(default, deserialize_with = "number::<_, 0, 1_000>")]
    correlation: f64,
    #[serde(default)]
    drift: Vec<Drift>,
    termination_ms: Option<Distribution>,
    jobs: Option<StatedJobs>,
    deployment: Option<StatedDeployment>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StatedJobs {
    poisson: Option<Rate>,
    trace: Option<String>,
    pods: Option<Decimal<0, 1, 10_000>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StatedDeployment {
    replicas: Option<Decimal<0, 0, 100_000>>,
    scaling: Option<Scaling>,
    #[serde(default)]
    rollouts_at_seconds: Vec<Decimal<3, 0, LONGEST>>,
    #[serde(default = "one", deserialize_with = "count::<_, 0>")]
    max_surge: u32,
    #[serde(default, deserialize_with = "count::<_, 0>")]
    max_unavailable: u32,
}

fn check_name(field: &str, name: &str, checks: &mut Checks<'_>) {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_name = (1..=63).contains(&name.len()) && name.bytes().all(is_plain);
    if !is_name || name.starts_with('-') || name.ends_with('-') {
        let message = "is not the name of a namespace: lower-case letters, digits and `-`, at most 63";
        checks.fault(field, format!("{name:?} {message}"));
    }
}

impl StatedWorkload {
    pub(super) fn read(self, checks: &mut Checks<'_>, load: Load<'_>) -> Option<Workload> {
        check_name("name", &self.name, checks);
        if let Some(namespace) = &self.namespace {
            check_name("namespace", namespace, checks);
        }
        if self.cron_job && self.jobs.is_none() {
            checks.fault("cronJob", "is stated without jobs");
        }
        if self.class.is_none() {
            for (field, is_stated) in [
                ("deadlineMs", self.deadline_ms.is_some()),
                ("latencyTargetMs", self.latency_target_ms.is_some()),
                ("sloPriority", self.slo_priority.is_some()),
                ("offloadAllowed", self.offload_allowed.is_some()),
                ("processingMs", self.processing_ms.is_some()),
            ] {
                if is_stated {
                    checks.fault(field, "is stated without a class");
                }
            }
        }
        let time = |ms: Millis| Micros::from_millis(ms.0.unsigned_abs());
        let slo = self.class.map(|class| Slo {
            class,
            deadline: self.deadline_ms.map(time),
            target: self.latency_target_ms.map(time),
            priority: self.slo_priority.map_or(5, |priority| priority.0 as u8),
            offload: self.offload_allowed.unwrap_or(true),
        });
        let priority = self.priority.map_or(0, |priority| priority.0 as i32);
        let may_preempt = self.preempts.unwrap_or(true);
        let mut requests = quantities(&self.requests);
        requests.remove("pods");
        let mut manifest = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"annotations": {}},
            "spec": {
                "priority": priority,
                "preemptionPolicy": if may_preempt { "PreemptLowerPriority" } else { "Never" },
                "containers": [{"name": "main", "resources": {"requests": requests}}],
            },
        });
        annotate(&mut manifest, slo);
        if let Some(ms) = self.processing_ms {
            manifest["metadata"]["annotations"]["slo.example.io/processingMs"] = time(ms).to_string().into();
        }
        if self.unknown_scheduler {
            manifest["spec"]["schedulerName"] = format!("{}-scheduler", self.name).into();
        }
        if let Some(selector) = self.node_selector {
            manifest["spec"]["nodeSelector"] = json!(selector);
        }
        let text = manifest.to_string();
        let pod = Pod::from_json(&text).map_err(|error| checks.fault("requests", format!("are invalid: {error}")));
        let request = pod.ok()?.request().amounts();
        if !self.drift.is_sorted_by_key(|drift| drift.at_seconds) {
            checks.fault("drift", "is not in the order of time");
        }
        let kind = match (self.jobs, self.deployment) {
            (Some(jobs), None) => jobs.read(checks, load),
            (None, Some(deployment)) => deployment.read(checks),
            _ => {
                checks.fault("jobs", "needs exactly one of jobs and deployment");
                None
            }
        };
        Some(Workload {
            slo,
            request,
            manifest,
            priority,
            may_preempt,
            is_unscheduled: self.unknown_scheduler,
            is_quota_blocked: self.quota_blocked,
            service: self.service_ms,
            correlation: self.correlation,
            drift: self.drift,
            termination: self.termination_ms.unwrap_or(Distribution::Constant(1_000.0)),
            kind: kind?,
            namespace: self.namespace.unwrap_or_else(|| self.name.clone()),
            name: self.name,
            is_cron_job: self.cron_job,
        })
    }
}

pub(in crate::scenario) fn annotate(manifest: &mut Value, slo: Option<Slo>) {
    let Some(annotations) = manifest["metadata"]["annotations"].as_object_mut() else {
        return;
    };
    let time = |time: Micros| time.to_string();
    for (name, value) in [
        ("class", slo.map(|slo| slo.class.as_str().to_owned())),
        ("deadlineMs", slo.and_then(|slo| slo.deadline).map(time)),
        ("latencyTargetMs", slo.and_then(|slo| slo.target).map(time)),
        ("priority", slo.map(|slo| slo.priority.to_string())),
        ("offloadAllowed", slo.map(|slo| slo.offload.to_string())),
    ] {
        let key = format!("slo.example.io/{name}");
        match value {
            Some(value) => drop(annotations.insert(key, value.into())),
            None => drop(annotations.remove(&key)),
        }
    }
}

impl StatedJobs {
    fn read(self, checks: &mut Checks<'_>, load: Load<'_>) -> Option<WorkloadKind> {
        let arrivals = match (self.poisson, self.trace) {
            (Some(poisson), None) => Arrivals::Poisson(poisson),
            (None, Some(trace)) => {
                let read = table(&trace, load, tables::arrivals);
                Arrivals::Trace(read.map_err(|error| checks.fault("jobs.trace", error)).ok()?)
            }
            _ => {
                checks.fault("jobs", "needs exactly one of poisson and trace");
                return None;
            }
        };
        let pods = self.pods.map_or(1, |pods| pods.0 as u32);
        Some(WorkloadKind::Jobs { arrivals, pods })
    }
}

impl StatedDeployment {
    fn read(self, checks: &mut Checks<'_>) -> Option<WorkloadKind> {
        let replicas = match (self.replicas, self.scaling) {
            (Some(replicas), None) => Replicas::Fixed(replicas.0 as u32),
            (None, Some(scaling)) => Replicas::Scaled(scaling),
            _ => {
                checks.fault("deployment", "needs exactly one of replicas and scaling");
                return None;
            }
        };
        if self.max_surge + self.max_unavailable == 0 {
            let message = "is 0 beside a maxUnavailable of 0: no rollout could begin";
            checks.fault("deployment.maxSurge", message);
        }
        let rollouts = self.rollouts_at_seconds.iter();
        Some(WorkloadKind::Service {
            replicas,
            rollouts: rollouts.map(|at| Micros::from_millis(at.0.unsigned_abs())).collect(),
            surge: self.max_surge,
            unavailable: self.max_unavailable,
        })
    }
}
