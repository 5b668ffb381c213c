//! A virtual node that promises more than the cluster behind it has. The test writes the statuses that a virtual kubelet would
//! mirror.

use edgeward_harness::live::pod;
use edgeward_harness::prelude::*;

use super::{CLOUD, EDGE, fill, would_be};

/// Outcome if neither site has room and pods are not gated.
const NOWHERE: &str = "edge: edge_no_capacity";

const NO_ROOM: &str = "0/4 nodes are available: 1 node(s) had untolerated taint {a: b}, 3 Insufficient cpu. preemption: 0/4 nodes \
    are available: 1 Preemption is not helpful for scheduling, 3 No preemption victims found for incoming pod.";

const NO_PLACE: &str =
    "0/4 nodes are available: 1 node(s) didn't match pod topology spread constraints, 3 Insufficient cpu.";

e2e! { "live::full_cloud", Nodes, full_cloud }
/// The first lack of room that the remote cluster reports closes the cloud to pods of that size. Any other message closes it
/// only to the pod's controller.
pub(crate) fn full_cloud(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::new(fixture)?;
    nodes.edge_node("edge-0", "1")?;
    let cloud = nodes.cloud_node("cloud-0")?;
    nodes.leave_alone(&cloud)?;
    let (edgeward, _registered) = fixture.registered_live(&nodes.config())?;
    would_be(fixture, 900, EDGE)?;
    fill(fixture, "fills-the-edge", 900, EDGE)?;
    would_be(fixture, 500, CLOUD)?;

    let refused = || edgeward.count("edgeward_site_refused_pods", &[("site", "cloud")]);
    // The remote cluster gives the second container a default request, which is unknown here.
    let mut defaulted = pod(fixture, "defaulted", 200);
    let silent = json!({"name": "silent", "image": "registry.example/app:1"});
    let containers = defaulted["spec"]["containers"]
        .as_array_mut()
        .context("no containers")?;
    containers.push(silent);
    send(fixture, &defaulted)?;
    says(fixture, "defaulted", NO_ROOM)?;
    send(fixture, &pod(fixture, "odd", 500))?;
    says(fixture, "odd", NO_PLACE)?;
    let mut owned = pod(fixture, "owned", 500);
    owned["metadata"]["ownerReferences"] = owner(fixture, "one")?;
    send(fixture, &owned)?;
    says(fixture, "owned", NO_PLACE)?;
    let mut sibling = pod(fixture, "asking", 200);
    sibling["metadata"]["ownerReferences"] = owned["metadata"]["ownerReferences"].clone();
    eventually("the cloud is closed to one controller", BOUND, || {
        is_now(fixture, &sibling, NOWHERE)
    })?;
    sibling["metadata"]["ownerReferences"] = owner(fixture, "other")?;
    is_now(fixture, &sibling, CLOUD)?;
    would_be(fixture, 500, CLOUD)?;
    ensure!(refused()? == 0, "{} pods", refused()?);

    send(fixture, &pod(fixture, "first", 500))?;
    says(fixture, "first", NO_ROOM)?;
    would_be(fixture, 500, NOWHERE)?;
    would_be(fixture, 499, CLOUD)?;
    ensure!(refused()? == 1, "{} pods", refused()?);

    // The pod finds room, so other pods may go there again.
    let status = json!({
        "phase": "Running",
        "conditions": [{"type": "PodScheduled", "status": "True"}],
        "containerStatuses": [{"name": "app", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}}}],
    });
    fixture.kubectl.patch_status("pod", "first", &status)?;
    eventually("nobody waits there", BOUND, || {
        let pods = refused()?;
        ensure!(pods == 0, "{pods} wait");
        Ok(())
    })?;
    would_be(fixture, 500, CLOUD)
}

/// Creates a pod that goes to the cloud, and waits until it is bound there.
fn send(fixture: &Fixture<'_>, pod: &Value) -> Result<()> {
    let created = fixture.kubectl.create(pod)?;
    let name = created["metadata"]["name"].as_str().context("no name")?;
    ensure!(outcome(&created)? == CLOUD, "{name}: {}", outcome(&created)?);
    eventually(&format!("{name} is bound"), BOUND, || {
        let node = &fixture.kubectl.get("pod", name)?["spec"]["nodeName"];
        ensure!(node.is_string(), "{node}");
        Ok(())
    })
}

/// Writes the remote scheduler's message about the pod.
fn says(fixture: &Fixture<'_>, name: &str, message: &str) -> Result<()> {
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message});
    let status = json!({"phase": "Pending", "conditions": [condition]});
    fixture.kubectl.patch_status("pod", name, &status)
}

/// Creates a controller. Without it the garbage collector would delete its pods.
fn owner(fixture: &Fixture<'_>, name: &str) -> Result<Value> {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
    let uid = &fixture.kubectl.create(&object)?["metadata"]["uid"];
    Ok(json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "controller": true}]))
}
