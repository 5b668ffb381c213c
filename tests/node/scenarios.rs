//! What edgeward's pods do on a real node.

use std::net::SocketAddr;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use edgeward::testkit::{BODY_LIMIT, ORDINARY_BODY};
use edgeward_harness::cert_manager::CertManager;
use edgeward_harness::helm::Helm;
use edgeward_harness::hostile_bodies::pressure::{Limits, MOST_KIB, Target, press};
use edgeward_harness::installation::WEBHOOK;
use edgeward_harness::pki::Authority;
use edgeward_harness::prelude::*;
use edgeward_harness::wait::TIMEOUT;

use crate::installed::{Installed, image, published, rolled_out};
use crate::real_node::{NODE, PAUSE, RealNode};

/// Selects edgeward's pods.
const OURS: &str = "app.kubernetes.io/name=edgeward";

/// How `pgrep` finds edgeward's process.
const PROCESS: &str = "^/usr/local/bin/edgeward serve";

/// The name in edgeward's certificate.
const SERVICE: &str = "edgeward.edgeward-system.svc";

const ADMISSION: u16 = 8443;
const HEALTH: u16 = 8080;

/// The memory limit that the manifests give the container.
const LIMIT_MIB: u64 = 256;

/// How many mixtures of hostile bodies are tried.
const SEEDS: u64 = 30;

const DECISION: &str = "decision";

/// Of so many pods that are created during an update, one is to run. The others are dry runs.
const OF: usize = 10;

pub(crate) fn self_managed(node: &RealNode) -> Result<()> {
    let _installed = Installed::release(node, "install.yaml")?;
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
    let _installed = Installed::release(node, "install-cert-manager.yaml")?;
    pods_are_decided_and_run(node, "cert-manager")
}

pub(crate) fn chart(node: &RealNode) -> Result<()> {
    let (program, kubeconfig) = (Helm::obtain(node.dir())?, node.kubeconfig().display().to_string());
    let helm = |args: &[&str]| program.run(&[args, &["--namespace", NAMESPACE, "--kubeconfig", &kubeconfig]].concat());
    let chart = published(&format!("edgeward-{}.tgz", image().1))?.display().to_string();
    let namespace = workspace().join("deploy/base/namespace.yaml").display().to_string();
    node.kubectl(NAMESPACE).run(&["apply", "-f", &namespace], "")?;
    let certificate = "certificates.source=self-managed";
    let installed = helm(&["install", "edgeward", &chart, "--wait", "--set", certificate]);
    let ended = installed.and_then(|_| pods_are_decided_and_run(node, "chart"));
    helm(&["uninstall", "edgeward", "--wait"])?;
    ended
}

pub(crate) fn files(node: &RealNode) -> Result<()> {
    // The overlay reads the certificate from its checkout, so it gets one of its own.
    let checkout = node.dir().join("files/edgeward");
    fs::create_dir_all(&checkout)?;
    let copied = Command::new("cp")
        .arg("-r")
        .args(["certs", "deploy", "webhook"].map(|folder| workspace().join(folder)))
        .arg(&checkout)
        .status()?;
    ensure!(copied.success(), "{copied}");
    let authority = Authority::new()?;
    let pair = authority.server(&[SERVICE])?;
    let files = [
        ("ca.crt", &authority.certificate),
        ("tls.crt", &pair.certificate),
        ("tls.key", &pair.key),
    ];
    for (file, pem) in files {
        fs::write(checkout.join("certs/files").join(file), pem)?;
    }
    let _installed = Installed::apply(node, "files", &[])?;
    pods_are_decided_and_run(node, "files")
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
    eventually("the update ends, and the old replicas are gone", 2 * BOUND, || {
        let number = created.len();
        let pod = pod(&format!("during-update-{number}"));
        let is_kept = number.is_multiple_of(OF);
        created.push(if is_kept {
            kubectl.create(&pod)
        } else {
            kubectl.dry_run(&pod)
        }?);
        let deployment = node.kubectl(NAMESPACE).get("deployment", "edgeward")?;
        let status = &deployment["status"];
        let is_over = status["observedGeneration"] == deployment["metadata"]["generation"]
            && status["updatedReplicas"] == status["replicas"]
            && status["availableReplicas"] == status["replicas"];
        let left = node.kubectl(NAMESPACE).list("pods", OURS)?.len();
        ensure!(is_over && status["replicas"] == left, "{left}: {status}");
        Ok(())
    })?;
    rolled_out(&node.kubectl(NAMESPACE))?;
    for pod in &created {
        ensure!(annotation(pod, DECISION) == Some("edge"), "{pod:#}");
    }
    println!(
        "{namespace}: {} pods created during an update, all decided; {} of them run",
        created.len(),
        created.len().div_ceil(OF)
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

/// Everyone may call the webhook, and only pods of namespace `monitoring` may read metrics.
pub(crate) fn network_policies(node: &RealNode) -> Result<()> {
    let _installed = Installed::apply(node, "self-managed", &["one-node"])?;
    let server = address(&node.kubectl(NAMESPACE).list("pods", OURS)?[0])?;
    for (namespace, reads_metrics) in [("elsewhere", false), ("monitoring", true)] {
        let kubectl = opted_in(node, namespace)?;
        kubectl.create(&pod("client"))?;
        kubectl.run(&["wait", "--for=condition=Ready", "pod/client", TIMEOUT], "")?;
        let client = address(&kubectl.get("pod", "client")?)?;
        for (port, is_open) in [(ADMISSION, true), (HEALTH, reads_metrics)] {
            eventually(&format!("port {port} as seen from {namespace}"), BOUND, || {
                let connected = connects(&client, &server, port)?;
                ensure!(connected == is_open, "connected: {connected}");
                Ok(())
            })?;
        }
        kubectl.run(&["delete", "namespace", namespace, "--wait=false"], "")?;
    }
    Ok(())
}

fn address(pod: &Value) -> Result<String> {
    let address = pod["status"]["podIP"].as_str();
    Ok(address.with_context(|| format!("no address: {pod:#}"))?.to_owned())
}

/// Whether the pod at the address `from` gets a TCP connection. Looks for the pod's network namespace by its address.
fn connects(from: &str, to: &str, port: u16) -> Result<bool> {
    const SCRIPT: &str = r#"for of in /run/netns/*; do
        if nsenter --net="$of" ip -4 -oneline address | grep --quiet --fixed-strings " $0/"; then
            nsenter --net="$of" timeout 5 bash -c "</dev/tcp/$1/$2" 2>/dev/null && exit 0 || exit 1
        fi
    done
    exit 2"#;
    let status = Command::new("bash")
        .args(["-c", SCRIPT, from, to, &port.to_string()])
        .status()?;
    ensure!(status.code() != Some(2), "no network namespace has the address {from}");
    Ok(status.success())
}

/// Hostile request bodies need less memory than the shipped limit, at which the container would be killed.
pub(crate) fn hostile_bodies(node: &RealNode) -> Result<()> {
    let _installed = Installed::apply(node, "self-managed", &["one-node"])?;
    let kubectl = node.kubectl(NAMESPACE);
    let ours = &kubectl.list("pods", OURS)?[0];
    let address = SocketAddr::new(address(ours)?.parse()?, ADMISSION);
    let configuration = kubectl.get("mutatingwebhookconfiguration", WEBHOOK)?;
    let bundle = configuration["webhooks"][0]["clientConfig"]["caBundle"].as_str();
    let bundle = String::from_utf8(STANDARD.decode(bundle.context("no caBundle")?)?)?;
    let found = Command::new("pgrep").args(["--full", PROCESS]).output()?;
    let pid = String::from_utf8(found.stdout)?.trim().parse().context("no process")?;
    let limits = Limits {
        body: BODY_LIMIT,
        ordinary: ORDINARY_BODY,
    };
    let target = Target::new(address, SERVICE, &bundle, pid)?;
    let resident = tokio::runtime::Runtime::new()?.block_on(press(&target, limits, 0..SEEDS))?;
    println!("hostile bodies: {} MiB at most, of {LIMIT_MIB}", resident.most / 1024);
    ensure!(memory_limit(pid)? == LIMIT_MIB << 20, "the container has another limit");
    ensure!(resident.most <= MOST_KIB, "{resident:?}");
    ensure!(restarts(node)? == 0, "it was killed");
    Ok(())
}

/// The limit of the process's memory cgroup, in bytes.
fn memory_limit(pid: u32) -> Result<u64> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    let of = |line: &str| match line.splitn(3, ':').collect::<Vec<_>>()[..] {
        ["0", "", path] => Some(format!("/sys/fs/cgroup{path}/memory.max")),
        [_, "memory", path] => Some(format!("/sys/fs/cgroup/memory{path}/memory.limit_in_bytes")),
        _ => None,
    };
    let limits = groups.lines().filter_map(of);
    let limit = limits.flat_map(fs::read_to_string).next().context(groups.clone())?;
    Ok(limit.trim().parse()?)
}

/// A process that does not answer is restarted by its liveness probe. A pod that is created meanwhile is undecided.
pub(crate) fn stopped_process(node: &RealNode) -> Result<()> {
    let _installed = Installed::apply(node, "self-managed", &["one-node"])?;
    let kubectl = opted_in(node, "stopped")?;
    eventually("a pod is decided", BOUND, || {
        let pod = kubectl.dry_run(&pod("before"))?;
        annotation(&pod, DECISION).map(drop).context("it is undecided")
    })?;
    let stopped = Command::new("pkill").args(["-STOP", "--full", PROCESS]).status()?;
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
