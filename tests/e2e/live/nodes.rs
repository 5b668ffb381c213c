//! Nodes come, go and change.

use edgeward_harness::live::{EDGE, pod};
use edgeward_harness::prelude::*;

use super::{CLOUD, fill, runs, would_be};

e2e! { "live::unusable_edge_node_sends_pod_to_cloud", Nodes, unusable_edge_node_sends_pod_to_cloud }
/// While anything keeps pods from the only edge node that is large enough, the next pod goes to the cloud. When that ends, the
/// next pod goes to the edge.
fn unusable_edge_node_sends_pod_to_cloud(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::new(fixture)?;
    let node = nodes.edge_node("edge-0", "1")?;
    nodes.edge_node("edge-1", "100m")?;
    nodes.cloud_node("cloud-0")?;
    let (_edgeward, _registered) = fixture.registered_live(&nodes.config())?;
    would_be(fixture, 900, EDGE)?;

    let kubectl = |args: &[&str]| fixture.kubectl.run(args, "").map(drop);
    kubectl(&["cordon", &node])?;
    would_be(fixture, 900, CLOUD)?;
    kubectl(&["uncordon", &node])?;
    would_be(fixture, 900, EDGE)?;

    nodes.stop(&node)?;
    would_be(fixture, 900, CLOUD)?;
    let ready = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;
    let ready = fixture.kubectl.run(&["get", "node", &node, "-o", ready], "")?.stdout;
    ensure!(ready == "False", "Ready is {ready}");
    nodes.start_again(&node)?;
    would_be(fixture, 900, EDGE)?;

    kubectl(&["taint", "node", &node, "full=yes:NoSchedule"])?;
    would_be(fixture, 900, CLOUD)?;
    kubectl(&["taint", "node", &node, "full=yes:NoSchedule-"])?;
    would_be(fixture, 900, EDGE)?;

    let label = nodes.edge_label();
    let (key, _) = label.split_once('=').unwrap_or_default();
    kubectl(&["label", "node", &node, &format!("{key}-")])?;
    would_be(fixture, 900, CLOUD)?;
    kubectl(&["label", "node", &node, &label])?;
    would_be(fixture, 900, EDGE)?;

    nodes.remove(&node)?;
    would_be(fixture, 900, CLOUD)?;
    nodes.edge_node("edge-0", "1")?;
    would_be(fixture, 900, EDGE)?;

    would_be(fixture, 1500, CLOUD)?;
    nodes.resize(&node, "2")?;
    would_be(fixture, 1500, EDGE)?;
    nodes.resize(&node, "1")?;
    would_be(fixture, 1500, CLOUD)
}

e2e! { "live::unusable_cloud_keeps_pod_at_edge", Nodes, unusable_cloud_keeps_pod_at_edge }
/// The edge is full. While the cloud's node or the WAN cannot be used, pods stay at the edge, with the reason.
fn unusable_cloud_keeps_pod_at_edge(fixture: &Fixture<'_>) -> Result<()> {
    const MISSING: &str = "edge: edge_cloud_site_missing";
    let nodes = Nodes::new(fixture)?;
    nodes.edge_node("edge-0", "1")?;
    let node = nodes.cloud_node("cloud-0")?;
    let mut config = nodes.config();
    config["probing"] = json!({"period": "1s"});
    let (_edgeward, _registered) = fixture.registered_live(&config)?;
    fill(fixture, "fills", 900, EDGE)?;
    would_be(fixture, 500, CLOUD)?;

    fixture.kubectl.run(&["cordon", &node], "")?;
    would_be(fixture, 500, MISSING)?;
    fixture.kubectl.run(&["uncordon", &node], "")?;
    would_be(fixture, 500, CLOUD)?;

    nodes.stop(&node)?;
    would_be(fixture, 500, MISSING)?;
    nodes.start_again(&node)?;
    would_be(fixture, 500, CLOUD)?;

    nodes.remove(&node)?;
    would_be(fixture, 500, MISSING)?;
    nodes.cloud_node("cloud-0")?;
    would_be(fixture, 500, CLOUD)?;

    nodes.wan.close();
    would_be(fixture, 500, "edge: edge_wan_unreachable")?;
    nodes.wan.reopen()?;
    would_be(fixture, 500, CLOUD)
}

e2e! { "live::edge_label_on_cloud_node_draws_no_pod", Nodes, edge_label_on_cloud_node_draws_no_pod }
/// A cloud node carries the edge's label and a trait's label, as the provider of a virtual node may set them. It is larger than
/// the edge's node, so kube-scheduler would prefer it. Pods that may not leave the edge run at the edge, and a pod that
/// requires the trait runs nowhere.
fn edge_label_on_cloud_node_draws_no_pod(fixture: &Fixture<'_>) -> Result<()> {
    const CLOUD_LABEL: &str = "edgeward.test/cloud";
    let nodes = Nodes::new(fixture)?;
    let edge = nodes.edge_node("edge-0", "4")?;
    let both = nodes.edge_node("cloud-0", "64")?;
    let labels = [
        format!("{CLOUD_LABEL}={}", fixture.namespace),
        "traits.edgeward.io/SecureRuntime=true".to_owned(),
    ];
    fixture
        .kubectl
        .run(&["label", "node", &both, &labels[0], &labels[1]], "")?;
    let mut config = nodes.config();
    config["sites"][1]["nodeSelector"] = json!({CLOUD_LABEL: fixture.namespace});
    let (edgeward, _registered) = fixture.registered_live(&config)?;

    let stays = |name: &str, traits: Option<&str>| {
        let mut pod = pod(fixture, name, 100);
        let annotations = &mut pod["metadata"]["annotations"];
        annotations[fixture.key("slo.example.io/offloadAllowed")] = json!("false");
        if let Some(traits) = traits {
            annotations[fixture.key("slo.example.io/traits")] = json!(traits);
        }
        fixture.kubectl.create(&pod)
    };
    for name in ["first", "second", "third"] {
        stays(name, None)?;
        runs(fixture, name)?;
        let node = &fixture.kubectl.get("pod", name)?["spec"]["nodeName"];
        ensure!(*node == edge, "{name} is on {node}");
    }
    stays("secure", Some("SecureRuntime"))?;
    eventually("no node is found for the one that requires a trait", BOUND, || {
        let pod = fixture.kubectl.get("pod", "secure")?;
        ensure!(is_unschedulable(&pod), "{}", pod["status"]);
        Ok(())
    })?;
    let foreign = edgeward.count("edgeward_site_nodes", &[("site", "edge"), ("usable", "foreign")])?;
    ensure!(foreign == 1, "{foreign} nodes of others carry the edge's label");
    Ok(())
}

e2e! { "live::pod_leaves_lost_cloud_early", Nodes, pod_leaves_lost_cloud_early }
/// The edge is full, so the pods of two Deployments run in the cloud, whose `unreachableSeconds` is 5. The one that tolerates a lost
/// node for ten minutes stays there when its node is lost. The other is evicted, and its successor runs at the edge.
fn pod_leaves_lost_cloud_early(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::new(fixture)?;
    nodes.edge_node("edge-0", "1")?;
    let cloud = nodes.cloud_node("cloud-0")?;
    let mut config = nodes.config();
    config["sites"][1]["unreachableSeconds"] = json!(5);
    let (_edgeward, _registered) = fixture.registered_live(&config)?;
    fill(fixture, "fills", 900, EDGE)?;

    let slo = || fixture.in_its_domain(workloads::batch());
    let mut stays = workloads::deployment("stays", 1, slo());
    stays["spec"]["template"]["spec"]["tolerations"] = ["not-ready", "unreachable"]
        .map(|taint| json!({"key": format!("node.kubernetes.io/{taint}"), "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 600}))
        .into();
    let is_at = |app: &str, site: &str| {
        eventually(&format!("{app} runs at the {site}"), 2 * BOUND, || {
            let pods = fixture.kubectl.list("pods", &format!("app={app}"))?;
            let running = pods.iter().filter(|pod| pod["status"]["phase"] == "Running");
            let pod = running.filter(|pod| nodes.site_of(pod) == Some(site)).last();
            Ok(pod.with_context(|| format!("{pods:#?}"))?["metadata"]["uid"].clone())
        })
    };
    fixture.kubectl.create(&stays)?;
    fixture.kubectl.create(&workloads::deployment("leaves", 1, slo()))?;
    let stayed = is_at("stays", "cloud")?;
    is_at("leaves", "cloud")?;

    fixture.kubectl.run(&["delete", "pod", "fills", "--wait=false"], "")?;
    would_be(fixture, 900, EDGE)?;
    nodes.stop(&cloud)?;
    is_at("leaves", "edge")?;
    ensure!(is_at("stays", "cloud")? == stayed, "the pod that stays was replaced");
    fixture.kubectl.run(&["delete", "deployment", "--all"], "").map(drop)
}
