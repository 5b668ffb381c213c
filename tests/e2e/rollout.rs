//! Rolling updates at a nearly full edge, with a cloud that would take every pod.

use std::fmt;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::control_plane::SLOW;
use crate::decision::annotation;
use crate::held::{for_long, holding};
use crate::load::TooBusy;
use crate::patience::{BOUND, eventually};
use crate::scene::Scene;
use crate::stage::Stage;
use crate::tables::Table;
use crate::workloads;

const REPLICAS: usize = 9;
const NAME: &str = "shop";

/// Each pod asks for a tenth of the edge.
const MILLICORES: u32 = 100;

type Strategy = (&'static str, Value, usize);

/// The ways in which a Deployment replaces its pods, and how many it has at once to do without or to have more.
fn strategies() -> [Strategy; 2] {
    [
        ("maxSurge 25 %", json!({"maxSurge": "25%", "maxUnavailable": 0}), 3),
        ("maxUnavailable 1", json!({"maxSurge": 0, "maxUnavailable": 1}), 1),
    ]
}

/// A rollout of nine replicas that take nine tenths of the edge, and 2 s to terminate. With `waitForTerminating` it leaves no more
/// in the cloud than one step of it; without, it leaves more than that, and no pod waits. What is in the cloud is the first to go
/// when the Deployment shrinks. [`TooBusy`] where pods are created so late, or seen to end so late, that there is no such
/// difference, though there is one.
pub(crate) fn stays_at_the_edge(scene: &Scene<'_>) -> Result<()> {
    let mut too_busy = Ok(());
    let surge = &strategies()[..1];
    for rolled in roll_out(scene, surge, 1)? {
        let (waiting, without, step) = (rolled.waiting[0], rolled.without[0], rolled.step);
        ensure!(
            without <= step || waiting < without,
            "{rolled}; waiting makes no difference"
        );
        if waiting > step || without <= step {
            too_busy = Err(TooBusy(rolled.to_string()).into());
        }
    }
    too_busy
}

/// Three of both kinds in a row, on a machine that does nothing else.
pub(crate) fn three_in_a_row(scene: &Scene<'_>) -> Result<()> {
    for rolled in roll_out(scene, &strategies(), 3)? {
        let step = rolled.step;
        ensure!(rolled.waiting.iter().all(|share| *share <= step), "{rolled}");
        ensure!(rolled.without[0] > step, "{rolled}; waiting makes no difference");
    }
    Ok(())
}

/// How many replicas are in the cloud after each of some rollouts of one kind.
struct Rolled {
    strategy: &'static str,
    /// How many pods it has at once to do without or to have more.
    step: usize,
    waiting: Vec<usize>,
    without: Vec<usize>,
}

impl fmt::Display for Rolled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            strategy,
            waiting,
            without,
            ..
        } = self;
        write!(
            f,
            "{strategy}: in the cloud are {waiting:?} of {REPLICAS}, without waiting {without:?}"
        )
    }
}

/// So many rollouts of each kind, with `waitForTerminating` and without.
fn roll_out(scene: &Scene<'_>, strategies: &[Strategy], count: usize) -> Result<Vec<Rolled>> {
    let stage = Stage::new(scene)?;
    stage.edge_node("edge-0", "1")?;
    stage.cloud_node("cloud-0")?;
    let shares = |wait: &str| -> Result<Vec<Vec<usize>>> {
        let mut config = holding(&stage, &for_long());
        config["waitForTerminating"] = json!(wait);
        let edgeward = scene.live_edgeward_as(&format!("waits-{wait}"), &config)?;
        let _registered = scene.register(&edgeward.url, &edgeward.ca)?;
        let each = strategies.iter().map(|(name, strategy, _)| {
            let (shares, held) = rollouts(scene, &stage, strategy, count)?;
            println!(
                "rollout: {name}, waitForTerminating {wait}: {shares:?} of {REPLICAS} in the cloud, {held} were held"
            );
            let found = format!("{shares:?}");
            Table::Rollouts.row(&format!("{name}, `waitForTerminating: {wait}`"), &[&found]);
            ensure!(wait != "0s" || held == 0, "{name}: {held} waited");
            Ok(shares)
        });
        each.collect()
    };
    let all = strategies.iter().zip(shares("30s")?.into_iter().zip(shares("0s")?));
    let rolled = all.map(|(&(strategy, _, step), (waiting, without))| Rolled {
        strategy,
        step,
        waiting,
        without,
    });
    Ok(rolled.collect())
}

/// How many replicas are in the cloud after each of so many rollouts, and how many were held in all of them.
fn rollouts(scene: &Scene<'_>, stage: &Stage<'_>, strategy: &Value, count: usize) -> Result<(Vec<usize>, usize)> {
    let slo = json!({"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "600000"});
    let mut deployment = scene.in_its_domain(workloads::deployment(NAME, REPLICAS as u32, slo));
    deployment["spec"]["strategy"] = json!({"type": "RollingUpdate", "rollingUpdate": strategy});
    let template = &mut deployment["spec"]["template"];
    template["metadata"]["labels"][SLOW] = json!("true");
    template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(format!("{MILLICORES}m"));
    scene.kubectl.create(&deployment)?;
    let at_first = in_cloud(stage, &settled(scene, REPLICAS)?);
    ensure!(at_first == 0, "{at_first} in the cloud at first");
    let (mut shares, mut held) = (Vec::new(), 0);
    for rollout in 0..count {
        let patch = json!({"spec": {"template": {"metadata": {"labels": {"rollout": rollout.to_string()}}}}});
        let args = ["patch", "deployment", NAME, "--type=merge", "-p", &patch.to_string()];
        scene.kubectl.run(&args, "")?;
        let pods = settled(scene, REPLICAS)?;
        shares.push(in_cloud(stage, &pods));
        let was_held = |pod: &&Value| annotation(pod, "reason").is_some_and(|reason| reason.starts_with("released_"));
        held += pods.iter().filter(was_held).count();
    }
    let cloud = shares.last().copied().unwrap_or_default();
    let left = REPLICAS - cloud;
    scene
        .kubectl
        .run(&["scale", "deployment", NAME, &format!("--replicas={left}")], "")?;
    let still = in_cloud(stage, &settled(scene, left)?);
    ensure!(
        still == 0,
        "of {cloud} in the cloud, {still} are left, though {cloud} pods are gone"
    );
    scene.kubectl.run(&["delete", "deployment", NAME], "")?;
    eventually("its pods are gone", BOUND, || {
        let left = scene.kubectl.list("pods", &format!("app={NAME}"))?.len();
        ensure!(left == 0, "{left}");
        Ok(())
    })?;
    Ok((shares, held))
}

fn in_cloud(stage: &Stage<'_>, pods: &[Value]) -> usize {
    pods.iter().filter(|pod| stage.site_of(pod) == Some("cloud")).count()
}

/// The Deployment's pods, once so many of the newest template run and no other is there.
fn settled(scene: &Scene<'_>, replicas: usize) -> Result<Vec<Value>> {
    eventually("the rollout is over, and old pods are gone", 4 * BOUND, || {
        let deployment = scene.kubectl.get("deployment", NAME)?;
        let status = &deployment["status"];
        let is_seen = status["observedGeneration"] == deployment["metadata"]["generation"];
        let counts = ["replicas", "updatedReplicas", "availableReplicas"];
        let is_over = counts.iter().all(|count| status[count] == replicas);
        let pods = scene.kubectl.list("pods", &format!("app={NAME}"))?;
        ensure!(
            is_seen && is_over && pods.len() == replicas,
            "{} pods, {status}",
            pods.len()
        );
        Ok(pods)
    })
}
