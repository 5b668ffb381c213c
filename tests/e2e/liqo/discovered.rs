//! A discovered cluster becomes a site without configuration. edgeward only uses Liqo's objects and Liqo's actions there.

use edgeward_harness::peering::{Provider, Strategy};
use edgeward_harness::prelude::*;

use super::{cloud, seen, settled, site_of_fleet, slo};
use crate::commands::fleet_command;

/// The reason of pods for which the edge has no room.
const FULL: &str = "cloud_edge_no_capacity";

e2e! { "liqo::discovered_cluster_gets_offloaded_pods", Peering, 104, discovered_cluster_gets_offloaded_pods }
/// The cluster gets pods while Liqo offloads their namespace to it, on all of its virtual nodes, and with a RuntimeClass if
/// configured. It gets none while Liqo cannot reach it, and no more of a controller whose pods it does not start.
fn discovered_cluster_gets_offloaded_pods(fixture: &Fixture<'_>) -> Result<()> {
    let (cloud, namespace) = (cloud(fixture)?, &fixture.namespace);
    let config = json!({"sites": [{"name": "edge", "kind": "edge"}]});
    let edgeward = fixture.live_edgeward(&config)?;
    let (refused, in_refused) = fixture.another_namespace("refused", json!({MANAGED: "true"}))?;
    // edgeward's webhook runs before Liqo's. Liqo's objects show what the strategy means.
    let namespaces = [namespace, &*refused];
    let _registered = fixture.register_as("aa-edgeward", &namespaces, &edgeward.url, &edgeward.ca)?;
    let line = site_of_fleet(fixture, &config, cloud.id)?;
    let seen = line.split_whitespace().take(4);
    ensure!(seen.eq([cloud.id, "cloud", "liqo", "2/2"]), "{line}");

    let fits = ["edge", "edge_feasible_slo_met"];
    becomes(fixture, fits, ["edge", "edge_too_large"])?;
    let stuck = refused_there(fixture, cloud, &refused, &in_refused)?;
    fixture.offload(namespace, Strategy::Local)?;
    becomes(fixture, fits, [cloud.id, FULL])?;
    on_two_nodes(fixture, cloud)?;
    by_runtime_class(fixture, cloud, &edgeward, &config)?;
    by_label(fixture, cloud, &edgeward, &config)?;
    without_edge(fixture, cloud, &edgeward, &config)?;
    says_nothing(fixture, cloud, &edgeward, &in_refused, &stuck, &config)?;
    while_it_is_frozen(fixture, cloud, &edgeward)?;

    fixture.offload(namespace, Strategy::LocalAndRemote)?;
    becomes(fixture, fits, [cloud.id, FULL])?;
    fixture.offload(namespace, Strategy::Remote)?;
    let pinned = [cloud.id, "cloud_pinned_by_pod"];
    becomes(fixture, pinned, pinned)?;
    fixture
        .kubectl
        .run(&["delete", "namespaceoffloadings", "offloading", "--wait=false"], "")?;
    becomes(fixture, fits, ["edge", "edge_too_large"])
}

/// While Liqo cannot reach the cloud's API server, the cloud is not good. A probe alone may see a hanging server as healthy.
fn while_it_is_frozen(fixture: &Fixture<'_>, cloud: &Provider, edgeward: &Edgeward<'_>) -> Result<()> {
    let config = json!({"sites": [
        {"name": "edge", "kind": "edge"},
        {"name": cloud.id, "kind": "liqo", "probes": [cloud.tcp_probe()]},
    ]});
    edgeward.set_config(&config)?;
    let of_probe = [("site", cloud.id), ("endpoint", &cloud.tcp_probe())];
    let answered = || {
        let [site, endpoint] = of_probe;
        edgeward.count("edgeward_wan_probes_total", &[site, endpoint, ("outcome", "answered")])
    };
    eventually("it is probed otherwise", BOUND, || {
        ensure!(answered()? > 0, "not by {}", cloud.tcp_probe());
        Ok(())
    })?;
    goes(fixture, cloud)?;
    let frozen = cloud.freeze()?;
    eventually("no pod goes there", BOUND, || {
        let pod = fixture.kubectl.dry_run(&pod("asking", "100m"))?;
        let warned = fixture.kubectl.dry_run(&self::pod("large", "5"))?;
        ensure!(annotation(&warned, "reason") == Some("cloud_best_effort"), "{warned}");
        ensure!(annotation(&pod, "site") == Some("edge"), "{pod}");
        Ok(())
    })?;
    let line = site_of_fleet(fixture, &config, cloud.id)?;
    ensure!(line.contains("unreachable (Liqo: Error)"), "{line}");
    let probes = edgeward.count("edgeward_wan_probes_total", &of_probe)?;
    ensure!(answered()? >= probes, "the probe says so as well");
    drop(frozen);
    goes(fixture, cloud)
}

fn pod(name: &str, cpu: &str) -> Value {
    workloads::pod_of(name, slo(), cpu)
}

/// Waits until a pod that no edge node can hold would go to the cloud.
fn goes(fixture: &Fixture<'_>, cloud: &Provider) -> Result<()> {
    goes_in(&fixture.kubectl, cloud, &pod("asking", "5")).map(drop)
}

fn goes_in(kubectl: &Kubectl, cloud: &Provider, pod: &Value) -> Result<Value> {
    eventually("a pod goes to the cloud", BOUND, || {
        let pod = kubectl.dry_run(pod)?;
        let found = ["site", "reason"].map(|key| annotation(&pod, key));
        ensure!(found == [Some(cloud.id), Some(FULL)], "{found:?}");
        Ok(pod)
    })
}

/// Waits until two pods would have these sites and reasons: a small pod that fits the edge, and a pod that no edge node can hold.
/// edgeward sees Liqo's objects with a short delay.
fn becomes(fixture: &Fixture<'_>, small: [&str; 2], large: [&str; 2]) -> Result<()> {
    let decided = |cpu: &str| {
        let mut pod = pod("", cpu);
        pod["metadata"]["generateName"] = json!("pod-");
        let pod = fixture.kubectl.create(&pod)?;
        anyhow::Ok(["site", "reason"].map(|key| annotation(&pod, key).unwrap_or_default().to_owned()))
    };
    eventually("pods go where their namespace is", BOUND, || {
        ensure!([decided("100m")?, decided("5")?] == [small, large].map(|one| one.map(str::to_owned)));
        Ok(())
    })
}

/// Several virtual nodes of a cluster are one site, with room on each of them.
fn on_two_nodes(fixture: &Fixture<'_>, cloud: &Provider) -> Result<()> {
    // More than half of a node.
    const CPU: &str = "40";
    const NAMES: [&str; 2] = ["wide-1", "wide-2"];
    let mut nodes = BTreeSet::new();
    for name in NAMES {
        goes_in(&fixture.kubectl, cloud, &pod(name, CPU))?;
        let pod = fixture.kubectl.create(&pod(name, CPU))?;
        ensure!(annotation(&pod, "site") == Some(cloud.id), "{pod}");
        let pod = settled(&fixture.kubectl, name)?;
        nodes.extend(pod["spec"]["nodeName"].as_str().map(str::to_owned));
    }
    ensure!(nodes.len() == NAMES.len(), "{nodes:?}");
    ensure!(nodes.iter().all(|node| node.starts_with(cloud.id)), "{nodes:?}");
    let third = fixture.kubectl.dry_run(&pod("wide-3", CPU))?;
    ensure!(annotation(&third, "reason") == Some("cloud_best_effort"), "{third}");
    let args = ["delete", "pod", NAMES[0], NAMES[1], "--now"];
    fixture.kubectl.run(&args, "").map(drop)
}

/// Pods that are placed there get Liqo's RuntimeClass, which the API server accepts.
fn by_runtime_class(fixture: &Fixture<'_>, cloud: &Provider, edgeward: &Edgeward<'_>, without: &Value) -> Result<()> {
    const CLASS: &str = "liqo";
    let mut config = without.clone();
    config["liqo"] = json!({"runtimeClassName": CLASS});
    edgeward.set_config(&config)?;
    eventually("pods get the RuntimeClass", BOUND, || {
        let pod = goes_in(&fixture.kubectl, cloud, &pod("asking", "5"))?;
        ensure!(pod["spec"]["runtimeClassName"] == CLASS, "{pod}");
        Ok(())
    })?;
    fixture.kubectl.create(&pod("of-a-class", "5"))?;
    let placed = settled(&fixture.kubectl, "of-a-class")?;
    let (reason, place, tolerations) = seen(&placed);
    ensure!(
        reason == Some(FULL) && place == super::Place::Cloud && tolerations == 1,
        "{placed}"
    );
    ensure!(placed["spec"]["runtimeClassName"] == CLASS, "{placed}");
    let at_the_edge = fixture.kubectl.dry_run(&pod("small", "100m"))?;
    ensure!(at_the_edge["spec"]["runtimeClassName"].is_null(), "{at_the_edge}");
    edgeward.set_config(without)?;
    eventually("pods get no RuntimeClass", BOUND, || {
        let pod = goes_in(&fixture.kubectl, cloud, &pod("asking", "5"))?;
        ensure!(pod["spec"]["runtimeClassName"].is_null(), "{pod}");
        Ok(())
    })
}

/// The site has a label of its virtual nodes while they agree. The pods' `sites` select by it.
fn by_label(fixture: &Fixture<'_>, cloud: &Provider, edgeward: &Edgeward<'_>, without: &Value) -> Result<()> {
    let mut config = without.clone();
    config["liqo"] = json!({"siteLabels": ["region"]});
    edgeward.set_config(&config)?;
    let nodes = fixture
        .kubectl
        .run(&["get", "virtualnodes", "--all-namespaces", "--output=json"], "")?;
    let nodes: Value = serde_json::from_str(&nodes.stdout)?;
    let nodes: Vec<_> = nodes["items"].as_array().into_iter().flatten().collect();
    ensure!(nodes.len() == 2, "{nodes:?}");
    let label = |node: &Value, region: &str| {
        let [namespace, name] = ["namespace", "name"].map(|field| node["metadata"][field].as_str().unwrap_or_default());
        let patch = json!({"spec": {"labels": {"region": region}}}).to_string();
        let kubectl = fixture.kubectl_in(namespace);
        kubectl.run(&["patch", "virtualnode", name, "--type=merge", "--patch", &patch], "")
    };
    let mut asking = pod("asking", "100m");
    asking["metadata"]["annotations"]["slo.example.io/sites"] = json!("region=eu");
    let becomes = |site: Option<&str>| {
        eventually("the label counts", BOUND, || {
            let pod = fixture.kubectl.dry_run(&asking)?;
            ensure!(annotation(&pod, "site") == site, "{pod}");
            Ok(())
        })
    };
    becomes(None)?;
    for node in &nodes {
        label(node, "eu")?;
    }
    becomes(Some(cloud.id))?;
    label(nodes[0], "us")?;
    becomes(None)?;
    edgeward.set_config(without)
}

/// Without an edge site, a pod that would fit the edge goes to the cloud.
fn without_edge(fixture: &Fixture<'_>, cloud: &Provider, edgeward: &Edgeward<'_>, with: &Value) -> Result<()> {
    edgeward.set_config(&json!({"sites": []}))?;
    let goes = |expected: [&str; 2]| {
        eventually("the fleet has other sites", BOUND, || {
            let pod = fixture.kubectl.dry_run(&pod("small", "100m"))?;
            let found = ["site", "reason"].map(|key| annotation(&pod, key));
            ensure!(found == expected.map(Some), "{pod}");
            Ok(())
        })
    };
    goes([cloud.id, "cloud_pinned_by_pod"])?;
    edgeward.set_config(with)?;
    goes(["edge", "edge_feasible_slo_met"])
}

/// Creates a pod that goes to the cloud, where Liqo may not create pods of this namespace. Returns the pod as created.
fn refused_there(fixture: &Fixture<'_>, cloud: &Provider, namespace: &str, kubectl: &Kubectl) -> Result<Value> {
    fixture.offload(namespace, Strategy::Local)?;
    let there = cloud.kubectl_in(namespace);
    there.create(&json!({
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none"},
        "spec": {"hard": {"count/shadowpods.offloading.liqo.io": "0"}},
    }))?;
    eventually("the quota is in force", BOUND, || {
        let hard = &there.get("resourcequota", "none")?["status"]["hard"];
        ensure!(hard.is_object(), "{hard}");
        Ok(())
    })?;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}});
    let uid = &kubectl.create(&owner)?["metadata"]["uid"];
    let mut stuck = pod("stuck", "5");
    stuck["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "controller": true}]);
    goes_in(kubectl, cloud, &stuck)?;
    kubectl.create(&stuck)
}

/// The pod has no container status, so the cloud is closed to its controller only. An Event from Liqo states the cause.
fn says_nothing(
    fixture: &Fixture<'_>,
    cloud: &Provider,
    edgeward: &Edgeward<'_>,
    kubectl: &Kubectl,
    stuck: &Value,
    config: &Value,
) -> Result<()> {
    eventually("the cloud is closed to a controller", BOUND, || {
        ensure!(edgeward.count("edgeward_closed_controllers", &[("site", cloud.id)])? == 1);
        Ok(())
    })?;
    let mut next = pod("next", "5");
    goes_in(kubectl, cloud, &next)?;
    next["metadata"]["ownerReferences"] = stuck["metadata"]["ownerReferences"].clone();
    let gated = kubectl.dry_run(&next)?;
    ensure!(annotation(&gated, "reason") == Some("cloud_best_effort"), "{gated}");
    let namespace = stuck["metadata"]["namespace"].as_str().context("a namespace")?;
    let why = fleet_command::edgeward(fixture, config, &["why", "stuck", "--namespace", namespace])?;
    let answer = why.stdout.lines().next().context("no answer")?;
    let said = "of site cloud, and waits there: FailedReflection";
    ensure!(answer.contains(said) && answer.contains(" quota: none"), "{answer}");
    Ok(())
}
