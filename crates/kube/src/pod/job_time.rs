//! Run time of a succeeded pod.

use jiff::Timestamp;

use crate::pod::Pod;
use crate::pod::fields::{ContainerStatus, Status, value};
use crate::units::Micros;

impl Pod<'_> {
    /// How long the pod worked. `None` unless the pod succeeded, belongs to a Job, and states when its containers
    /// started and finished. Pods of other controllers run until they are stopped. The run time of a failed pod, or of
    /// a pod without a controller, measures nothing.
    pub fn job_time(&self, status: &Status<'_>) -> Option<Micros> {
        if status.phase != "Succeeded" || self.controller()?.kind != "Job" {
            return None;
        }
        let statuses = status.container_statuses.iter().flatten();
        statuses.filter_map(ContainerStatus::run).max()
    }
}

impl ContainerStatus<'_> {
    fn run(&self) -> Option<Micros> {
        let terminated = &value(self.state)["terminated"];
        let at = |field: &str| terminated[field].as_str()?.parse::<Timestamp>().ok();
        let (started, finished) = (at("startedAt")?, at("finishedAt")?);
        // A container that never ran has the zero time in both fields, or in one of them.
        let us = finished.as_microsecond().checked_sub(started.as_microsecond())?;
        (started > Timestamp::UNIX_EPOCH).then_some(Micros(u64::try_from(us).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn job_time(phase: &str, kind: &str, runs: &[(&str, &str)]) -> Option<Micros> {
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
        pod.job_time(&pod.status().unwrap())
    }

    #[test]
    fn job_duration_is_that_of_the_longest_container() {
        let runs = [
            ("2026-01-01T10:00:00Z", "2026-01-01T10:00:05Z"),
            ("2026-01-01T10:00:02Z", "2026-01-01T10:01:10Z"),
            ("2026-01-01T10:00:01Z", "2026-01-01T10:00:09Z"),
        ];
        assert_eq!(job_time("Succeeded", "Job", &runs), Some(Micros::from_secs(68)));
        assert_eq!(job_time("Failed", "Job", &runs), None);
        assert_eq!(job_time("Running", "Job", &runs), None);
        assert_eq!(job_time("Succeeded", "ReplicaSet", &runs), None);
    }

    #[test]
    fn job_without_valid_run_has_no_duration() {
        for run in [
            ("1970-01-01T00:00:00Z", "2026-01-01T10:00:00Z"),
            ("2026-01-01T10:00:00Z", "2026-01-01T09:00:00Z"),
            ("", "2026-01-01T10:00:00Z"),
            ("soon", "later"),
        ] {
            assert_eq!(job_time("Succeeded", "Job", &[run]), None, "{run:?}");
        }
        assert_eq!(job_time("Succeeded", "Job", &[]), None);
        let pod = Pod::from_json(r#"{"spec": {}}"#).unwrap();
        assert_eq!(pod.job_time(&pod.status().unwrap()), None);
    }
}
