//! Liqo's objects as watches show them.

use std::fmt::Debug;
use std::sync::Arc;

use edgeward_core::config::Config;
use edgeward_core::config::sites::with_discovered;
use edgeward_core::engine::Change;
use edgeward_core::model::constraints::is_label_value;
use edgeward_core::model::link::{Link, LinkState};
use edgeward_core::model::node::Node;
use edgeward_core::model::site::{SiteDefinition, SiteKind};
use edgeward_core::model::snapshot::Snapshot;
use edgeward_core::placement::decide::decide;
use edgeward_core::placement::room::Room;
use edgeward_core::placement::verdict::Action;
use edgeward_core::testkit::NOW;
use edgeward_core::units::{Micros, Permille};
use edgeward_core::wire::liqo::{connection, foreign_cluster, namespace_map, namespace_offloading, virtual_node};
use edgeward_core::wire::liqo_objects::{LiqoObjects, MAX_DISCOVERED};
use edgeward_core::wire::pod::Pod;
use edgeward_core::wire::{fleet_file, node};
use serde_json::{Value, json};

use super::documents;
use super::watched::{self, Watched};

/// How many clusters have a node, and in how many namespaces a pod is decided.
const FEW: usize = 3;

/// Of a list, each document is an object of the kind that it says.
///
/// # Panics
/// An object is not read alike however it is written; clusters and sites do not correspond; what is known is not written as it was read;
/// or a pod is placed where no map says that its namespace is, or where Liqo does not reach the API server.
pub fn check(data: &[u8]) {
    let documents = documents::several(data);
    let documents = documents.into_iter();
    let documents: Vec<_> = documents
        .filter(|document| document.is_object() && documents::is_of_objects(document))
        .collect();
    let objects = read(&documents);
    // With a RuntimeClass no pod of theirs could be held.
    let sites = objects.sites(None);
    let defined = &Config::default().sites;
    check_sites(&sites, &objects, defined);

    let facts = Arc::new(objects.facts(NOW));
    let config = Arc::new(Config {
        sites: with_discovered(defined, &sites).sites,
        ..Config::default()
    });
    let clouds = config.sites.iter().filter(|site| site.remote_cluster().is_some());
    let nodes = clouds.clone().take(FEW).map(|site| node_of(site));
    let nodes = watched::nodes().into_iter().chain(nodes).collect();
    let mut watched = Watched::listed(&config, nodes, vec![]);
    watched.engine.apply(&Change::Liqo(Some(Arc::clone(&facts))), NOW);
    let healthy = Link {
        state: LinkState::Healthy,
        rtt: Some(Micros(5_000)),
        loss: Some(Permille(0)),
        as_of: NOW.moment,
    };
    // The others have none but what a Connection has measured.
    for site in clouds.step_by(2) {
        watched
            .engine
            .apply(&Change::Link(site.name.clone(), Some(healthy)), NOW);
    }
    watched.engine.publish(NOW);
    let snapshot = watched.snapshot();
    let written = fleet_file::write(&snapshot, NOW.moment);
    let again = fleet_file::read(&written, &config, NOW.moment).unwrap_or_else(|faults| panic!("{faults}: {written}"));
    assert_eq!(fleet_file::write(&again, NOW.moment), written);
    let namespaces = facts.offloadings.namespaces.keys();
    for namespace in namespaces.take(FEW).map(|name| &**name).chain(["shop"]) {
        let placed = [&*snapshot, &again].map(|snapshot| place(snapshot, &config, namespace));
        assert_eq!(placed[0], placed[1], "{written}");
        let Some((cluster, reason)) = &placed[0] else { continue };
        let is_there = is_accepted(&documents, namespace, cluster);
        assert!(is_there, "{reason}: {namespace} is not at {cluster}");
        let is_remote = facts.offloadings.is_remote(namespace);
        let is_reached = is_reached(&documents, cluster);
        assert!(is_remote || is_reached, "{reason}: {cluster} is not reached");
    }
}

fn read(documents: &[Value]) -> LiqoObjects {
    let mut objects = LiqoObjects {
        are_namespaces_known: true,
        ..LiqoObjects::default()
    };
    for document in documents {
        let cluster = alike(document, foreign_cluster);
        let node = alike(document, virtual_node);
        let offloading = alike(document, namespace_offloading);
        let map = alike(document, namespace_map);
        let latency = alike(document, connection);
        match documents::text(document, "/kind").unwrap_or_default() {
            "ForeignCluster" => objects.foreign_clusters.extend(cluster),
            "VirtualNode" => objects.virtual_nodes.extend(node),
            "NamespaceOffloading" => {
                let namespace = documents::text(document, "/metadata/namespace").map(Box::from);
                objects.offloadings.extend(namespace.zip(offloading));
            }
            "NamespaceMap" => objects.maps.extend(map.map(Arc::new)),
            "Connection" => objects.latencies.extend(latency),
            _ => {}
        }
    }
    objects
}

/// What is read of an object, which is the same however it is written.
fn alike<T: Debug + PartialEq>(document: &Value, read: impl Fn(&str) -> Option<T>) -> Option<T> {
    let found = read(&document.to_string());
    let others = [
        documents::escaped(document),
        documents::with_unknown_fields(document).to_string(),
    ];
    for other in others {
        assert_eq!(read(&other), found, "{other}");
    }
    found
}

/// There is a site for each cluster with a VirtualNode, by its name, and beside those that are defined at most one of each name.
fn check_sites(sites: &[Arc<SiteDefinition>], objects: &LiqoObjects, defined: &[Arc<SiteDefinition>]) {
    assert_eq!(sites.len(), objects.clusters().min(MAX_DISCOVERED));
    for site in sites {
        assert_eq!((site.kind, site.remote_cluster()), (SiteKind::Cloud, Some(&*site.name)));
        assert!(is_label_value(&site.name), "{}", site.name);
    }
    let merged = with_discovered(defined, sites);
    let mut names: Vec<_> = merged.sites.iter().map(|site| &*site.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), merged.sites.len());
    assert_eq!(merged.sites.len() + merged.left_out.len(), defined.len() + sites.len());
}

/// A virtual node of the cluster of this site.
fn node_of(site: &SiteDefinition) -> Node {
    let labels: Value = site
        .selector()
        .map(|(key, value)| (key.to_owned(), Value::from(value)))
        .collect();
    let node = json!({
        "metadata": {"name": format!("node-of-{}", site.name), "labels": labels},
        "spec": {"taints": [{"key": "virtual-node.liqo.io/not-allowed", "value": "true", "effect": "NoExecute"}]},
        "status": {
            "allocatable": {"cpu": "64", "memory": "64Gi", "pods": "9"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    node::from_json(&node.to_string()).unwrap()
}

/// The cluster where a pod of this namespace is placed that no other node could hold, and why.
fn place(snapshot: &Snapshot, config: &Config, namespace: &str) -> Option<(String, &'static str)> {
    let container = json!({"resources": {"requests": {"cpu": "50", "memory": "16Gi"}}});
    let annotations = json!({"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "600000"});
    let pod = json!({"metadata": {"annotations": annotations}, "spec": {"containers": [container]}}).to_string();
    let pod = Pod::from_json(&pod).unwrap();
    let workload = pod.workload(namespace.into(), &config.keys);
    let verdict = decide(&workload, &Room::of(snapshot), config, NOW);
    let Action::Place(site) = verdict.action else {
        return None;
    };
    Some((site.definition.remote_cluster()?.to_owned(), verdict.reason.as_str()))
}

/// Whether a map of that cluster has the namespace as accepted.
fn is_accepted(documents: &[Value], namespace: &str, cluster: &str) -> bool {
    documents.iter().any(|document| {
        let labels = &document["metadata"]["labels"];
        document["kind"] == "NamespaceMap"
            && labels["liqo.io/remote-cluster-id"] == cluster
            && labels["liqo.io/replicated"] != "true"
            && document["status"]["currentMapping"][namespace]["phase"] == "Accepted"
    })
}

/// Whether no ForeignCluster of it, or the last, says otherwise.
fn is_reached(documents: &[Value], cluster: &str) -> bool {
    let is_its = |document: &&Value| document["kind"] == "ForeignCluster" && document["spec"]["clusterID"] == cluster;
    // No API server has one that cannot be read; it says nothing.
    let is_read = |document: &&Value| foreign_cluster(&document.to_string()).is_some();
    let mut all = documents.iter().filter(is_its).filter(is_read);
    let conditions = all.next_back().map(|last| &last["status"]["conditions"]);
    let mut conditions = conditions.and_then(Value::as_array).into_iter().flatten();
    let condition = conditions.find(|condition| condition["type"] == "APIServerStatus");
    condition.is_none_or(|condition| condition["status"] == "Established")
}
