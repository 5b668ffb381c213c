//! Reads a pod that exists into the form that the cache keeps.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use super::refusal::missing;
use crate::pod_record::{Decided, GatedPod, MAX_ELEMENTS, MAX_RESOURCES, Phase, Placement, PodRecord, StuckPod};
use edgeward_decision::keys::Keys;
use edgeward_decision::model::decision_id::DecisionId;
use edgeward_decision::model::remote_room::{Bound, POD_SLOT, Start};
use edgeward_decision::model::slo::{Intent, Management};
use edgeward_decision::model::workload::Workload;
use edgeward_decision::pod::Pod;
use edgeward_kube::excerpt::LONGEST_NAME;
use edgeward_kube::pod::fields::{Condition, Spec, Status};
use edgeward_kube::pod::{DEFAULT_SCHEDULER, MAX_CONSTRAINTS, Text};
use edgeward_kube::resources::{Amounts, ResourceNames};

/// Maximum length of one of our annotations that is kept, in bytes.
const LONGEST_WORD: usize = 64;

/// Maximum length of an explanation that is kept, in bytes. This is twice what an Event shows in words. Any user can
/// write an explanation of any length.
const EXPLAIN_BYTES: usize = 2048;

/// Reads the record of an existing pod from its JSON. A pod with a node keeps only the extended resources in `names`. The
/// record has a [`Member`](super::Member) if `can_move`. Returns `None` if uid or namespace is missing, which no API server
/// omits.
///
/// # Errors
/// The text is not a pod.
pub fn read_record(
    json: &str,
    keys: &Keys,
    names: &ResourceNames,
    can_move: bool,
) -> Result<Option<PodRecord>, serde_json::Error> {
    let pod = Pod::without_long_constraints(json)?;
    let mut record = record(&pod, keys)?;
    if let Some(record) = record.as_mut().filter(|_| can_move) {
        record.member = super::member(&pod, record, &pod.status()?, keys).map(Arc::new);
    }
    if let Some(record) = record.as_mut().filter(|record| record.node.is_some()) {
        record.request.retain(names);
        // A resource that no node has says nothing about the room for other pods.
        if let Start::Refused(Some(bound)) = &record.start
            && bound
                .amounts()
                .any(|(name, _)| name != POD_SLOT && record.request.get(name) == 0)
        {
            record.start = Start::Refused(None);
        }
    }
    Ok(record)
}

/// Truncates the text to at most this many bytes, at a character boundary.
fn start(text: &str, length: usize) -> &str {
    &text[..text.floor_char_boundary(length)]
}

/// Returns the record of an existing pod. `None` if uid or namespace is missing, which no API server omits. Cost: a
/// pass over the status. Allocates a few strings; more for a pod without a node.
///
/// # Errors
/// The status cannot be read.
pub fn record(pod: &Pod<'_>, keys: &Keys) -> Result<Option<PodRecord>, serde_json::Error> {
    let status = pod.status()?;
    let (management, intent) = pod.slo(keys);
    let Some(mut record) = record_with(pod, &status, intent.as_ref(), keys) else {
        return Ok(None);
    };
    // Whether edgeward decides this pod, judged by the pod alone.
    let is_for_us = intent.is_some() && management != Management::OptedOut && !pod.is_of_others();
    record.undecided = record.decision.is_none() && is_for_us && !was_gate_removed(pod, keys);
    let is_gated = is_gated(pod, keys);
    if is_gated || record.node.is_none() {
        complete(pod, &mut record, is_gated, keys);
    }
    Ok(Some(record))
}

/// Completes the record of a pod that has no node, or that waits behind our gate.
fn complete(pod: &Pod<'_>, record: &mut PodRecord, is_gated: bool, keys: &Keys) {
    let workload = pod.workload(Cow::Borrowed(&*record.namespace), keys);
    let mut workload = workload.into_owned();
    let has_many_resources = workload.request.scalars.len() > MAX_RESOURCES;
    record.request.scalars.truncate(MAX_RESOURCES);
    let terms = workload.constraints.affinity.as_ref().map_or(0, Vec::len);
    let elements = workload.constraints.comparisons() + terms + workload.tolerations.len();
    let is_short = pod.spec.constraints_length() <= MAX_CONSTRAINTS && elements <= MAX_ELEMENTS;
    let is_whole = is_short && !has_many_resources;
    let mut placement = Placement {
        constraints: std::mem::take(&mut workload.constraints),
        tolerations: std::mem::take(&mut workload.tolerations),
    };
    if !is_whole {
        // Nothing tells where a refused pod may run. No node has this many labels or resources.
        let is_nowhere = record.unschedulable.is_some()
            || has_many_resources
            || pod
                .spec
                .node_selector
                .is_some_and(|text| text.get().len() > MAX_CONSTRAINTS);
        // An affinity without terms allows no node.
        placement.constraints.affinity = is_nowhere.then(Vec::new);
        placement.tolerations = vec![];
    }
    let placement = Arc::new(placement);
    record.placement = Some(Arc::clone(&placement));
    if is_gated {
        workload.constraints = placement.constraints.clone();
        workload.tolerations = placement.tolerations.clone();
        record.gated_pod = Some(Arc::new(gated(pod, record, workload, is_whole, keys)));
    } else if is_whole {
        record.stuck = stuck(pod, record, workload, placement, keys).map(Arc::new);
    }
}

/// Whether the pod waits behind our gate.
fn is_gated(pod: &Pod<'_>, keys: &Keys) -> bool {
    let metadata = pod.metadata.as_ref();
    pod.gate(&keys.gate).is_some()
        && metadata.is_some_and(|metadata| {
            let is_named = !metadata.name.is_empty() && !metadata.resource_version.is_empty();
            is_named && metadata.deletion_timestamp.is_empty()
        })
}

/// Builds the pod as the waitlist keeps it. The workload is kept only as a whole.
fn gated(pod: &Pod<'_>, record: &PodRecord, mut workload: Workload<'static>, is_whole: bool, keys: &Keys) -> GatedPod {
    let mut gates = DefaultHasher::new();
    workload.gates.hash(&mut gates);
    let has_other_gates = workload.has_other_gates(keys);
    workload.gates.retain(|gate| **gate == *keys.gate);
    GatedPod {
        uid: (&*record.uid).into(),
        namespace: record.namespace.clone(),
        name: record.name.clone(),
        resource_version: start(pod.resource_version().unwrap_or_default(), LONGEST_NAME).into(),
        class: workload.intent.as_ref().map(|intent| intent.slo.class),
        is_restricted: workload.sites().is_some(),
        gates: gates.finish(),
        has_other_gates,
        workload: is_whole.then_some(workload),
        created: record.created,
        stated: pod.annotation(&keys.timestamp).and_then(|at| at.parse().ok()),
        reason: reason(pod, keys),
    }
}

/// Builds the pod as the backstop keeps it, if kube-scheduler found no node for it and nothing keeps it from
/// another try. A pod that was gated and lost the gate undecided does not count: its replacement would lose the
/// gate too.
fn stuck(
    pod: &Pod<'_>,
    record: &PodRecord,
    workload: Workload<'static>,
    placement: Arc<Placement>,
    keys: &Keys,
) -> Option<StuckPod> {
    let is_stuck = record.unschedulable.is_some() && record.node.is_none() && record.phase == Phase::Pending;
    let is_left_alone = pod.is_marked_as_shadow() || was_gate_removed(pod, keys);
    if !is_stuck || record.gated || record.terminating.is_some() || is_left_alone {
        return None;
    }
    workload.intent.as_ref()?;
    Some(StuckPod {
        uid: (&*record.uid).into(),
        name: record.name.clone(),
        decision: record.decision.as_deref().and_then(DecisionId::parse),
        reason: reason(pod, keys),
        workload,
        placement,
    })
}

/// The start of the annotated reason.
pub(super) fn reason(pod: &Pod<'_>, keys: &Keys) -> Option<Box<str>> {
    let reason = pod.annotation(&keys.reason)?;
    Some(start(reason, LONGEST_WORD).into())
}

/// Whether a pod without our gate once had it, and lost it without a decision.
fn was_gate_removed(pod: &Pod<'_>, keys: &Keys) -> bool {
    let reason = pod.annotation(&keys.reason);
    reason.is_some_and(|reason| reason.starts_with("held_")) && pod.annotation(&keys.decision_id).is_none()
}

fn record_with(pod: &Pod<'_>, status: &Status<'_>, intent: Option<&Intent>, keys: &Keys) -> Option<PodRecord> {
    let metadata = pod.metadata.as_ref()?;
    let text = |text: &Text<'_>| Some(Box::<str>::from(start(text.stated()?, LONGEST_NAME)));
    let node = text(&pod.spec.node_name);
    let request = pod.amounts(&pod.charged_request(status), &metadata.namespace);
    let phase = match &*status.phase {
        "Running" => Phase::Running,
        "Succeeded" | "Failed" => Phase::Finished,
        _ => Phase::Pending,
    };
    Some(PodRecord {
        uid: text(&metadata.uid)?,
        name: start(pod.name(), LONGEST_NAME).into(),
        namespace: text(&metadata.namespace)?,
        controller: pod.controller_uid().map(Box::from),
        labels: pod.labels_text().into(),
        created: metadata.creation_timestamp.parse().ok(),
        scheduler: scheduler(pod).map(Box::from),
        nominated: text(&status.nominated_node_name),
        priority: pod.spec.priority.unwrap_or(0),
        may_preempt: pod.spec.may_preempt(),
        placeholder_grace: intent.is_none().then(|| pod.spec.grace()),
        membership: intent.and_then(|intent| intent.membership.clone()),
        spreads: intent.is_some_and(|intent| intent.spreads),
        slo: intent
            .filter(|intent| intent.class_known)
            .map(|intent| (intent.slo.class, intent.slo.priority)),
        phase,
        failed: status.phase == "Failed",
        job_run: pod.job_run(status),
        terminating: metadata.deletion_timestamp.stated().map(|at| at.parse().ok()),
        gated: pod.gates().next().is_some(),
        start: match node {
            Some(_) if phase == Phase::Pending => begun(status, &pod.spec, &request),
            _ => Start::Begun,
        },
        unschedulable: unschedulable(status),
        decision: pod
            .annotation(&keys.decision_id)
            .map(|id| start(id, LONGEST_WORD).into()),
        decided: decided(pod, intent, keys).map(Box::new),
        placement: None,
        gated_pod: None,
        other_domain: pod
            .gates()
            .find_map(|gate| keys.other_domain(gate))
            .map(|domain| start(domain, LONGEST_NAME).into()),
        stuck: None,
        undecided: false,
        member: None,
        node,
        request,
    })
}

/// Name of the pod's scheduler. The author of the pod writes it, so it is not kept if no scheduler can have that
/// name.
fn scheduler<'p>(pod: &'p Pod<'_>) -> Option<&'p str> {
    let name = pod.spec.scheduler_name.stated().unwrap_or(DEFAULT_SCHEDULER);
    let is_of_names = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (name.len() <= LONGEST_NAME && name.bytes().all(is_of_names)).then_some(name)
}

/// Hash of the message with which kube-scheduler reported that it found no node. A scheduler error does not count,
/// because kube-scheduler tries again at once.
fn unschedulable(status: &Status<'_>) -> Option<u64> {
    let is_unschedulable = |condition: &&Condition<'_>| condition.reason == "Unschedulable";
    let condition = status.refusal().filter(is_unschedulable)?;
    let mut hasher = DefaultHasher::new();
    condition.message.0.hash(&mut hasher);
    Some(hasher.finish())
}

/// Whether a Pending pod with this request has started on its node. On a virtual node, the status comes from the
/// pod in the cluster behind it. A LimitRange there may add requests that a container does not state; such a pod
/// gives no bound.
fn begun(status: &Status<'_>, spec: &Spec<'_>, request: &Amounts) -> Start {
    let mut containers = status.container_statuses.iter().chain(&status.init_container_statuses);
    if containers.any(|statuses| !statuses.is_empty()) {
        return Start::Begun;
    }
    let Some(condition) = status.refusal() else {
        return Start::Silent;
    };
    let is_stated = |name: &&str| *name == POD_SLOT || spec.requests_everywhere(name);
    let resources = missing(&condition.message).filter(|names| names.iter().all(is_stated));
    Start::Refused(resources.and_then(|names| Bound::new(request, names)).map(Arc::new))
}

/// Reads the annotated decision. `None` unless it has a reason, a time and, except on a gated pod, an id.
fn decided(pod: &Pod<'_>, intent: Option<&Intent>, keys: &Keys) -> Option<Decided> {
    let short = |key| pod.annotation(key).filter(|text| text.len() <= 64);
    let explain = pod.annotation(&keys.explain);
    let reason = short(&keys.reason)?;
    let id = match pod.annotation(&keys.decision_id) {
        None if reason.starts_with("held_") => of_gate(reason),
        _ => DecisionId::parse(short(&keys.decision_id)?)?,
    };
    Some(Decided {
        id,
        reason: reason.into(),
        at: short(&keys.timestamp)?.parse().ok()?,
        name: pod.name().into(),
        rtt_ms: short(&keys.wan_rtt_ms).map(Box::from),
        explain: explain.filter(|text| text.len() <= EXPLAIN_BYTES).map(Box::from),
        slo: intent.map(|intent| intent.slo),
        faults: intent.map_or_else(Vec::new, |intent| intent.faults.clone()),
    })
}

/// Stands in for the id of a pod that is gated for this reason. It is equal in every replica of a build.
fn of_gate(reason: &str) -> DecisionId {
    let mut hasher = DefaultHasher::new();
    reason.hash(&mut hasher);
    DecisionId(hasher.finish().into())
}
