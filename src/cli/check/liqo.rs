//! Checks Liqo, if it is installed, for what keeps pods from its clusters.

use std::collections::BTreeMap;

use edgeward_core::model::endpoint::Endpoint;
use edgeward_core::model::liqo::{ApiServerStatus, OffloadingPhase, Strategy};
use edgeward_core::model::site::SiteDefinition;
use edgeward_core::wire::liqo::ForeignCluster;
use edgeward_core::wire::liqo_objects::LiqoObjects;

use super::Facts;
use super::finding::Finding;
use super::webhook::{self, shown};

const AREA: &str = "liqo";

/// Name of the webhook with which Liqo changes pods.
const POD_WEBHOOK: &str = "pod.mutate.liqo.io";

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let liqo = &facts.liqo;
    let unreadable = liqo.unreadable.iter();
    let mut findings: Vec<_> = unreadable.map(|(_, error)| Finding::unknown(AREA, error)).collect();
    let Some(objects) = &liqo.objects else {
        return findings;
    };
    let edit = &facts.found.edit;
    let sites = facts.found.config.sites.iter().filter(|site| site.is_of_liqo());
    let clusters = liqo.is_known("foreignclusters").then_some(&*objects.foreign_clusters);
    findings.extend(sites.clone().filter_map(|site| probe(site, edit)));
    findings.extend(sites.filter_map(|site| api_server(site, clusters?)));
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

fn probe(site: &SiteDefinition, edit: &str) -> Option<Finding> {
    let mut probes = site.probes.iter();
    let tcp = probes.find(|probe| matches!(probe, Endpoint::Tcp { .. }))?;
    let text = format!(
        "site {} is probed by {tcp}: an API server that hangs still accepts connections, and counts as good",
        site.name
    );
    let (host, port) = (tcp.host(), tcp.port());
    Some(Finding::warning(AREA, text).fix(format!("{edit}   # probes: [\"https://{host}:{port}/livez\"]")))
}

/// Checks whether Liqo reaches the cluster of a site.
fn api_server(site: &SiteDefinition, clusters: &[ForeignCluster]) -> Option<Finding> {
    let (name, cluster) = (&site.name, site.remote_cluster()?);
    let Some(known) = clusters.iter().find(|known| *known.cluster == *cluster) else {
        let text =
            format!("site {name}: there is no ForeignCluster {cluster}, so Liqo does not say whether it is reached");
        let fix = "kubectl get foreignclusters   # peer with that cluster, or correct the site";
        return Some(Finding::warning(AREA, text).fix(fix));
    };
    if known.api_server == Some(ApiServerStatus::Established) {
        let text = format!("site {name}: Liqo reaches the API server of {cluster}");
        return Some(Finding::ok(AREA, text));
    }
    let status = known.api_server.map_or("unknown", ApiServerStatus::as_str);
    let text = format!("site {name}: Liqo does not report the API server of {cluster} as reached ({status})");
    Some(Finding::warning(AREA, text).fix(format!("kubectl describe foreigncluster {cluster}")))
}

/// Reports how Liqo treats the namespaces that opted in. Each finding names the namespaces that it concerns.
fn of_namespaces(objects: &LiqoObjects, facts: &Facts) -> Vec<Finding> {
    let keys = &facts.found.config.keys;
    let opted_in = facts.namespaces.iter().flat_map(|all| webhook::opted_in(all, keys));
    let offloadings: BTreeMap<_, _> = objects
        .offloadings
        .iter()
        .map(|(name, stated)| (&**name, stated))
        .collect();
    let (mut nowhere, mut phases) = (vec![], vec![]);
    let (mut remote, mut both) = (vec![], vec![]);
    for (name, _) in opted_in {
        let stated = offloadings.get(&**name);
        match stated.map(|offloading| offloading.strategy) {
            Some(Strategy::Remote) => remote.push(&**name),
            Some(Strategy::LocalAndRemote) => both.push(&**name),
            _ => {}
        }
        let is_mapped = |phase: Option<&OffloadingPhase>| phase == Some(&OffloadingPhase::Accepted);
        if !objects.maps.iter().any(|map| is_mapped(map.namespaces.get(&**name))) {
            nowhere.push(name);
            let phase = stated.map(|offloading| format!(" ({})", offloading.phase.as_str()));
            phases.push(format!("{name}{}", phase.unwrap_or_default()));
        }
    }
    let mut findings = vec![];
    if let Some(first) = nowhere.first()
        && facts.liqo.is_known("namespacemaps")
        && objects.clusters() > 0
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
        findings.push(Finding::warning(AREA, text).fix(strategy_local(first)));
    }
    let mut webhooks = facts.webhooks.iter().flatten();
    let fails = webhooks.find(|webhook| webhook.entry.name == POD_WEBHOOK && webhook.fails());
    let changed = [remote, both].concat();
    if let (Some(webhook), Some(first)) = (fails, changed.first()) {
        let text = format!(
            "{POD_WEBHOOK} has failurePolicy Fail: while it does not answer, no pod is created in {}",
            shown(&changed)
        );
        let fix = format!(
            "{}   # pods go through it under the other strategies alone; or helm upgrade liqo --set webhook.failurePolicy=Ignore ({})",
            strategy_local(first),
            webhook.configuration()
        );
        findings.push(Finding::warning(AREA, text).fix(fix));
    }
    findings
}

fn strategy_local(namespace: &str) -> String {
    format!(
        "kubectl -n {namespace} patch namespaceoffloading offloading --type=merge -p \
         '{{\"spec\": {{\"podOffloadingStrategy\": \"Local\"}}}}'"
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use edgeward_core::config::Config;
    use edgeward_core::wire::liqo;
    use serde_json::json;

    use super::super::finding::Level;
    use super::*;
    use crate::inspect;
    use crate::inspect::installation::{Labels, Webhook};

    #[test]
    fn each_trap_is_named() {
        let config = Config::read(&json!({"sites": [
            {"name": "edge", "kind": "edge"},
            {"name": "far", "kind": "liqo", "nodeSelector": {"liqo.io/remote-cluster-id": "far"}, "probes": ["tcp://far:6443"]},
            {"name": "near", "kind": "liqo", "nodeSelector": {"liqo.io/remote-cluster-id": "near"}},
        ]}))
        .unwrap();
        let offloading = |strategy: &str| {
            let object = json!({
                "metadata": {"name": "offloading"}, "spec": {"podOffloadingStrategy": strategy},
                "status": {"offloadingPhase": "NoClusterSelected"},
            });
            liqo::namespace_offloading(&object.to_string()).unwrap()
        };
        let far = json!({"spec": {"clusterID": "far"}, "status": {
            "conditions": [{"type": "APIServerStatus", "status": "Error"}]}});
        let map = json!({
            "metadata": {"labels": {"liqo.io/remote-cluster-id": "far"}},
            "status": {"currentMapping": {"good": {"phase": "Accepted"}, "away": {"phase": "Accepted"}}},
        });
        let objects = LiqoObjects {
            are_namespaces_known: true,
            foreign_clusters: vec![liqo::foreign_cluster(&far.to_string()).unwrap()],
            virtual_nodes: vec![liqo::virtual_node(r#"{"spec": {"clusterID": "far"}}"#).unwrap()],
            offloadings: vec![
                ("away".into(), offloading("Remote")),
                ("shop".into(), offloading("LocalAndRemote")),
            ],
            maps: vec![Arc::new(liqo::namespace_map(&map.to_string()).unwrap())],
            latencies: vec![],
        };
        let labels = |value: &str| Labels::from([("scheduling.example.io/managed".to_owned(), value.to_owned())]);
        let namespaces = ["away", "good", "none", "shop"].map(|name| (name.to_owned(), labels("true")));
        let mut namespaces = BTreeMap::from(namespaces);
        namespaces.insert("other".to_owned(), labels("false"));
        let mut webhook = Webhook::changed(POD_WEBHOOK, 0, |entry| entry.failure_policy = Some("Fail".to_owned()));
        webhook.metadata.name = Some("liqo-webhook".to_owned());
        let mut facts = Facts {
            namespaces: super::super::testkit::namespaces(namespaces),
            webhooks: Some(vec![webhook]),
            liqo: inspect::Liqo {
                objects: Some(objects),
                unreadable: vec![],
                left_out: vec![("dark".to_owned(), "all".to_owned())],
            },
            ..Facts::example()
        };
        facts.found.config = config;
        let found = judge(&facts);
        assert!(
            found
                .iter()
                .all(|found| found.level == Level::Warning && found.fix.is_some()),
            "{found:#?}"
        );
        let texts: Vec<_> = found.iter().map(|found| &*found.text).collect();
        let expected = [
            "site far is probed by tcp://far:6443: an API server that hangs",
            "site far: Liqo does not report the API server of far as reached (Error)",
            "site near: there is no ForeignCluster near",
            "cluster dark has no site of its own: site all",
            "opted in, and offloaded to no cluster: none, shop (NoClusterSelected): their pods stay here",
            "strategy Remote: away: their pods never run at the edge",
            "pod.mutate.liqo.io has failurePolicy Fail: while it does not answer, no pod is created in away, shop",
        ];
        assert_eq!(texts.len(), expected.len(), "{texts:#?}");
        for (text, expected) in texts.iter().zip(expected) {
            assert!(text.starts_with(expected), "{text} is not {expected}");
        }

        // The only finding about a resource that cannot be read says so.
        let unreadable = ["foreignclusters", "namespacemaps"];
        facts.liqo.unreadable = unreadable
            .map(|kind| (kind, anyhow::anyhow!("cannot list {kind}")))
            .into();
        let found = judge(&facts);
        let said = |what: &str| found.iter().filter(|found| found.text.contains(what)).count();
        assert_eq!(
            [
                "not checked: cannot list foreignclusters",
                "not checked: cannot list namespacemaps"
            ]
            .map(said),
            [1, 1]
        );
        assert_eq!(
            ["ForeignCluster far", "Liqo does not report", "offloaded to no cluster"].map(said),
            [0, 0, 0]
        );
        assert_eq!(["is probed by tcp://", "strategy Remote: away"].map(said), [1, 1]);
    }
}
