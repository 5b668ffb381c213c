//! Many clients create more pods at once than the edge can hold. Measures how much of the edge is used, and how many pods are
//! sent to an edge that is already full.

use crate::balancer::Balancer;
use crate::clients::{LABEL, create, millicores};
use crate::decision::is_decided;
use crate::prelude::*;

/// CPU of the edge nodes, in cores: room for about 120 pods of 200 m on average.
const EDGE: [&str; 5] = ["2", "3", "4", "7", "8"];

pub fn capacity() -> u64 {
    EDGE.iter().flat_map(|cores| cores.parse::<u64>()).sum::<u64>() * 1_000
}

#[derive(Debug)]
pub struct Outcome {
    pub edge_millicores: u64,
    pub cloud_pods: usize,
    pub unschedulable: usize,
    pub undecided: usize,
}

impl Outcome {
    /// Counts the pods. Each must be bound or unschedulable.
    pub fn of(nodes: &Nodes<'_>, pods: &[Value]) -> Self {
        let at = |site: &'static str| pods.iter().filter(move |pod| nodes.site_of(pod) == Some(site));
        Self {
            edge_millicores: at("edge").map(millicores).sum(),
            cloud_pods: at("cloud").count(),
            unschedulable: pods.iter().filter(|pod| is_unschedulable(pod)).count(),
            undecided: pods.iter().filter(|pod| !is_decided(pod)).count(),
        }
    }
}

/// An edge with room for some of the pods, and a cloud with room for all.
pub fn nodes<'run>(fixture: &Fixture<'run>) -> Result<Nodes<'run>> {
    let nodes = Nodes::new(fixture)?;
    for (i, cpu) in EDGE.iter().enumerate() {
        nodes.edge_node(&format!("edge-{i}"), cpu)?;
    }
    nodes.cloud_node("cloud-0")?;
    Ok(nodes)
}

/// Runs a burst of `count` managed pods against these replicas. `turn` keeps the log names of several bursts apart.
pub fn decided(
    fixture: &Fixture<'_>,
    nodes: &Nodes<'_>,
    pods: usize,
    replicas: usize,
    timing: Timing,
    turn: usize,
) -> Result<Outcome> {
    let mut config = nodes.config();
    config["reservationTTL"] = json!(timing.reservations());
    fixture.count_replicas(replicas)?;
    let name = |i: usize| format!("replica-{i}-of-{replicas}-{}-{turn}", timing.reservations());
    let started = (0..replicas).map(|i| fixture.live_edgeward_as(&name(i), &config));
    let replicas = started.collect::<Result<Vec<_>>>()?;
    let (balancer, authorities) = Balancer::before(fixture, &replicas)?;
    let _registered = match timing {
        Timing::LongTimeout => fixture.register(&balancer.url(), &authorities)?,
        Timing::Manifest(_) => fixture.register_with_its_timeout(&balancer.url(), &authorities)?,
    };
    let slo = json!({"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "600000"});
    burst(fixture, nodes, pods, &fixture.in_its_domain(slo), &json!({}))
}

/// How long the API server waits for an answer, and how long a reservation waits for its pod.
#[derive(Clone, Copy)]
pub enum Timing {
    LongTimeout,
    Manifest(&'static str),
}

impl Timing {
    fn reservations(self) -> &'static str {
        match self {
            Self::LongTimeout => "1h",
            Self::Manifest(reservations) => reservations,
        }
    }
}

/// Returns the pods with this label once there are `count` and each is bound or unschedulable.
pub fn settled(fixture: &Fixture<'_>, label: &str, count: usize) -> Result<Vec<Value>> {
    let pods = fixture.kubectl.list("pods", label)?;
    let is_open = |pod: &&Value| pod["spec"]["nodeName"].is_null() && !is_unschedulable(pod);
    let open = pods.iter().filter(is_open).count();
    ensure!(
        pods.len() == count && open == 0,
        "{} pods, {open} still open",
        pods.len()
    );
    Ok(pods)
}

/// Creates `count` pods and waits until each is bound or unschedulable. Then counts and deletes them.
pub fn burst(
    fixture: &Fixture<'_>,
    nodes: &Nodes<'_>,
    count: usize,
    annotations: &Value,
    spec: &Value,
) -> Result<Outcome> {
    create(fixture, 0..count, annotations, spec)?;
    let pods = eventually("every pod is bound or unschedulable", 4 * BOUND, || {
        settled(fixture, LABEL, count)
    })?;

    let outcome = Outcome::of(nodes, &pods);
    let args = [
        "delete",
        "pods",
        "-l",
        LABEL,
        "--grace-period=0",
        "--force",
        "--wait=false",
    ];
    fixture.kubectl.run(&args, "")?;
    eventually("the pods are gone", 4 * BOUND, || {
        ensure!(fixture.kubectl.list("pods", LABEL)?.is_empty());
        Ok(())
    })?;
    Ok(outcome)
}
