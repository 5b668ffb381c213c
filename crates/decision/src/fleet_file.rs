//! The fleet file: a [`Snapshot`] as a document, for `review`, `demo`, tests, and `serve` without a live view.
//!
//! Schema and defaults: `docs/reference/fleet-file.md`.

mod links;
mod node;
mod profiles;
mod site;
mod volumes;

use std::collections::HashSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::config::Config;
use crate::config::site_definition::{check_fleet, some_of};
use crate::document;
use crate::document::{Decimal, Fault, Faults};
use crate::model::liqo::Offloadings;
use crate::model::site::SiteKind;
use crate::model::snapshot::{Neighbourhoods, Site, Snapshot};
use edgeward_kube::node::NodeId;
use edgeward_kube::units::{Micros, Moment};

/// The document. Optional fields may be absent or null.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    age_seconds: Option<Age>,
    sites: Vec<site::SiteEntry>,
    nodes: Option<Vec<node::NodeEntry>>,
    links: Option<Vec<links::LinkEntry>>,
    liqo: Option<Offloadings>,
    persistent_volume_claims: Option<Vec<volumes::ClaimEntry>>,
    persistent_volumes: Option<Vec<volumes::VolumeEntry>>,
    storage_classes: Option<Vec<volumes::ClassEntry>>,
    profiles: Option<Vec<profiles::ProfileEntry>>,
    neighbourhoods: Option<Neighbourhoods>,
}

/// How old something is, in seconds: a year at most.
type Age = Decimal<3, 0, 31_536_000_000>;

impl Age {
    /// Rounded up to milliseconds: in such steps a decision compares ages.
    fn of(as_of: Moment, now: Moment) -> Self {
        let oldest = Micros::from_secs(31_536_000);
        Self(now.since(as_of).min(oldest).0.div_ceil(1_000) as i64)
    }

    fn before(self, now: Moment) -> Moment {
        now.before(self.time())
    }

    fn time(self) -> Micros {
        Micros::from_millis(self.0 as u64)
    }
}

/// Reads a fleet file as of `now`: the ages it states are ages at that moment. Links without a stated health are
/// judged by the thresholds of `config`.
///
/// # Errors
/// The first place that is not of the file's shape, or else every fault.
pub fn read(document: &Value, config: &Config, now: Moment) -> Result<Snapshot, Faults> {
    let file: File = document::parse(&document::without_nulls(document.clone()), "")?;
    let mut faults = vec![];
    let sites = file.sites.into_iter().enumerate().filter_map(|(i, entry)| {
        let at = format!("sites[{i}]");
        let site = entry.site(config, now, &at, &mut faults)?;
        Some((at, site))
    });
    let sites: Vec<(String, Site)> = sites.collect();
    let definitions = sites.iter().map(|(at, site)| (&**at, &*site.definition));
    check_fleet("sites", definitions, &mut faults);

    let mut sites: Vec<Site> = sites.into_iter().map(|(_, site)| site).collect();
    sites.sort_by(|a, b| a.definition.order().cmp(&b.definition.order()));
    let mut names = HashSet::new();
    for (i, entry) in file.nodes.into_iter().flatten().enumerate() {
        let at = format!("nodes[{i}]");
        let node = entry.node(NodeId(names.len() as u32), now, &at, &mut faults);
        if !names.insert(Arc::clone(&node.name)) {
            let message = format_args!("the name {:?} is taken by an earlier node", node.name);
            faults.push(Fault::new(at, message));
        }
        // As in the live view, a cloud's selector counts before the edge's.
        let owners = sites.iter_mut();
        let owners = owners.filter(|site| node.labels.contain(site.definition.selector()));
        if let Some(site) = owners.min_by_key(|site| site.kind() == SiteKind::Edge) {
            Arc::make_mut(&mut site.nodes).push(Arc::new(node));
        }
    }
    for site in &mut sites {
        Arc::make_mut(&mut site.nodes).sort_by(|one, other| one.name.cmp(&other.name));
    }
    let profiles = file.profiles.unwrap_or_default();
    let profiles = profiles::read(profiles, &sites, now, &mut faults);
    let links = links::read(file.links.unwrap_or_default(), &sites, &mut faults);
    let edge = sites.iter().find(|site| site.kind() == SiteKind::Edge);
    let edge = edge.map(|edge| edge.name().to_owned()).unwrap_or_default();
    for site in &mut sites {
        site.set_bandwidth(&edge, &links);
    }
    let volumes = volumes::read(
        file.persistent_volume_claims,
        file.persistent_volumes,
        file.storage_classes,
    );
    let has_some = |site: &Site| site.nodes().any(|node| !node.charges.placeholders.is_empty());
    let snapshot = Snapshot {
        has_placeholders: sites.iter().any(has_some),
        revision: 1,
        kubernetes_as_of: file.age_seconds.map_or(now, |age| age.before(now)),
        sites,
        links: Arc::new(links),
        offloadings: file.liqo.map(Arc::new),
        volumes: volumes.map(Arc::new),
        profiles: Arc::new(profiles),
        neighbourhoods: Arc::new(file.neighbourhoods.unwrap_or_default()),
        ..Snapshot::default()
    };
    Faults::or(faults, snapshot)
}

/// Returns the fleet file that reads as this snapshot. Ages are as of `now` and rounded up to milliseconds, the unit in
/// which decisions compare them. The file leaves out the revision, node ids, probe endpoints and the deadlines of
/// terminating pods.
pub fn write(snapshot: &Snapshot, now: Moment) -> Value {
    let nodes = snapshot.sites.iter().flat_map(Site::nodes);
    // Watches that are behind decide about no pod that arrives.
    let volumes = snapshot.volumes.as_deref().filter(|volumes| !volumes.is_stale);
    let file = File {
        age_seconds: Some(Age::of(snapshot.kubernetes_as_of, now)),
        sites: snapshot
            .sites
            .iter()
            .map(|site| site::SiteEntry::of(site, now))
            .collect(),
        nodes: Some(nodes.map(node::NodeEntry::of).collect()),
        links: some_of(links::entries(snapshot)),
        liqo: snapshot.offloadings.as_deref().cloned(),
        persistent_volume_claims: volumes.map(volumes::claims),
        persistent_volumes: volumes.map(volumes::volumes),
        storage_classes: volumes.map(volumes::classes),
        profiles: some_of(profiles::entries(snapshot, now)),
        neighbourhoods: Some((*snapshot.neighbourhoods).clone()).filter(|known| !known.is_empty()),
    };
    document::without_nulls(json!(file))
}

#[cfg(test)]
mod tests;
