//! The cost map as the custom resources of other schedulers.

use std::collections::BTreeMap;

use edgeward_decision::document::without_nulls;
use edgeward_decision::model::cost_map::Route;
use edgeward_decision::model::snapshot::{Site, Snapshot};
use serde_json::{Value, json};

/// A NetworkTopology of the network-aware plugins. The zones are the sites. The cost is the RTT in ms, rounded up; a route
/// without an RTT has none.
pub(super) fn diktyo(routes: &[Route<'_>]) -> Value {
    let mut origins = BTreeMap::<_, Vec<_>>::new();
    for route in routes {
        let Some((rtt, _)) = route.rtt else { continue };
        let cost = without_nulls(json!({
            "destination": route.target,
            "networkCost": rtt.0.div_ceil(1_000),
            "bandwidthCapacity": route.bandwidth.map(|(bandwidth, _)| bandwidth),
        }));
        origins.entry(route.source).or_default().push(cost);
    }
    let origins = origins.into_iter();
    let origins: Vec<_> = origins
        .map(|(origin, costs)| json!({"origin": origin, "costList": costs}))
        .collect();
    json!({
        "apiVersion": "networktopology.diktyo.x-k8s.io/v1alpha1",
        "kind": "NetworkTopology",
        "metadata": {"name": "edgeward"},
        "spec": {
            // No ConfigMap is read for weights that the user defines, but the field is required.
            "configmapName": "edgeward",
            "weights": [{
                "name": "UserDefined",
                "topologyList": [{"topologyKey": "topology.kubernetes.io/zone", "originList": origins}],
            }],
        },
    })
}

/// A NetworkTopology of CODECO's QoS scheduler, whose nodes are the sites. The RTT is an upper bound of the one-way delay. Links
/// without an RTT or bandwidth are left out, because the scheduler would take them for perfect.
pub(super) fn codeco(snapshot: &Snapshot, routes: &[Route<'_>]) -> Value {
    let links = routes.iter().filter_map(|route| {
        let (rtt, bandwidth) = (route.rtt?.0, route.bandwidth?.0);
        Some(json!({
            "source": route.source,
            "target": route.target,
            "capabilities": {"latencyNanos": (u128::from(rtt.0) * 1_000).to_string(), "bandWidthBits": bandwidth},
        }))
    });
    let nodes: BTreeMap<_, _> = snapshot.sites.iter().map(|site| (site.name(), address(site))).collect();
    let nodes = nodes.into_iter();
    let nodes =
        nodes.map(|(name, address)| without_nulls(json!({"name": name, "type": "COMPUTE", "ipAddress": address})));
    json!({
        "apiVersion": "qos-scheduler.siemens.com/v1alpha1",
        "kind": "NetworkTopology",
        "metadata": {"name": "edgeward"},
        "spec": {
            "networkImplementation": "edgeward",
            "physicalBase": "",
            "nodes": nodes.collect::<Vec<_>>(),
            "links": links.collect::<Vec<_>>(),
        },
    })
}

/// An address of a node of the site, which a physical network needs.
fn address(site: &Site) -> Option<&str> {
    let mut addresses = site.nodes().flat_map(|node| &node.profiled.addresses);
    addresses.next().map(|address| &**address)
}
