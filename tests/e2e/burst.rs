//! Many clients create pods at once, far more than the edge has room for: how much of it is used, and how many pods are
//! sent to an edge that is full already.

use std::fmt;

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};

use crate::balancer::Balancer;
use crate::clients::{LABEL, PODS, create, millicores};
use crate::decision::is_decided;
use crate::load::Processors;
use crate::patience::{BOUND, eventually};
use crate::scene::Scene;
use crate::stage::Stage;
use crate::tables::Table;

/// CPU of the edge nodes, in cores: room for about 120 pods of 200 m on average.
const EDGE: [&str; 5] = ["2", "3", "4", "7", "8"];

/// What became of a burst.
#[derive(Debug)]
struct Outcome {
    edge_millicores: u64,
    cloud_pods: usize,
    unschedulable: usize,
    undecided: usize,
}

impl Outcome {
    fn tabulate(&self, of: &str) {
        let found: [&dyn fmt::Display; 3] = [&cores(self.edge_millicores), &self.unschedulable, &self.cloud_pods];
        Table::Burst.row(of, &found);
    }
}

fn cores(millicores: u64) -> String {
    format!("{:.1} cores", millicores as f64 / 1_000.0)
}

/// One replica fills the edge, and sends few pods there in vain. However busy the machine is: the API server waits as long as it
/// can, and no reservation ends before its pod is seen.
pub(crate) fn fills_the_edge(scene: &Scene<'_>) -> Result<()> {
    const PODS: usize = 250;
    let stage = stage(scene)?;
    let outcome = decided(scene, &stage, PODS, 1, Timing::Patient, 0)?;
    let capacity: u64 = EDGE.iter().flat_map(|cores| cores.parse::<u64>()).sum::<u64>() * 1_000;
    println!("burst: {PODS} pods, {capacity} millicores at the edge: {outcome:?}");
    ensure!(
        outcome.undecided == 0
            && outcome.edge_millicores * 100 >= capacity * 95
            && outcome.unschedulable <= PODS / 100
            && outcome.cloud_pods > PODS / 3,
        "{outcome:?}"
    );
    Ok(())
}

/// One replica fills the edge as well as kube-scheduler alone does, and sends few pods there in vain; three behind one
/// address somewhat more; without reservations it is far more than either. With the timeout and reservations of the manifest.
pub(crate) fn fills_the_edge_again_and_again(scene: &Scene<'_>) -> Result<()> {
    let stage = stage(scene)?;
    let processors = Processors::now()?;
    let mut baselines = Vec::new();
    for _ in 0..3 {
        let at_the_edge = burst(scene, &stage, PODS, &json!({}), &stage.edge_placement())?;
        baselines.push(at_the_edge.edge_millicores);
    }
    baselines.sort_unstable();
    let median = baselines[1];
    let share = |outcome: &Outcome| outcome.edge_millicores as f64 / median as f64;
    println!("burst: baselines {baselines:?} millicores at the edge");
    Table::Burst.row(
        "baseline: all pods select the edge, without edgeward (median of three)",
        &[&cores(median), &"–", &"–"],
    );

    for (replicas, least, most) in [(1, 0.95, PODS / 100), (3, 0.90, PODS / 50)] {
        let meets = |outcome: &Outcome| {
            share(outcome) >= least
                && outcome.unschedulable <= most
                && outcome.undecided == 0
                && outcome.cloud_pods > PODS / 2
        };
        // Of three the median counts, as of the baselines: it is settled when two agree.
        let (mut met, mut missed) = (0, 0);
        while met < 2 && missed < 2 {
            let outcome = decided(scene, &stage, PODS, replicas, Timing::Manifest("3s"), met + missed)?;
            println!(
                "burst: {replicas} deciding, {:.3} of the median: {outcome:?}",
                share(&outcome)
            );
            outcome.tabulate(&format!("{replicas} deciding"));
            if meets(&outcome) {
                met += 1;
            } else {
                missed += 1;
            }
        }
        if missed == 2 {
            let words = format!(
                "{replicas} deciding: twice less than {least} of {median} millicores, more than {most} unschedulable or some undecided"
            );
            processors.excuse(&words)?;
            bail!(words);
        }
    }
    let without = decided(scene, &stage, PODS, 1, Timing::Manifest("0s"), 0)?;
    println!(
        "burst: without reservations {:.3} of the median: {without:?}",
        share(&without)
    );
    without.tabulate("one replica, `reservationTTL: 0s`");
    ensure!(
        without.unschedulable > PODS / 50,
        "{without:?}: reservations make no difference"
    );
    Ok(())
}

/// An edge with room for some of the pods, and a cloud with room for all.
fn stage<'run>(scene: &Scene<'run>) -> Result<Stage<'run>> {
    let stage = Stage::new(scene)?;
    for (i, cpu) in EDGE.iter().enumerate() {
        stage.edge_node(&format!("edge-{i}"), cpu)?;
    }
    stage.cloud_node("cloud-0")?;
    Ok(stage)
}

/// A burst of so many managed pods with so many replicas deciding; `turn` tells their logs apart.
fn decided(
    scene: &Scene<'_>,
    stage: &Stage<'_>,
    pods: usize,
    replicas: usize,
    timing: Timing,
    turn: usize,
) -> Result<Outcome> {
    let mut config = stage.config();
    config["reservationTTL"] = json!(timing.reservations());
    config["replicas"] = json!(replicas);
    let name = |i: usize| format!("replica-{i}-of-{replicas}-{}-{turn}", timing.reservations());
    let started = (0..replicas).map(|i| scene.live_edgeward_as(&name(i), &config));
    let replicas = started.collect::<Result<Vec<_>>>()?;
    let balancer = Balancer::open(scene)?;
    replicas.iter().try_for_each(|replica| balancer.add(replica))?;
    // Each has an authority of its own.
    let authorities: String = replicas.iter().map(|replica| replica.ca.as_str()).collect();
    let _registered = match timing {
        Timing::Patient => scene.register(&balancer.url(), &authorities)?,
        Timing::Manifest(_) => scene.register_with_its_timeout(&balancer.url(), &authorities)?,
    };
    let slo = json!({"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "600000"});
    burst(scene, stage, pods, &scene.in_its_domain(slo), &json!({}))
}

/// How long the API server waits for an answer, and a reservation for its pod.
#[derive(Clone, Copy)]
enum Timing {
    /// Longer than it takes on any machine.
    Patient,
    /// The API server as the manifest says, a reservation so long.
    Manifest(&'static str),
}

impl Timing {
    fn reservations(self) -> &'static str {
        match self {
            Self::Patient => "1h",
            Self::Manifest(reservations) => reservations,
        }
    }
}

/// Creates so many pods, waits until each is bound or said to be unschedulable, counts, and deletes them.
fn burst(scene: &Scene<'_>, stage: &Stage<'_>, count: usize, annotations: &Value, spec: &Value) -> Result<Outcome> {
    create(scene, 0..count, annotations, spec)?;
    let settled = || -> Result<Vec<Value>> {
        let pods = scene.kubectl.list("pods", LABEL)?;
        let open = pods
            .iter()
            .filter(|pod| pod["spec"]["nodeName"].is_null() && !is_unschedulable(pod));
        let open = open.count();
        ensure!(
            pods.len() == count && open == 0,
            "{} pods, {open} still open",
            pods.len()
        );
        Ok(pods)
    };
    let pods = eventually("every pod is bound or unschedulable", 4 * BOUND, settled)?;

    let at = |site: &'static str| pods.iter().filter(move |pod| stage.site_of(pod) == Some(site));
    let outcome = Outcome {
        edge_millicores: at("edge").map(millicores).sum(),
        cloud_pods: at("cloud").count(),
        unschedulable: pods.iter().filter(|pod| is_unschedulable(pod)).count(),
        undecided: pods.iter().filter(|pod| !is_decided(pod)).count(),
    };
    scene.kubectl.run(
        &[
            "delete",
            "pods",
            "-l",
            LABEL,
            "--grace-period=0",
            "--force",
            "--wait=false",
        ],
        "",
    )?;
    eventually("the pods are gone", 4 * BOUND, || {
        let left = scene.kubectl.list("pods", LABEL)?.len();
        ensure!(left == 0, "{left} left");
        Ok(())
    })?;
    Ok(outcome)
}

fn is_unschedulable(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == "PodScheduled" && condition["reason"] == "Unschedulable")
}
