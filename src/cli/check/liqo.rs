//! Checks Liqo, if it is installed, for what keeps pods from its clusters.

use edgeward_cluster::liqo::LiqoObjects;
use edgeward_decision::model::liqo::{OffloadingPhase, Strategy};

use super::Facts;
use super::finding::Finding;
use super::webhook::{self, shown};

const AREA: &str = "liqo";

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let liqo = &facts.liqo;
    let unreadable = liqo.unreadable.iter();
    let mut findings: Vec<_> = unreadable.map(|(_, error)| Finding::unknown(AREA, error)).collect();
    let Some(objects) = &liqo.objects else {
        return findings;
    };
    let edit = &facts.found.edit;
    findings.extend(liqo.left_out.iter().map(|(cluster, other)| {
        let text = format!("cluster {cluster} has no site of its own: site {other} has its virtual nodes, or its name");
        let fix = format!(
            "{edit}   # remove site {other}, or give it the nodeSelector {{liqo.io/remote-cluster-id: CLUSTER}} of one cluster"
        );
        Finding::warning(AREA, text).fix(fix)
    }));
    findings.extend(of_namespaces(objects, facts));
    findings
}

/// Reports how Liqo treats the namespaces that opted in. Each finding names the namespaces that it concerns.
fn of_namespaces(objects: &LiqoObjects, facts: &Facts) -> Vec<Finding> {
    let keys = &facts.found.config.keys;
    let opted_in = facts.namespaces.iter().flat_map(|all| webhook::opted_in(all, keys));
    let (mut nowhere, mut phases, mut remote) = (vec![], vec![], vec![]);
    for (name, _) in opted_in {
        let mut offloadings = objects.offloadings.iter();
        let stated = offloadings
            .find(|(namespace, _)| **namespace == **name)
            .map(|(_, stated)| stated);
        if stated.is_some_and(|offloading| offloading.strategy == Strategy::Remote) {
            remote.push(name);
        }
        let mut phases_of = objects.maps.iter().map(|map| map.namespaces.get(&**name));
        if !phases_of.any(|phase| phase == Some(&OffloadingPhase::Accepted)) {
            nowhere.push(name);
            let phase = stated.map(|offloading| format!(" ({})", offloading.phase.as_str()));
            phases.push(format!("{name}{}", phase.unwrap_or_default()));
        }
    }
    let mut findings = vec![];
    if let Some(first) = nowhere.first()
        && facts.liqo.is_known("namespacemaps")
        && !objects.clusters().is_empty()
    {
        let phases = shown(&phases);
        let text = format!("opted in, and offloaded to no cluster: {phases}: their pods stay here");
        let fix = format!("liqoctl offload namespace {first} --pod-offloading-strategy Local");
        findings.push(Finding::warning(AREA, text).fix(fix));
    }
    if let Some(first) = remote.first() {
        let text = format!(
            "strategy Remote: {}: their pods never run at the edge, and those that may not leave it are not placed",
            shown(&remote)
        );
        let fix = format!(
            "kubectl -n {first} patch namespaceoffloading offloading --type=merge -p \
             '{{\"spec\": {{\"podOffloadingStrategy\": \"Local\"}}}}'"
        );
        findings.push(Finding::warning(AREA, text).fix(fix));
    }
    findings
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use edgeward_cluster::liqo;
    use serde_json::json;

    use super::super::finding::Level;
    use super::*;
    use crate::inspect;
    use crate::inspect::installation::Labels;

    #[test]
    fn liqo_misconfigurations_are_reported_as_warnings() {
        let offloading = |strategy: &str| {
            let object = json!({
                "metadata": {"name": "offloading"}, "spec": {"podOffloadingStrategy": strategy},
                "status": {"offloadingPhase": "NoClusterSelected"},
            });
            liqo::namespace_offloading(&object.to_string()).unwrap()
        };
        let map = json!({
            "metadata": {"labels": {"liqo.io/remote-cluster-id": "far"}},
            "status": {"currentMapping": {"good": {"phase": "Accepted"}, "away": {"phase": "Accepted"}}},
        });
        let objects = LiqoObjects {
            are_namespaces_known: true,
            virtual_nodes: vec![liqo::virtual_node(r#"{"spec": {"clusterID": "far"}}"#).unwrap()],
            offloadings: vec![
                ("away".into(), offloading("Remote")),
                ("shop".into(), offloading("LocalAndRemote")),
            ],
            maps: vec![Arc::new(liqo::namespace_map(&map.to_string()).unwrap())],
            ..LiqoObjects::default()
        };
        let labels = |value: &str| Labels::from([("scheduling.example.io/managed".to_owned(), value.to_owned())]);
        let namespaces = ["away", "good", "none", "shop"].map(|name| (name.to_owned(), labels("true")));
        let mut namespaces = BTreeMap::from(namespaces);
        namespaces.insert("other".to_owned(), labels("false"));
        let mut facts = Facts {
            namespaces: super::super::testkit::namespaces(namespaces),
            liqo: inspect::Liqo {
                objects: Some(objects),
                unreadable: vec![],
                left_out: vec![("dark".to_owned(), "all".to_owned())],
            },
            ..Facts::example()
        };
        let found = judge(&facts);
        assert!(
            found
                .iter()
                .all(|found| found.level == Level::Warning && found.fix.is_some()),
            "{found:#?}"
        );
        let texts: Vec<_> = found.iter().map(|found| &*found.text).collect();
        let expected = [
            "cluster dark has no site of its own: site all",
            "opted in, and offloaded to no cluster: none, shop (NoClusterSelected): their pods stay here",
            "strategy Remote: away: their pods never run at the edge",
        ];
        assert_eq!(texts.len(), expected.len(), "{texts:#?}");
        for (text, expected) in texts.iter().zip(expected) {
            assert!(text.starts_with(expected), "{text} is not {expected}");
        }

        // The only finding about a resource that cannot be read says so.
        let error = anyhow::anyhow!("cannot list namespacemaps");
        facts.liqo.unreadable = vec![("namespacemaps", error)];
        let found = judge(&facts);
        let said = |what: &str| found.iter().any(|found| found.text.contains(what));
        assert!(said("not checked: cannot list namespacemaps") && said("strategy Remote: away"));
        assert!(!said("offloaded to no cluster"));
    }
}
