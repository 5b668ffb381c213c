//! edgeward is killed during its work and started again.

use std::thread::{self, ScopedJoinHandle};

use edgeward_harness::clients::{LABEL, PODS, create, millicores};
use edgeward_harness::live::EDGE;
use edgeward_harness::prelude::*;

use super::{CLOUD, would_be};

const NODES: usize = 6;
const NODE_MILLICORES: u64 = 20_000;

/// Number of burst pods when edgeward is killed, and when it is started again.
const KILLED_AT: usize = PODS / 5;
const HALF: usize = PODS / 2;

e2e! { "live::restart", Domain, 95, restart }
/// edgeward is killed during a burst, with open reservations. Each pod carries a complete decision or none. The restarted
/// edgeward charges the existing pods and decides the rest. No reservation outlives its pod.
pub(crate) fn restart(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::new(fixture)?;
    let cpu = format!("{NODE_MILLICORES}m");
    let edge = (0..NODES).map(|i| nodes.edge_node(&format!("edge-{i}"), &cpu));
    let edge = edge.collect::<Result<Vec<_>>>()?;
    nodes.cloud_node("cloud-0")?;
    let mut config = nodes.config();
    // So long that a reservation ends only when its pod is seen.
    config["reservationTTL"] = json!("1h");
    let mut edgeward = fixture.live_edgeward(&config)?;
    let _registered = fixture.register(&edgeward.url, &edgeward.ca)?;

    let slo = json!({"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "600000"});
    let slo = fixture.in_its_domain(slo);
    // The affinity keeps undecided pods on these nodes too.
    let spec = json!({"affinity": nodes.affinity(), "tolerations": [nodes.toleration()]});
    let before = edgeward.reviews()?;
    thread::scope(|scope| {
        let creating = scope.spawn(|| create(fixture, 0..HALF, &slo, &spec));
        eventually("it is in the middle, with reservations open", BOUND, || {
            let (reviews, open) = (edgeward.reviews()? - before, open(&edgeward)?);
            ensure!(
                reviews >= KILLED_AT as u64 && open > 0,
                "{reviews} reviews, {open} open"
            );
            Ok(())
        })?;
        edgeward.kill()?;
        joined(creating)
    })?;
    let pods = all_bound(fixture, HALF)?;
    let decided = decided(&pods)?;
    ensure!(
        (1..HALF).contains(&decided),
        "{decided} of {HALF} decided: not killed in the middle"
    );

    edgeward.start_again()?;
    charges(&edgeward, &pods)?;

    let most = thread::scope(|scope| {
        let creating = scope.spawn(|| create(fixture, HALF..PODS, &slo, &spec));
        let mut most = 0;
        while !creating.is_finished() {
            most = open(&edgeward)?.max(most);
        }
        joined(creating)?;
        anyhow::Ok(most)
    })?;
    ensure!(most > 0, "nothing was reserved");
    let pods = all_bound(fixture, PODS)?;
    let undecided = PODS - self::decided(&pods)?;
    ensure!(
        undecided == HALF - decided,
        "{undecided} undecided, {decided} of the first {HALF} decided"
    );
    eventually("no reservation is open", BOUND, || {
        let open = open(&edgeward)?;
        ensure!(open == 0, "{open} of {most}");
        Ok(())
    })?;
    charges(&edgeward, &pods)?;

    // Checks the exact charge of each node. One millicore too many would change the largest gap.
    let on = |node: &String| {
        let there = pods.iter().filter(|pod| pod["spec"]["nodeName"] == node.as_str());
        there.map(millicores).sum::<u64>()
    };
    let gap = edge.iter().map(|node| NODE_MILLICORES - on(node)).max();
    let gap = u32::try_from(gap.unwrap_or_default())?;
    would_be(fixture, gap, EDGE)?;
    would_be(fixture, gap + 1, CLOUD)
}

/// Number of unconfirmed reservations.
fn open(edgeward: &Edgeward<'_>) -> Result<u64> {
    edgeward.count("edgeward_reservations", &[])
}

fn joined(creating: ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    match creating.join() {
        Ok(created) => created,
        Err(_) => bail!("the thread that creates pods has panicked"),
    }
}

fn all_bound(fixture: &Fixture<'_>, count: usize) -> Result<Vec<Value>> {
    eventually("every pod has a node", 2 * BOUND, || {
        let pods = fixture.kubectl.list("pods", LABEL)?;
        let bound = pods.iter().filter(|pod| pod["spec"]["nodeName"].is_string()).count();
        ensure!((pods.len(), bound) == (count, count), "{bound} of {}", pods.len());
        Ok(pods)
    })
}

/// Fails unless the edge is charged with exactly these pods.
fn charges(edgeward: &Edgeward<'_>, pods: &[Value]) -> Result<()> {
    let charged = pods.iter().map(millicores).sum::<u64>();
    let expected = (NODES as u64 * NODE_MILLICORES - charged) as f64 / 1_000.0;
    let free = edgeward.metric("edgeward_site_free_cpu_cores", &[("site", "edge")])?;
    ensure!((free - expected).abs() < 1e-6, "{free} cores free, not {expected}");
    Ok(())
}

/// Number of these pods with a complete decision. Fails on a partial decision.
fn decided(pods: &[Value]) -> Result<usize> {
    pods.iter().map(whole).sum()
}

/// 1 for a pod with a complete decision, 0 for a pod without one.
fn whole(pod: &Value) -> Result<usize> {
    const KEYS: [&str; 7] = [
        "decision",
        "site",
        "reason",
        "timestamp",
        "decision-id",
        "wanRttMs",
        "explain",
    ];
    let written = KEYS.iter().filter(|key| annotation(pod, key).is_some()).count();
    let is_selected = pod["spec"]["nodeSelector"].is_object();
    match (written, is_selected) {
        (0, false) => Ok(0),
        (7, true) => Ok(1),
        _ => anyhow::bail!("{written} of {} keys, placed: {is_selected}: {pod:#}", KEYS.len()),
    }
}
