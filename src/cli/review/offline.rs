//! `review --fleet`: decides pods with a fleet file.

use std::sync::Arc;

use edgeward_decision::config::{Config, ScorerSource};
use edgeward_decision::fleet_file;
use edgeward_decision::model::snapshot::Snapshot;
use edgeward_decision::model::workload::Workload;
use edgeward_decision::placement::decide::decide_with_scores;
use edgeward_decision::placement::patch::{Stamp, patch};
use edgeward_decision::placement::room::Room;
use edgeward_decision::placement::sentences;
use edgeward_decision::pod::Pod;
use edgeward_kube::units::Now;

use super::report::{GroupItem, Item, ProfileItem, SiteItem};
use super::subject::Subject;
use crate::admission::review::shorten;
use crate::platform::yaml;
use crate::scorer::read_file;

/// Reads a fleet file as a snapshot, with the scorer of `scorer.file`.
pub(in crate::cli) fn scored_snapshot(text: &str, source: &str, config: &Config, now: Now) -> anyhow::Result<Snapshot> {
    let mut snapshot = snapshot(text, source, config, now)?;
    if let Some(ScorerSource::File(file)) = config.scorer.source() {
        snapshot.scorer = Some(Arc::new(read_file(file)?));
    }
    Ok(snapshot)
}

/// Reads a fleet file as a snapshot.
pub(in crate::cli) fn snapshot(text: &str, source: &str, config: &Config, now: Now) -> anyhow::Result<Snapshot> {
    let document = yaml::parse_one(text, source)?;
    let read = fleet_file::read(&document, config, now.moment);
    read.map_err(|faults| yaml::faulty(source, &faults))
}

/// Decides a pod. `namespace` applies if the pod names none.
pub(in crate::cli) fn review(
    subject: &Subject,
    namespace: &str,
    snapshot: &Snapshot,
    config: &Config,
    now: Now,
) -> anyhow::Result<Item> {
    let mut pod = subject.pod()?;
    if !subject.arrived {
        pod.apply_api_defaults();
    }
    let namespace = subject.namespace.as_deref().unwrap_or(namespace);
    let workload = pod.workload(namespace.into(), &config.keys);
    let verdict = decide_with_scores(&workload, &Room::of(snapshot), config, now);
    let stamp = Stamp {
        at: now.wall,
        id: uuid::Uuid::new_v4().to_string(),
    };
    Ok(Item {
        verdict: verdict.action.as_str(),
        site: verdict.site().map(|site| site.name().to_owned()),
        reason: Some(verdict.reason.as_str().to_owned()),
        sites: SiteItem::all(&verdict),
        profile: ProfileItem::of(&verdict),
        learned: sentences::learned(&verdict),
        group: GroupItem::of(&workload, snapshot),
        patch: patch(&pod, &verdict, config, &stamp),
        warnings: verdict.warnings.iter().map(|warning| shorten(warning)).collect(),
        assumptions: assumptions(subject, &pod, &workload, config),
        faults: verdict.faults,
        ..Item::of(subject, &pod, &workload, &config.keys)
    })
}

/// Lists the facts that only a cluster knows, and what is assumed for each.
fn assumptions(subject: &Subject, pod: &Pod<'_>, workload: &Workload<'_>, config: &Config) -> Vec<String> {
    let managed = &config.keys.managed;
    if subject.arrived {
        return vec![];
    }
    let mut assumptions = vec![format!("namespace {} is labelled {managed}=true", workload.namespace)];
    assumptions.extend(pod.assumptions().map(str::to_owned));
    if let Some(ScorerSource::ConfigMap(name)) = config.scorer.source() {
        assumptions.push(format!(
            "the scorer of ConfigMap {name} is not read, and sitePolicy ranks clouds"
        ));
    }
    if subject.others > 0 {
        let others = subject.others;
        assumptions.push(format!(
            "the other replicas of its workload ({others}) take no room before it"
        ));
    }
    assumptions
}
