//! Checks the sites, their nodes, and the WAN to the clouds.

use edgeward_decision::model::link::LinkState;
use edgeward_decision::model::liqo::ApiServerStatus;
use edgeward_decision::model::site::SiteKind;
use edgeward_decision::model::snapshot::Site;
use serde_json::{Value, json};

use super::Facts;
use super::finding::Finding;
use super::webhook::shown;
use crate::cli::fleet::wan;

const AREA: &str = "nodes";

/// Checks that each site has nodes that can take pods.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let Some(view) = &facts.view else {
        return vec![];
    };
    let mut findings: Vec<_> = view.snapshot.sites.iter().map(nodes).collect();
    findings.extend(without_edge(&view.snapshot.sites, &facts.found.edit));
    findings.extend(view.snapshot.sites.iter().filter_map(tolerates_everything));
    findings.extend(view.node_faults.iter().map(|fault| {
        let node = &fault.node;
        let fix = format!("kubectl label node {node} LABEL-   # LABEL: of the site that it does not belong to");
        Finding::warning(AREA, fault.to_string()).fix(fix)
    }));
    findings.extend(view.liqo.left_out.iter().map(|(cluster, other)| {
        let text = format!(
            "Liqo's cluster {cluster} has no site of its own: site {other} has its virtual nodes, or its name"
        );
        let fix = format!(
            "{}   # remove site {other}, or give it the nodeSelector {{liqo.io/remote-cluster-id: CLUSTER}} of one cluster",
            facts.found.edit
        );
        Finding::warning(AREA, text).fix(fix)
    }));
    findings
}

/// Reports a fleet without an edge site, which may have lost it by mistake.
fn without_edge(sites: &[Site], edit: &str) -> Option<Finding> {
    let fix = format!("{edit}   # or kubectl apply a Site of kind edge, if nodes of this cluster run pods");
    if sites.is_empty() {
        return Some(Finding::fault(AREA, "there is no site: no pod is placed").fix(fix));
    }
    let has_edge = sites.iter().any(|site| site.kind() == SiteKind::Edge);
    (!has_edge).then(|| Finding::warning(AREA, "no site has kind edge: pods go to clouds alone").fix(fix))
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
    let usable = site.nodes().filter(|node| node.state.ready && !node.state.cordoned);
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
    let ready = site.nodes().filter(|node| node.state.ready);
    let cordoned: Vec<_> = ready.map(|node| &*node.name).collect();
    let fix = match cordoned.is_empty() {
        true => format!("kubectl describe node {}", all.join(" ")),
        false => format!("kubectl uncordon {}", cordoned.join(" ")),
    };
    let all = shown(&all);
    let text = format!("site {name}: no node is Ready and not cordoned: {all}");
    Finding::warning(AREA, text).fix(fix)
}

/// Reports the result of one round of probes to each cloud, sent from here.
pub(super) fn probes(facts: &Facts) -> Vec<Finding> {
    let sites = facts.view.iter().flat_map(|view| &view.snapshot.sites);
    let clouds = sites.filter(|site| site.kind() == SiteKind::Cloud);
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
    let endpoints: Vec<_> = site.definition.probes.iter().map(ToString::to_string).collect();
    let text = format!("site {name}: {}, seen from here: {}", wan(site), endpoints.join(", "));
    let is_reached = site
        .api_server
        .is_none_or(|status| status == ApiServerStatus::Established);
    match site.link {
        Some(link) if is_reached && link.state == LinkState::Healthy => Finding::ok(AREA, text),
        _ => Finding::warning(AREA, text),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::finding::Level;
    use super::*;
    use crate::inspect::View;
    use edgeward_cluster::cache::NodeFault;
    use edgeward_decision::config::Config;
    use edgeward_decision::fleet_file;
    use edgeward_kube::units::Moment;

    /// Facts with the cluster of a fleet file.
    fn facts(fleet: &Value) -> Facts {
        let view = View {
            snapshot: Arc::new(fleet_file::read(fleet, &Config::default(), Moment(0)).unwrap()),
            ..View::default()
        };
        Facts {
            view: Some(view),
            ..Facts::example()
        }
    }

    /// The fix for a node that carries the labels of both sites.
    const EITHER: &str = "kubectl label node e1 LABEL-   # LABEL: of the site that it does not belong to";

    /// The tolerations that a cloud has by default, and the missing one.
    const TOLERATIONS: &str = r#"tolerations: [{"effect":"NoSchedule","key":"cloud","operator":"Equal","value":"cloud"},{"effect":"NoExecute","key":"provider"}]   # of site virtual"#;

    #[test]
    fn fleet_without_edge_is_reported() {
        let texts = |sites: Value| {
            let findings = judge(&facts(&json!({"sites": sites})));
            let bad = findings
                .into_iter()
                .filter(|found| found.text.contains("there is no site") || found.text.contains("kind edge"));
            bad.map(|found| (found.level, found.text)).collect::<Vec<_>>()
        };
        assert_eq!(
            texts(json!([])),
            [(Level::Fault, "there is no site: no pod is placed".to_owned())]
        );
        let clouds = texts(json!([{"name": "far", "kind": "cloud"}]));
        assert_eq!(
            clouds,
            [(
                Level::Warning,
                "no site has kind edge: pods go to clouds alone".to_owned()
            )]
        );
        assert_eq!(texts(json!([{"name": "edge", "kind": "edge"}])), []);
    }

    #[test]
    fn site_and_node_misconfigurations_are_reported() {
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
        let view = of_all.view.as_mut().unwrap();
        view.node_faults = vec![NodeFault {
            node: "e1".into(),
            sites: vec!["edge".into(), "far".into()],
        }];
        view.liqo.left_out = vec![("dark".to_owned(), "near".to_owned())];
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
            (
                Level::Warning,
                "   # remove site near, or give it the nodeSelector {liqo.io/remote-cluster-id: CLUSTER} of one cluster",
            ),
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
        let edge = json!({"sites": [{"name": "edge", "kind": "edge"}], "nodes": []});
        let found = judge(&facts(&edge)).pop().unwrap();
        assert_eq!(
            (found.level, found.fix.as_deref()),
            (Level::Fault, Some("kubectl label node NODE node.role/edge=true"))
        );
    }
}
