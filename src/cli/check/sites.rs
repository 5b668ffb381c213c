//! Sites, their nodes, and the WAN towards them.

use super::finding::Finding;
use super::webhook::shown;
use crate::cli::installed::Place;
use crate::fleet::{LinkState, Site, SiteKind, Snapshot};
use crate::index::NodeFault;

/// Whether each site has nodes that can take pods.
pub(super) fn judge<'f>(snapshot: &Snapshot, faults: impl Iterator<Item = &'f NodeFault>) -> Vec<Finding> {
    let mut findings: Vec<_> = snapshot.sites.iter().map(nodes).collect();
    findings.extend(faults.map(|fault| {
        let selector = snapshot
            .sites
            .iter()
            .find(|site| fault.sites.first().is_some_and(|name| name == site.name()));
        let label = selector.and_then(|site| site.definition.selector().next());
        let text = format!(
            "node {} carries the selectors of {}; it counts to the first cloud of them",
            fault.node,
            fault.sites.join(" and ")
        );
        let fix = label.map(|(key, _)| format!("kubectl label node {} {key}-", fault.node));
        Finding::warning("nodes", text, fix)
    }));
    findings
}

fn nodes(site: &Site) -> Finding {
    const AREA: &str = "nodes";
    let name = site.name();
    let selector = site.definition.selector().map(|(key, value)| format!("{key}={value}"));
    let selector: Vec<_> = selector.collect();
    if site.nodes.is_empty() {
        let text = format!("site {name}: no node carries {}", selector.join(","));
        return match site.kind() {
            SiteKind::Edge => {
                let fix = format!("kubectl label node NODE {}", selector.join(" "));
                Finding::fault(AREA, format!("{text}: every pod passes through"), fix)
            }
            // A label would send pods to whatever node has it.
            SiteKind::Cloud => {
                let fix = "bring back its virtual node, by peering with that cluster again; label no other".to_owned();
                Finding::warning(AREA, format!("{text}: no pod can be sent there"), Some(fix))
            }
        };
    }
    let count = site.nodes.len();
    let usable = site.nodes().filter(|node| node.ready && !node.cordoned).count();
    if usable == 0 {
        let (cordoned, broken): (Vec<_>, Vec<_>) = site.nodes().partition(|node| node.ready);
        let names = |nodes: &[&crate::fleet::Node]| nodes.iter().map(|node| node.name.to_string()).collect::<Vec<_>>();
        let fix = match cordoned.is_empty() {
            true => format!("kubectl describe node {}", names(&broken).join(" ")),
            false => format!("kubectl uncordon {}", names(&cordoned).join(" ")),
        };
        let all: Vec<_> = site.nodes().map(|node| &*node.name).collect();
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
    use crate::config::Config;
    use crate::fleet::file;
    use crate::units::Moment;

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
        let snapshot = file::read(&fleet, &Config::default(), Moment(0)).unwrap();
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
            (Level::Warning, "kubectl label node e1 node.role/edge-"),
        ];
        assert_eq!(brief, expected);
        assert_eq!(
            findings[2].text,
            "site near: no node carries liqo.io/type=virtual-node: no pod can be sent there"
        );
        let edge = json!({"sites": [{"name": "edge", "kind": "edge"}], "nodes": []});
        let snapshot = file::read(&edge, &Config::default(), Moment(0)).unwrap();
        let found = judge(&snapshot, std::iter::empty()).pop().unwrap();
        assert_eq!(
            (found.level, found.fix.as_deref()),
            (Level::Fault, Some("kubectl label node NODE node.role/edge=true"))
        );
    }
}
