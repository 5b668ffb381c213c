//! A second webhook that adds a scheduling gate to a pod that edgeward has placed. Configurations run in the order of their
//! names.

use edgeward_harness::balancer::{Balancer, Connections};
use edgeward_harness::live::EDGE;
use edgeward_harness::prelude::*;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use crate::gated::{goes, pod};

e2e! { "later_gate::later_gate_with_second_call_keeps_site", Domain, later_gate_with_second_call_keeps_site }
/// The pod already carries the label of placed pods. edgeward is therefore called again because of the gate, and another
/// replica answers.
fn later_gate_with_second_call_keeps_site(fixture: &Fixture<'_>) -> Result<()> {
    keeps_its_placement(fixture, true)
}

e2e! { "later_gate::later_gate_without_second_call_keeps_site", Domain, later_gate_without_second_call_keeps_site }
/// A placed pod is not reviewed again. edgeward sees the gate when it observes the pod.
fn later_gate_without_second_call_keeps_site(fixture: &Fixture<'_>) -> Result<()> {
    keeps_its_placement(fixture, false)
}

/// The pod keeps the placement from before its gate and gets no gate of edgeward. Its reservation is withdrawn and not counted
/// as expired. It takes no room until its gate is removed.
fn keeps_its_placement(fixture: &Fixture<'_>, is_asked_again: bool) -> Result<()> {
    let nodes = Nodes::edge_and_cloud(fixture, "1")?;
    // With this configuration no reservation expires during the test.
    let config = nodes.gating(&for_long());
    let replicas = ["first", "second"].map(|name| fixture.live_edgeward_as(name, &config));
    let replicas = replicas.into_iter().collect::<Result<Vec<_>>>()?;
    let (balancer, authorities) = Balancer::before(fixture, &replicas)?;
    let ours = fixture.register(&balancer.url(), &authorities)?;
    let connections = balancer.connections();
    let gating = fixture.test_webhook(move |pod| {
        leave(&connections);
        adds_a_gate(pod)
    })?;
    let _gating = fixture.register_as("zzz-queue", &[&fixture.namespace], &gating.url, &gating.ca)?;

    let decided = |reason: &str| -> Result<Vec<u64>> {
        let count = |replica: &Edgeward<'_>| replica.count("edgeward_reviews_total", &[("reason", reason)]);
        replicas.iter().map(count).collect()
    };
    let reasons = ["edge_feasible_slo_met", "passthrough_reinvocation"];
    let before = reasons.map(decided);
    let mut gated = pod(fixture, "gated", 800, 5);
    if is_asked_again {
        gated["metadata"]["labels"][fixture.key("scheduling.example.io/placed")] = json!("true");
    }
    let stored = fixture.kubectl.create(&gated)?;
    let gates = &stored["spec"]["schedulingGates"];
    ensure!(*gates == json!([{"name": "queue.example/admission"}]), "{stored}");
    let placement = (annotation(&stored, "site"), annotation(&stored, "reason"));
    ensure!(placement == (Some("edge"), Some("edge_feasible_slo_met")), "{stored}");
    ensure!(
        stored["spec"]["nodeSelector"] == nodes.edge_placement()["nodeSelector"],
        "{stored}"
    );
    let rounds = fixture.creation_of(&fixture.namespace, "gated")?.rounds(&ours.name);
    let mut more = Vec::new();
    for (reason, before) in reasons.into_iter().zip(before) {
        let now = decided(reason)?;
        more.push(now.iter().zip(before?).map(|(now, before)| now - before).collect());
    }
    let more: [Vec<u64>; 2] = more.try_into().ok().context("two reasons")?;
    if is_asked_again {
        ensure!(rounds == [(0, true), (1, false)], "{rounds:?}");
        let swapped: Vec<u64> = more[1].iter().rev().copied().collect();
        ensure!(more[0] == swapped && swapped.iter().sum::<u64>() == 1, "{more:?}");
    } else {
        ensure!(rounds == [(0, true)], "{rounds:?}");
    }

    let counts = |name: &str| -> Result<u64> {
        let counts = replicas.iter().map(|replica| replica.count(name, &[]));
        counts.sum()
    };
    eventually("no replica reserves room for it", BOUND, || {
        ensure!(counts("edgeward_reservations")? == 0);
        Ok(())
    })?;
    let expired = counts("edgeward_reservations_expired_total")?;
    ensure!(expired == 0, "{expired} expired");
    let next = pod(fixture, "next", 800, 5);
    is_now(fixture, &next, EDGE)?;
    let why = format!(
        "{} why pod/gated -n {} --config {}",
        fixture.program.display(),
        fixture.namespace,
        fixture.dir.join("first/config.yaml").display()
    );
    let explanation = fixture.shell(&why)?;
    ensure!(
        explanation.contains("gates of others hold it: queue.example/admission"),
        "{explanation}"
    );

    let admit = json!([{"op": "remove", "path": "/spec/schedulingGates/0"}]);
    fixture.kubectl.patch("pod", "gated", &admit, &[])?;
    goes(fixture, &nodes, "gated", "edge", "edge_feasible_slo_met")?;
    eventually("its room is taken", BOUND, || {
        is_now(fixture, &next, "cloud: cloud_edge_no_capacity")
    })
}

/// Another replica answers the next call, because the API server has no connection left to this one.
fn leave(connections: &Connections) {
    block_in_place(|| Handle::current().block_on(connections.cut()));
}

/// Adds a scheduling gate, once, which keeps the pod from kube-scheduler.
fn adds_a_gate(pod: &Value) -> Vec<Value> {
    const GATE: &str = "queue.example/admission";
    let gates = pod["spec"]["schedulingGates"].as_array();
    if gates.is_some_and(|gates| gates.iter().any(|gate| gate["name"] == GATE)) {
        return Vec::new();
    }
    let gate = json!({"name": GATE});
    match gates {
        Some(_) => vec![json!({"op": "add", "path": "/spec/schedulingGates/-", "value": gate})],
        None => vec![json!({"op": "add", "path": "/spec/schedulingGates", "value": [gate]})],
    }
}
