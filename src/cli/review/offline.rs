//! The decision on a fleet file.

use edgeward_core::config::Config;
use edgeward_core::model::snapshot::Snapshot;
use edgeward_core::model::workload::Workload;
use edgeward_core::placement::decide::decide;
use edgeward_core::placement::patch::{Stamp, patch};
use edgeward_core::placement::room::Room;
use edgeward_core::units::Now;
use edgeward_core::wire::pod::Pod;

use super::report::{Item, ProfileItem, SiteItem, class_of, integers};
use super::subject::Subject;
use crate::admission::review::shorten;

/// Reviews pods against one snapshot.
pub(super) struct Offline<'c> {
    pub(super) config: &'c Config,
    pub(super) snapshot: &'c Snapshot,
    pub(super) namespace: &'c str,
    pub(super) now: Now,
}

impl Offline<'_> {
    pub(super) fn review(&self, subject: &Subject) -> anyhow::Result<Item> {
        let mut pod = subject.pod()?;
        if !subject.arrived {
            pod.apply_api_defaults();
        }
        let namespace = subject.namespace.as_deref().unwrap_or(self.namespace);
        let workload = pod.workload(namespace.into(), &self.config.keys);
        let assumptions = if subject.arrived {
            vec![]
        } else {
            self.assumptions(subject, &pod, &workload)
        };
        let verdict = decide(&workload, &Room::of(self.snapshot), self.config, self.now);
        let stamp = Stamp {
            at: self.now.wall,
            id: uuid::Uuid::new_v4().to_string(),
        };
        Ok(Item {
            source: subject.source.clone(),
            namespace: namespace.to_owned(),
            name: pod.name().to_owned(),
            class: class_of(&workload),
            verdict: verdict.action.as_str(),
            site: verdict.site().map(|site| site.name().to_owned()),
            reason: Some(verdict.reason.as_str().to_owned()),
            request: integers(&pod.request()),
            sites: verdict.sites.iter().map(SiteItem::from).collect(),
            profile: ProfileItem::of(&verdict),
            patch: patch(&pod, &verdict, self.config, &stamp),
            warnings: verdict.warnings.iter().map(|warning| shorten(warning)).collect(),
            faults: verdict.faults,
            hints: subject.all_hints(&pod, &workload, &self.config.keys),
            assumptions,
            answer: None,
        })
    }

    /// What only the cluster knows, and what was taken for granted instead.
    fn assumptions(&self, subject: &Subject, pod: &Pod<'_>, workload: &Workload<'_>) -> Vec<String> {
        let unresolved = pod.unresolved();
        let managed = &self.config.keys.managed;
        let priority = if unresolved.priority_class {
            "spec.priority is 0; its PriorityClass is not known here"
        } else {
            "spec.priority is 0; the cluster has no default PriorityClass"
        };
        let assumptions = [
            (
                true,
                format!("namespace {} is labelled {managed}=true", workload.namespace),
            ),
            (
                pod.lacks_requests(),
                "no LimitRange fills in the requests that containers leave out".to_owned(),
            ),
            (
                unresolved.runtime_class_overhead,
                "its RuntimeClass adds no overhead".to_owned(),
            ),
            (unresolved.priority, priority.to_owned()),
            (
                subject.others > 0,
                format!(
                    "the other replicas of its workload ({}) take no room before it",
                    subject.others
                ),
            ),
        ];
        assumptions
            .into_iter()
            .filter(|(applies, _)| *applies)
            .map(|(_, text)| text)
            .collect()
    }
}
