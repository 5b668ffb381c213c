//! Sites, their nodes, and the WAN towards them.

use std::sync::Arc;

use edgeward_core::cluster::cache::NodeFault;
use edgeward_core::model::link::LinkState;
use edgeward_core::model::node::Node;
use edgeward_core::model::site::SiteKind;
use edgeward_core::model::snapshot::{Site, Snapshot};
use edgeward_core::model::traits::LABEL_PREFIX;
use edgeward_core::placement::policy::Seen;

use super::finding::Finding;
use super::webhook::shown;
use crate::cli::installed::Place;

/// Whether each site has nodes that can take pods.
pub(super) fn judge<'f>(snapshot: &Snapshot, faults: impl Iterator<Item = &'f NodeFault>) -> Vec<Finding> {
    let faults: Vec<_> = faults.collect();
    let mut findings: Vec<_> = snapshot.sites.iter().map(|site| nodes(site, &faults)).collect();
    findings.extend(snapshot.sites.iter().filter_map(tolerates_everything));
    findings.extend(snapshot.sites.iter().flat_map(Site::nodes).flat_map(unclear_traits));
    findings.extend(faults.iter().map(|fault| {
        let text = format!(
            "node {} carries the selectors of {}; it counts to the first cloud of them",
            fault.node,
            fault.sites.join(" and ")
        );
        Finding::warning("nodes", text, Some(one_site(&fault.node)))
    }));
    findings
}

/// A toleration that edgeward may not add when it releases a pod.
fn tolerates_everything(site: &Site) -> Option<Finding> {
    let mut tolerations = site.definition.tolerations.iter();
    tolerations.find(|toleration| toleration.key.is_empty())?;
    let text = format!(
        "site {}: one of its tolerations has no key, and the policy edgeward-confine-pods refuses it where a held pod is released",
        site.name()
    );
    let fix = "name the keys of its nodes' taints in its tolerations";
    Some(Finding::warning("nodes", text, Some(fix.to_owned())))
}

/// Labels of traits whose value is another than the one that counts.
fn unclear_traits(node: &Node) -> impl Iterator<Item = Finding> {
    let labels = node
        .labels
        .iter()
        .filter(|(key, value)| key.starts_with(LABEL_PREFIX) && *value != "true");
    labels.map(|(key, value)| {
        let name = &node.name;
        let text = format!("node {name}: label {key} is {value:?}, and only \"true\" says that it has the trait");
        let fix = format!("kubectl label --overwrite node {name} {key}=true, or {key}- without the trait");
        Finding::warning("nodes", text, Some(fix))
    })
}

/// SloPolicies that require what no site and no node has.
pub(super) fn missing_traits(snapshot: &Snapshot, policies: &[Arc<Seen>]) -> Vec<Finding> {
    let missing = |policy: &Seen| {
        let traits = policy.in_force()?.traits()?;
        let has_it = |site: &Site, name: &str| {
            let label = format!("{LABEL_PREFIX}{name}");
            site.definition.traits.iter().any(|known| known == name)
                || site.nodes().any(|node| node.labels.get(&label) == Some("true"))
        };
        let nowhere = traits
            .names()
            .filter(|name| !snapshot.sites.iter().any(|site| has_it(site, name)));
        let nowhere: Vec<_> = nowhere.collect();
        let first = nowhere.first()?;
        let Seen { namespace, name, .. } = policy;
        let text = format!(
            "SloPolicy {namespace}/{name} requires what no site and no node has: {}",
            nowhere.join(", ")
        );
        let fix = format!("kubectl label node NODE {LABEL_PREFIX}{first}=true, or `traits` of a Site");
        Some(Finding::warning("nodes", text, Some(fix)))
    };
    policies.iter().filter_map(|policy| missing(policy)).collect()
}

/// The command that takes a node from all sites but one; which, only a person knows.
fn one_site(node: &str) -> String {
    format!("kubectl label node {node} LABEL-   # LABEL: of the site that it does not belong to")
}

fn nodes(site: &Site, faults: &[&NodeFault]) -> Finding {
    const AREA: &str = "nodes";
    let name = site.name();
    let selector = site.definition.selector().map(|(key, value)| format!("{key}={value}"));
    let selector: Vec<_> = selector.collect();
    if site.nodes.is_empty() {
        let is_lost = |fault: &&&NodeFault| fault.sites.iter().any(|of| of == name);
        let lost: Vec<_> = faults.iter().filter(is_lost).map(|fault| &*fault.node).collect();
        let text = match lost.is_empty() {
            true => format!("site {name}: no node carries {}", selector.join(",")),
            false => format!(
                "site {name}: each of its nodes carries the selector of another site, too, and counts to that: {}",
                shown(&lost)
            ),
        };
        let to_one = lost.first().map(|node| one_site(node));
        return match site.kind() {
            SiteKind::Edge => {
                let fix = to_one.unwrap_or_else(|| format!("kubectl label node NODE {}", selector.join(" ")));
                Finding::fault(AREA, format!("{text}: every pod passes through"), fix)
            }
            // A label would send pods to whatever node has it.
            SiteKind::Cloud => {
                let fix = to_one.unwrap_or_else(|| {
                    "bring back its virtual node, by peering with that cluster again; label no other".to_owned()
                });
                Finding::warning(AREA, format!("{text}: no pod can be sent there"), Some(fix))
            }
        };
    }
    let count = site.nodes.len();
    let usable = site.nodes().filter(|node| node.ready && !node.cordoned).count();
    if usable == 0 {
        let all: Vec<_> = site.nodes().map(|node| &*node.name).collect();
        let cordoned: Vec<_> = site.nodes().filter(|node| node.ready).map(|node| &*node.name).collect();
        let fix = match cordoned.is_empty() {
            true => format!("kubectl describe node {}", all.join(" ")),
            false => format!("kubectl uncordon {}", cordoned.join(" ")),
        };
        let text = format!(
            "site {name}: of its nodes none is Ready and not cordoned: {}",
            shown(&all)
        );
        return Finding::warning(AREA, text, Some(fix));
    }
    Finding::ok(
        AREA,
        format!("site {name}: {usable} of {count} nodes Ready and not cordoned"),
    )
}

/// What one round of probes, sent from here, says of each cloud.
pub(super) fn probes(snapshot: &Snapshot, place: &Place) -> Vec<Finding> {
    const AREA: &str = "probes";
    let clouds = snapshot.sites.iter().filter(|site| site.kind() == SiteKind::Cloud);
    let judged = clouds.map(|site| {
        let name = site.name();
        if site.definition.probes.is_empty() {
            let text = format!("site {name} has no probes: it counts as unreachable, and no pod is sent there");
            let fix = format!("{}   # probes: [\"tcp://HOST:6443\"]", place.edit());
            return Finding::warning(AREA, text, Some(fix));
        }
        let endpoints: Vec<_> = site.definition.probes.iter().map(ToString::to_string).collect();
        let endpoints = endpoints.join(", ");
        let Some(link) = site.link else {
            return Finding::warning(AREA, format!("site {name}: nothing is known of {endpoints}"), None);
        };
        let rtt = link.rtt.map(|rtt| format!("RTT {rtt} ms"));
        let loss = link
            .loss
            .map(|loss| format!("{} % lost", serde_json::Value::from(loss)));
        let numbers: Vec<_> = rtt.into_iter().chain(loss).collect();
        let numbers = numbers.join(", ");
        match link.state {
            LinkState::Healthy => Finding::ok(AREA, format!("site {name}: {numbers}, from here")),
            LinkState::Degraded => {
                let text = format!("site {name} is degraded, seen from here: {numbers}");
                Finding::warning(AREA, text, None)
            }
            LinkState::Unreachable => {
                let text = format!("site {name} does not answer, seen from here: {endpoints}");
                Finding::warning(AREA, text, None)
            }
        }
    });
    judged.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::finding::Level;
    use super::*;
    use edgeward_core::config::Config;
    use edgeward_core::placement::policy::Policy;
    use edgeward_core::units::Moment;
    use edgeward_core::wire::fleet_file;

    #[test]
    fn traits_that_nobody_has_and_labels_that_say_nothing_are_named() {
        let fleet = json!({
            "sites": [{"name": "edge", "kind": "edge"}, {"name": "far", "kind": "cloud", "traits": ["B"]}],
            "nodes": [{"name": "e1", "labels": {"node.role/edge": "true", "traits.edgeward.io/A": "true", "traits.edgeward.io/C": "yes"},
                       "allocatable": {"cpu": 4, "pods": 9}}],
        });
        let snapshot = fleet_file::read(&fleet, &Config::default(), Moment(0)).unwrap();
        let policy = |name: &str, traits: &str| {
            let spec = json!({"selector": {}, "slo": {"class": "batch", "traits": traits}});
            Arc::new(Seen {
                namespace: "shop".into(),
                name: name.into(),
                generation: None,
                policy: Policy::read(&json!({ "spec": spec })),
            })
        };
        let findings = missing_traits(&snapshot, &[policy("good", "A, B, D?"), policy("bad", "A, C, D")]);
        let texts: Vec<_> = findings.iter().map(|finding| &*finding.text).collect();
        assert_eq!(
            texts,
            ["SloPolicy shop/bad requires what no site and no node has: C, D"]
        );
        let unclear: Vec<_> = snapshot
            .sites
            .iter()
            .flat_map(Site::nodes)
            .flat_map(unclear_traits)
            .collect();
        assert_eq!(unclear.len(), 1);
        assert!(
            unclear[0]
                .text
                .starts_with("node e1: label traits.edgeward.io/C is \"yes\""),
            "{}",
            unclear[0].text
        );
    }

    /// Of a node with the labels of both.
    const EITHER: &str = "kubectl label node e1 LABEL-   # LABEL: of the site that it does not belong to";

    /// That no node carries the label would be false.
    #[test]
    fn a_node_that_counts_to_another_site_is_named() {
        let config = Config::default();
        let fleet = json!({
            "sites": [{"name": "edge", "kind": "edge"}, {"name": "far", "kind": "cloud"}],
            "nodes": [{"name": "e1", "labels": {"node.role/edge": "true", "node.role/cloud": "true"},
                       "allocatable": {"cpu": 4, "pods": 9}}],
        });
        let mut snapshot =
            fleet_file::read(&json!({"sites": fleet["sites"], "nodes": []}), &config, Moment(0)).unwrap();
        let mut counted = fleet.clone();
        counted["nodes"][0]["labels"] = json!({"node.role/cloud": "true"});
        let cloud = fleet_file::read(&counted, &config, Moment(0)).unwrap();
        snapshot.sites[1] = cloud.sites[1].clone();
        let fault = NodeFault {
            node: "e1".into(),
            sites: vec!["edge".into(), "far".into()],
        };
        let findings = judge(&snapshot, [&fault].into_iter());
        let levels: Vec<_> = findings.iter().map(|found| found.level).collect();
        assert_eq!(levels, [Level::Fault, Level::Ok, Level::Warning]);
        assert_eq!(
            findings[0].text,
            "site edge: each of its nodes carries the selector of another site, too, and counts to that: e1: every pod passes \
             through"
        );
        assert!(
            findings
                .iter()
                .filter_map(|found| found.fix.as_deref())
                .all(|fix| fix == EITHER),
            "{findings:#?}"
        );
    }

    #[test]
    fn each_site_is_judged_by_its_nodes() {
        let fleet = json!({
            "sites": [{"name": "edge", "kind": "edge"}, {"name": "far", "kind": "cloud"}, {"name": "near", "kind": "liqo"}],
            "nodes": [
                {"name": "e1", "labels": {"node.role/edge": "true"}, "allocatable": {"cpu": 4, "pods": 9}},
                {"name": "c1", "labels": {"node.role/cloud": "true"}, "allocatable": {"cpu": 4, "pods": 9}, "ready": false},
                {"name": "c2", "labels": {"node.role/cloud": "true"}, "allocatable": {"cpu": 4, "pods": 9}, "unschedulable": true},
            ],
        });
        let snapshot = fleet_file::read(&fleet, &Config::default(), Moment(0)).unwrap();
        let fault = NodeFault {
            node: "e1".into(),
            sites: vec!["edge".into(), "far".into()],
        };
        let findings = judge(&snapshot, [&fault].into_iter());
        let brief: Vec<_> = findings
            .iter()
            .map(|found| (found.level, found.fix.as_deref().unwrap_or_default()))
            .collect();
        let expected = [
            (Level::Ok, ""),
            (Level::Warning, "kubectl uncordon c2"),
            (
                Level::Warning,
                "bring back its virtual node, by peering with that cluster again; label no other",
            ),
            (Level::Warning, EITHER),
        ];
        assert_eq!(brief, expected);
        assert_eq!(
            findings[2].text,
            "site near: no node carries liqo.io/type=virtual-node: no pod can be sent there"
        );
        let edge =
            json!({"sites": [{"name": "edge", "kind": "edge", "tolerations": [{"operator": "Exists"}]}], "nodes": []});
        let snapshot = fleet_file::read(&edge, &Config::default(), Moment(0)).unwrap();
        let [_, found] = judge(&snapshot, std::iter::empty()).try_into().unwrap();
        assert!(
            found.level == Level::Warning && found.text.contains("has no key"),
            "{found:?}"
        );
        let edge = json!({"sites": [{"name": "edge", "kind": "edge"}], "nodes": []});
        let snapshot = fleet_file::read(&edge, &Config::default(), Moment(0)).unwrap();
        let found = judge(&snapshot, std::iter::empty()).pop().unwrap();
        assert_eq!(
            (found.level, found.fix.as_deref()),
            (Level::Fault, Some("kubectl label node NODE node.role/edge=true"))
        );
    }
}
