//! The sites of the live view.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::config::declaration::{Kind, Read};
use crate::config::site_definition;
use crate::config::site_definition::check_fleet;
use crate::document;
use crate::document::{Fault, Faults, Field};
use crate::model::endpoint::Endpoint;
use crate::model::site::{SiteDefinition, SiteKind};

/// A list of sites, sorted as a snapshot is: the edge first, then the clouds by name.
impl Read for Vec<Arc<SiteDefinition>> {
    fn read(&mut self, field: &Field<'_>, _: &Kind) {
        if let Some(sites) = field.list() {
            *self = together(field, sites);
        }
    }
}

/// Reads `spec` of Sites, by their names, as a list of sites.
///
/// # Errors
/// Every fault; its place begins with `Site NAME` or `Sites`.
pub fn of_objects(objects: &BTreeMap<String, Value>) -> Result<Vec<Arc<SiteDefinition>>, Faults> {
    let named = objects.iter().map(|(name, spec)| {
        let mut spec = spec.clone();
        if let Some(fields) = spec.as_object_mut() {
            fields.insert("name".to_owned(), name.as_str().into());
        }
        (name.clone(), spec)
    });
    document::read(&Value::Object(named.collect()), |root| {
        let root = root.called("Sites");
        let fields = root.entries()?;
        let fields = fields.into_iter().map(|(name, field)| field.called(&place(name)));
        Some(together(&root, fields.collect()))
    })
}

/// Where the faults of the Site of this name are.
fn place(name: &str) -> String {
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
            let rest = fault.path.strip_prefix(&place(name))?;
            let path = rest.strip_prefix('.').or(rest.is_empty().then_some(""))?.to_owned();
            let message = fault.message.clone();
            Some(Fault { path, message }.to_string())
        })
        .collect();
    match own.is_empty() {
        true => format!("refused with the others: {faults}"),
        false => own.join("; "),
    }
}

fn together(list: &Field<'_>, fields: Vec<Field<'_>>) -> Vec<Arc<SiteDefinition>> {
    let sites: Vec<_> = fields
        .into_iter()
        .filter_map(|field| Some((site(&field)?, field)))
        .collect();
    check_fleet(list, sites.iter().map(|(site, field)| (field, site)));
    for (i, (later, field)) in sites.iter().enumerate() {
        for (earlier, _) in &sites[..i] {
            check_apart(earlier, later, field);
        }
    }
    let mut sites: Vec<_> = sites.into_iter().map(|(site, _)| Arc::new(site)).collect();
    sites.sort_by(|a, b| a.order().cmp(&b.order()));
    sites
}

fn site(field: &Field<'_>) -> Option<SiteDefinition> {
    let (defined, [probes]) = field.object_with(site_definition::FIELDS, ["probes"], &[])?;
    let definition = site_definition::read(defined);
    let mut endpoints = Vec::new();
    for field in probes.list().into_iter().flatten() {
        match field.string().map(Endpoint::parse) {
            Some(Ok(endpoint)) if endpoints.contains(&endpoint) => {
                field.fault(format!("\"{endpoint}\" is listed twice"))
            }
            Some(Ok(endpoint)) => endpoints.push(endpoint),
            Some(Err(error)) => field.fault(error.to_string()),
            None => {}
        }
    }
    let definition = definition?;
    if definition.kind == SiteKind::Edge && probes.is_present() {
        probes.fault("is not for the edge site, which no WAN leads to".into());
    }
    Some(SiteDefinition {
        probes: endpoints,
        ..definition
    })
}

/// A node belongs to the site whose whole selector it carries, so no selector may hold all of another's.
fn check_apart(earlier: &SiteDefinition, later: &SiteDefinition, field: &Field<'_>) {
    let holds = |outer: &SiteDefinition, inner: &SiteDefinition| {
        inner.selector.iter().all(|pair| outer.selector.contains(pair))
    };
    let (contains, is_contained) = (holds(later, earlier), holds(earlier, later));
    let relation = match (contains, is_contained) {
        (true, true) => "is that of",
        (true, false) => "contains that of",
        (false, true) => "is contained in that of",
        (false, false) => return,
    };
    field.fault(format!(
        "the nodeSelector of {:?} {relation} {:?}: nodes would belong to both",
        later.name, earlier.name
    ));
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::config::Config;

    fn read(sites: Value) -> Result<Config, Vec<String>> {
        Config::read(&json!({"sites": sites})).map_err(|faults| faults.0.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn sites_are_sorted_as_snapshots_are() {
        let config = read(json!([
            {"name": "west", "kind": "cloud", "nodeSelector": {"region": "west"}, "probes": ["tcp://west:6443", "icmp://west"]},
            {"name": "liqo", "kind": "liqo", "speedFactor": 2, "supports": ["hostPort"]},
            {"name": "factory", "kind": "edge", "nodeSelector": {"here": "yes"}},
        ]))
        .unwrap();
        let names: Vec<_> = config.sites.iter().map(|site| &*site.name).collect();
        assert_eq!(names, ["factory", "liqo", "west"]);
        let probes: Vec<_> = config.sites[2].probes.iter().map(ToString::to_string).collect();
        assert_eq!(probes, ["tcp://west:6443", "icmp://west"]);
        assert_eq!(
            config.sites[1].selector,
            [("liqo.io/type".into(), "virtual-node".into())]
        );
    }

    #[test]
    fn a_site_may_have_thresholds_and_a_runtime_class_of_its_own() {
        let config = read(json!([
            {"name": "edge", "kind": "edge", "runtimeClassName": "runc"},
            {"name": "far", "kind": "cloud", "nodeSelector": {"far": "yes"}, "rttThresholdMs": 250.5},
            {"name": "near", "kind": "cloud", "lossThresholdPct": 0.5, "runtimeClassName": "kata.near"},
        ]))
        .unwrap();
        let of = |site: &str| {
            let thresholds = config.thresholds(site);
            (thresholds.rtt.0, thresholds.loss.0)
        };
        assert_eq!(of("far"), (250_500, 20));
        assert_eq!(of("near"), (100_000, 5));
        assert_eq!(of("of nobody"), (100_000, 20));
        let classes: Vec<_> = config.sites.iter().map(|site| site.runtime_class.as_deref()).collect();
        assert_eq!(classes, [Some("runc"), None, Some("kata.near")]);

        assert_eq!(
            read(json!([
                {"name": "edge", "kind": "edge", "rttThresholdMs": 5, "runtimeClassName": "A"},
                {"name": "c", "kind": "cloud", "rttThresholdMs": 0, "lossThresholdPct": 101},
            ]))
            .unwrap_err(),
            [
                "sites[0].runtimeClassName: \"A\" is not the name of a RuntimeClass: lower-case letters, digits, `-` and `.`",
                "sites[0].rttThresholdMs: is not for the edge site, which no WAN leads to",
                "sites[1].rttThresholdMs: 0 is not a number from 0.001 to 60000 with at most three decimals",
                "sites[1].lossThresholdPct: 101 is not a percentage from 0.1 to 100 with at most one decimal",
            ]
        );
    }

    #[test]
    fn objects_are_sites_by_their_names() {
        let read = |objects: Value| super::of_objects(&serde_json::from_value(objects).unwrap());
        let sites = read(json!({
            "a": {"kind": "cloud", "probes": ["icmp://a"]},
            "b": {"kind": "edge", "nodeSelector": {"b": "b"}},
        }));
        let names: Vec<_> = sites.unwrap().iter().map(|site| site.name.clone()).collect();
        assert_eq!(names, ["b", "a"]);
        let faults = read(json!({"a": {"kind": "cloud", "probes": ["a"]}, "b.c": {"kind": "cloud"}})).unwrap_err();
        let faults: Vec<_> = faults.0.iter().map(ToString::to_string).collect();
        assert_eq!(faults.len(), 3);
        assert!(
            faults[0].starts_with("Site a.probes[0]: \"a\" is not a WAN endpoint"),
            "{}",
            faults[0]
        );
        assert_eq!(faults[1], "Sites: has 0 sites of kind edge; there must be exactly one");
        assert_eq!(
            faults[2],
            "Site b.c: the nodeSelector of \"b.c\" is that of \"a\": nodes would belong to both"
        );
    }

    #[test]
    fn every_fault_of_the_sites_is_named() {
        assert_eq!(
            read(json!([
                {"name": "a", "kind": "cloud", "probes": ["a:6443", "icmp://a", "icmp://a", 7]},
                {"name": "a", "kind": "cloud", "nodeSelector": {"node.role/cloud": "true", "zone": "b"}},
                {"name": "c", "kind": "cloud"},
                {"name": "d", "kind": "edge", "probes": [], "wan": {}},
                {"name": "e", "kind": "edge", "nodeSelector": {"e": "e"}},
                {"kind": "moon"},
                {"name": "f", "kind": "cloud", "nodeSelector": {"zone": "b"}},
            ]))
            .unwrap_err(),
            [
                "sites[0].probes[0]: \"a:6443\" is not a WAN endpoint: it begins with none of the schemes; allowed are \
                 icmp://host, tcp://host:port and https://host[:port][/path], an IPv6 address in brackets",
                "sites[0].probes[2]: \"icmp://a\" is listed twice",
                "sites[0].probes[3]: 7 is not a string",
                "sites[3].wan: is not a field here; there are name, kind, nodeSelector, tolerations, runtimeClassName, \
                 speedFactor, supports, rttThresholdMs, lossThresholdPct, probes",
                "sites[3].probes: is not for the edge site, which no WAN leads to",
                "sites[5].name: is missing",
                "sites[5].kind: \"moon\" is not one of edge, cloud, liqo",
                "sites[1]: the name \"a\" is taken by an earlier site",
                "sites: has 2 sites of kind edge; there must be exactly one",
                "sites[1]: the nodeSelector of \"a\" contains that of \"a\": nodes would belong to both",
                "sites[2]: the nodeSelector of \"c\" is that of \"a\": nodes would belong to both",
                "sites[2]: the nodeSelector of \"c\" is contained in that of \"a\": nodes would belong to both",
                "sites[6]: the nodeSelector of \"f\" is contained in that of \"a\": nodes would belong to both",
            ]
        );
        assert_eq!(
            read(json!([])).unwrap_err(),
            ["sites: has 0 sites of kind edge; there must be exactly one"]
        );
    }
}
