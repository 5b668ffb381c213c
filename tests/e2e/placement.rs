//! The three scenarios of the original design. Pods of a Deployment and of a Job go where the fleet file implies, and
//! kube-scheduler binds them there.

pub(crate) mod constraints;
pub(crate) mod failure;
pub(crate) mod fleet;
pub(crate) mod later_gate;
pub(crate) mod reinvocation;
pub(crate) mod untouched;

use edgeward_harness::control_plane::{CLOUD_NODE, EDGE_NODES};
use edgeward_harness::prelude::*;

use crate::golden;

e2e! { "placement::good_wan_and_low_load", Nodes, 76, good_wan_and_low_load }
/// Good WAN, low load: the edge.
fn good_wan_and_low_load(fixture: &Fixture<'_>) -> Result<()> {
    play(fixture, &fleet::relaxed(), "edge", "edge_feasible_slo_met", &EDGE_NODES)
}

e2e! { "placement::overloaded_edge_and_good_wan", Nodes, 75, overloaded_edge_and_good_wan }
/// Full edge that misses the deadline, good WAN: the cloud.
fn overloaded_edge_and_good_wan(fixture: &Fixture<'_>) -> Result<()> {
    play(
        fixture,
        &fleet::overloaded(),
        "cloud",
        "cloud_edge_no_capacity",
        &[CLOUD_NODE],
    )
}

e2e! { "placement::overloaded_edge_and_bad_wan", Nodes, 74, overloaded_edge_and_bad_wan }
/// Full edge that misses the deadline, bad WAN: the edge.
fn overloaded_edge_and_bad_wan(fixture: &Fixture<'_>) -> Result<()> {
    play(
        fixture,
        &fleet::overloaded_behind_a_bad_wan(),
        "edge",
        "edge_wan_degraded",
        &EDGE_NODES,
    )
}

e2e! { "placement::degraded_link_takes_pods_with_time_to_spare", Nodes, degraded_link_takes_pods_with_time_to_spare }
/// With the estimate for degraded links, a batch pod goes over the bad WAN in time. A latency pod stays.
fn degraded_link_takes_pods_with_time_to_spare(fixture: &Fixture<'_>) -> Result<()> {
    let fleet = fleet::overloaded_behind_a_bad_wan();
    let config = json!({"degradedLinks": "estimate"});
    let edgeward = fixture.edgeward_with(&fleet, &config)?;
    let _registered = fixture.register(&edgeward.url, &edgeward.ca)?;
    for (slo, expected) in [
        (workloads::batch(), "cloud: cloud_edge_no_capacity"),
        (workloads::latency(), "edge: edge_no_capacity"),
    ] {
        let found = fixture.kubectl.dry_run(&workloads::pod("asking", slo))?;
        ensure!(outcome(&found)? == expected, "{found:#}");
    }
    Ok(())
}

e2e! { "placement::fleet_file_is_read_again", Nodes, 73, fleet_file_is_read_again }
/// A new fleet file changes the next decision, without a restart.
fn fleet_file_is_read_again(fixture: &Fixture<'_>) -> Result<()> {
    let edgeward = fixture.edgeward(&fleet::relaxed())?;
    let _registered = fixture.register(&edgeward.url, &edgeward.ca)?;
    let decision = || -> Result<Value> {
        let pod = fixture
            .kubectl
            .dry_run(&workloads::pod("asking", workloads::latency()))?;
        Ok(pod["metadata"]["annotations"]["scheduling.example.io/decision"].clone())
    };
    ensure!(decision()? == "edge");

    edgeward.set_fleet(&fleet::overloaded())?;
    eventually("the decision follows the file", BOUND, || {
        ensure!(decision()? == "cloud");
        Ok(())
    })
}

fn play(fixture: &Fixture<'_>, fleet: &Value, decision: &str, reason: &str, nodes: &[&str]) -> Result<()> {
    let edgeward = fixture.edgeward(fleet)?;
    let _registered = fixture.register(&edgeward.url, &edgeward.ca)?;

    fixture
        .kubectl
        .apply(&workloads::deployment("answers", 2, workloads::latency()))?;
    fixture.kubectl.apply(&workloads::job("piles", workloads::batch()))?;
    for (app, replicas, phase) in [("answers", 2, "Running"), ("piles", 1, "Succeeded")] {
        let pods = settled(fixture, app, replicas, phase)?;
        for pod in &pods {
            placed(pod, decision, reason, nodes).with_context(|| format!("{pod:#}"))?;
        }
        let pod = pods.first().context("no pod")?;
        check_golden(fixture, pod, &format!("{}-{app}", fixture.namespace))?;
    }
    Ok(())
}

/// The pods of a workload, once all are in `phase` and no controller has anything left to write. A Job's controller removes its
/// finalizer from each pod that it has counted.
fn settled(fixture: &Fixture<'_>, app: &str, replicas: usize, phase: &str) -> Result<Vec<Value>> {
    eventually(&format!("{replicas} pods of {app} are {phase}"), BOUND, || {
        let pods = fixture.kubectl.list("pods", &format!("app={app}"))?;
        let states: Vec<_> = pods
            .iter()
            .map(|pod| (&pod["status"]["phase"], &pod["metadata"]["finalizers"]))
            .collect();
        let done = states
            .iter()
            .all(|(now, finalizers)| *now == phase && finalizers.is_null());
        ensure!(pods.len() == replicas && done, "{states:?}");
        Ok(pods)
    })
}

fn placed(pod: &Value, decision: &str, reason: &str, nodes: &[&str]) -> Result<()> {
    let annotation = |name: &str| &pod["metadata"]["annotations"][format!("scheduling.example.io/{name}")];
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    ensure!(nodes.contains(&node), "bound to {node}, not to one of {nodes:?}");
    ensure!(
        annotation("decision") == decision,
        "decision {}",
        annotation("decision")
    );
    ensure!(annotation("site") == decision, "site {}", annotation("site"));
    ensure!(annotation("reason") == reason, "reason {}", annotation("reason"));
    for name in ["timestamp", "decision-id", "wanRttMs", "explain"] {
        ensure!(annotation(name).is_string(), "no {name}");
    }
    let selector = &pod["spec"]["nodeSelector"];
    ensure!(
        selector[format!("node.role/{decision}")] == "true",
        "nodeSelector {selector}"
    );
    Ok(())
}

fn check_golden(fixture: &Fixture<'_>, pod: &Value, name: &str) -> Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let pod_name = text(&pod["metadata"]["name"]);
    let node = text(&pod["spec"]["nodeName"]);
    // The volume with the service account's token, if the cluster mounts one.
    let volumes = pod["spec"]["volumes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let token = volumes.first().map(|volume| text(&volume["name"])).unwrap_or_default();

    // A hash of all fields that this version knows.
    let hash = text(&pod["metadata"]["labels"]["pod-template-hash"]);

    let mut random = vec![(pod_name.as_str(), "<pod>")];
    if !hash.is_empty() {
        random.push((hash.as_str(), "<template hash>"));
    }
    if EDGE_NODES.contains(&node.as_str()) {
        random.push((node.as_str(), "<edge node>"));
    }
    if !token.is_empty() {
        random.push((token.as_str(), "<token volume>"));
    }
    let yaml = fixture
        .kubectl
        .run(&["get", "pod", &pod_name, "-o", "yaml"], "")?
        .stdout;
    golden::check(name, &yaml, &random)
}
