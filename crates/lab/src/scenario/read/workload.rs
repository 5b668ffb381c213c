//! The workloads of a scenario.

use crate::document::Field;
use edgeward_core::model::slo::Class;
use edgeward_core::units::Micros;
use edgeward_core::wire::pod::Pod;
use serde_json::{Value, json};

use super::Load;
use super::numbers::{LONGEST, distribution, number, quantities, rate, seconds, table};
use crate::random::Distribution;
use crate::scenario::{Arrivals, Replicas, Scaling, Slo, Workload, WorkloadKind, tables};

pub(super) fn workload(field: &Field<'_>, load: Load<'_>) -> Option<Workload> {
    let [
        name,
        class,
        deadline,
        target,
        slo_priority,
        offload,
        processing,
        requests,
        priority,
        preempts,
        scheduler,
        quota,
        selector,
        service,
        correlation,
        termination,
        jobs,
        deployment,
    ] = field.object([
        "name",
        "class",
        "deadlineMs",
        "latencyTargetMs",
        "sloPriority",
        "offloadAllowed",
        "processingMs",
        "requests",
        "priority",
        "preempts",
        "unknownScheduler",
        "quotaBlocked",
        "nodeSelector",
        "serviceMs",
        "correlation",
        "terminationMs",
        "jobs",
        "deployment",
    ])?;
    let workload_name = name.clone().required().non_empty_string()?;
    // Its pods have a namespace of that name.
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_name = workload_name.len() <= 63 && workload_name.bytes().all(is_plain);
    if !is_name || workload_name.starts_with('-') || workload_name.ends_with('-') {
        name.fault(format!(
            "{workload_name:?} is not the name of a namespace: lower-case letters, digits and `-`, at most 63"
        ));
    }
    let is_managed = class.is_present();
    let class = class.word(&Class::ALL.map(|class| (class.as_str(), class)));
    let millis = |field: &Field<'_>| {
        field
            .integer(1..=LONGEST)
            .map(|ms| Micros::from_millis(ms.unsigned_abs()))
    };
    let slo = class.map(|class| Slo {
        class,
        deadline: millis(&deadline),
        target: millis(&target),
        priority: slo_priority.integer(0..=10).map_or(5, |priority| priority as u8),
        offload: offload.boolean().unwrap_or(true),
    });
    if !is_managed {
        for field in [&deadline, &target, &slo_priority, &offload, &processing] {
            if field.is_present() {
                field.fault("is stated without a class".into());
            }
        }
    }
    let is_unscheduled = scheduler.boolean().unwrap_or(false);
    let spec_priority = priority.integer(-1_000_000_000..=1_000_000_000).unwrap_or(0);
    let may_preempt = preempts.boolean().unwrap_or(true);
    let resources = requests.required();
    let mut resources = quantities(&resources)?;
    resources.remove("pods");
    let mut manifest = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"annotations": {}},
        "spec": {
            "priority": spec_priority,
            "preemptionPolicy": if may_preempt { "PreemptLowerPriority" } else { "Never" },
            "containers": [{"name": "main", "resources": {"requests": resources}}],
        },
    });
    annotate(&mut manifest, slo);
    if let Some(time) = slo.and_then(|_| millis(&processing)) {
        manifest["metadata"]["annotations"]["slo.example.io/processingMs"] = time.to_string().into();
    }
    if is_unscheduled {
        manifest["spec"]["schedulerName"] = format!("{workload_name}-scheduler").into();
    }
    if let Some(pairs) = selector.string_map() {
        let pairs = pairs.into_iter().map(|(key, value)| (key.to_owned(), value.into()));
        manifest["spec"]["nodeSelector"] = Value::Object(pairs.collect());
    }
    let text = manifest.to_string();
    let request = match Pod::from_json(&text) {
        Ok(pod) => pod.request().amounts(),
        Err(error) => {
            field.fault(format!("makes no pod: {error}"));
            return None;
        }
    };
    let kind = match (jobs.is_present(), deployment.is_present()) {
        (true, false) => self::jobs(&jobs, load),
        (false, true) => self::deployment(&deployment),
        _ => {
            field.fault("states not exactly one of jobs and deployment".into());
            None
        }
    };
    Some(Workload {
        name: workload_name.to_owned(),
        slo,
        request,
        manifest,
        priority: spec_priority as i32,
        may_preempt,
        is_unscheduled,
        is_quota_blocked: quota.boolean().unwrap_or(false),
        service: distribution(&service.required())?,
        correlation: number(&correlation, 0, 1_000).unwrap_or(0.0),
        termination: match termination.is_present() {
            true => distribution(&termination)?,
            false => Distribution::Constant(1_000.0),
        },
        kind: kind?,
    })
}

pub(in crate::scenario) fn annotate(manifest: &mut Value, slo: Option<Slo>) {
    let annotations = &mut manifest["metadata"]["annotations"];
    let mut state = |name: &str, value: Option<String>| match value {
        Some(value) => annotations[format!("slo.example.io/{name}")] = value.into(),
        None => drop(
            annotations
                .as_object_mut()
                .and_then(|all| all.remove(&format!("slo.example.io/{name}"))),
        ),
    };
    state("class", slo.map(|slo| slo.class.as_str().to_owned()));
    state(
        "deadlineMs",
        slo.and_then(|slo| slo.deadline).map(|time| time.to_string()),
    );
    state(
        "latencyTargetMs",
        slo.and_then(|slo| slo.target).map(|time| time.to_string()),
    );
    state("priority", slo.map(|slo| slo.priority.to_string()));
    state("offloadAllowed", slo.map(|slo| slo.offload.to_string()));
}

fn jobs(field: &Field<'_>, load: Load<'_>) -> Option<WorkloadKind> {
    let [poisson, trace, pods] = field.object(["poisson", "trace", "pods"])?;
    let arrivals = match (poisson.is_present(), trace.is_present()) {
        (true, false) => Arrivals::Poisson(rate(&poisson)?),
        (false, true) => Arrivals::Trace(table(&trace, load, tables::arrivals)?),
        _ => {
            field.fault("states not exactly one of poisson and trace".into());
            return None;
        }
    };
    let pods = u32::try_from(pods.integer(1..=10_000).unwrap_or(1)).ok()?;
    Some(WorkloadKind::Jobs { arrivals, pods })
}

fn deployment(field: &Field<'_>) -> Option<WorkloadKind> {
    let [replicas, scaling, rollouts, surge, unavailable] =
        field.object(["replicas", "scaling", "rolloutsAtSeconds", "maxSurge", "maxUnavailable"])?;
    let stated = match (replicas.is_present(), scaling.is_present()) {
        (true, false) => Replicas::Fixed(u32::try_from(replicas.integer(0..=100_000)?).ok()?),
        (false, true) => {
            let [demand, per_replica, least, most, stabilisation] =
                scaling.object(["demand", "perReplica", "min", "max", "stabilisationSeconds"])?;
            Replicas::Scaled(Scaling {
                demand: rate(&demand.required())?,
                per_replica: number(&per_replica.required(), 1, i64::MAX)?,
                least: u32::try_from(least.integer(1..=100_000).unwrap_or(1)).ok()?,
                most: u32::try_from(most.required().integer(1..=100_000)?).ok()?,
                stabilisation: seconds(&stabilisation, 0).unwrap_or(Micros::from_secs(300)),
            })
        }
        _ => {
            field.fault("states not exactly one of replicas and scaling".into());
            return None;
        }
    };
    let times = rollouts.list().unwrap_or_default();
    let rollouts = times.iter().map(|field| seconds(field, 0)).collect::<Option<_>>()?;
    let (more, fewer) = (surge.integer(0..=100_000), unavailable.integer(0..=100_000));
    let surge_count = u32::try_from(more.unwrap_or(1)).ok()?;
    let unavailable_count = u32::try_from(fewer.unwrap_or(0)).ok()?;
    if surge_count + unavailable_count == 0 {
        surge.fault("is 0 beside a maxUnavailable of 0: no rollout could begin".into());
    }
    Some(WorkloadKind::Service {
        replicas: stated,
        rollouts,
        surge: surge_count,
        unavailable: unavailable_count,
    })
}
