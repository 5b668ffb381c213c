//! Pods in a namespace that has not opted in do not affect decisions for other namespaces.

use edgeward_harness::live::{EDGE, pod};
use edgeward_harness::prelude::*;

use super::{CLOUD, fill, would_be};
use crate::leader::events;

e2e! { "live::unmanaged_namespace_changes_no_decision", Nodes, 83, unmanaged_namespace_changes_no_decision }
/// Slow Jobs of the same class, forged decisions, and pods whose ResourceClaim does not exist.
fn unmanaged_namespace_changes_no_decision(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::new(fixture)?;
    nodes.edge_node("edge-0", "2")?;
    let idle = nodes.edge_node("edge-1", "100m")?;
    nodes.leave_alone(&idle)?;
    nodes.cloud_node("cloud-0")?;
    let (_edgeward, _registered) = fixture.registered_live(&nodes.config())?;
    let (_, others) = fixture.another_namespace("others", json!({}))?;
    would_be(fixture, 900, EDGE)?;

    slow_jobs(fixture, &others, &idle)?;
    forged_decisions(fixture, &others)?;
    // Pods are seen in the order of their events.
    fill(fixture, "later", 900, EDGE)?;
    would_be(fixture, 1200, CLOUD)?;
    would_be(fixture, 500, EDGE)?;
    fill(fixture, "far", 1200, CLOUD)?;
    eventually("the decision has an Event", BOUND, || {
        events::one(fixture, "far", "PlacedCloud")
    })?;
    let mut about = others.list("events.events.k8s.io", "")?;
    about.retain(|event| event["reportingController"] == "edgeward.io/edgeward");
    ensure!(about.is_empty(), "{about:#?}");

    // These pods charge an assumed node for 30 s at most.
    for number in 0..2 {
        let mut pod = pod(fixture, &format!("claims-{number}"), 500);
        pod["spec"]["nodeSelector"] = nodes.selector("edge");
        pod["spec"]["tolerations"] = json!([nodes.toleration()]);
        pod["spec"]["resourceClaims"] = json!([{"name": "device", "resourceClaimName": "none"}]);
        others.create(&pod)?;
    }
    fixture.kubectl.run(&["delete", "pod", "later", "--wait=false"], "")?;
    would_be(fixture, 1900, EDGE)?;

    // In the opted-in namespace the Jobs count.
    slow_jobs(fixture, &fixture.kubectl, &idle)?;
    would_be(fixture, 500, "cloud: cloud_edge_deadline_missed")
}

/// Five pods of a Job that took ten minutes each.
fn slow_jobs(fixture: &Fixture<'_>, kubectl: &Kubectl, node: &str) -> Result<()> {
    let container = json!({"name": "app", "image": "registry.example/app:1"});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [container]}});
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "slow"},
        "spec": {"managedBy": "example.com/nobody", "template": template},
    });
    let uid = kubectl.create(&job)?["metadata"]["uid"].clone();
    let finished = jiff::Timestamp::from_second(jiff::Timestamp::now().as_second())?;
    let started = finished - jiff::SignedDuration::from_mins(10);
    for number in 0..5 {
        let name = format!("slow-{number}");
        let mut pod = pod(fixture, &name, 1);
        pod["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "slow", "uid": uid, "controller": true}]);
        pod["spec"]["nodeName"] = json!(node);
        pod["spec"]["restartPolicy"] = json!("Never");
        kubectl.create(&pod)?;
        let ended = json!({"exitCode": 0, "startedAt": started.to_string(), "finishedAt": finished.to_string()});
        let container = json!({
            "name": "app", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": ended},
        });
        let status = json!({"phase": "Succeeded", "containerStatuses": [container]});
        kubectl.patch_status("pod", &name, &status)?;
    }
    Ok(())
}

/// Pods with forged decision annotations.
fn forged_decisions(fixture: &Fixture<'_>, kubectl: &Kubectl) -> Result<()> {
    for number in 0..20 {
        let mut pod = pod(fixture, &format!("forged-{number}"), 1);
        pod["spec"]["schedulingGates"] = json!([{"name": "example.com/never"}]);
        let decision = [
            ("decision", "cloud".to_owned()),
            ("site", "cloud".to_owned()),
            ("reason", "cloud_edge_no_capacity".to_owned()),
            ("timestamp", jiff::Timestamp::now().to_string()),
            ("decision-id", format!("00000000-0000-4000-8000-{number:012}")),
        ];
        for (key, value) in decision {
            pod["metadata"]["annotations"][format!("scheduling.example.io/{key}")] = json!(value);
        }
        kubectl.create(&pod)?;
    }
    Ok(())
}
