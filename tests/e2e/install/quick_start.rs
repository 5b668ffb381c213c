//! The trial with kwok, by the commands of `docs/guide/install.md`.

use std::net::TcpListener;

use edgeward_harness::documentation::script;
use edgeward_harness::prelude::*;

/// Cleanup after success or failure. Other tests also have nodes with these labels.
const CLEANUP: &str = "kill $EDGEWARD; kubectl delete --ignore-not-found --wait=false -k webhook/base; \
    kubectl delete --ignore-not-found --force --grace-period=0 -f examples/pods.yaml; \
    kubectl delete --ignore-not-found --wait=false namespace/shop; kubectl delete --ignore-not-found node edge-0 cloud-0; \
    kubectl uncordon -l node.role/edge=true";

const BOUNDED: &str =
    "ROUND=$((${ROUND:-0} + 1)); [ $ROUND -lt 120 ] || { kubectl get nodes; edgeward fleet; exit 1; } >&2";

e2e! { "quick_start::with_kwok", Cluster, with_kwok }
/// Two nodes, edgeward as a process, and pods that go to the edge and then to the cloud.
fn with_kwok(fixture: &Fixture<'_>) -> Result<()> {
    let checkout = workspace();
    for file in [
        "deploy/base/namespace.yaml",
        "examples/pods.yaml",
        "webhook/base/kustomization.yaml",
        "webhook/base/mutatingwebhookconfiguration.yaml",
        "webhook/base/validatingadmissionpolicy.yaml",
        "webhook/base/validatingadmissionpolicy-hints.yaml",
    ] {
        let to = fixture.dir.join(file);
        fs::create_dir_all(to.parent().context("a folder")?)?;
        // A longer timeout, so that a busy machine still decides the pod.
        let text = fs::read_to_string(checkout.join(file))?;
        fs::write(to, text.replace("timeoutSeconds: 1\n", "timeoutSeconds: 30\n"))?;
    }
    let label = script("install.md", "kubectl label node EDGE-NODE")?;
    let label = label.replace("EDGE-NODE", "edge-0").replace("CLOUD-NODE", "cloud-0");
    // Nodes get their labels and the taint once more, as in a cluster that exists.
    let steps = [
        script("install.md", "for SITE")?,
        "kubectl label node edge-0 node.role/edge-",
        "kubectl label node cloud-0 node.role/cloud-",
        "kubectl taint node cloud-0 cloud-",
        label.as_str(),
        script("install.md", "API=")?,
        script("install.md", "decided()")?,
    ];
    // Both listeners stay open until both ports are known, so that the ports differ.
    let ports = [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?];
    let [admission, health] = [ports[0].local_addr()?.port(), ports[1].local_addr()?.port()];
    drop(ports);
    let steps = steps
        .join("\n")
        .replace("127.0.0.1:8443", &format!("127.0.0.1:{admission}"))
        .replace("127.0.0.1:8080", &format!("127.0.0.1:{health}"))
        // A person would notice an endless loop; the test needs a limit.
        .replace("do sleep 1; done", &format!("do {BOUNDED}; sleep 1; done"));
    let said = fixture.shell(&format!("EDGEWARD=; trap '{CLEANUP}' EXIT\n{steps}"))?;
    let place = |text: &str| said.find(text).with_context(|| format!("{text:?} is not in {said}"));
    let (before, after) = (
        place("scheduling.example.io/reason: edge_feasible_slo_met")?,
        place("scheduling.example.io/reason: cloud_edge_no_capacity")?,
    );
    let why = said
        .lines()
        .find(|line| line.starts_with("shop/camera-inference "))
        .with_context(|| said.clone())?;
    ensure!(before < after && why.contains("cloud"), "{said}");
    Ok(())
}
