//! What the status of an existing pod adds: its effective request during a resize, and why it has no node.

use std::borrow::Cow;

use super::Pod;
use super::fields::{Condition, Container, ContainerStatus, Resources, Status};
use crate::resources::ResourceList;

impl<'a> Pod<'a> {
    /// Reads the status. A missing status is empty.
    pub fn status(&self) -> Result<Status<'a>, serde_json::Error> {
        let status = self
            .status
            .map(|status| serde_json::from_str::<Option<_>>(status.get()));
        Ok(status.transpose()?.flatten().unwrap_or_default())
    }

    /// Returns the effective request of an existing pod. It is computed as in [`Pod::request`], except for a container
    /// that is being resized in place. Such a container counts with the largest of its requested, allocated and actual
    /// amounts.
    ///
    /// Source: `component-helpers/resource.PodRequests` of 1.36 with `UseStatusResources`, as kube-scheduler's
    /// `NodeInfo` calls it.
    pub fn charged_request(&self, status: &Status<'a>) -> ResourceList<'a> {
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
    pub fn refusal(&self) -> Option<&Condition<'a>> {
        let condition = self.condition("PodScheduled")?;
        let is_refusal = matches!(&*condition.reason, "Unschedulable" | "SchedulerError");
        (condition.status == "False" && is_refusal).then_some(condition)
    }

    /// Status of a container that can be resized. An init container that ends cannot be resized.
    fn container(&self, container: &Container<'a>) -> Option<&ContainerStatus<'a>> {
        let init = self.init_container_statuses.iter().filter(|_| container.is_sidecar());
        let mut statuses = self.container_statuses.iter().chain(init).flatten();
        statuses.find(|status| status.name == container.name)
    }
}
