//! Checks the sites, their nodes, and the WAN to the clouds.

use edgeward_core::model::link::LinkState;
use edgeward_core::model::node::Node;
use edgeward_core::model::site::SiteKind;
use edgeward_core::model::snapshot::Site;
use edgeward_core::model::traits::{LABEL_PREFIX, is_on};
use edgeward_core::placement::policy::Seen;
use serde_json::{Value, json};

use super::finding::Finding;
use super::webhook::shown;
use super::{CustomResources, Facts};

const AREA: &str = "nodes";

/// Checks that each site has nodes that can take pods.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut findings: Vec<_> = sites(facts).map(nodes).collect();
    findings.extend(sites(facts).filter_map(tolerates_everything));
    findings.extend(sites(facts).flat_map(Site::nodes).flat_map(unclear_traits));
    let faults = facts.nodes.iter().flat_map(|nodes| &nodes.faults);
    findings.extend(faults.map(|fault| {
        let node = &fault.node;
        let fix = format!("kubectl label node {node} LABEL-   # LABEL: of the site that it does not belong to");
        Finding::warning(AREA, fault.to_string()).fix(fix)
    }));
    findings
}

fn sites(facts: &Facts) -> impl Iterator<Item = &Site> {
    facts.nodes.iter().flat_map(|nodes| &nodes.snapshot.sites)
}

/// Reports a toleration that edgeward may not add when it releases a pod.
fn tolerates_everything(site: &Site) -> Option<Finding> {
    let mut tolerations = site.definition.tolerations.iter();
    tolerations.find(|toleration| toleration.key.is_empty())?;
    let text = format!(
        "site {}: one of its tolerations has no key, and the policy edgeward-confine-pods refuses it when a gated pod is released",
        site.name()
    );
    Some(Finding::warning(AREA, text).fix("name the keys of its nodes' taints in its tolerations"))
}

/// Reports trait labels that do not count because their value is not "true".
fn unclear_traits(Node { name, labels, .. }: &Node) -> impl Iterator<Item = Finding> {
    let is_unclear = |(key, value): &(&str, &str)| key.starts_with(LABEL_PREFIX) && *value != "true";
    labels.iter().filter(is_unclear).map(move |(key, value)| {
        let text = format!("node {name}: label {key} is {value:?}, and only \"true\" says that it has the trait");
        let fix = format!("kubectl label --overwrite node {name} {key}=true, or {key}- without the trait");
        Finding::warning(AREA, text).fix(fix)
    })
}

/// Reports SloPolicies that require a trait that no site and no node has.
pub(super) fn missing_traits(facts: &Facts) -> Vec<Finding> {
    let has_it = |site: &Site, name: &str| {
        let label = format!("{LABEL_PREFIX}{name}");
        site.definition.traits.iter().any(|known| known == name)
            || site.nodes().any(|node| is_on(node, &site.definition, &label))
    };
    let missing = |policy: &Seen| {
        let traits = policy.in_force()?.traits()?;
        let is_missing = |name: &&str| !sites(facts).any(|site| has_it(site, name));
        let missing: Vec<_> = traits.names().filter(is_missing).collect();
        let (first, all) = (missing.first()?, missing.join(", "));
        let Seen { namespace, name, .. } = policy;
        let text = format!("SloPolicy {namespace}/{name} requires what no site and no node has: {all}");
        let fix = format!("kubectl label node NODE {LABEL_PREFIX}{first}=true, or `traits` of a Site");
        Some(Finding::warning(AREA, text).fix(fix))
    };
    let custom = facts.custom.iter().filter(|_| facts.nodes.is_some());
    custom.flat_map(CustomResources::policies).filter_map(missing).collect()
}

fn nodes(site: &Site) -> Finding {
    let name = site.name();
    if site.nodes.is_empty() {
        let selector = site.definition.selector();
        let selector: Vec<_> = selector.map(|(key, value)| format!("{key}={value}")).collect();
        let text = format!("site {name}: no node carries {} and counts to it", selector.join(","));
        return match site.kind() {
            SiteKind::Edge => {
                let fix = format!("kubectl label node NODE {}", selector.join(" "));
                Finding::fault(AREA, format!("{text}: every pod passes through")).fix(fix)
            }
            // With a label, pods would be sent to the node that carries it, wherever it is.
            SiteKind::Cloud => Finding::warning(AREA, format!("{text}: no pod can be sent there"))
                .fix("bring back its virtual node, by peering with that cluster again; label no other"),
        };
    }
    let usable = site.nodes().filter(|node| node.ready && !node.cordoned);
    let tolerations = &site.definition.tolerations;
    let closed = usable
        .clone()
        .map(|node| Vec::from_iter(node.lasting_taints(tolerations.iter())));
    let closed = closed.min_by_key(Vec::len).unwrap_or_default();
    if let [taint, ..] = closed[..] {
        let text =
            format!("site {name}: it does not tolerate its nodes' taint {taint}: only pods that do can be sent there");
        let own = tolerations.iter().map(|toleration| json!(toleration));
        let all = Value::from_iter(own.chain(closed.iter().map(|taint| json!(taint))));
        return Finding::warning(AREA, text).fix(format!("tolerations: {all}   # of site {name}"));
    }
    let usable = usable.count();
    if usable > 0 {
        let text = format!(
            "site {name}: {usable} of {} nodes Ready and not cordoned",
            site.nodes.len()
        );
        return Finding::ok(AREA, text);
    }
    let all: Vec<_> = site.nodes().map(|node| &*node.name).collect();
    let cordoned: Vec<_> = site.nodes().filter(|node| node.ready).map(|node| &*node.name).collect();
    let fix = match cordoned.is_empty() {
        true => format!("kubectl describe node {}", all.join(" ")),
        false => format!("kubectl uncordon {}", cordoned.join(" ")),
    };
    let all = shown(&all);
    let text = format!("site {name}: no node is Ready and not cordoned: {all}");
    Finding::warning(AREA, text).fix(fix)
}

/// Reports pods that find no node at their site while another site would take them.
pub(super) fn misplaced(facts: &Facts) -> Vec<Finding> {
    let found: Vec<_> = facts.nodes.iter().flat_map(|nodes| &nodes.misplaced).collect();
    let Some(first) = found.first() else {
        return vec![];
    };
    let pod = &first.candidate.pod;
    let fix = format!(
        "kubectl -n {} delete pod {}   # each that has an owner, which creates it again",
        pod.workload.namespace, pod.name
    );
    let named = found.iter().map(|found| {
        let pod = &found.candidate.pod;
        format!("{}/{} ({})", pod.workload.namespace, pod.name, found.site)
    });
    let (many, all) = (found.len(), shown(&named.collect::<Vec<_>>()));
    let text = format!("pods without a node that another site would take now: {many}, {all}");
    vec![Finding::warning("pods", text).fix(fix)]
}

/// Reports the result of one round of probes to each cloud, sent from here.
pub(super) fn probes(facts: &Facts) -> Vec<Finding> {
    let clouds = sites(facts).filter(|site| site.kind() == SiteKind::Cloud);
    clouds.map(|site| probed(site, &facts.found.edit)).collect()
}

fn probed(site: &Site, edit: &str) -> Finding {
    const AREA: &str = "probes";
    let name = site.name();
    if site.definition.probes.is_empty() {
        let text = format!("site {name} has no probes: it counts as unreachable, and no pod is sent there");
        let fix = format!("{edit}   # probes: [\"tcp://HOST:6443\"]");
        return Finding::warning(AREA, text).fix(fix);
    }
    let link = site.link.filter(|link| link.state != LinkState::Unreachable);
    let Some(link) = link else {
        let endpoints: Vec<_> = site.definition.probes.iter().map(ToString::to_string).collect();
        let text = format!("site {name} does not answer, seen from here: {}", endpoints.join(", "));
        return Finding::warning(AREA, text);
    };
    let rtt = link.rtt.map(|rtt| format!("RTT {rtt} ms"));
    let loss = link.loss.map(|loss| format!("{} % lost", Value::from(loss)));
    let numbers = Vec::from_iter(rtt.into_iter().chain(loss)).join(", ");
    match link.state {
        LinkState::Healthy => Finding::ok(AREA, format!("site {name}: {numbers}, from here")),
        _ => Finding::warning(AREA, format!("site {name} is degraded, seen from here: {numbers}")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::Nodes;
    use super::super::finding::Level;
    use super::*;
    use crate::inspect::Listing;
    use edgeward_core::cluster::cache::{Kind, NodeFault};
    use edgeward_core::config::Config;
    use edgeward_core::placement::policy::Policy;
    use edgeward_core::testkit::{self, NOW};
    use edgeward_core::units::Moment;
    use edgeward_core::wire::fleet_file;
    use jiff::SignedDuration;

    /// Facts with the cluster of a fleet file.
    fn facts(fleet: &Value) -> Facts {
        let nodes = Nodes {
            snapshot: fleet_file::read(fleet, &Config::default(), Moment(0)).unwrap(),
            ..Nodes::default()
        };
        Facts {
            nodes: Some(nodes),
            ..Facts::example()
        }
    }

    #[test]
    fn traits_that_nobody_has_and_labels_that_say_nothing_are_named() {
        let fleet = json!({
            "sites": [{"name": "edge", "kind": "edge"}, {"name": "far", "kind": "cloud", "traits": ["B"]}],
            "nodes": [{"name": "e1", "labels": {"node.role/edge": "true", "traits.edgeward.io/A": "true", "traits.edgeward.io/C": "yes"},
                       "allocatable": {"cpu": 4, "pods": 9}}],
        });
        let mut facts = facts(&fleet);
        let policy = |name: &str, traits: &str| {
            let spec = json!({"selector": {}, "slo": {"class": "batch", "traits": traits}});
            Arc::new(Seen {
                namespace: "shop".into(),
                name: name.into(),
                generation: None,
                policy: Policy::read(&json!({ "spec": spec })),
            })
        };
        facts.custom = Some(CustomResources {
            policies: Some(vec![policy("good", "A, B, D?"), policy("bad", "A, C, D")]),
            ..CustomResources::default()
        });
        let findings = missing_traits(&facts);
        let texts: Vec<_> = findings.iter().map(|finding| &*finding.text).collect();
        assert_eq!(
            texts,
            ["SloPolicy shop/bad requires what no site and no node has: C, D"]
        );
        let unclear: Vec<_> = sites(&facts).flat_map(Site::nodes).flat_map(unclear_traits).collect();
        assert_eq!(unclear.len(), 1);
        assert!(
            unclear[0]
                .text
                .starts_with("node e1: label traits.edgeward.io/C is \"yes\""),
            "{}",
            unclear[0].text
        );
    }

    #[test]
    fn pods_that_another_site_would_take_are_listed() {
        let config = Config::default();
        let mut listing = Listing::new(&config);
        let now = NOW.at(Moment(1_000_000_000));
        listing.cache.apply_namespace("shop", true);
        for (name, site, cpu) in [("e", "edge", "0"), ("c", "cloud", "8")] {
            let node = json!({
                "metadata": {"name": name, "labels": {format!("node.role/{site}"): "true"}},
                "status": {"allocatable": {"cpu": cpu, "memory": "1Gi", "pods": "9"},
                           "conditions": [{"type": "Ready", "status": "True"}]},
            });
            let node = edgeward_core::wire::node::from_json(&node.to_string()).unwrap();
            listing.cache.apply_node(node);
        }
        // Pods created long ago and released at their limit.
        for (name, seconds) in [("a", 31), ("b", 40), ("young", 29)] {
            let pod = json!({
                "metadata": {
                    "name": name, "namespace": "shop", "uid": name, "resourceVersion": "1", "creationTimestamp": "2020-01-01T00:00:00Z",
                    "annotations": {
                        "slo.example.io/class": "latency", "slo.example.io/deadlineMs": "600000",
                        "scheduling.example.io/decision-id": "00000000-0000-4000-8000-000000000001",
                        "scheduling.example.io/reason": "released_timeout",
                        "scheduling.example.io/timestamp": (now.wall - SignedDuration::from_secs(seconds)).to_string(),
                    },
                },
                "spec": {"nodeSelector": {"node.role/edge": "true"}, "containers": [{"resources": {"requests": {"cpu": "1"}}}]},
                "status": {"phase": "Pending",
                           "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
            });
            listing.add(testkit::record(&pod, &config.keys), now);
        }
        Kind::ALL
            .into_iter()
            .for_each(|kind| listing.cache.record_event(kind, now.moment));
        let mut found = |state| {
            let link = testkit::link(state, 10, now.moment);
            listing.cache.set_link("cloud", Some(link));
            let snapshot = listing.cache.publish(now.moment);
            let nodes = Nodes {
                misplaced: listing.misplaced(&snapshot, &config, now),
                ..Nodes::default()
            };
            misplaced(&Facts {
                nodes: Some(nodes),
                ..Facts::example()
            })
            .pop()
        };
        let listed = found(LinkState::Healthy).unwrap();
        assert_eq!(listed.level, Level::Warning);
        let text = "pods without a node that another site would take now: 2, shop/b (cloud), shop/a (cloud)";
        assert_eq!(listed.text, text);
        let fix = "kubectl -n shop delete pod b   # each that has an owner, which creates it again";
        assert_eq!(listed.fix.unwrap(), fix);
        assert_eq!(found(LinkState::Unreachable), None);
    }

    /// The fix for a node that carries the labels of both sites.
    const EITHER: &str = "kubectl label node e1 LABEL-   # LABEL: of the site that it does not belong to";

    /// The tolerations that a cloud has by default, and the missing one.
    const TOLERATIONS: &str = r#"tolerations: [{"effect":"NoSchedule","key":"cloud","operator":"Equal","value":"cloud"},{"effect":"NoExecute","key":"provider"}]   # of site virtual"#;

    #[test]
    fn each_site_is_judged_by_its_nodes() {
        let fleet = json!({
            "sites": [{"name": "edge", "kind": "edge"}, {"name": "far", "kind": "cloud"}, {"name": "near", "kind": "liqo"},
                      {"name": "virtual", "kind": "cloud", "nodeSelector": {"node.role/virtual": "true"}}],
            "nodes": [
                {"name": "e1", "labels": {"node.role/edge": "true"}, "allocatable": {"cpu": 4, "pods": 9}},
                {"name": "e2", "labels": {"node.role/edge": "true"}, "allocatable": {"cpu": 4, "pods": 9}, "taints": [
                    {"key": "gpu", "effect": "NoSchedule"}]},
                {"name": "c1", "labels": {"node.role/cloud": "true"}, "allocatable": {"cpu": 4, "pods": 9}, "ready": false},
                {"name": "c2", "labels": {"node.role/cloud": "true"}, "allocatable": {"cpu": 4, "pods": 9}, "unschedulable": true},
                {"name": "v1", "labels": {"node.role/virtual": "true"}, "allocatable": {"cpu": 4, "pods": 9}, "taints": [
                    {"key": "cloud", "value": "cloud", "effect": "NoSchedule"}, {"key": "provider", "effect": "NoExecute"},
                    {"key": "node.kubernetes.io/memory-pressure", "effect": "NoSchedule"}]},
            ],
        });
        let mut of_all = facts(&fleet);
        of_all.nodes.as_mut().unwrap().faults = vec![NodeFault {
            node: "e1".into(),
            sites: vec!["edge".into(), "far".into()],
        }];
        let findings = judge(&of_all);
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
            (Level::Warning, TOLERATIONS),
            (Level::Warning, EITHER),
        ];
        assert_eq!(brief, expected);
        assert_eq!(
            findings[3].text,
            "site virtual: it does not tolerate its nodes' taint provider:NoExecute: only pods that do can be sent there"
        );
        assert_eq!(
            findings[2].text,
            "site near: no node carries liqo.io/type=virtual-node and counts to it: no pod can be sent there"
        );
        let edge =
            json!({"sites": [{"name": "edge", "kind": "edge", "tolerations": [{"operator": "Exists"}]}], "nodes": []});
        let [_, found] = judge(&facts(&edge)).try_into().unwrap();
        assert!(
            found.level == Level::Warning && found.text.contains("has no key"),
            "{found:?}"
        );
        let edge = json!({"sites": [{"name": "edge", "kind": "edge"}], "nodes": []});
        let found = judge(&facts(&edge)).pop().unwrap();
        assert_eq!(
            (found.level, found.fix.as_deref()),
            (Level::Fault, Some("kubectl label node NODE node.role/edge=true"))
        );
    }
}
