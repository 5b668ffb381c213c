//! The decision on a fleet file.

use edgeward_core::config::Config;
use edgeward_core::model::snapshot::Snapshot;
use edgeward_core::model::workload::Workload;
use edgeward_core::placement::decide::decide;
use edgeward_core::placement::patch::{Stamp, patch};
use edgeward_core::placement::room::Room;
use edgeward_core::units::Now;
use edgeward_core::wire::fleet_file;
use edgeward_core::wire::pod::Pod;

use super::report::{Item, ProfileItem, SiteItem};
use super::subject::Subject;
use crate::admission::review::shorten;
use crate::platform::yaml;

/// Reviews pods against one snapshot.
pub(in crate::cli) struct Offline<'c> {
    pub(in crate::cli) config: &'c Config,
    pub(in crate::cli) snapshot: &'c Snapshot,
    pub(in crate::cli) namespace: &'c str,
    pub(in crate::cli) now: Now,
}

/// The snapshot of a fleet file.
pub(in crate::cli) fn snapshot(text: &str, source: &str, config: &Config, now: Now) -> anyhow::Result<Snapshot> {
    let document = yaml::parse_one(text, source)?;
    fleet_file::read(&document, config, now.moment).map_err(|faults| yaml::faulty(source, &faults))
}

impl Offline<'_> {
    pub(in crate::cli) fn review(&self, subject: &Subject) -> anyhow::Result<Item> {
        let mut pod = subject.pod()?;
        if !subject.arrived {
            pod.apply_api_defaults();
        }
        let namespace = subject.namespace.as_deref().unwrap_or(self.namespace);
        let workload = pod.workload(namespace.into(), &self.config.keys);
        let verdict = decide(&workload, &Room::of(self.snapshot), self.config, self.now);
        let stamp = Stamp {
            at: self.now.wall,
            id: uuid::Uuid::new_v4().to_string(),
        };
        Ok(Item {
            verdict: verdict.action.as_str(),
            site: verdict.site().map(|site| site.name().to_owned()),
            reason: Some(verdict.reason.as_str().to_owned()),
            sites: verdict.sites.iter().map(SiteItem::from).collect(),
            profile: ProfileItem::of(&verdict),
            patch: patch(&pod, &verdict, self.config, &stamp),
            warnings: verdict.warnings.iter().map(|warning| shorten(warning)).collect(),
            assumptions: self.assumptions(subject, &pod, &workload),
            faults: verdict.faults,
            ..Item::of(subject, &pod, &workload, &self.config.keys)
        })
    }

    /// What only the cluster knows, and what was taken for granted instead.
    fn assumptions(&self, subject: &Subject, pod: &Pod<'_>, workload: &Workload<'_>) -> Vec<String> {
        if subject.arrived {
            return vec![];
        }
        let unresolved = pod.unresolved();
        let managed = &self.config.keys.managed;
        let others = subject.others;
        let priority = match unresolved.priority_class {
            true => "its PriorityClass is not known here",
            false => "the cluster has no default PriorityClass",
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
            (unresolved.priority, format!("spec.priority is 0; {priority}")),
            (
                others > 0,
                format!("the other replicas of its workload ({others}) take no room before it"),
            ),
        ];
        assumptions
            .into_iter()
            .filter(|(applies, _)| *applies)
            .map(|(_, text)| text)
            .collect()
    }
}
