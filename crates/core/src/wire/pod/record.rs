//! A pod that exists, as the cache keeps it.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use crate::keys::Keys;
use crate::model::decision_id::DecisionId;
use crate::model::pod_record::{DEFAULT_SCHEDULER, HeldPod, OtherDomainPod, Phase, Placement, PodRecord, StuckPod};
use crate::model::slo::Management;
use crate::wire::counted;
use crate::wire::pod::fields::{Condition, Container, ContainerStatus, OwnerReference, Quantities, Resources, Status};
use crate::wire::pod::{Pod, ResourceList, Text, Toleration};

/// The longest name of an object.
const LONGEST_NAME: usize = 253;

impl<'a> Pod<'a> {
    /// What is kept of a pod that exists, which was read from `json`; `None` for one without uid or namespace, which no API
    /// server sends. Cost: a pass over the status; allocates a few strings, more for a pod without node, a copy of the whole for
    /// one behind our gate.
    ///
    /// # Errors
    /// The status cannot be read, or has more in its lists and maps than [`counted::LIMIT`].
    pub fn record(&self, json: &str, keys: &Keys) -> Result<Option<PodRecord>, counted::Error> {
        let status = self.status()?;
        let record = self.record_with(&status, keys).map(|record| PodRecord {
            held: self.held(json, keys).map(Arc::new),
            stuck: self.stuck(&record, keys).map(Arc::new),
            undecided: record.decision.is_none() && !self.was_gate_removed(keys) && self.is_for_us(keys),
            ..record
        });
        Ok(record)
    }

    /// The pod as the waitlist keeps it, if it waits behind our gate.
    fn held(&self, json: &str, keys: &Keys) -> Option<HeldPod> {
        let metadata = self.metadata.as_ref()?;
        let is_held = self.gate(&keys.gate).is_some() && metadata.deletion_timestamp.is_none();
        is_held.then_some(())?;
        let namespace = metadata.namespace.as_deref()?;
        let workload = self.workload(Cow::Borrowed(namespace), keys).into_owned();
        let mut gates = DefaultHasher::new();
        workload.gates.hash(&mut gates);
        Some(HeldPod {
            uid: metadata.uid.as_deref()?.into(),
            namespace: namespace.into(),
            name: metadata.name.as_deref()?.into(),
            resource_version: metadata.resource_version.as_deref()?.into(),
            json: json.into(),
            class: workload.intent.as_ref().map(|intent| intent.slo.class),
            gates: gates.finish(),
            has_other_gates: workload.has_other_gates(keys),
            workload: Some(workload),
            created: metadata.creation_timestamp.as_deref().and_then(|at| at.parse().ok()),
            stated: self.annotation(&keys.timestamp).and_then(|at| at.parse().ok()),
            reason: self.annotation(&keys.reason).map(Box::from),
        })
    }

    fn other_domain_pod(&self, keys: &Keys) -> Option<OtherDomainPod> {
        let domain = self.gates().find_map(|gate| keys.other_domain(gate))?;
        let metadata = self.metadata.as_ref()?;
        metadata.deletion_timestamp.is_none().then_some(())?;
        Some(OtherDomainPod {
            namespace: metadata.namespace.as_deref()?.into(),
            name: metadata.name.as_deref()?.into(),
            uid: metadata.uid.as_deref()?.into(),
            domain: domain.into(),
        })
    }

    /// The pod as the backstop keeps it, if kube-scheduler has found no node for it, and nothing keeps it from trying again. Not if
    /// it was held and lost the gate undecided: so would the one in its place.
    fn stuck(&self, record: &PodRecord, keys: &Keys) -> Option<StuckPod> {
        let is_stuck = record.unschedulable.is_some() && record.node.is_none() && record.phase == Phase::Pending;
        if !is_stuck || record.gated || record.terminating.is_some() || self.was_gate_removed(keys) {
            return None;
        }
        let workload = self.workload(Cow::Borrowed(&record.namespace), keys).into_owned();
        workload.intent.as_ref()?;
        let is_replaced = |owner: &OwnerReference<'_>| {
            owner.api_version == "apps/v1" && (owner.kind == "ReplicaSet" || owner.kind == "StatefulSet")
        };
        Some(StuckPod {
            uid: (&*record.uid).into(),
            name: record.name.clone(),
            resource_version: self.resource_version()?.into(),
            is_replaced: self.controller().is_some_and(is_replaced),
            decision: record.decision.as_deref().and_then(DecisionId::parse),
            reason: self.annotation(&keys.reason).map(Box::from),
            workload,
        })
    }

    /// Whether a pod that is behind our gate no more was held, and lost the gate without being decided.
    fn was_gate_removed(&self, keys: &Keys) -> bool {
        let reason = self.annotation(&keys.reason);
        reason.is_some_and(|reason| reason.starts_with("held_")) && self.annotation(&keys.decision_id).is_none()
    }

    /// Whether the pod by itself is one that we decide.
    fn is_for_us(&self, keys: &Keys) -> bool {
        let (management, intent) = self.slo(keys);
        intent.is_some() && management != Management::OptedOut && !self.is_of_others()
    }

    /// Its status; one that says nothing where there is none.
    pub(super) fn status(&self) -> Result<Status<'a>, counted::Error> {
        let status = self
            .status
            .map(|status| counted::from_str::<Option<_>>(status.get(), counted::LIMIT));
        Ok(status.transpose()?.flatten().unwrap_or_default())
    }

    fn record_with(&self, status: &Status<'a>, keys: &Keys) -> Option<PodRecord> {
        let metadata = self.metadata.as_ref()?;
        let owner = self.controller();
        let text = |text: &Option<Text<'a>>| {
            let text = text.as_deref().filter(|text| !text.is_empty())?;
            Some(Box::<str>::from(text))
        };
        let (_, intent) = self.slo(keys);
        let node = text(&self.spec.node_name);
        let phase = match status.phase.as_deref() {
            Some("Running") => Phase::Running,
            Some("Succeeded" | "Failed") => Phase::Finished,
            _ => Phase::Pending,
        };
        Some(PodRecord {
            uid: text(&metadata.uid)?,
            name: self.name().into(),
            namespace: text(&metadata.namespace)?,
            controller: owner.and_then(|owner| text(&owner.uid)),
            controller_name: owner.map(|owner| format!("{} {}", &*owner.kind, &*owner.name).into()),
            created: metadata.creation_timestamp.as_deref().and_then(|at| at.parse().ok()),
            scheduler: self.scheduler().map(Box::from),
            nominated: text(&status.nominated_node_name),
            request: self.charged_request(status).amounts(),
            priority: self.spec.priority.unwrap_or(0),
            may_preempt: self.spec.may_preempt(),
            placeholder_grace: intent.is_none().then(|| self.spec.grace()),
            slo: intent
                .as_ref()
                .filter(|intent| intent.class_known)
                .map(|intent| (intent.slo.class, intent.slo.priority)),
            phase,
            failed: status.phase.as_deref() == Some("Failed"),
            finished: self.finished_with(status),
            terminating: metadata.deletion_timestamp.as_deref().map(|at| at.parse().ok()),
            disrupted: status.is_disrupted(),
            gated: self.gates().next().is_some(),
            unschedulable: status.unschedulable(),
            decision: self.annotation(&keys.decision_id).map(Box::from),
            decided: self.decided(intent.as_ref(), keys).map(Box::new),
            placement: node.is_none().then(|| Arc::new(self.placement())),
            held: None,
            other_domain_pod: self.other_domain_pod(keys).map(Box::new),
            stuck: None,
            undecided: false,
            node,
        })
    }

    /// The name of its scheduler, which its author writes: `None` where no scheduler has such a name, so that nobody remembers
    /// it.
    fn scheduler(&self) -> Option<&str> {
        let name = self.spec.scheduler_name.as_deref().filter(|name| !name.is_empty());
        let name = name.unwrap_or(DEFAULT_SCHEDULER);
        let is_of_names = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        (name.len() <= LONGEST_NAME && name.bytes().all(is_of_names)).then_some(name)
    }

    fn placement(&self) -> Placement {
        Placement {
            constraints: self.spec.constraints().into_owned(),
            tolerations: self.tolerations().cloned().map(Toleration::into_owned).collect(),
        }
    }

    /// The effective request of a pod that exists: as [`Pod::request`], but a container that is being resized in place
    /// counts with the most of what it asks for, was promised and has.
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

impl<'a> Status<'a> {
    fn condition(&self, kind: &str) -> Option<&Condition<'a>> {
        self.conditions
            .iter()
            .flatten()
            .find(|condition| condition.kind == *kind)
    }

    /// The most of what is asked for, what is in effect and what was promised; of the last two only, when the node can
    /// never give what is asked for. Source: `determineEffectiveRequests`.
    fn effective<'s>(
        &self,
        stated: Option<&'s ResourceList<'a>>,
        actual: &Option<Resources<'a>>,
        allocated: &Option<Quantities<'a>>,
    ) -> Option<Cow<'s, ResourceList<'a>>> {
        let Some(actual) = actual else {
            return stated.map(Cow::Borrowed);
        };
        let stated = stated.filter(|_| !self.is_resize_infeasible());
        let allocated = allocated.as_ref().map(|allocated| &allocated.0);
        let mut most = ResourceList::default();
        for list in [stated, actual.requests(), allocated].into_iter().flatten() {
            for (name, quantity) in list.iter() {
                most.raise(name.clone(), quantity);
            }
        }
        Some(Cow::Owned(most))
    }

    fn is_resize_infeasible(&self) -> bool {
        let pending = self.condition("PodResizePending");
        pending.and_then(|condition| condition.reason.as_deref()) == Some("Infeasible")
    }

    /// Whether it makes room for another pod, is evicted or loses its node: whoever ends it says so first.
    fn is_disrupted(&self) -> bool {
        let condition = self.condition("DisruptionTarget");
        condition.is_some_and(|condition| condition.status == "True")
    }

    /// What kube-scheduler said when it found no node, or failed, as a number that differs when it says something else.
    fn unschedulable(&self) -> Option<u64> {
        let condition = self.condition("PodScheduled")?;
        let is_refusal = matches!(condition.reason.as_deref(), Some("Unschedulable" | "SchedulerError"));
        (condition.status == "False" && is_refusal).then(|| {
            let mut hasher = DefaultHasher::new();
            condition.message.as_deref().hash(&mut hasher);
            hasher.finish()
        })
    }

    /// The status of a container that can be resized: an init container that ends cannot.
    fn container(&self, container: &Container<'a>) -> Option<&ContainerStatus<'a>> {
        let init = self.init_container_statuses.iter().filter(|_| container.is_sidecar());
        let mut statuses = self.container_statuses.iter().chain(init).flatten();
        statuses.find(|status| status.name == container.name)
    }
}
