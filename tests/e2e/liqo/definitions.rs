//! Liqo's definitions appear and disappear in a cluster without Liqo's programs. The test writes its objects by hand.

use edgeward_harness::control_plane::node;
use edgeward_harness::fixture::Registration;
use edgeward_harness::peering::REMOTE;
use edgeward_harness::prelude::*;
use edgeward_harness::wait::TIMEOUT;
use jiff::{SignedDuration, Timestamp};

use super::{site_of_fleet, slo};

const KINDS: [&str; 5] = [
    "foreignclusters",
    "virtualnodes",
    "namespaceoffloadings",
    "namespacemaps",
    "connections",
];

/// edgeward's messages when it starts and stops to use Liqo.
const IN_USE: &str = "Liqo is in use: pods go where their namespaces are offloaded";
const NOT_IN_USE: &str = "Liqo is not in use any more";

const FAR: &str = "far";

/// The latency in the Connection, in Liqo's format and in edgeward's.
const LATENCY: &str = "37ms";
const LATENCY_MS: &str = "37";

e2e! { "liqo::liqo_support_follows_definitions", Cluster, 103, liqo_support_follows_definitions }
/// Without Liqo's definitions edgeward only checks whether they exist. It starts to use Liqo when they appear and stops when
/// they disappear, without a restart. A Connection's latency counts if there is no probe.
fn liqo_support_follows_definitions(fixture: &Fixture<'_>) -> Result<()> {
    let begun = Timestamp::now();
    let definitions = fixture.definitions_of_liqo(&KINDS)?;
    let (_nodes, config, (edgeward, _registered)) = without_clouds(fixture)?;
    asked_for_nothing(fixture, begun)?;
    ensure!(rtt(&fixture.kubectl)?.is_none(), "a cloud without Liqo");

    let installed = Installed::new(fixture, &definitions)?;
    let (_, tenancy) = fixture.another_namespace("tenancy", json!({}))?;
    tenancy.create(&virtual_node(FAR))?;
    eventually("edgeward has seen it", BOUND, || has_said(&edgeward, IN_USE, 1))?;
    measured_between_gateways(fixture, &config, &tenancy)?;
    reached_or_not(fixture, &edgeward)?;

    drop(installed);
    let gone = Timestamp::now();
    eventually("edgeward has seen it", BOUND, || has_said(&edgeward, NOT_IN_USE, 1))?;
    eventually("the cluster is no site", BOUND, || {
        ensure!(rtt(&fixture.kubectl)?.is_none(), "it is one");
        ensure!(edgeward.count("edgeward_wan_state", &[("site", FAR)])? == 0);
        Ok(())
    })?;
    for kind in KINDS {
        let failures = edgeward.count("edgeward_watch_failures_total", &[("kind", kind)])?;
        ensure!(failures < 5, "{failures} of {kind}");
    }
    // By now, earlier requests have ended.
    let asked = eventually("it is asked what is installed", BOUND, || {
        let calls = calls_since(fixture, gone)?;
        let (at, _) = calls.iter().find(|(_, call)| is_discovery(call)).context("not yet")?;
        Ok(*at)
    })?;
    eventually("it is asked again", BOUND, || asked_for_nothing(fixture, asked))
}

/// An edgeward that may use Liqo, with a node at the edge and no cloud.
fn without_clouds<'run>(fixture: &Fixture<'run>) -> Result<(Nodes<'run>, Value, (Edgeward<'run>, Registration))> {
    fixture.allow_liqo()?;
    let nodes = Nodes::new(fixture)?;
    nodes.edge_node("edge-0", "1")?;
    let mut config = nodes.config();
    config["sites"].as_array_mut().context("sites")?.truncate(1);
    let edgeward = fixture.registered_live(&config)?;
    Ok((nodes, config, edgeward))
}

fn virtual_node(cluster: &str) -> Value {
    json!({
        "apiVersion": "offloading.liqo.io/v1beta1",
        "kind": "VirtualNode",
        "metadata": {"name": cluster},
        "spec": {"clusterID": cluster},
    })
}

e2e! { "liqo::many_clusters_become_sites", Cluster, 30, many_clusters_become_sites }
/// 128 clusters are sites with a node each soon after the last one appears, and edgeward stays small.
fn many_clusters_become_sites(fixture: &Fixture<'_>) -> Result<()> {
    let outcome = become_sites(fixture);
    let nodes = [
        "delete",
        "node",
        "--selector",
        "liqo.io/type=virtual-node",
        "--wait=false",
    ];
    fixture.kubectl.run(&nodes, "")?;
    outcome
}

fn become_sites(fixture: &Fixture<'_>) -> Result<()> {
    const CLUSTERS: u32 = 128;
    const MOST_KIB: u64 = 64 << 10;
    let definitions = fixture.definitions_of_liqo(&KINDS)?;
    let (_nodes, _, (edgeward, _registered)) = without_clouds(fixture)?;
    let _installed = Installed::new(fixture, &definitions)?;
    let (_, tenancy) = fixture.another_namespace("tenancy", json!({}))?;
    eventually("edgeward has seen the definitions", BOUND, || {
        has_said(&edgeward, IN_USE, 1)
    })?;
    for number in 0..CLUSTERS {
        let id = format!("cluster-{number}");
        let taints = json!([{"key": "virtual-node.liqo.io/not-allowed", "value": "true", "effect": "NoExecute"}]);
        let resources = json!({"cpu": "8", "memory": "64Gi", "pods": "110"});
        let labels = json!({REMOTE: id, "liqo.io/type": "virtual-node"});
        fixture.kubectl.create(&node(&id, labels, taints, resources))?;
        tenancy.create(&virtual_node(&id))?;
    }
    let created = Instant::now();
    eventually("every cluster is a site with a node", BOUND, || {
        let nodes = edgeward.count("edgeward_site_nodes", &[])?;
        ensure!(nodes == u64::from(CLUSTERS) + 1, "{nodes} nodes");
        Ok(())
    })?;
    let resident = edgeward.memory_kib("VmRSS")?;
    println!(
        "{CLUSTERS} clusters are sites {:.1?} after the last one; {resident} KiB resident",
        created.elapsed()
    );
    ensure!(resident <= MOST_KIB, "{resident} KiB are resident");
    let asked = fixture.kubectl.dry_run(&workloads::pod("asking", slo()))?;
    ensure!(annotation(&asked, "site") == Some("edge"), "{asked}");
    Ok(())
}

/// A Connection's latency is the cluster's RTT while there is no probe and the value is fresh. It is read correctly although
/// Liqo's unit differs from its name. Without a loss measurement, no pod goes there.
fn measured_between_gateways(fixture: &Fixture<'_>, config: &Value, tenancy: &Kubectl) -> Result<()> {
    tenancy.create(&json!({
        "apiVersion": "networking.liqo.io/v1beta1",
        "kind": "Connection",
        "metadata": {"name": FAR, "labels": {REMOTE: FAR}},
        "spec": {"type": "Client", "gatewayRef": {}},
    }))?;
    let now = Timestamp::now();
    let long_ago = now.checked_sub(SignedDuration::from_mins(10))?;
    for (value, latency, at, expected) in [
        ("Connected", "840\u{b5}s", now, Some("0.84")),
        ("Connected", "12ms", long_ago, None),
        ("Connected", "1250\u{3bc}s", now, Some("1.25")),
        ("Connected", "N/A", now, None),
        ("Connected", LATENCY, now, Some(LATENCY_MS)),
        ("Error", LATENCY, now, None),
        ("Connected", LATENCY, now, Some(LATENCY_MS)),
    ] {
        let status = json!({"value": value, "latency": {"value": latency, "timestamp": at.to_string()}});
        tenancy.patch_status("connections", FAR, &status)?;
        eventually(&format!("{value}, {latency}: {expected:?}"), BOUND, || {
            let rtt = rtt(&fixture.kubectl)?;
            ensure!(rtt.as_deref() == expected, "{rtt:?}");
            Ok(())
        })?;
    }
    let far = site_of_fleet(fixture, config, FAR)?;
    let seen = far.split_whitespace().take(4).eq([FAR, "cloud", "liqo", "0/0"]);
    ensure!(seen && far.contains(&format!("degraded, {LATENCY_MS} ms, ")), "{far}");
    Ok(())
}

/// Once the cluster's API server is known, it is probed, and the probe's RTT counts. While Liqo reports that it cannot reach
/// the server, the cloud counts as unreachable.
fn reached_or_not(fixture: &Fixture<'_>, edgeward: &Edgeward<'_>) -> Result<()> {
    fixture.kubectl.create(&json!({
        "apiVersion": "core.liqo.io/v1beta1",
        "kind": "ForeignCluster",
        "metadata": {"name": FAR},
        "spec": {"clusterID": FAR},
    }))?;
    for (established, state) in [
        ("Established", "healthy"),
        ("Error", "unreachable"),
        ("Established", "healthy"),
    ] {
        let conditions = json!([{"type": "APIServerStatus", "status": established}]);
        let status = json!({"role": "Provider", "apiServerUrl": fixture.api_server(), "conditions": conditions});
        fixture.kubectl.patch_status("foreignclusters", FAR, &status)?;
        eventually(&format!("{established}: {state}"), BOUND, || {
            let found = edgeward.count("edgeward_wan_state", &[("site", FAR), ("state", state)])?;
            let rtt = rtt(&fixture.kubectl)?;
            let is_probed = rtt.as_deref().is_some_and(|rtt| rtt != LATENCY_MS);
            ensure!(found == 1 && is_probed == (state == "healthy"), "{found}, {rtt:?}");
            Ok(())
        })?;
    }
    Ok(())
}

/// The RTT in the annotation of a pod at the edge, which is the nearest cloud's.
fn rtt(kubectl: &Kubectl) -> Result<Option<String>> {
    let pod = kubectl.dry_run(&workloads::pod("asking", slo()))?;
    ensure!(annotation(&pod, "site") == Some("edge"), "{pod}");
    Ok(annotation(&pod, "wanRttMs").map(str::to_owned))
}

fn has_said(edgeward: &Edgeward<'_>, message: &str, times: usize) -> Result<()> {
    let said = edgeward.said(message).len();
    ensure!(said == times, "{said} times: {message}");
    Ok(())
}

/// Fails if edgeward has asked for more of Liqo since then than whether it is installed.
fn asked_for_nothing(fixture: &Fixture<'_>, since: Timestamp) -> Result<()> {
    let calls = calls_since(fixture, since)?;
    ensure!(calls.iter().any(|(_, call)| is_discovery(call)), "it has not asked");
    let is_of_liqo = |call: &Value| call["requestURI"].as_str().is_some_and(|uri| uri.contains("liqo.io"));
    let other = calls.iter().find(|(_, call)| is_of_liqo(call) && !is_discovery(call));
    ensure!(other.is_none(), "{other:?}");
    Ok(())
}

fn calls_since(fixture: &Fixture<'_>, since: Timestamp) -> Result<Vec<(Timestamp, Value)>> {
    let calls = fixture.calls_of_edgeward()?.into_iter();
    let calls = calls.filter_map(|call| {
        let at = call["requestReceivedTimestamp"].as_str()?.parse().ok()?;
        (at > since).then_some((at, call))
    });
    Ok(calls.collect())
}

/// Whether the call asks for the API groups, or for the resources in one of Liqo's groups.
fn is_discovery(call: &Value) -> bool {
    let path = call["requestURI"].as_str().unwrap_or_default();
    let path: Vec<_> = path.split('?').next().unwrap_or_default().split('/').skip(1).collect();
    match path[..] {
        ["apis"] => true,
        ["apis", group, _] => group.ends_with(".liqo.io"),
        _ => false,
    }
}

/// Liqo's definitions. Dropping the value removes them with all their objects.
struct Installed<'f>(&'f Kubectl, Vec<String>);

impl<'f> Installed<'f> {
    fn new(fixture: &'f Fixture<'_>, definitions: &[Value]) -> Result<Self> {
        let named = |definition: &Value| Some(format!("crd/{}", definition["metadata"]["name"].as_str()?));
        let installed = Self(&fixture.kubectl, definitions.iter().filter_map(named).collect());
        for definition in definitions {
            fixture.kubectl.create(definition)?;
        }
        fixture.kubectl.wait_until_established(&installed.names())?;
        Ok(installed)
    }

    fn names(&self) -> Vec<&str> {
        self.1.iter().map(String::as_str).collect()
    }
}

impl Drop for Installed<'_> {
    fn drop(&mut self) {
        let args = [&["delete", "--ignore-not-found", TIMEOUT], &self.names()[..]].concat();
        if let Err(error) = self.0.run(&args, "") {
            eprintln!("{error:#}");
        }
    }
}
