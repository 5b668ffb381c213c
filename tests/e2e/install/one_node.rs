//! A cluster of one node, which is drained while pods are created, and upgraded.

use std::process::Stdio;

use edgeward_harness::documentation::{documented, script};
use edgeward_harness::installation::Installation;
use edgeward_harness::prelude::*;
use edgeward_harness::wait::TIMEOUT;

use crate::install::{Ground, Source, check_out, decides_and_gates, gates, render_mine};

e2e! { "install::one_node_component_allows_drain", Cluster, one_node_component_allows_drain }
/// With the default installation the node cannot be drained. With the component it can, and decisions resume when the node is
/// back. Pods on the host's network have no free port for an extra replica, and upgrades still complete.
fn one_node_component_allows_drain(fixture: &Fixture<'_>) -> Result<()> {
    let ground = Ground::clear(fixture, Source::Files, "example.io")?;
    let node = format!("{}-edge-0", fixture.namespace);
    let cluster = OneNode {
        fixture,
        nodes: &ground.nodes,
        node: &node,
    };

    check_out(fixture, Source::Files)?;
    let installation = Installation {
        fixture,
        domain: "example.io",
        objects: cluster.render(&[], "FIRST")?,
    };
    cluster.apply()?;
    let refused = cluster.drain_for("10s")?;
    ensure!(
        refused.contains("Cannot evict pod as it would violate the pod's disruption budget"),
        "{refused}"
    );
    let budget = fixture.kubectl_in(NAMESPACE).get("poddisruptionbudget", "edgeward")?;
    ensure!(budget["status"]["disruptionsAllowed"] == 0, "{budget:#}");
    cluster.uncordon()?;

    // First from pods with networks of their own, then from a pod whose ports the next one needs.
    for tag in ["NEXT", "LAST"] {
        cluster.render(&["one-node", "host-network"], tag)?;
        cluster.apply()?;
        for objects in [
            "poddisruptionbudget edgeward",
            "poddisruptionbudget,networkpolicy edgeward",
        ] {
            let command = format!("kubectl -n edgeward-system delete {objects}");
            fixture.shell(script("install.md", &command)?)?;
        }
        let pod = cluster.replica()?;
        let ports = &pod["spec"]["containers"][0]["ports"];
        ensure!(
            pod["spec"]["hostNetwork"] == true && ports[0]["hostPort"] == 8443,
            "{pod:#}"
        );
        ensure!(
            pod["spec"]["containers"][0]["image"] == format!("IMAGE:{tag}"),
            "{pod:#}"
        );
    }

    let mut replica = decides_and_gates(&installation)?;
    // An operator who restricts the ingress finds the clients to allow in this log line.
    let clients = replica.edgeward.said("a client asks for reviews");
    ensure!(
        clients.len() == 1 && clients[0]["address"] == "127.0.0.1",
        "{clients:?}"
    );
    let mut drain = cluster.drain(TIMEOUT)?;
    let (mut created, mut is_stopped) = (0, false);
    eventually("the drain ends", BOUND, || {
        if !is_stopped && cluster.replica().is_err() {
            replica.edgeward.kill()?;
            is_stopped = true;
        }
        fixture.kubectl.create(&cluster.pod(&format!("during-{created}")))?;
        created += 1;
        ensure!(is_stopped && drain.try_wait()?.is_some(), "{created} pods were created");
        Ok(())
    })?;
    let drained = drain.wait_with_output()?;
    ensure!(drained.status.success(), "{}", String::from_utf8_lossy(&drained.stderr));

    // A pod that is created in the gap keeps its manifest, whatever it states. Pods that were gated before stay gated.
    fixture.kubectl.create(&cluster.pod("gap"))?;
    let is_undecided = |pod: &Value| {
        let annotations = pod["metadata"]["annotations"].as_object();
        annotations.is_some_and(|all| all.keys().all(|key| !key.starts_with("scheduling.example.io/")))
            && pod["spec"]["schedulingGates"].is_null()
            && pod["spec"]["nodeSelector"].is_null()
    };
    eventually("kube-scheduler finds no node for it", BOUND, || {
        let pod = fixture.kubectl.get("pod", "gap")?;
        ensure!(is_undecided(&pod), "{pod:#}");
        ensure!(pod["status"]["conditions"][0]["reason"] == "Unschedulable", "{pod:#}");
        Ok(())
    })?;
    ensure!(gates(fixture, "gated")? != Value::Null, "{}", gates(fixture, "gated")?);

    cluster.uncordon()?;
    eventually("what nobody decided runs as it was written", BOUND, || {
        let pod = fixture.kubectl.get("pod", "gap")?;
        ensure!(is_undecided(&pod) && pod["spec"]["nodeName"] == node, "{pod:#}");
        Ok(())
    })?;
    fixture.shell(cluster.rollout()?)?;
    replica.edgeward.start_again()?;
    eventually("pods are decided again", BOUND, || {
        let answered = fixture.kubectl.dry_run(&cluster.pod("probe"))?["metadata"]["annotations"].take();
        ensure!(answered["scheduling.example.io/site"] == "edge", "{answered}");
        Ok(())
    })?;
    eventually("what was gated is released", BOUND, || {
        let gated = fixture.kubectl.get("pod", "gated")?;
        let reason = &gated["metadata"]["annotations"]["scheduling.example.io/reason"];
        ensure!(
            *reason != "held_no_capacity" && gated["spec"]["nodeName"] == node,
            "{gated:#}"
        );
        Ok(())
    })?;
    // The API server's own account of the gap.
    let said = fixture.command(&["check"])?;
    let mut lines = said.stdout.lines();
    let calls = lines.find(|line| line.starts_with("ok       webhook") && line.contains(" answered since it started"));
    ensure!(
        calls.is_some_and(|line| !line.contains(", 0 not")),
        "{}{}",
        said.stdout,
        said.stderr
    );
    is_switched_off(fixture, &cluster)
}

/// In an emergency, new pods are undecided and no pod stays gated.
fn is_switched_off(fixture: &Fixture<'_>, cluster: &OneNode<'_, '_>) -> Result<()> {
    let words = "kubectl delete mutatingwebhookconfiguration";
    let block = script("operate.md", words)?;
    ensure!(script("troubleshoot.md", words)? == block, "the pages differ");
    fixture.shell(block)?;
    eventually("pods are undecided", BOUND, || {
        let answered = fixture.kubectl.dry_run(&cluster.pod("probe"))?;
        ensure!(annotation(&answered, "site").is_none(), "{answered:#}");
        Ok(())
    })?;
    let here = format!("-n {} gated ", fixture.namespace);
    let release = script("troubleshoot.md", "edgeward release -n shop")?;
    let released = fixture.shell(&release.replace("-n shop nightly-report-x2k7d ", &here))?;
    ensure!(released.contains("/gated already free\n"), "{released}");
    Ok(())
}

/// A cluster of one node, from the view of edgeward and the test's pods. Other tests have nodes there too.
struct OneNode<'s, 'run> {
    fixture: &'s Fixture<'run>,
    nodes: &'s Nodes<'run>,
    node: &'s str,
}

impl OneNode<'_, '_> {
    /// Writes `mine` with these components and this image. Returns its objects.
    fn render(&self, components: &[&str], tag: &str) -> Result<Vec<Value>> {
        let metadata = json!({"name": "edgeward", "namespace": NAMESPACE});
        let spec = json!({"template": {"spec": self.nodes.edge_placement()}});
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec});
        let components: Vec<_> = components
            .iter()
            .map(|component| format!("../edgeward/deploy/{component}"))
            .collect();
        render_mine(self.fixture, self.nodes, Source::Files, "example.io", |kustomization| {
            kustomization["components"] = json!(components);
            kustomization["images"][0]["newTag"] = json!(tag);
            if let Some(patches) = kustomization["patches"].as_array_mut() {
                patches.push(json!({"patch": deployment.to_string()}));
            }
        })
    }

    /// Applies as documented. The second command waits for the end of the rollout.
    fn apply(&self) -> Result<()> {
        self.fixture.shell(documented("sh", "kubectl apply -k mine")?).map(drop)
    }

    fn rollout(&self) -> Result<&'static str> {
        let script = documented("sh", "kubectl apply -k mine")?;
        Ok(script.split_once('\n').map_or(script, |(_, rollout)| rollout))
    }

    /// The Deployment's only pod that runs on the node.
    fn replica(&self) -> Result<Value> {
        let kubectl = self.fixture.kubectl_in(NAMESPACE);
        let mut pods = kubectl.list("pods", "app.kubernetes.io/name=edgeward")?;
        pods.retain(|pod| pod["spec"]["nodeName"] == self.node && pod["metadata"]["deletionTimestamp"].is_null());
        ensure!(pods.len() == 1, "{} pods", pods.len());
        Ok(pods.remove(0))
    }

    /// A small pod with an SLO that can only run on this node.
    fn pod(&self, name: &str) -> Value {
        let mut pod = workloads::pod(name, workloads::batch());
        pod["spec"]["affinity"] = self.nodes.affinity();
        pod["spec"]["tolerations"] = json!([self.nodes.toleration()]);
        pod["spec"]["containers"][0]["resources"]["requests"] = json!({"cpu": "1m", "memory": "1Mi"});
        pod
    }

    /// Drains the node as an administrator would, including pods without a controller.
    fn drain(&self, timeout: &str) -> Result<std::process::Child> {
        let script = format!("kubectl drain {} --ignore-daemonsets --force {timeout}", self.node);
        let kubectl = &self.fixture.kubectl;
        let mut shell = kubectl.in_shell(&script, &self.fixture.kubeconfig(), &self.fixture.dir);
        Ok(shell.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?)
    }

    /// The output of a drain that does not finish by itself.
    fn drain_for(&self, time: &str) -> Result<String> {
        let output = self.drain(&format!("--timeout={time}"))?.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!output.status.success(), "{said}");
        Ok(said)
    }

    fn uncordon(&self) -> Result<()> {
        self.fixture.kubectl.run(&["uncordon", self.node], "").map(drop)
    }
}
