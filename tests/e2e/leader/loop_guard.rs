//! An operator whose pods fail, and which creates them again and again.

use anyhow::{Context, Result, ensure};
use edgeward_harness::decision::{annotation, is_gated};
use edgeward_harness::fixture::Fixture;
use edgeward_harness::nodes::Nodes;
use edgeward_harness::wait::{BOUND, eventually};
use edgeward_harness::workloads;
use serde_json::{Value, json};

use crate::leader::events::ours;

/// So many pods in the place of others are too many.
const FAILURES: usize = 4;

/// So many pods come at most until the operator's are left as they are: the watch may be behind.
const MOST: usize = 40;

/// The operator's pods fail as soon as they are created, and it creates others. After a few of them they are left as they are;
/// an Event and metrics say so, and one that is held loses its gate and stays as it was written. Then they are decided again. An operator
/// whose pods do their work, as quickly, is never in that case.
pub(crate) fn ends_a_loop(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::new(fixture)?;
    nodes.edge_node("edge-0", "2")?;
    nodes.cloud_node("cloud-0")?;
    nodes.wan.close();
    let mut config = nodes.config();
    config["onNoCapacity"] = json!("hold");
    config["holdLimits"] = json!({"batch": "1h"});
    config["loopGuard"] = json!({"failuresPerMinute": FAILURES, "pause": "45s"});
    let edgeward = fixture.live_edgeward(&config)?;
    let _registered = fixture.register(&edgeward.url, &edgeward.ca)?;

    let good = Operator::new(fixture, &nodes, "worker")?;
    for _ in 0..2 * FAILURES {
        ensure!(good.run_one("Succeeded")?, "work that was done is no failure");
    }

    let robot = Operator::new(fixture, &nodes, "robot")?;
    let mut large = robot.pod(1900);
    large["metadata"]["name"] = json!("large");
    fixture.kubectl.create(&robot.filler())?;
    eventually("a large one is held", BOUND, || {
        let created = fixture.kubectl.dry_run(&large)?;
        ensure!(is_gated(&created), "{}", created["metadata"]["annotations"]);
        Ok(())
    })?;
    let held = fixture.kubectl.create(&large)?;
    ensure!(is_gated(&held), "{held:#}");

    let mut decided = 0;
    while robot.run_one("Failed")? {
        decided += 1;
        ensure!(decided < MOST, "{decided} pods failed, and they are still decided");
    }
    ensure!(decided > FAILURES, "after {decided} already");
    let ended = |count: u64| {
        let pauses = edgeward.count("edgeward_loop_guard_pauses_total", &[])?;
        ensure!(pauses == count, "{pauses} pauses");
        Ok(())
    };
    ended(1)?;
    let left = edgeward.count("edgeward_reviews_total", &[("reason", "passthrough_loop_guard")])?;
    ensure!(left > 0, "no review says so");
    let freed = eventually("the held one has no gate", BOUND, || {
        let pod = fixture.kubectl.get("pod", "large")?;
        ensure!(!is_gated(&pod), "{}", pod["spec"]);
        Ok(pod)
    })?;
    ensure!(freed["spec"]["nodeSelector"].is_null(), "{}", freed["spec"]);
    ensure!(
        good.run_one("Succeeded")?,
        "the other operator's pods are decided all the while"
    );
    let event = eventually("an Event says so", BOUND, || {
        let mut events = ours(fixture)?;
        events.retain(|event| event["reason"] == "LoopGuard");
        ensure!(events.len() <= 1, "{events:#?}");
        events.pop().context("there is none")
    })?;
    let note = event["note"].as_str().unwrap_or_default();
    ensure!(
        event["type"] == "Warning" && note.contains("ConfigMap robot"),
        "{event:#}"
    );

    eventually("its pods are decided again", BOUND, || {
        let asked = fixture.kubectl.dry_run(&robot.pod(100))?;
        ensure!(is_decided(&asked), "{}", asked["metadata"]);
        Ok(())
    })?;
    eventually("nobody is paused", BOUND, || {
        let paused = edgeward.count("edgeward_loop_guard_paused_controllers", &[])?;
        ensure!(paused == 0, "{paused}");
        Ok(())
    })?;
    ended(1)
}

/// Creates pods, one after the other, in the name of an object of its own.
struct Operator<'s, 'run> {
    fixture: &'s Fixture<'run>,
    nodes: &'s Nodes<'run>,
    name: &'s str,
    owner: Value,
}

impl<'s, 'run> Operator<'s, 'run> {
    fn new(fixture: &'s Fixture<'run>, nodes: &'s Nodes<'run>, name: &'s str) -> Result<Self> {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let uid = fixture.kubectl.create(&object)?["metadata"]["uid"].take();
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "controller": true});
        Ok(Self {
            fixture,
            nodes,
            name,
            owner,
        })
    }

    /// A pod that asks for so much, on these nodes also where nobody decides.
    fn pod(&self, millicores: u32) -> Value {
        let slo = json!({"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "600000"});
        let mut pod = self.fixture.in_its_domain(workloads::pod("", slo));
        pod["metadata"]["name"] = Value::Null;
        pod["metadata"]["generateName"] = json!(format!("{}-", self.name));
        pod["metadata"]["ownerReferences"] = json!([self.owner]);
        pod["spec"]["affinity"] = self.nodes.affinity();
        pod["spec"]["tolerations"] = json!([self.nodes.toleration()]);
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(format!("{millicores}m"));
        pod
    }

    /// A pod of nobody's that takes a part of the edge.
    fn filler(&self) -> Value {
        let mut pod = self.pod(500);
        pod["metadata"] = json!({"name": "filler", "annotations": pod["metadata"]["annotations"]});
        pod
    }

    /// Creates a pod, lets it end like this at once, and removes it. Returns whether it was decided.
    fn run_one(&self, phase: &str) -> Result<bool> {
        let kubectl = &self.fixture.kubectl;
        let created = kubectl.create(&self.pod(100))?;
        let name = created["metadata"]["name"].as_str().context("a name")?;
        kubectl.patch_status("pod", name, &json!({"phase": phase}))?;
        kubectl.run(&["delete", "pod", name, "--grace-period=0", "--force"], "")?;
        Ok(is_decided(&created))
    }
}

fn is_decided(pod: &Value) -> bool {
    annotation(pod, "decision-id").is_some() && !is_gated(pod)
}
