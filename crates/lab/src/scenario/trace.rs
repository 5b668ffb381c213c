//! Replays the pods in the log of a running edgeward instead of a scenario's Jobs.

use std::collections::HashMap;

use edgeward_decision::document::{Decimal, parse, without_nulls};
use edgeward_decision::model::slo::Class;
use edgeward_decision::pod::Pod;
use edgeward_kube::units::{Micros, Quantity};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Arrivals, Scenario, Slo, Workload, WorkloadKind};
use crate::random::Distribution;

/// The logged properties of a pod. Pods that differ only in time and controller form one workload.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Line {
    namespace: String,
    class: Option<Class>,
    deadline: Option<Micros>,
    target: Option<Micros>,
    slo_priority: u8,
    offload: bool,
    priority: i32,
    cpu: Quantity,
    memory: Quantity,
    processing: Option<Micros>,
}

/// Time, controller, and the workload as an index into the workloads of the log.
type Arrival = (Timestamp, Option<String>, usize);

impl Scenario {
    /// Returns the scenario with the pods of this log (docs/guide/operate.md#logs), from its first line on, instead of
    /// those of its Jobs. Properties that a line does not state come from the Job workload of the same namespace, or
    /// else from the first one of the same class. Pods in the namespace of a Deployment are left out, because the
    /// Deployment creates its own.
    ///
    /// # Errors
    /// The first faulty line.
    pub fn replaying(mut self, log: &str) -> Result<Scenario, String> {
        let (mut numbers, mut arrivals) = (HashMap::<Line, usize>::new(), Vec::<Arrival>::new());
        let mut workloads = vec![];
        for (text, number) in log.lines().zip(1..).filter(|(text, _)| !text.trim().is_empty()) {
            let at_line = |fault: String| format!("line {number}: {fault}");
            let value = serde_json::from_str(text).map_err(|error| at_line(format!("is not JSON: {error}")))?;
            if !is_pod(&value) {
                continue;
            }
            let read = parse::<Logged>(&without_nulls(value), "").map_err(|fault| at_line(fault.to_string()))?;
            let (at, controller) = (read.timestamp, read.controller.clone());
            let line = read.line().map_err(at_line)?;
            let workload = match numbers.get(&line) {
                Some(number) => *number,
                None => {
                    workloads.push(self.workload(&line).map_err(at_line)?);
                    numbers.insert(line, workloads.len() - 1);
                    workloads.len() - 1
                }
            };
            arrivals.push((at, controller, workload));
        }
        arrivals.sort_by_key(|(at, ..)| *at);
        let start = arrivals.first().map_or(Timestamp::UNIX_EPOCH, |(at, ..)| *at);
        let (mut rows, mut controllers) = (vec![vec![]; workloads.len()], HashMap::<String, u64>::new());
        for (at, controller, workload) in arrivals {
            let after = u64::try_from(at.duration_since(start).as_micros()).unwrap_or(0);
            // A pod without a controller gets a number of its own, above those of all controllers.
            let alone = (1 << 32) | rows[workload].len() as u64;
            let next = controllers.len() as u64;
            let controller = controller.map_or(alone, |uid| *controllers.entry(uid).or_insert(next));
            rows[workload].push((Micros(after), controller));
        }
        for workload in &mut self.workloads {
            if let WorkloadKind::Jobs { arrivals, .. } = &mut workload.kind {
                *arrivals = Arrivals::Trace(vec![]);
            }
        }
        for (workload, rows) in workloads.into_iter().zip(rows) {
            self.workloads.extend(workload.map(|workload| Workload {
                kind: WorkloadKind::Jobs {
                    arrivals: Arrivals::Log(rows),
                    pods: 1,
                },
                ..workload
            }));
        }
        Ok(self)
    }

    /// Returns the workload of the pods of a line; `None` for the pods of a Deployment.
    fn workload(&self, line: &Line) -> Result<Option<Workload>, String> {
        let is_jobs = |workload: &&Workload| matches!(workload.kind, WorkloadKind::Jobs { .. });
        let is_service = |workload: &Workload| matches!(workload.kind, WorkloadKind::Service { .. });
        let class = |workload: &Workload| workload.slo.map(|slo| slo.class);
        let in_namespace = |workload: &&Workload| workload.namespace == line.namespace;
        let mut known = self.workloads.iter().filter(in_namespace);
        if known.clone().any(is_service) {
            return Ok(None);
        }
        let known = known.find(is_jobs);
        let known = known.or_else(|| {
            self.workloads
                .iter()
                .filter(is_jobs)
                .find(|other| class(other) == line.class)
        });
        let mut workload = match (known, line.processing) {
            (Some(known), _) => known.clone(),
            (None, Some(processing)) => of_unknown(processing),
            (None, None) => {
                return Err(format!(
                    "namespace: no workload states the service time of pods of {:?} or of their class, and proc_ms has none",
                    line.namespace
                ));
            }
        };
        workload.name.clone_from(&line.namespace);
        workload.namespace.clone_from(&line.namespace);
        workload.is_cron_job = false;
        workload.priority = line.priority;
        workload.slo = line.class.map(|class| Slo {
            class,
            deadline: line.deadline,
            target: line.target,
            priority: line.slo_priority,
            offload: line.offload,
        });
        super::read::annotate(&mut workload.manifest, workload.slo);
        let spec = &mut workload.manifest["spec"];
        spec["priority"] = line.priority.into();
        spec["containers"][0]["resources"]["requests"] = json!({
            "cpu": format!("{}m", line.cpu.millis()), "memory": line.memory.units(),
        });
        let text = workload.manifest.to_string();
        workload.request = Pod::from_json(&text)
            .map_err(|error| error.to_string())?
            .request()
            .amounts();
        Ok(Some(workload))
    }
}

fn of_unknown(processing: Micros) -> Workload {
    let manifest = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"annotations": {}}, "spec": {"containers": [{"name": "main"}]},
    });
    let kind = WorkloadKind::Jobs {
        arrivals: Arrivals::Trace(vec![]),
        pods: 1,
    };
    Workload::new("", manifest, Distribution::Constant(processing.as_millis_f64()), kind)
}

/// Whether the line is about a pod that was placed or gated. The log does not hold all pods that pass through.
fn is_pod(line: &Value) -> bool {
    let is_decided = line["message"] == "decided" && line["dry_run"] == false;
    is_decided && line["verdict"] != "passthrough" && line["verdict"] != "deny"
}

type Millis = Decimal<3, 1, { i64::MAX }>;

#[derive(Deserialize)]
struct Logged {
    timestamp: Timestamp,
    namespace: String,
    class: String,
    deadline_ms: Option<Millis>,
    latency_target_ms: Option<Millis>,
    slo_priority: Option<Decimal<0, 0, 10>>,
    offload_allowed: Option<bool>,
    priority: i32,
    cpu: Quantity,
    memory: Quantity,
    proc_ms: Option<String>,
    controller: Option<String>,
}

impl Logged {
    fn line(self) -> Result<Line, String> {
        let class = match &*self.class {
            "none" | "invalid" => None,
            word => Some(Class::of_word(word).ok_or_else(|| {
                let words = Class::ALL.map(Class::as_str).join(", ");
                format!("class: {word:?} is not one of {words}, none, invalid")
            })?),
        };
        let time = |ms: Millis| Micros(ms.0.unsigned_abs());
        Ok(Line {
            namespace: self.namespace,
            class,
            deadline: self.deadline_ms.map(time),
            target: self.latency_target_ms.map(time),
            slo_priority: self.slo_priority.map_or(5, |priority| priority.0 as u8),
            offload: self.offload_allowed.unwrap_or(true),
            priority: self.priority,
            cpu: self.cpu,
            memory: self.memory,
            processing: processing(self.proc_ms.as_deref().unwrap_or_default())?,
        })
    }
}

/// Returns the first estimate of a text like `edge=120 cloud=142`, the one of the edge. `None` if nothing was
/// estimated.
fn processing(text: &str) -> Result<Option<Micros>, String> {
    let Some((_, first)) = text.split_whitespace().next().and_then(|first| first.split_once('=')) else {
        return Ok(None);
    };
    match first.parse::<f64>() {
        Ok(ms) if ms > 0.0 => Ok(Some(Micros((ms * 1_000.0) as u64))),
        _ => Err(format!("proc_ms: {first:?} is not a time in milliseconds")),
    }
}
