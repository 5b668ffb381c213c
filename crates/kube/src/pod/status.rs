//! What the status of an existing pod adds: its effective request during a resize, why it has no node, and how long it ran.

use std::borrow::Cow;

use jiff::Timestamp;

use super::Pod;
use super::fields::{Condition, Container, ContainerStatus, Resources, Status, value};
use crate::resources::ResourceList;
use crate::units::Micros;

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

    /// How long the pod worked. `None` unless the pod succeeded, belongs to a Job, and states when its containers
    /// started and finished. Pods of other controllers run until they are stopped. The run time of a failed pod, or of
    /// a pod without a controller, measures nothing.
    pub fn job_run(&self, status: &Status<'_>) -> Option<JobRun> {
        if status.phase != "Succeeded" || self.controller()?.kind != "Job" {
            return None;
        }
        let statuses = status.container_statuses.iter().flatten();
        let runs = statuses.filter_map(ContainerStatus::run);
        let (time, finished) = runs.reduce(|one, other| (one.0.max(other.0), one.1.max(other.1)))?;
        Some(JobRun {
            key: self.job_key().map(Box::from),
            time,
            finished,
        })
    }
}

/// How long a Job's pod worked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRun {
    /// [`Pod::job_key`].
    pub key: Option<Box<str>>,
    /// The longest time of a container.
    pub time: Micros,
    /// When the last container finished, to the second.
    pub finished: Timestamp,
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
            for (name, quantity) in &list.0 {
                most.raise(name.clone(), *quantity);
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

impl ContainerStatus<'_> {
    fn run(&self) -> Option<(Micros, Timestamp)> {
        let terminated = &value(self.state)["terminated"];
        let at = |field: &str| terminated[field].as_str()?.parse::<Timestamp>().ok();
        let (started, finished) = (at("startedAt")?, at("finishedAt")?);
        // A container that never ran has the zero time in both fields, or in one of them.
        let us = finished.as_microsecond().checked_sub(started.as_microsecond())?;
        (started > Timestamp::UNIX_EPOCH).then_some((Micros(u64::try_from(us).ok()?), finished))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn job_run(phase: &str, kind: &str, runs: &[(&str, &str)]) -> Option<(Micros, String)> {
        let ran = |(started, finished): &(&str, &str)| {
            json!({"name": "c", "state": {"terminated": {
                "exitCode": 0, "reason": "Completed", "startedAt": started, "finishedAt": finished,
            }}})
        };
        let init = ran(&("2026-01-01T00:00:00Z", "2026-01-01T09:00:00Z"));
        let pod = json!({
            "metadata": {"ownerReferences": [{"kind": kind, "uid": "u", "controller": true}]},
            "spec": {"containers": [{"name": "c"}]},
            "status": {
                "phase": phase, "startTime": "2026-01-01T00:00:00Z", "initContainerStatuses": [init],
                "containerStatuses": runs.iter().map(ran).collect::<Value>(),
            },
        });
        let text = pod.to_string();
        let pod = Pod::from_json(&text).unwrap();
        let run = pod.job_run(&pod.status().unwrap())?;
        assert_eq!(run.key.as_deref(), Some("u"));
        Some((run.time, run.finished.to_string()))
    }

    #[test]
    fn job_duration_is_that_of_the_longest_container() {
        let runs = [
            ("2026-01-01T10:00:00Z", "2026-01-01T10:00:05Z"),
            ("2026-01-01T10:00:02Z", "2026-01-01T10:01:10Z"),
            ("2026-01-01T10:00:01Z", "2026-01-01T10:00:09Z"),
        ];
        let longest = (Micros::from_secs(68), "2026-01-01T10:01:10Z".to_owned());
        assert_eq!(job_run("Succeeded", "Job", &runs), Some(longest));
        assert_eq!(job_run("Failed", "Job", &runs), None);
        assert_eq!(job_run("Running", "Job", &runs), None);
        assert_eq!(job_run("Succeeded", "ReplicaSet", &runs), None);
    }

    #[test]
    fn job_without_valid_run_has_no_duration() {
        for run in [
            ("1970-01-01T00:00:00Z", "2026-01-01T10:00:00Z"),
            ("2026-01-01T10:00:00Z", "2026-01-01T09:00:00Z"),
            ("", "2026-01-01T10:00:00Z"),
            ("soon", "later"),
        ] {
            assert_eq!(job_run("Succeeded", "Job", &[run]), None, "{run:?}");
        }
        assert_eq!(job_run("Succeeded", "Job", &[]), None);
        let pod = Pod::from_json(r#"{"spec": {}}"#).unwrap();
        assert_eq!(pod.job_run(&pod.status().unwrap()), None);
    }
}
