//! Events on pods, as `kubectl get events` shows them.

use edgeward_harness::prelude::*;

e2e! { "events::reported_once", Nodes, 80, reported_once }
/// Two replicas, a handover and a restart: each decision gets one Event, except decisions that kept the pod at the edge.
fn reported_once(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::edge_and_cloud(fixture, "1")?;
    let config = nodes.config();
    let start = |name: &str| fixture.live_edgeward_as(name, &config);
    let leader = start("leader")?;
    eventually("it leads", BOUND, || leader.leads())?;
    let mut other = start("other")?;
    let _registered = fixture.register(&other.url, &other.ca)?;

    create(fixture, "near", 900, "edge_feasible_slo_met")?;
    create(fixture, "far", 900, "cloud_edge_no_capacity")?;
    let event = eventually("the cloud is told", BOUND, || one(fixture, "far", "PlacedCloud"))?;
    ensure!(event["type"] == "Normal" && event["action"] == "Place", "{event:#}");
    let note = event["note"].as_str().unwrap_or_default();
    for part in [
        "sent to site cloud",
        "cloud_edge_no_capacity",
        "deadline 60000 ms",
        "cpu 900m",
        "ETA",
        "RTT",
        "no_room",
    ] {
        ensure!(note.contains(part), "no {part}: {note}");
    }
    let described = fixture.kubectl.run(&["describe", "pod", "far"], "")?.stdout;
    ensure!(described.contains("PlacedCloud"), "{described}");

    let slo = json!({"slo.example.io/class": "latency", "slo.example.io/priority": "11"});
    fixture.kubectl.create(&workloads::pod("wrong", slo))?;
    let event = eventually("the faults are told", BOUND, || one(fixture, "wrong", "InvalidSlo"))?;
    let note = event["note"].as_str().unwrap_or_default();
    ensure!(event["type"] == "Warning", "{event:#}");
    ensure!(note.contains("slo.example.io/priority: \"11\""), "{note}");

    // The next leader writes the same Event as the last one, and finds that it exists.
    leader.terminate()?;
    let duplicates = [("reason", "PlacedCloud"), ("result", "duplicate")];
    eventually("the next leader finds it told", BOUND, || {
        ensure!(other.count("edgeward_events_total", &duplicates)? == 1);
        Ok(())
    })?;
    create(fixture, "further", 900, "cloud_edge_no_capacity")?;
    eventually("the next leader tells", BOUND, || {
        one(fixture, "further", "PlacedCloud")
    })?;

    other.kill()?;
    other.start_again()?;
    create(fixture, "furthest", 900, "cloud_edge_no_capacity")?;
    eventually("it tells after a restart", 2 * BOUND, || {
        one(fixture, "furthest", "PlacedCloud")
    })?;
    for pod in ["far", "further", "furthest"] {
        one(fixture, pod, "PlacedCloud")?;
    }
    one(fixture, "wrong", "InvalidSlo")?;
    let all = ours(fixture)?;
    ensure!(all.len() == 4, "{all:#?}");

    Ok(())
}

fn create(fixture: &Fixture<'_>, name: &str, millicores: u32, reason: &str) -> Result<()> {
    let slo = json!({"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "60000"});
    let pod = workloads::pod_of(name, slo, &format!("{millicores}m"));
    // The observer may be behind with the pod before.
    eventually(&format!("{name} would be {reason}"), BOUND, || {
        let asked = fixture.kubectl.dry_run(&pod)?;
        let decided = &asked["metadata"]["annotations"]["scheduling.example.io/reason"];
        ensure!(decided == reason, "{decided}");
        Ok(())
    })?;
    let created = fixture.kubectl.create(&pod)?;
    let decided = &created["metadata"]["annotations"]["scheduling.example.io/reason"];
    ensure!(decided == reason, "{decided}");
    Ok(())
}

/// The Event of this reason on this pod. Fails unless there is exactly one.
pub(crate) fn one(fixture: &Fixture<'_>, pod: &str, reason: &str) -> Result<Value> {
    let mut events = ours(fixture)?;
    events.retain(|event| event["regarding"]["name"] == pod && event["reason"] == reason);
    ensure!(events.len() <= 1, "{events:#?}");
    events.pop().context("there is none")
}

pub(crate) fn ours(fixture: &Fixture<'_>) -> Result<Vec<Value>> {
    let mut events = fixture.kubectl.list("events.events.k8s.io", "")?;
    events.retain(|event| event["reportingController"] == "edgeward.io/edgeward");
    Ok(events)
}
