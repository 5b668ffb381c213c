//! The sites of the live view.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::config::site_definition::{self, check_fleet};
use crate::document::{Fault, Faults};
use crate::model::site::{SiteDefinition, SiteKind, SiteSource};

/// A list of sites, sorted as a snapshot is: the edge first, then the clouds by name. Those that do not say their order have that
/// of the list.
pub(super) fn of_list(list: &Value, faults: &mut Vec<Fault>) -> Vec<Arc<SiteDefinition>> {
    if !list.is_array() {
        faults.push(Fault::new("sites", "is not a list"));
    }
    let sites = list.as_array().into_iter().flatten().enumerate();
    let sites = sites.map(|(i, site)| (format!("sites[{i}]"), site));
    together("sites", sites, true, faults)
}

/// Reads `spec` of Sites, by their names, as a list of sites.
///
/// # Errors
/// Every fault; its place begins with `Site NAME` or `Sites`.
pub fn of_objects(objects: &BTreeMap<String, Value>) -> Result<Vec<Arc<SiteDefinition>>, Faults> {
    let named: Vec<_> = objects
        .iter()
        .map(|(name, spec)| {
            let mut spec = spec.clone();
            if let Some(fields) = spec.as_object_mut() {
                fields.insert("name".to_owned(), name.as_str().into());
            }
            (fault_path(name), spec)
        })
        .collect();
    let mut faults = vec![];
    let named = named.iter().map(|(place, spec)| (place.clone(), spec));
    // By their names, for nothing else orders objects.
    let mut sites = together("Sites", named, false, &mut faults);
    for site in &mut sites {
        Arc::make_mut(site).source = SiteSource::Object;
    }
    Faults::or(faults, sites)
}

/// Puts discovered sites beside those that are defined. A defined one of Liqo that has the name of a cluster, or whose selector
/// names it, is that cluster's: what it does not state is as it was discovered. A cluster has no site of its own where its nodes
/// would be of another site as well, or its name is taken.
///
/// Returns all sites in the order of a snapshot, and the clusters that have none, each with the name of the site that is in
/// its way.
pub fn with_discovered(
    defined: &[Arc<SiteDefinition>],
    discovered: &[Arc<SiteDefinition>],
) -> (Vec<Arc<SiteDefinition>>, Vec<(String, String)>) {
    let (mut sites, mut left_out) = (defined.to_vec(), vec![]);
    let is_its = |site: &SiteDefinition, found: &SiteDefinition| {
        let is_named = site.name == found.name || site.remote_cluster() == found.remote_cluster();
        site.kind == SiteKind::Cloud && site.is_of_liqo() && is_named
    };
    for site in &mut sites {
        if let Some(found) = discovered.iter().find(|found| is_its(site, found)) {
            *site = Arc::new(refined(site, found));
        }
    }
    for found in discovered {
        if sites.iter().any(|site| is_its(site, found)) {
            continue;
        }
        let is_in_its_way = |site: &&Arc<SiteDefinition>| site.name == found.name || includes(found, site);
        match sites.iter().find(is_in_its_way) {
            Some(other) => left_out.push((found.name.clone(), other.name.clone())),
            None => sites.push(Arc::clone(found)),
        }
    }
    sites.sort_by(|a, b| a.order().cmp(&b.order()));
    (sites, left_out)
}

/// What is defined, and what is not as it was discovered: fields that are empty, and a selector of all virtual nodes.
fn refined(defined: &SiteDefinition, found: &SiteDefinition) -> SiteDefinition {
    let mut site = defined.clone();
    if site.is_of_all_virtual_nodes() {
        site.selector.clone_from(&found.selector);
    }
    if site.probes.is_empty() {
        site.probes.clone_from(&found.probes);
    }
    if site.runtime_class.is_none() {
        site.runtime_class.clone_from(&found.runtime_class);
    }
    for (key, value) in &found.labels {
        site.labels.entry(key.clone()).or_insert_with(|| value.clone());
    }
    site
}

/// Where the faults of the Site of this name are.
fn fault_path(name: &str) -> String {
    format!("Site {name}")
}

/// A Site as it was seen last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SeenSite {
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// Why it is not in use as it is.
    pub refused: Option<String>,
}

/// Why the Site of this name is not in use: its own faults, or else those of all.
pub fn refusal(name: &str, faults: &Faults) -> String {
    let own: Vec<_> = faults
        .0
        .iter()
        .filter_map(|fault| {
            let rest = fault.path.strip_prefix(&fault_path(name))?;
            let path = rest.strip_prefix('.').or(rest.is_empty().then_some(""))?.to_owned();
            let message = fault.message.clone();
            Some(Fault { path, message }.to_string())
        })
        .collect();
    if own.is_empty() {
        return format!("refused with the others: {faults}");
    }
    own.join("; ")
}

/// Reads these sites, each by its path. If the list orders them, a cloud that does not state its order has its place.
fn together<'v>(
    list: &str,
    written: impl Iterator<Item = (String, &'v Value)>,
    are_ordered: bool,
    faults: &mut Vec<Fault>,
) -> Vec<Arc<SiteDefinition>> {
    let mut clouds = 0;
    let mut sites = vec![];
    for (at, site) in written {
        let order = if are_ordered { clouds } else { 0 };
        if let Some(site) = site_definition::read(site, order, &at, faults) {
            clouds += u32::from(site.kind == SiteKind::Cloud);
            sites.push((at, site));
        }
    }
    check_fleet(list, sites.iter().map(|(at, site)| (&**at, site)), faults);
    for (i, (at, later)) in sites.iter().enumerate() {
        let relations = sites[..i].iter().filter_map(|(_, earlier)| overlap(earlier, later));
        faults.extend(relations.map(|message| Fault::new(at, message)));
    }
    let mut sites: Vec<_> = sites.into_iter().map(|(_, site)| Arc::new(site)).collect();
    sites.sort_by(|a, b| a.order().cmp(&b.order()));
    sites
}

/// Whether every node of the one is of the other as well: no selector may hold all of another's.
fn overlap(earlier: &SiteDefinition, later: &SiteDefinition) -> Option<String> {
    let relation = match (includes(later, earlier), includes(earlier, later)) {
        (true, true) => "is that of",
        (true, false) => "contains that of",
        (false, true) => "is contained in that of",
        (false, false) => return None,
    };
    Some(format!(
        "the nodeSelector of {:?} {relation} {:?}: nodes would belong to both",
        later.name, earlier.name
    ))
}

/// Whether the selector of the one has all labels of the other's.
fn includes(outer: &SiteDefinition, inner: &SiteDefinition) -> bool {
    inner.selector.iter().all(|pair| outer.selector.contains(pair))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::Config;
    use crate::model::endpoint::Endpoint;

    fn read(sites: Value) -> Result<Config, Vec<String>> {
        Config::read(&json!({"sites": sites})).map_err(|faults| faults.0.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn sites_are_sorted_and_have_settings_of_their_own() {
        let config = read(json!([
            {"name": "b", "kind": "cloud", "nodeSelector": {"b": "x"}, "probes": ["tcp://b:6443", "icmp://b"],
             "rttThresholdMs": 250.5, "costPerHour": 0.041_666, "order": 7, "runtimeClassName": "kata.b"},
            {"name": "e", "kind": "edge", "labels": {"region": "eu", "tier": ""}, "costPerHour": 2},
            {"name": "a", "kind": "liqo", "lossThresholdPct": 0.5},
        ]))
        .unwrap();
        let shown = |site: &Arc<SiteDefinition>| {
            let thresholds = config.thresholds(&site.name);
            let probes: Vec<_> = site.probes.iter().map(ToString::to_string).collect();
            let selector: Vec<_> = site.selector().map(|(key, _)| key).collect();
            let (own, labels) = (site.runtime_class.as_deref().unwrap_or("none"), site.labels.len());
            let cost = site.cost.map_or(0, |cost| cost.0);
            let (rtt, loss) = (thresholds.rtt, thresholds.loss.0);
            let seen = format!("{} {labels} {cost} {} {rtt} {loss} {own}", site.name, site.order);
            format!("{seen} {selector:?} {probes:?}")
        };
        let shown: Vec<_> = config.sites.iter().map(shown).collect();
        // Without a policy, sites rank in the order of the list.
        let expected = [
            r#"e 2 2000000 0 100 20 none ["node.role/edge"] []"#,
            r#"a 0 0 1 100 5 none ["liqo.io/type"] []"#,
            r#"b 0 41666 7 250.5 20 kata.b ["b"] ["tcp://b:6443", "icmp://b"]"#,
        ];
        assert_eq!(shown, expected);
        assert_eq!(config.thresholds("unknown").rtt.0, 100_000);
    }

    #[test]
    fn site_objects_become_sites_named_after_them() {
        let read = |objects: Value| super::of_objects(&serde_json::from_value(objects).unwrap());
        let sites = read(json!({
            "a": {"kind": "cloud", "probes": ["icmp://a"], "order": 1},
            "b": {"kind": "edge", "nodeSelector": {"b": "b"}},
            "c": {"kind": "liqo"},
        }));
        let sites = sites.unwrap();
        let orders: Vec<_> = sites.iter().map(|site| (site.name.as_str(), site.order)).collect();
        assert_eq!(orders, [("b", 0), ("a", 1), ("c", 0)]);
        let faults = read(json!({"a": {"kind": "cloud", "probes": ["a"]}, "b.c": {"kind": "cloud"}})).unwrap_err();
        let faults: Vec<_> = faults.0.iter().map(ToString::to_string).collect();
        assert_eq!(faults.len(), 2);
        assert!(
            faults[0].starts_with("Site a.probes[0]: \"a\" is not a WAN endpoint"),
            "{}",
            faults[0]
        );
        assert_eq!(
            faults[1],
            "Site b.c: the nodeSelector of \"b.c\" is that of \"a\": nodes would belong to both"
        );
    }

    fn merged(sites: Value, clusters: &[&str]) -> (Vec<String>, Vec<(String, String)>) {
        let defined = read(sites).unwrap().sites;
        let discovered = clusters.iter().map(|id| {
            let probes = vec![Endpoint::parse(&format!("https://{id}/livez")).unwrap()];
            Arc::new(SiteDefinition {
                probes,
                ..SiteDefinition::of_cluster(id)
            })
        });
        let (sites, left_out) = with_discovered(&defined, &discovered.collect::<Vec<_>>());
        let shown = sites.iter().filter(|site| site.kind == SiteKind::Cloud).map(|site| {
            let selector: Vec<_> = site.selector().map(|(_, value)| value).collect();
            let probes: Vec<_> = site.probes.iter().map(ToString::to_string).collect();
            format!(
                "{} {} {} {} {}",
                site.name,
                selector.join(","),
                probes.join(","),
                site.speed.0,
                site.source.as_str()
            )
        });
        (shown.collect(), left_out)
    }

    #[test]
    fn discovered_site_is_refined_by_configured_site() {
        let edge = json!({"name": "edge", "kind": "edge"});
        let (sites, left_out) = merged(
            json!([
                edge,
                {"name": "far", "kind": "liqo", "speedFactor": 2},
                {"name": "gold", "kind": "liqo", "nodeSelector": {"liqo.io/remote-cluster-id": "near", "tier": "gold"},
                 "probes": ["icmp://near"]},
                {"name": "silver", "kind": "liqo", "nodeSelector": {"liqo.io/remote-cluster-id": "near", "tier": "silver"}},
            ]),
            &["dark", "far", "near"],
        );
        assert_eq!(
            sites,
            [
                "dark dark,virtual-node https://dark/livez 1000 liqo",
                "far far,virtual-node https://far/livez 2000 config",
                "gold near,gold icmp://near 1000 config",
                "silver near,silver https://near/livez 1000 config",
            ]
        );
        assert!(left_out.is_empty());
    }

    #[test]
    fn cluster_with_taken_nodes_or_name_has_no_site() {
        let edge = json!({"name": "near", "kind": "edge"});
        let all = json!({"name": "all", "kind": "liqo", "probes": ["icmp://all"]});
        let (sites, left_out) = merged(json!([edge, all]), &["far", "near"]);
        assert_eq!(sites, ["all virtual-node icmp://all 1000 config"]);
        let pairs = left_out.iter().map(|(cluster, site)| (&**cluster, &**site));
        assert_eq!(pairs.collect::<Vec<_>>(), [("far", "all"), ("near", "near")]);

        let cloud = json!({"name": "far", "kind": "cloud"});
        let (sites, left_out) = merged(json!([edge, cloud]), &["far", "near"]);
        assert_eq!(sites, ["far true  1000 config"]);
        assert_eq!(left_out.len(), 2);
        assert_eq!(merged(json!([edge, cloud]), &[]).0, ["far true  1000 config"]);
    }
}
