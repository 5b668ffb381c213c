//! What edgeward's pods do on a real node.

use std::process::Command;

use edgeward_harness::cert_manager::CertManager;
use edgeward_harness::helm::Helm;
use edgeward_harness::prelude::*;
use edgeward_harness::real_node::{NODE, PAUSE, RealNode};
use edgeward_harness::wait::TIMEOUT;

use crate::installed::{Installed, image, rolled_out};

/// Selects edgeward's pods.
const OURS: &str = "app.kubernetes.io/name=edgeward";

const DECISION: &str = "decision";

/// How many pods are created at most during an update.
const PODS: usize = 20;

pub(crate) fn self_managed(node: &RealNode) -> Result<()> {
    let _installed = Installed::apply(node, "self-managed", &[])?;
    icmp_probes_are_answered(node)?;
    pods_are_decided_and_run(node, "self-managed")
}

/// The shipped manifests let edgeward probe by ICMP.
fn icmp_probes_are_answered(node: &RealNode) -> Result<()> {
    let kubectl = node.kubectl(NAMESPACE);
    let pods = kubectl.list("pods", OURS)?;
    let name = pods[0]["metadata"]["name"].as_str().context("a pod")?;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}:8080/proxy/metrics");
    eventually("ICMP probes are answered", BOUND, || {
        let metrics = kubectl.run(&["get", "--raw", &path], "")?.stdout;
        let mut probes = metrics
            .lines()
            .filter(|line| line.starts_with("edgeward_wan_probes_total{") && line.contains("icmp://"));
        let is_answered = |line: &str| line.contains("outcome=\"answered\"") && !line.ends_with(" 0");
        ensure!(probes.any(is_answered), "{metrics}");
        Ok(())
    })
}

pub(crate) fn cert_manager(node: &RealNode) -> Result<()> {
    let _issuer = CertManager::start_for(node.kubectl(NAMESPACE), &node.kubeconfig(), node.dir())?;
    let _installed = Installed::apply(node, "cert-manager", &[])?;
    pods_are_decided_and_run(node, "cert-manager")
}

pub(crate) fn chart(node: &RealNode) -> Result<()> {
    let (program, kubeconfig) = (Helm::obtain(node.dir())?, node.kubeconfig().display().to_string());
    let helm = |args: &[&str]| program.run(&[args, &["--namespace", NAMESPACE, "--kubeconfig", &kubeconfig]].concat());
    let (name, tag) = image();
    let chart = workspace().join("deploy/helm/edgeward").display().to_string();
    let image = [format!("image.repository={name}"), format!("image.tag={tag}")].join(",");
    let certificate = "certificates.source=self-managed";
    let args = [
        "install",
        "edgeward",
        &chart,
        "--create-namespace",
        "--wait",
        "--set",
        &image,
        "--set",
        certificate,
    ];
    helm(&args)?;
    let ended = pods_are_decided_and_run(node, "chart");
    helm(&["uninstall", "edgeward", "--wait"])?;
    ended
}

/// Creates pods before and during a rolling update. Each is decided for the edge and runs there.
fn pods_are_decided_and_run(node: &RealNode, namespace: &str) -> Result<()> {
    let kubectl = opted_in(node, namespace)?;
    eventually("the first pod is decided", BOUND, || {
        let pod = kubectl.dry_run(&pod("first"))?;
        annotation(&pod, DECISION).map(drop).context("it is undecided")
    })?;
    let update = ["rollout", "restart", "deployment", "edgeward"];
    node.kubectl(NAMESPACE).run(&update, "")?;
    let mut created = vec![];
    eventually("the update ends", BOUND, || {
        // One pod in each round, up to a number that the node starts in seconds.
        if created.len() < PODS {
            let name = format!("during-update-{}", created.len());
            created.push(kubectl.create(&pod(&name))?);
        }
        let deployment = node.kubectl(NAMESPACE).get("deployment", "edgeward")?;
        let status = &deployment["status"];
        let is_over = status["observedGeneration"] == deployment["metadata"]["generation"]
            && status["updatedReplicas"] == status["replicas"]
            && status["availableReplicas"] == status["replicas"];
        ensure!(is_over, "{status}");
        Ok(())
    })?;
    rolled_out(&node.kubectl(NAMESPACE))?;
    for pod in &created {
        ensure!(annotation(pod, DECISION) == Some("edge"), "{pod:#}");
    }
    println!(
        "{namespace}: {} pods created during an update, all decided",
        created.len()
    );
    let running = [
        "wait",
        "--for=jsonpath={.status.phase}=Running",
        "pod",
        "--all",
        TIMEOUT,
    ];
    kubectl.run(&running, "")?;
    ensure!(restarts(node)? == 0, "a pod of edgeward was restarted");
    kubectl
        .run(&["delete", "namespace", namespace, "--wait=false"], "")
        .map(drop)
}

/// A process that does not answer is restarted by its liveness probe. A pod that is created meanwhile is undecided.
pub(crate) fn stopped_process(node: &RealNode) -> Result<()> {
    let _installed = Installed::apply(node, "self-managed", &["one-node"])?;
    let kubectl = opted_in(node, "stopped")?;
    eventually("a pod is decided", BOUND, || {
        let pod = kubectl.dry_run(&pod("before"))?;
        annotation(&pod, DECISION).map(drop).context("it is undecided")
    })?;
    let stop = "kill -STOP $(pgrep --full '^/usr/local/bin/edgeward serve')";
    let stopped = Command::new("sh").args(["-c", stop]).status()?;
    ensure!(stopped.success(), "{stopped}");
    let at = Instant::now();
    let undecided = kubectl.create(&pod("meanwhile"))?;
    ensure!(annotation(&undecided, DECISION).is_none(), "{undecided:#}");
    println!(
        "stopped process: a pod was created, undecided, after {:.1} s",
        at.elapsed().as_secs_f64()
    );
    eventually("it is restarted", 2 * BOUND, || {
        ensure!(restarts(node)? == 1, "not yet");
        Ok(())
    })?;
    eventually("a pod is decided again", BOUND, || {
        let pod = kubectl.dry_run(&pod("after"))?;
        annotation(&pod, DECISION).map(drop).context("it is undecided")
    })?;
    println!(
        "stopped process: pods are decided again after {:.1} s",
        at.elapsed().as_secs_f64()
    );
    kubectl
        .run(&["delete", "namespace", "stopped", "--wait=false"], "")
        .map(drop)
}

/// On a cluster of one node, a drain evicts edgeward, and uncordoning brings it back.
pub(crate) fn drain(node: &RealNode) -> Result<()> {
    let _installed = Installed::apply(node, "self-managed", &["one-node"])?;
    let kubectl = node.kubectl(NAMESPACE);
    kubectl.run(&["drain", NODE, "--ignore-daemonsets", TIMEOUT], "")?;
    let left = kubectl.list("pods", OURS)?;
    ensure!(left.iter().all(|pod| pod["spec"]["nodeName"].is_null()), "{left:#?}");
    kubectl.run(&["uncordon", NODE], "")?;
    rolled_out(&kubectl)
}

fn opted_in(node: &RealNode, namespace: &str) -> Result<Kubectl> {
    let kubectl = node.kubectl(namespace);
    let metadata = json!({"name": namespace, "labels": {MANAGED: "true"}});
    kubectl.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))?;
    eventually("its ServiceAccount exists", BOUND, || {
        kubectl.get("serviceaccount", "default")
    })?;
    Ok(kubectl)
}

fn pod(name: &str) -> Value {
    let container = json!({"name": "pause", "image": PAUSE, "imagePullPolicy": "Never"});
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "annotations": {"slo.example.io/class": "latency", "slo.example.io/deadlineMs": "2000"}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
    })
}

/// How often kubelet has restarted edgeward's containers.
fn restarts(node: &RealNode) -> Result<u64> {
    let pods = node.kubectl(NAMESPACE).list("pods", OURS)?;
    let counts = pods
        .iter()
        .filter_map(|pod| pod["status"]["containerStatuses"][0]["restartCount"].as_u64());
    Ok(counts.sum())
}
