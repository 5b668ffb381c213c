//! Commands of the guide for an installed edgeward: questions about it, and additions to it.

use edgeward_harness::documentation::script;
use edgeward_harness::prelude::*;

/// No kubelet runs the Deployment's pods, so `edgeward check` may find faults, with the exit code 1.
const CHECK_MAY_FIND_FAULTS: &str =
    "edgeward() { command edgeward \"$@\" || { [ $? = 1 ] && [ \"$1\" = check ]; }; }\n";

const CONFIGURED: &str = "ok       configuration";

const GATED: &str = "/gated does not run: ";

/// Questions about the installation and about a gated pod: the page, the first words of the block, and a part of its output.
const QUESTIONS: [(&str, &str, &str); 12] = [
    ("clouds.md", "edgeward fleet", CONFIGURED),
    ("operate.md", "edgeward check", CONFIGURED),
    ("operate.md", "edgeward why", GATED),
    ("operate.md", "edgeward review", "held_no_capacity"),
    ("troubleshoot.md", "edgeward check # the installation", GATED),
    ("troubleshoot.md", "edgeward why pod/NAME -n NAMESPACE #", GATED),
    ("troubleshoot.md", "edgeward why pod/NAME -n NAMESPACE kubectl", GATED),
    ("troubleshoot.md", "kubectl describe pod", GATED),
    ("troubleshoot.md", "kubectl get pods", "held_no_capacity"),
    (
        "troubleshoot.md",
        "edgeward check # makes",
        "DNS:edgeward.edgeward-system.svc",
    ),
    ("troubleshoot.md", "edgeward check --config", "FILE is valid"),
    ("troubleshoot.md", "CA=", "zz-edgeward patched"),
];

/// Asks all questions, with edgeward installed under the default domain and a certificate in files, and `gated` gated.
pub(super) fn questions(fixture: &Fixture<'_>) -> Result<()> {
    opt_in(fixture)?;
    let namespace = &fixture.namespace;
    let mut pod = workloads::pod_of("new", json!({"slo.example.io/class": "batch"}), "700m");
    pod["metadata"]["namespace"] = json!(namespace);
    fs::write(fixture.dir.join("pod.yaml"), pod.to_string())?;
    fs::write(fixture.dir.join("FILE"), json!({"domain": "example.io"}).to_string())?;
    for (page, words, expected) in QUESTIONS {
        let block = script(page, words)?
            .replace("NAMESPACE", namespace)
            .replace("-n shop", &format!("-n {namespace}"))
            .replace("NAME", "gated")
            .replace("camera-inference", "gated");
        let said = fixture.shell(&format!("{CHECK_MAY_FIND_FAULTS}{block}"))?;
        ensure!(said.contains(expected), "{page}, {words}: no {expected:?} in\n{said}");
    }
    Ok(())
}

/// Opts in a new namespace, and sees the decisions on the example pods there.
fn opt_in(fixture: &Fixture<'_>) -> Result<()> {
    let namespace = format!("namespace {}-shop", fixture.namespace);
    let examples = fixture.dir.join("edgeward/examples");
    fs::create_dir(&examples)?;
    let pods = fs::read_to_string(workspace().join("examples/pods.yaml"))?;
    let pods = pods.replace("namespace: shop", &namespace.replace(' ', ": "));
    fs::write(examples.join("pods.yaml"), pods)?;
    let block = script("install.md", "kubectl create namespace shop")?.replace("namespace shop", &namespace);
    let (create, dry_run) = block.rsplit_once('\n').context("one line")?;
    fixture.shell(create)?;
    eventually("the example pods are decided", BOUND, || {
        let said = fixture.shell(dry_run)?;
        ensure!(said.contains("scheduling.example.io/reason: "), "{said}");
        Ok(())
    })?;
    fixture.shell(&format!("kubectl delete {namespace}")).map(drop)
}

/// Adds what is not part of an overlay, and removes it. No edgeward runs.
pub(super) fn additions(fixture: &Fixture<'_>) -> Result<()> {
    for (page, words) in [
        ("clouds.md", "kubectl apply -k edgeward/webhook/strict-sites"),
        ("troubleshoot.md", "kubectl delete validatingadmissionpolicybinding"),
        ("clouds.md", "kubectl apply -k edgeward/deploy/liqo"),
    ] {
        fixture.shell(script(page, words)?)?;
    }
    for folder in ["webhook/strict-sites", "deploy/liqo", "deploy/data", "deploy/moves"] {
        fixture.shell(&format!("kubectl delete --ignore-not-found -k edgeward/{folder}"))?;
    }
    Ok(())
}
