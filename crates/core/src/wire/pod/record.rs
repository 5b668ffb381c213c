//! Reads a pod that exists into the form that the cache keeps.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use crate::excerpt::LONGEST_NAME;
use crate::keys::Keys;
use crate::model::decision_id::DecisionId;
use crate::model::pod_record::{
    DEFAULT_SCHEDULER, GatedPod, MAX_CONSTRAINTS, MAX_ELEMENTS, MAX_RESOURCES, Phase, Placement, PodRecord, StuckPod,
};
use crate::model::remote_room::{Bound, POD_SLOT, Start};
use crate::model::slo::Management;
use crate::model::workload::Workload;
use crate::resources::{Amounts, ResourceNames};
use crate::wire::pod::fields::{Condition, Container, ContainerStatus, Resources, Spec, Status};
use crate::wire::pod::refusal::missing;
use crate::wire::pod::{Pod, ResourceList, Text};

/// Maximum length of one of our annotations that is kept, in bytes.
const LONGEST_WORD: usize = 64;

/// Reads the record of an existing pod from its JSON. A pod with a node keeps only the extended resources in `names`.
/// Returns `None` if uid or namespace is missing, which no API server omits.
///
/// # Errors
/// The text is not a pod.
pub fn read_record(json: &str, keys: &Keys, names: &ResourceNames) -> Result<Option<PodRecord>, serde_json::Error> {
    let mut record = Pod::without_long_constraints(json)?.record(keys)?;
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

impl<'a> Pod<'a> {
    /// Returns the record of an existing pod. `None` if uid or namespace is missing, which no API server omits. Cost: a
    /// pass over the status. Allocates a few strings; more for a pod without a node.
    ///
    /// # Errors
    /// The status cannot be read.
    pub fn record(&self, keys: &Keys) -> Result<Option<PodRecord>, serde_json::Error> {
        let status = self.status()?;
        let Some(mut record) = self.record_with(&status, keys) else {
            return Ok(None);
        };
        record.undecided = record.decision.is_none() && !self.was_gate_removed(keys) && self.is_for_us(keys);
        let is_gated = self.is_gated(keys);
        if is_gated || record.node.is_none() {
            self.complete(&mut record, is_gated, keys);
        }
        Ok(Some(record))
    }

    /// Completes the record of a pod that has no node, or that waits behind our gate.
    fn complete(&self, record: &mut PodRecord, is_gated: bool, keys: &Keys) {
        let workload = self.workload(Cow::Borrowed(&*record.namespace), keys);
        let mut workload = workload.into_owned();
        let has_many_resources = workload.request.scalars.len() > MAX_RESOURCES;
        record.request.scalars.truncate(MAX_RESOURCES);
        let terms = workload.constraints.affinity.as_ref().map_or(0, Vec::len);
        let elements = workload.constraints.comparisons() + terms + workload.tolerations.len();
        let is_short = self.spec.constraints_length() <= MAX_CONSTRAINTS && elements <= MAX_ELEMENTS;
        let is_whole = is_short && !has_many_resources;
        let mut placement = Placement {
            constraints: std::mem::take(&mut workload.constraints),
            tolerations: std::mem::take(&mut workload.tolerations),
        };
        if !is_whole {
            placement.tolerations = vec![];
            // Nothing tells where a refused pod may run. No node has this many labels or resources.
            let is_nowhere = record.unschedulable.is_some()
                || has_many_resources
                || self
                    .spec
                    .node_selector
                    .is_some_and(|text| text.get().len() > MAX_CONSTRAINTS);
            // An affinity without terms allows no node.
            placement.constraints.affinity = is_nowhere.then(Vec::new);
        }
        let placement = Arc::new(placement);
        record.placement = Some(Arc::clone(&placement));
        if is_gated {
            record.gated_pod = Some(Arc::new(self.gated(
                record,
                workload,
                is_whole.then_some(&*placement),
                keys,
            )));
        } else if is_whole {
            record.stuck = self.stuck(record, workload, placement, keys).map(Arc::new);
        }
    }

    /// Whether the pod waits behind our gate.
    fn is_gated(&self, keys: &Keys) -> bool {
        let metadata = self.metadata.as_ref();
        self.gate(&keys.gate).is_some()
            && metadata.is_some_and(|metadata| {
                let is_named = !metadata.name.is_empty() && !metadata.resource_version.is_empty();
                is_named && metadata.deletion_timestamp.is_empty()
            })
    }

    /// Builds the pod as the waitlist keeps it. The workload is kept only together with its whole placement.
    fn gated(
        &self,
        record: &PodRecord,
        mut workload: Workload<'static>,
        whole: Option<&Placement>,
        keys: &Keys,
    ) -> GatedPod {
        let mut gates = DefaultHasher::new();
        workload.gates.hash(&mut gates);
        let has_other_gates = workload.has_other_gates(keys);
        workload.gates.retain(|gate| **gate == *keys.gate);
        GatedPod {
            uid: (&*record.uid).into(),
            namespace: record.namespace.clone(),
            name: record.name.clone(),
            resource_version: start(self.resource_version().unwrap_or_default(), LONGEST_NAME).into(),
            class: workload.intent.as_ref().map(|intent| intent.slo.class),
            is_restricted: workload.sites().is_some(),
            gates: gates.finish(),
            has_other_gates,
            workload: whole.map(|whole| Workload {
                constraints: whole.constraints.clone(),
                tolerations: whole.tolerations.clone(),
                ..workload
            }),
            created: record.created,
            stated: self.annotation(&keys.timestamp).and_then(|at| at.parse().ok()),
            reason: self.reason(keys),
        }
    }

    /// Builds the pod as the backstop keeps it, if kube-scheduler found no node for it and nothing keeps it from
    /// another try. A pod that was gated and lost the gate undecided does not count: its replacement would lose the
    /// gate too.
    fn stuck(
        &self,
        record: &PodRecord,
        workload: Workload<'static>,
        placement: Arc<Placement>,
        keys: &Keys,
    ) -> Option<StuckPod> {
        let is_stuck = record.unschedulable.is_some() && record.node.is_none() && record.phase == Phase::Pending;
        let is_left_alone = self.claims_to_be_shadow() || self.was_gate_removed(keys);
        if !is_stuck || record.gated || record.terminating.is_some() || is_left_alone {
            return None;
        }
        workload.intent.as_ref()?;
        Some(StuckPod {
            uid: (&*record.uid).into(),
            name: record.name.clone(),
            decision: record.decision.as_deref().and_then(DecisionId::parse),
            reason: self.reason(keys),
            workload,
            placement,
        })
    }

    /// The start of the annotated reason.
    fn reason(&self, keys: &Keys) -> Option<Box<str>> {
        let reason = self.annotation(&keys.reason)?;
        Some(start(reason, LONGEST_WORD).into())
    }

    /// Whether a pod without our gate once had it, and lost it without a decision.
    fn was_gate_removed(&self, keys: &Keys) -> bool {
        let reason = self.annotation(&keys.reason);
        reason.is_some_and(|reason| reason.starts_with("held_")) && self.annotation(&keys.decision_id).is_none()
    }

    /// Whether edgeward decides this pod, judged by the pod alone.
    fn is_for_us(&self, keys: &Keys) -> bool {
        let (management, intent) = self.slo(keys);
        intent.is_some() && management != Management::OptedOut && !self.is_of_others()
    }

    /// Reads the status. A missing status is empty.
    pub(super) fn status(&self) -> Result<Status<'a>, serde_json::Error> {
        let status = self
            .status
            .map(|status| serde_json::from_str::<Option<_>>(status.get()));
        Ok(status.transpose()?.flatten().unwrap_or_default())
    }

    fn record_with(&self, status: &Status<'a>, keys: &Keys) -> Option<PodRecord> {
        let metadata = self.metadata.as_ref()?;
        let text = |text: &Text<'a>| Some(Box::<str>::from(start(text.stated()?, LONGEST_NAME)));
        let (_, intent) = self.slo(keys);
        let node = text(&self.spec.node_name);
        let request = self.kept_apart(self.charged_request(status).amounts(), &metadata.namespace);
        let phase = match &*status.phase {
            "Running" => Phase::Running,
            "Succeeded" | "Failed" => Phase::Finished,
            _ => Phase::Pending,
        };
        Some(PodRecord {
            uid: text(&metadata.uid)?,
            name: start(self.name(), LONGEST_NAME).into(),
            namespace: text(&metadata.namespace)?,
            controller: self.controller_uid().map(Box::from),
            labels: self.labels_text().into(),
            created: metadata.creation_timestamp.parse().ok(),
            scheduler: self.scheduler().map(Box::from),
            nominated: text(&status.nominated_node_name),
            priority: self.spec.priority.unwrap_or(0),
            may_preempt: self.spec.may_preempt(),
            placeholder_grace: intent.is_none().then(|| self.spec.grace()),
            slo: intent
                .as_ref()
                .filter(|intent| intent.class_known)
                .map(|intent| (intent.slo.class, intent.slo.priority)),
            phase,
            failed: status.phase == "Failed",
            job_time: self.job_time(status),
            terminating: metadata.deletion_timestamp.stated().map(|at| at.parse().ok()),
            gated: self.gates().next().is_some(),
            start: match node {
                Some(_) if phase == Phase::Pending => status.start(&self.spec, &request),
                _ => Start::Begun,
            },
            unschedulable: status.unschedulable(),
            decision: self
                .annotation(&keys.decision_id)
                .map(|id| start(id, LONGEST_WORD).into()),
            decided: self.decided(intent.as_ref(), keys).map(Box::new),
            placement: None,
            gated_pod: None,
            other_domain: self
                .gates()
                .find_map(|gate| keys.other_domain(gate))
                .map(|domain| start(domain, LONGEST_NAME).into()),
            stuck: None,
            undecided: false,
            node,
            request,
        })
    }

    /// Name of the pod's scheduler. The author of the pod writes it, so it is not kept if no scheduler can have that
    /// name.
    fn scheduler(&self) -> Option<&str> {
        let name = self.spec.scheduler_name.stated().unwrap_or(DEFAULT_SCHEDULER);
        let is_of_names = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        (name.len() <= LONGEST_NAME && name.bytes().all(is_of_names)).then_some(name)
    }

    /// Returns the effective request of an existing pod. It is computed as in [`Pod::request`], except for a container
    /// that is being resized in place. Such a container counts with the largest of its requested, allocated and actual
    /// amounts.
    ///
    /// Source: `component-helpers/resource.PodRequests` of 1.36 with `UseStatusResources`, as kube-scheduler's
    /// `NodeInfo` calls it.
    fn charged_request(&self, status: &Status<'a>) -> ResourceList<'a> {
        let of_pod = self.spec.resources.as_ref().and_then(Resources::requests);
        self.spec.total(
            |container| match status.container(container) {
                Some(found) => status.effective(container.requests(), &found.resources, &found.allocated_resources),
                None => container.stated(),
            },
            of_pod.and_then(|stated| status.effective(Some(stated), &status.resources, &status.allocated_resources)),
        )
    }
}

/// Truncates the text to at most this many bytes, at a character boundary.
fn start(text: &str, length: usize) -> &str {
    &text[..text.floor_char_boundary(length)]
}

impl<'a> Status<'a> {
    fn condition(&self, kind: &str) -> Option<&Condition<'a>> {
        let mut conditions = self.conditions.iter().flatten();
        conditions.find(|condition| condition.kind == *kind)
    }

    /// The largest of the requested, actual and allocated amounts. The request does not count if the node can never
    /// satisfy it. Source: `determineEffectiveRequests`.
    fn effective<'s>(
        &self,
        stated: Option<&'s ResourceList<'a>>,
        actual: &Option<Resources<'a>>,
        allocated: &Option<ResourceList<'a>>,
    ) -> Option<Cow<'s, ResourceList<'a>>> {
        let Some(actual) = actual else {
            return stated.map(Cow::Borrowed);
        };
        let stated = stated.filter(|_| !self.is_resize_infeasible());
        let mut most = ResourceList::default();
        for list in [stated, actual.requests(), allocated.as_ref()].into_iter().flatten() {
            for (name, quantity) in list.iter() {
                most.raise(name.clone(), quantity);
            }
        }
        Some(Cow::Owned(most))
    }

    fn is_resize_infeasible(&self) -> bool {
        let pending = self.condition("PodResizePending");
        pending.is_some_and(|condition| condition.reason == "Infeasible")
    }

    /// The condition with which a scheduler reports that it found no node, or failed.
    fn refusal(&self) -> Option<&Condition<'a>> {
        let condition = self.condition("PodScheduled")?;
        let is_refusal = matches!(&*condition.reason, "Unschedulable" | "SchedulerError");
        (condition.status == "False" && is_refusal).then_some(condition)
    }

    /// Hash of the message with which kube-scheduler reported that it found no node. A scheduler error does not count,
    /// because kube-scheduler tries again at once.
    fn unschedulable(&self) -> Option<u64> {
        let is_unschedulable = |condition: &&Condition<'_>| condition.reason == "Unschedulable";
        let condition = self.refusal().filter(is_unschedulable)?;
        let mut hasher = DefaultHasher::new();
        condition.message.0.hash(&mut hasher);
        Some(hasher.finish())
    }

    /// Whether a Pending pod with this request has started on its node. On a virtual node, the status comes from the
    /// pod in the cluster behind it. A LimitRange there may add requests that a container does not state; such a pod
    /// gives no bound.
    fn start(&self, spec: &Spec<'a>, request: &Amounts) -> Start {
        let mut containers = self.container_statuses.iter().chain(&self.init_container_statuses);
        if containers.any(|statuses| !statuses.is_empty()) {
            return Start::Begun;
        }
        let Some(condition) = self.refusal() else {
            return Start::Silent;
        };
        let is_stated = |name: &&str| *name == POD_SLOT || spec.requests_everywhere(name);
        let resources = missing(&condition.message).filter(|names| names.iter().all(is_stated));
        Start::Refused(resources.and_then(|names| Bound::new(request, names)).map(Arc::new))
    }

    /// Status of a container that can be resized. An init container that ends cannot be resized.
    fn container(&self, container: &Container<'a>) -> Option<&ContainerStatus<'a>> {
        let init = self.init_container_statuses.iter().filter(|_| container.is_sidecar());
        let mut statuses = self.container_statuses.iter().chain(init).flatten();
        statuses.find(|status| status.name == container.name)
    }
}
