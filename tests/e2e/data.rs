//! Pods whose claims are bound to volumes on nodes of either site.

use edgeward_harness::prelude::*;

use crate::commands::fleet_command;
use crate::gated::away::would_be;
use crate::gated::{goes, pod};

/// The test's StorageClass. It binds a volume when the first pod uses it.
fn class(fixture: &Fixture<'_>) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": fixture.namespace},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    })
}

/// A local volume on the nodes of a site, reserved for a claim.
fn volume(fixture: &Fixture<'_>, nodes: &Nodes<'_>, site: &str) -> Value {
    let selector = nodes.selector(site);
    let pairs = selector.as_object().into_iter().flatten();
    let expressions = pairs.map(|(key, value)| json!({"key": key, "operator": "In", "values": [value]}));
    let terms = json!([{"matchExpressions": expressions.collect::<Value>()}]);
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": format!("{}-{site}", fixture.namespace), "labels": {"place": nodes.label(site)}},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": fixture.namespace,
            "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        },
    })
}

/// The claim of a StatefulSet's first pod, for the volume of that site.
fn claim(fixture: &Fixture<'_>, nodes: &Nodes<'_>, set: &str, site: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": format!("data-{set}-0")},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": fixture.namespace,
            "selector": {"matchLabels": {"place": nodes.label(site)}},
            "resources": {"requests": {"storage": "1Gi"}},
        },
    })
}

/// A pod with that claim, as the StatefulSet would create it.
fn with_claim(fixture: &Fixture<'_>, name: &str, set: &str) -> Value {
    let mut pod = pod(fixture, name, 100, 5);
    let claim = json!({"claimName": format!("data-{set}-0")});
    pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": claim}]);
    pod
}

fn stateful_set(fixture: &Fixture<'_>, set: &str) -> Value {
    let pod = pod(fixture, set, 100, 5);
    let labels = json!({"set": set});
    let claims = json!([{
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": fixture.namespace,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }]);
    json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": set},
        "spec": {
            "replicas": 1,
            "serviceName": set,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": pod["metadata"]["annotations"]},
                "spec": pod["spec"],
            },
            "volumeClaimTemplates": claims,
        },
    })
}

/// Waits until the claim of a StatefulSet is bound to the volume of this site.
fn is_bound(fixture: &Fixture<'_>, set: &str, site: &str) -> Result<()> {
    eventually(&format!("the claim of {set} is bound"), BOUND, || {
        let claim = fixture.kubectl.get("persistentvolumeclaim", &format!("data-{set}-0"))?;
        let volume = format!("{}-{site}", fixture.namespace);
        let is_bound = claim["status"]["phase"] == "Bound" && claim["spec"]["volumeName"] == *volume;
        ensure!(is_bound, "{claim}");
        Ok(())
    })
}

/// Deletes the pod at once, through the API server only. kwok might delete the next pod of that name.
fn delete_pod(fixture: &Fixture<'_>, set: &str) -> Result<()> {
    let pod = format!("{set}-0");
    let args = ["delete", "pod", &pod, "--grace-period=0", "--force"];
    fixture.kubectl.run(&args, "").map(drop)
}

e2e! { "data::pod_returns_to_site_of_its_volume", Domain, 99, pod_returns_to_site_of_its_volume }
/// A StatefulSet's pod returns to the site of its bound volume, at the edge and in the cloud, even if another site would be
/// better. While that cloud is away the pod is gated, even beyond its class limit. Then it is placed there.
fn pod_returns_to_site_of_its_volume(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::new(fixture)?;
    let edge = nodes.edge_node("edge-0", "1")?;
    nodes.cloud_node("cloud-0")?;
    fixture.allow_data()?;
    let mut config = nodes.gating(&json!({"latency": "2s", "throughput": "2s", "batch": "2s"}));
    config["probing"] = json!({"period": "1s"});
    config["sites"][1]["storageClasses"] = json!([fixture.namespace]);
    fixture.kubectl.create(&class(fixture))?;
    for (set, site) in [("home", "edge"), ("remote", "cloud")] {
        fixture.kubectl.create(&volume(fixture, &nodes, site))?;
        fixture.kubectl.create(&claim(fixture, &nodes, set, site))?;
    }
    let (_edgeward, _registered) = fixture.registered_live(&config)?;

    fixture.kubectl.create(&stateful_set(fixture, "home"))?;
    goes(fixture, &nodes, "home-0", "edge", "edge_feasible_slo_met")?;
    is_bound(fixture, "home", "edge")?;
    let mut filler = pod(fixture, "filler", 900, 5);
    filler["metadata"]["labels"] = json!({"app": "filler"});
    fixture.kubectl.create(&filler)?;
    goes(fixture, &nodes, "filler", "edge", "edge_feasible_slo_met")?;
    would_be(fixture, &with_claim(fixture, "dry", "remote"), "cloud_edge_no_capacity")?;
    fixture.kubectl.create(&stateful_set(fixture, "remote"))?;
    goes(fixture, &nodes, "remote-0", "cloud", "cloud_edge_no_capacity")?;
    is_bound(fixture, "remote", "cloud")?;

    // The edge has only the pod's own room left, and later room for all.
    would_be(fixture, &with_claim(fixture, "dry", "home"), "edge_pinned_by_pod")?;
    delete_pod(fixture, "home")?;
    goes(fixture, &nodes, "home-0", "edge", "edge_pinned_by_pod")?;
    nodes.resize(&edge, "4")?;
    would_be(fixture, &pod(fixture, "dry", 500, 5), "edge_feasible_slo_met")?;
    would_be(fixture, &with_claim(fixture, "dry", "remote"), "cloud_pinned_by_pod")?;
    delete_pod(fixture, "remote")?;
    goes(fixture, &nodes, "remote-0", "cloud", "cloud_pinned_by_pod")?;

    let ours = fixture.edgeward_kubeconfig();
    let fleet = fleet_command::edgeward_as(&ours, fixture, &config, &["fleet", "--output=yaml"])?.stdout;
    for lists in ["persistentVolumeClaims:", "persistentVolumes:", "storageClasses:"] {
        ensure!(fleet.contains(lists), "{lists}: {fleet}");
    }

    nodes.resize(&edge, "1")?;
    nodes.wan.close();
    // The only site with its data gets the pod, however bad its WAN is.
    would_be(fixture, &pod(fixture, "dry", 500, 5), "edge_wan_unreachable")?;
    delete_pod(fixture, "remote")?;
    goes(fixture, &nodes, "remote-0", "cloud", "cloud_pinned_by_pod")?;
    let placed = fixture.kubectl.get("pod", "remote-0")?;
    let tolerations = placed["spec"]["tolerations"].as_array().context("tolerations")?;
    let is_of_cloud = |toleration: &Value| toleration["key"] == "cloud";
    ensure!(tolerations.iter().any(is_of_cloud), "{placed}");

    // The StatefulSets would create their pods again.
    let sets = ["delete", "statefulset", "home", "remote"];
    fixture.kubectl.run(&sets, "")?;
    let volumes = ["edge", "cloud"].map(|site| format!("persistentvolume/{}-{site}", fixture.namespace));
    let class = format!("storageclass/{}", fixture.namespace);
    let args = ["delete", "--wait=false", &volumes[0], &volumes[1], &class];
    fixture.kubectl.run(&args, "").map(drop)
}
