//! Pods behind edgeward's gate, and how they leave it.
//!
//! The leader releases every pod behind the gate of its domain, so each of these tests has a domain of its own.

pub(crate) mod away;
pub(crate) mod gate;
pub(crate) mod history;
pub(crate) mod queue;
pub(crate) mod release;
pub(crate) mod sites;
pub(crate) mod traits;

use edgeward_harness::decision::slo;
use edgeward_harness::prelude::*;

use crate::leader::events;

/// A pod of class batch that requests these millicores.
pub(crate) fn pod(fixture: &Fixture<'_>, name: &str, millicores: u32, slo_priority: u32) -> Value {
    let slo = json!({
        "slo.example.io/class": "batch",
        "slo.example.io/deadlineMs": "600000",
        "slo.example.io/priority": slo_priority.to_string(),
    });
    let mut pod = workloads::pod(name, slo);
    pod["metadata"]["labels"] = json!({"app": "gated"});
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(format!("{millicores}m"));
    fixture.in_its_domain(pod)
}

/// Creates a pod that fills an edge node of one core, and waits until it runs there.
pub(crate) fn fill(fixture: &Fixture<'_>, nodes: &Nodes<'_>) -> Result<()> {
    let pod = pod(fixture, "filler", 1000, 5);
    ends(fixture, nodes, &pod, "edge", "edge_feasible_slo_met")
}

/// Creates a pod and waits until it runs at this site for this reason.
pub(crate) fn ends(fixture: &Fixture<'_>, nodes: &Nodes<'_>, pod: &Value, site: &str, reason: &str) -> Result<()> {
    let name = pod["metadata"]["name"].as_str().context("a name")?;
    fixture.kubectl.create(pod)?;
    goes(fixture, nodes, name, site, reason)
}

pub(crate) fn goes(fixture: &Fixture<'_>, nodes: &Nodes<'_>, name: &str, site: &str, reason: &str) -> Result<()> {
    eventually(&format!("{name} runs: {site}: {reason}"), BOUND, || {
        let pod = fixture.kubectl.get("pod", name)?;
        let found = (nodes.site_of(&pod), annotation(&pod, "reason"));
        ensure!(found == (Some(site), Some(reason)), "{found:?} {}", pod["status"]);
        ensure!(
            annotation(&pod, "site") == Some(site),
            "{}",
            pod["metadata"]["annotations"]
        );
        Ok(())
    })
}

/// Waits until a pod is gated for this reason, and the API server reports it as gated.
pub(crate) fn is_gated_for(fixture: &Fixture<'_>, name: &str, reason: &str) -> Result<()> {
    eventually(&format!("{name} is gated"), BOUND, || {
        let pod = fixture.kubectl.get("pod", name)?;
        ensure!(is_gated(&pod) && annotation(&pod, "reason") == Some(reason), "{pod}");
        ensure!(
            annotation(&pod, "timestamp").is_some() && annotation(&pod, "site").is_none(),
            "{pod}"
        );
        ensure!(
            pod["status"]["conditions"][0]["reason"] == "SchedulingGated",
            "{}",
            pod["status"]
        );
        Ok(())
    })
}

e2e! { "gated::gated_pods_release_in_queue_order", Domain, 88, gated_pods_release_in_queue_order }
/// The edge is full and no cloud answers, so 50 pods are gated. Room appears step by step. It goes to as many pods as fit, in
/// the order of their priority and age. The leader is killed midway, and another replica continues.
fn gated_pods_release_in_queue_order(fixture: &Fixture<'_>) -> Result<()> {
    const PODS: u32 = 50;
    let (nodes, node) = Nodes::without_wan(fixture)?;
    let config = nodes.gating(&for_long());
    let mut pair = vec![
        fixture.live_edgeward_as("first", &config)?,
        fixture.live_edgeward_as("second", &config)?,
    ];
    let _registered = fixture.register(&pair[0].url, &pair[0].ca)?;
    fill(fixture, &nodes)?;

    for i in 0..PODS {
        fixture
            .kubectl
            .create(&pod(fixture, &format!("gated-{i}"), 100, i * 7 % 11))?;
    }
    tells(fixture, "Gated", PODS)?;
    eventually("all are gated, and every replica knows", BOUND, || {
        let pods = fixture.kubectl.list("pods", "app=gated")?;
        let gated = pods
            .iter()
            .filter(|pod| is_gated(pod) && annotation(pod, "reason") == Some("held_no_capacity"));
        ensure!(gated.count() == PODS as usize);
        for edgeward in &pair {
            ensure!(edgeward.count("edgeward_gated_pods", &[])? == u64::from(PODS));
        }
        Ok(())
    })?;

    for (step, cpu) in ["1500m", "2", "3", "6"].iter().enumerate() {
        if step == 2 {
            let leader = eventually("one leads", BOUND, || {
                let mut pair = pair.iter();
                pair.position(|edgeward| edgeward.leads().is_ok())
                    .context("nobody leads")
            })?;
            pair[leader].kill()?;
            pair.remove(leader);
        }
        nodes.resize(&node, cpu)?;
        let released = match step {
            0 => 5,
            1 => 10,
            2 => 20,
            _ => PODS as usize,
        };
        eventually(
            &format!("{released} have run since there are {cpu} cores"),
            BOUND,
            || have_run(fixture, released),
        )?;
    }
    tells(fixture, "Released", PODS)?;
    tells(fixture, "Gated", PODS)
}

/// Waits until there are Events of this reason for this many pods, one for each.
fn tells(fixture: &Fixture<'_>, reason: &str, pods: u32) -> Result<()> {
    eventually(&format!("{reason} is told of {pods}"), BOUND, || {
        let events = events::ours(fixture)?;
        let told = events.iter().filter(|event| event["reason"] == reason);
        let told: Vec<_> = told.map(|event| event["regarding"]["name"].as_str()).collect();
        let distinct = told.iter().collect::<BTreeSet<_>>().len();
        ensure!(
            (told.len(), distinct) == (pods as usize, pods as usize),
            "{} Events, {distinct} pods",
            told.len()
        );
        Ok(())
    })
}

/// Fails unless as many pods are released and run, and no gated pod ranks before a released one.
pub(crate) fn have_run(fixture: &Fixture<'_>, count: usize) -> Result<()> {
    let pods = fixture.kubectl.list("pods", "app=gated")?;
    let pods = pods.iter().filter(|pod| pod["metadata"]["name"] != "filler");
    let (gated, free): (Vec<&Value>, Vec<&Value>) = pods.partition(|pod| is_gated(pod));
    let running = free.iter().filter(|pod| pod["status"]["phase"] == "Running").count();
    ensure!(
        (free.len(), running) == (count, count),
        "{} free, {running} run",
        free.len()
    );
    in_order(&free, &gated)
}

fn in_order(free: &[&Value], gated: &[&Value]) -> Result<()> {
    let queue_key = |pod: &&Value| {
        let priority: i32 = slo(pod, "priority").and_then(|text| text.parse().ok()).unwrap_or(0);
        let created = pod["metadata"]["creationTimestamp"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        (-priority, created)
    };
    let (last, first) = (free.iter().map(queue_key).max(), gated.iter().map(queue_key).min());
    ensure!(
        first.is_none() || last <= first,
        "{last:?} was released, {first:?} is gated"
    );
    Ok(())
}

e2e! { "gated::wan_recovery_releases_to_cloud", Domain, wan_recovery_releases_to_cloud }
/// Pods are gated while the WAN is down, and go to the cloud when it returns. After the class limit they go to the edge anyway.
/// Pods for which waiting cannot help are not gated.
fn wan_recovery_releases_to_cloud(fixture: &Fixture<'_>) -> Result<()> {
    let (nodes, _) = Nodes::without_wan(fixture)?;
    let limits = json!({"latency": "30s", "throughput": "1h", "batch": "1h"});
    let config = nodes.gating(&limits);
    let (_edgeward, _registered) = fixture.registered_live(&config)?;
    fill(fixture, &nodes)?;

    fixture.kubectl.create(&pod(fixture, "patient", 500, 5))?;
    is_gated_for(fixture, "patient", "held_no_capacity")?;
    let mut urgent = pod(fixture, "urgent", 300, 5);
    urgent["metadata"]["annotations"][fixture.key("slo.example.io/class")] = json!("latency");
    fixture.kubectl.create(&urgent)?;
    eventually("its time is over", BOUND, || {
        let pod = fixture.kubectl.get("pod", "urgent")?;
        ensure!(annotation(&pod, "reason") == Some("released_timeout"), "{pod}");
        ensure!(annotation(&pod, "site") == Some("edge") && !is_gated(&pod), "{pod}");
        Ok(())
    })?;

    let never = |name: &str| pod(fixture, name, 500, 5);
    let mut local = never("local");
    local["metadata"]["annotations"][fixture.key("slo.example.io/offloadAllowed")] = json!("false");
    let mut large = never("large");
    large["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2000");
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "gated-important"}, "value": 1000});
    fixture.kubectl.create(&class)?;
    let mut important = never("important");
    important["spec"]["priorityClassName"] = json!("gated-important");
    for (pod, reason) in [
        (local, "edge_offload_not_allowed"),
        (large, "edge_too_large"),
        (important, "edge_wan_unreachable"),
    ] {
        // The API server may not know the PriorityClass yet. The cloud's node may still grow until it is a minute old.
        eventually("it would be decided so", 2 * BOUND, || {
            let created = fixture.kubectl.dry_run(&pod)?;
            ensure!(!is_gated(&created), "{created}");
            ensure!(annotation(&created, "reason") == Some(reason), "{created}");
            Ok(())
        })?;
    }
    fixture
        .kubectl
        .run(&["delete", "priorityclass", "gated-important"], "")?;

    nodes.wan.reopen()?;
    goes(fixture, &nodes, "patient", "cloud", "cloud_edge_no_capacity")?;
    let pod = fixture.kubectl.get("pod", "patient")?;
    let cost = &pod["metadata"]["annotations"]["controller.kubernetes.io/pod-deletion-cost"];
    ensure!(cost == "-100", "{pod}");

    let told = |pod: &str, reason: &str, parts: &[&str]| {
        let what = format!("{reason} is told of {pod}");
        let event = eventually(&what, BOUND, || events::one(fixture, pod, reason))?;
        let note = event["note"].as_str().unwrap_or_default();
        ensure!(parts.iter().all(|part| note.contains(part)), "{note}");
        Ok(())
    };
    told(
        "patient",
        "Gated",
        &[
            "held_no_capacity",
            "cpu 500m",
            "it has no room (no_room)",
            "nothing answers there (unreachable)",
        ],
    )?;
    told(
        "patient",
        "Released",
        &["released to site cloud", "cloud_edge_no_capacity", "RTT"],
    )?;
    told("urgent", "Gated", &["held_no_capacity", "cpu 300m"])?;
    told("urgent", "Released", &["released to site edge", "released_timeout"])?;
    told(
        "urgent",
        "SloAtRisk",
        &["may miss its SLO at site edge", "released_timeout"],
    )?;
    let at_risk = events::ours(fixture)?;
    let at_risk = at_risk.iter().filter(|event| event["reason"] == "SloAtRisk").count();
    ensure!(at_risk == 1, "{at_risk}");
    Ok(())
}

e2e! { "gated::foreign_gate_delays_decision", Domain, foreign_gate_delays_decision }
/// A pod with other gates is decided when edgeward's gate is its last one. Its own node constraints stay. If its namespace
/// loses the label, the pod only loses edgeward's gate.
fn foreign_gate_delays_decision(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::edge_and_cloud(fixture, "1")?;
    let (_edgeward, _registered) = fixture.registered_live(&nodes.gating(&for_long()))?;
    let mut queued = pod(fixture, "queued", 500, 5);
    queued["spec"]["schedulingGates"] = json!([{"name": "queue.example/admission"}]);
    queued["spec"]["affinity"] = nodes.affinity();
    let stored = fixture.kubectl.create(&queued)?;
    is_gated_for(fixture, "queued", "held_foreign_gate")?;
    let gates = &stored["spec"]["schedulingGates"];
    ensure!(
        *gates
            == json!([{"name": "queue.example/admission"}, {"name": fixture.key("scheduling.example.io/awaiting-capacity")}])
    );

    let admit = json!([{"op": "remove", "path": "/spec/schedulingGates/0"}]);
    let remove_first_gate = |name: &str| fixture.kubectl.patch("pod", name, &admit, &[]);
    remove_first_gate("queued")?;
    goes(fixture, &nodes, "queued", "edge", "edge_feasible_slo_met")?;
    let pod_now = fixture.kubectl.get("pod", "queued")?;
    ensure!(pod_now["spec"]["affinity"] == stored["spec"]["affinity"], "{pod_now}");

    let mut left = queued.clone();
    left["metadata"]["name"] = json!("left");
    let before = fixture.kubectl.create(&left)?;
    is_gated_for(fixture, "left", "held_foreign_gate")?;
    let unmanaged = format!("{}-", fixture.key(MANAGED));
    fixture
        .kubectl
        .run(&["label", "namespace", &fixture.namespace, &unmanaged], "")?;
    let after = eventually("our gate is gone", BOUND, || {
        let pod = fixture.kubectl.get("pod", "left")?;
        ensure!(!is_gated(&pod), "{pod}");
        Ok(pod)
    })?;
    let rest = |pod: &Value| -> BTreeMap<String, Value> {
        let fields = pod["spec"].as_object().into_iter().flatten();
        let fields = fields.filter(|(name, _)| *name != "schedulingGates");
        fields.map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    ensure!(rest(&before) == rest(&after), "{after}");
    ensure!(
        after["spec"]["schedulingGates"] == json!([{"name": "queue.example/admission"}]),
        "{after}"
    );
    Ok(())
}
