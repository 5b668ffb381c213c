//! `edgeward release` and its kubectl equivalent. After edgeward is uninstalled, no pod is left behind its gate.

use edgeward_harness::documentation::script;
use edgeward_harness::prelude::*;

use crate::commands::fleet_command::edgeward;

/// A domain of its own, so that pods which other tests gate are left alone.
const GATE: &str = "scheduling.release.example/awaiting-capacity";

const FOREIGN: &str = "queue.example/admitted";

const NAMESPACES: usize = 2;

const PODS: usize = 25;

fn config() -> Value {
    json!({"domain": "release.example"})
}

/// Pod `i`. No node fits it, so its release changes nothing else. Every third pod has a foreign gate, before or after
/// edgeward's. The first pod has an affinity.
fn pod(i: usize) -> Value {
    let mut pod = workloads::pod(&format!("gated-{i}"), json!({}));
    let gates: &[&str] = match i % 6 {
        0 => &[FOREIGN, GATE],
        3 => &[GATE, FOREIGN],
        _ => &[GATE],
    };
    pod["spec"]["schedulingGates"] = gates.iter().map(|name| json!({"name": name})).collect();
    pod["spec"]["nodeSelector"] = json!({"release.example/nowhere": "true"});
    if i == 0 {
        let term = json!({"matchExpressions": [{"key": "disk", "operator": "In", "values": ["fast"]}]});
        let required = json!({"nodeSelectorTerms": [term]});
        pod["spec"]["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
    }
    pod
}

/// Creates the gated pods of a namespace, and one with foreign gates only.
fn hold(kubectl: &Kubectl) -> Result<()> {
    let mut pods: Vec<_> = (0..PODS).map(pod).collect();
    let mut other = pod(0);
    other["metadata"]["name"] = json!("foreign");
    other["spec"]["schedulingGates"] = json!([{"name": FOREIGN}]);
    pods.push(other);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": pods});
    kubectl.run(&["create", "-f", "-"], &list.to_string()).map(drop)
}

fn pods(kubectl: &Kubectl) -> Result<Vec<Value>> {
    let pods = kubectl.list("pods", "")?.into_iter();
    let written = pods.map(|pod| {
        json!({
            "name": pod["metadata"]["name"],
            "labels": pod["metadata"]["labels"],
            "annotations": pod["metadata"]["annotations"],
            "spec": pod["spec"],
        })
    });
    Ok(written.collect())
}

fn without_gate(pods: &[Value]) -> Vec<Value> {
    let mut pods = pods.to_vec();
    for spec in pods.iter_mut().filter_map(|pod| pod["spec"].as_object_mut()) {
        if let Some(gates) = spec.get_mut("schedulingGates").and_then(Value::as_array_mut) {
            gates.retain(|gate| gate["name"] != GATE);
            if gates.is_empty() {
                spec.remove("schedulingGates");
            }
        }
    }
    pods
}

fn ensure_same(after: &[Value], expected: &[Value]) -> Result<()> {
    ensure!(after.len() == expected.len(), "{} pods", after.len());
    for (after, expected) in after.iter().zip(expected) {
        ensure!(after == expected, "{after:#}\nand not\n{expected:#}");
    }
    Ok(())
}

e2e! { "release::uninstall", Nodes, uninstall }
/// Every gated pod of every namespace loses edgeward's gate and nothing else. After that there is nothing to do.
pub(crate) fn uninstall(fixture: &Fixture<'_>) -> Result<()> {
    let (other, in_other) = fixture.another_namespace("other", json!({}))?;
    let namespaces = [&fixture.kubectl, &in_other];
    for kubectl in namespaces {
        hold(kubectl)?;
    }
    let before = [pods(namespaces[0])?, pods(namespaces[1])?];
    ensure!(
        before.iter().all(|pods| *pods != without_gate(pods)),
        "nothing is gated"
    );

    let one = edgeward(fixture, &config(), &["release", "gated-7", "foreign", "-n", &other])?;
    ensure!(one.succeeded, "{}{}", one.stdout, one.stderr);
    let expected =
        format!("{other}/gated-7 released\n{other}/foreign already free\n1 released, 1 already free, 0 failed: ");
    ensure!(one.stdout.starts_with(&expected), "{}", one.stdout);
    let missing = edgeward(fixture, &config(), &["release", "nobody", "-n", &other])?;
    let expected = format!("{other}/nobody failed: there is no such pod\n");
    ensure!(
        !missing.succeeded && missing.stdout.starts_with(&expected),
        "{}{}",
        missing.stdout,
        missing.stderr
    );

    // A gate that may belong to another edgeward.
    let mut elsewhere = pod(1);
    elsewhere["metadata"]["name"] = json!("elsewhere");
    elsewhere["spec"]["schedulingGates"] = json!([{"name": "scheduling.elsewhere.example/awaiting-capacity"}]);
    in_other.create(&elsewhere)?;
    let all = edgeward(fixture, &config(), &["release", "--all"])?;
    ensure!(all.succeeded, "{}{}", all.stdout, all.stderr);
    let said = "by the gate of the domain elsewhere.example, which another edgeward may have; to release them: \
                edgeward release --all --domain elsewhere.example\n";
    ensure!(all.stderr.contains(said), "{}", all.stderr);
    in_other.run(&["delete", "pod", "elsewhere", "--now"], "")?;
    let released = all.stdout.lines().filter(|line| line.ends_with(" released")).count();
    ensure!(released == NAMESPACES * PODS - 1, "{}", all.stdout);
    let expected = format!("\n{released} released, 0 already free, 0 failed: https://");
    ensure!(all.stdout.contains(&expected), "{}", all.stdout);
    for (kubectl, before) in namespaces.iter().zip(&before) {
        ensure_same(&pods(kubectl)?, &without_gate(before))?;
    }

    let again = edgeward(fixture, &config(), &["release", "--all"])?;
    let expected = "0 released, 0 already free, 0 failed: ";
    ensure!(again.succeeded && again.stdout.starts_with(expected), "{again:?}");
    Ok(())
}

e2e! { "release::documented_kubectl_removes_own_gate", Nodes, documented_kubectl_removes_own_gate }
/// The lines of docs/guide/operate.md do this with kubectl only.
fn documented_kubectl_removes_own_gate(fixture: &Fixture<'_>) -> Result<()> {
    const OURS: &str = "scheduling.kubectl.example/awaiting-capacity";
    let script = script("operate.md", "gate=")?;
    let script = script.replace("scheduling.example.io/awaiting-capacity", OURS);
    ensure!(script.contains(OURS), "{script}");

    let gates_before = [json!([{"name": FOREIGN}, {"name": OURS}]), json!([{"name": OURS}])];
    let gates_after = [json!([{"name": FOREIGN}]), Value::Null];
    for (i, gates) in gates_before.iter().enumerate() {
        let mut pod = pod(i);
        pod["spec"]["schedulingGates"] = gates.clone();
        fixture.kubectl.create(&pod)?;
    }
    fixture.shell(&script)?;
    for (i, gates) in gates_after.iter().enumerate() {
        let spec = &fixture.kubectl.get("pod", &format!("gated-{i}"))?["spec"];
        ensure!(spec["schedulingGates"] == *gates, "{spec}");
    }
    Ok(())
}
