//! Rolling updates at a nearly full edge, with a cloud that would take every pod.

use std::fmt;

use crate::control_plane::SLOW;
use crate::prelude::*;
use crate::tables::Table;

const REPLICAS: usize = 9;
const NAME: &str = "shop";

const MILLICORES: u32 = 100;

/// Grace period of each pod. Termination takes 6 s.
const GRACE_SECONDS: u32 = 60;

/// A rollout strategy: its name, its Deployment fields, and the pods it adds or removes at a time.
pub type Strategy = (&'static str, Value, usize);

pub fn strategies() -> [Strategy; 3] {
    [
        ("maxSurge 25 %", json!({"maxSurge": "25%", "maxUnavailable": 0}), 3),
        ("maxUnavailable 1", json!({"maxSurge": 0, "maxUnavailable": 1}), 1),
        ("maxUnavailable 2", json!({"maxSurge": 0, "maxUnavailable": 2}), 2),
    ]
}

/// Number of replicas in the cloud after each of several rollouts of one kind.
pub struct Rolled {
    strategy: &'static str,
    /// Number of pods that the strategy adds or removes at a time.
    pub step: usize,
    /// With `waitForTerminating`.
    pub waiting: Vec<usize>,
    pub without: Vec<usize>,
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

/// Runs `count` rollouts of each kind, with and without `waitForTerminating`.
pub fn roll_out(fixture: &Fixture<'_>, strategies: &[Strategy], count: usize) -> Result<Vec<Rolled>> {
    let nodes = Nodes::edge_and_cloud(fixture, "1")?;
    let shares = |wait: &str| -> Result<Vec<Vec<usize>>> {
        let mut config = nodes.gating(&for_long());
        config["waitForTerminating"] = json!(wait);
        let edgeward = fixture.live_edgeward_as(&format!("waits-{wait}"), &config)?;
        let _registered = fixture.register(&edgeward.url, &edgeward.ca)?;
        let each = strategies.iter().map(|(name, strategy, _)| {
            let (shares, gated) = rollouts(fixture, &nodes, strategy, count)?;
            println!(
                "rollout: {name}, waitForTerminating {wait}: {shares:?} of {REPLICAS} in the cloud, {gated} were gated"
            );
            let found = format!("{shares:?}");
            Table::Rollouts.row(&format!("{name}, `waitForTerminating: {wait}`"), &[&found]);
            ensure!(wait != "0s" || gated == 0, "{name}: {gated} waited");
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

/// Number of replicas in the cloud after each of `count` rollouts, and the total number of gated pods.
fn rollouts(fixture: &Fixture<'_>, nodes: &Nodes<'_>, strategy: &Value, count: usize) -> Result<(Vec<usize>, usize)> {
    let slo = json!({"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "600000"});
    let mut deployment = fixture.in_its_domain(workloads::deployment(NAME, REPLICAS as u32, slo));
    deployment["spec"]["strategy"] = json!({"type": "RollingUpdate", "rollingUpdate": strategy});
    let template = &mut deployment["spec"]["template"];
    template["metadata"]["labels"][SLOW] = json!("true");
    template["spec"]["terminationGracePeriodSeconds"] = json!(GRACE_SECONDS);
    template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(format!("{MILLICORES}m"));
    fixture.kubectl.create(&deployment)?;
    let at_first = in_cloud(nodes, &settled(fixture, REPLICAS)?);
    ensure!(at_first == 0, "{at_first} in the cloud at first");
    let (mut shares, mut gated) = (Vec::new(), 0);
    for rollout in 0..count {
        let patch = json!({"spec": {"template": {"metadata": {"labels": {"rollout": rollout.to_string()}}}}});
        fixture.kubectl.patch("deployment", NAME, &patch, &[])?;
        let pods = settled(fixture, REPLICAS)?;
        shares.push(in_cloud(nodes, &pods));
        let was_gated = |pod: &&Value| annotation(pod, "reason").is_some_and(|reason| reason.starts_with("released_"));
        gated += pods.iter().filter(was_gated).count();
    }
    let cloud = shares.last().copied().unwrap_or_default();
    let left = REPLICAS - cloud;
    fixture
        .kubectl
        .run(&["scale", "deployment", NAME, &format!("--replicas={left}")], "")?;
    let still = in_cloud(nodes, &settled(fixture, left)?);
    ensure!(
        still == 0,
        "of {cloud} in the cloud, {still} are left, though {cloud} pods are gone"
    );
    fixture.kubectl.run(&["delete", "deployment", NAME], "")?;
    eventually("its pods are gone", BOUND, || {
        ensure!(fixture.kubectl.list("pods", &format!("app={NAME}"))?.is_empty());
        Ok(())
    })?;
    Ok((shares, gated))
}

fn in_cloud(nodes: &Nodes<'_>, pods: &[Value]) -> usize {
    pods.iter().filter(|pod| nodes.site_of(pod) == Some("cloud")).count()
}

/// The Deployment's pods, once this many of the newest template run and no others exist.
fn settled(fixture: &Fixture<'_>, replicas: usize) -> Result<Vec<Value>> {
    eventually("the rollout is over, and old pods are gone", 4 * BOUND, || {
        let deployment = fixture.kubectl.get("deployment", NAME)?;
        let status = &deployment["status"];
        let is_seen = status["observedGeneration"] == deployment["metadata"]["generation"];
        let counts = ["replicas", "updatedReplicas", "availableReplicas"];
        let is_over = counts.iter().all(|count| status[count] == replicas);
        let pods = fixture.kubectl.list("pods", &format!("app={NAME}"))?;
        ensure!(
            is_seen && is_over && pods.len() == replicas,
            "{} pods, {status}",
            pods.len()
        );
        Ok(pods)
    })
}
