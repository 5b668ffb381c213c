//! `kubectl edgeward why` explains where a pod runs, or why it does not run.

use std::os::unix::fs::symlink;

use edgeward_harness::documentation::unnamed_keys;
use edgeward_harness::fixture::{manifest, with_long_timeout};
use edgeward_harness::live::runs;
use edgeward_harness::prelude::*;

/// A domain of its own, so that no other test's edgeward releases this test's gated pods.
const DOMAIN: &str = "why.example";

const GATE: &str = "scheduling.why.example/awaiting-capacity";

fn pod(name: &str) -> Value {
    let slo = json!({"slo.why.example/class": "batch", "slo.why.example/deadlineMs": "600000"});
    workloads::pod_of(name, slo, "900m")
}

/// The nodes' configuration under that domain, with gating.
fn config(nodes: &Nodes<'_>) -> Value {
    let mut config = nodes.config();
    config["domain"] = json!(DOMAIN);
    config["onNoCapacity"] = json!("hold");
    config["holdLimits"] = json!({"latency": "1h", "throughput": "1h", "batch": "1h"});
    config
}

/// Runs the command as a user would. kubectl finds edgeward under its plugin name. edgeward finds its configuration in the
/// ConfigMap that its Deployment names, and its Lease in the same namespace.
struct Asking<'s, 'run> {
    fixture: &'s Fixture<'run>,
    deployment: String,
}

impl<'s, 'run> Asking<'s, 'run> {
    fn new(fixture: &'s Fixture<'run>, config: &Value) -> Result<Self> {
        fs::create_dir(fixture.dir.join("bin"))?;
        symlink(fixture.program, fixture.dir.join("bin/kubectl-edgeward"))?;
        let home = fixture.home()?;
        fixture.kubectl_in(&home).create(&json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "edgeward-config"},
            "data": {"config.yaml": config.to_string()},
        }))?;
        let mut deployment = workloads::deployment("edgeward", 0, json!({}));
        let container = &mut deployment["spec"]["template"]["spec"]["containers"][0];
        container["args"] = json!(["serve", "--config-map", "edgeward-config"]);
        fixture.kubectl_in(&home).create(&deployment)?;
        Ok(Self {
            fixture,
            deployment: format!("{home}/edgeward"),
        })
    }

    fn why(&self, namespace: &str, args: &str) -> Result<String> {
        let (bin, deployment) = (self.fixture.dir.join("bin"), &self.deployment);
        let script = format!(
            "PATH={}:$PATH; kubectl edgeward why {args} -n {namespace} --deployment {deployment}",
            bin.display()
        );
        self.fixture
            .kubectl
            .shell(&script, &self.fixture.kubeconfig(), &self.fixture.dir)
    }

    /// Fails unless the answer begins with `first` and contains these lines.
    fn says(&self, pod: &str, first: &str, others: &[&str]) -> Result<()> {
        let namespace = &self.fixture.namespace;
        let text = self.why(namespace, &format!("pod/{pod}"))?;
        let expected = format!("{namespace}/{pod} {first}");
        ensure!(text.starts_with(&expected), "not {expected:?} in\n{text}");
        for line in others {
            ensure!(text.contains(line), "no {line:?} in\n{text}");
        }
        Ok(())
    }
}

fn run(fixture: &Fixture<'_>, name: &str) -> Result<()> {
    fixture.kubectl.create(&pod(name))?;
    runs(fixture, name)
}

e2e! { "why::why_explains_each_pod_outcome", Cluster, why_explains_each_pod_outcome }
/// Pods with every outcome: at the edge, in the cloud, gated, undecided, and missing.
fn why_explains_each_pod_outcome(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::new(fixture)?;
    let edge = nodes.edge_node("edge-0", "1")?;
    let cloud = nodes.cloud_node("cloud-0")?;
    let config = config(&nodes);
    let mut edgeward = fixture.live_edgeward(&config)?;
    let _registered = fixture.register_under(DOMAIN, &with_long_timeout(manifest()?), &edgeward.url, &edgeward.ca)?;
    let outcome = |expected: &str| {
        eventually(&format!("a pod: {expected}"), BOUND, || {
            let pod = fixture.kubectl.dry_run(&pod("asking"))?;
            let reason = &pod["metadata"]["annotations"]["scheduling.why.example/reason"];
            ensure!(reason == expected, "{reason}");
            Ok(())
        })
    };
    let asking = Asking::new(fixture, &config)?;

    outcome("edge_feasible_slo_met")?;
    run(fixture, "near")?;
    let first = format!("runs on node {edge} of site edge: it fits and meets its SLO (edge_feasible_slo_met)\n");
    // The pod's own room counts as free.
    asking.says(
        "near",
        &first,
        &[
            "asks for  batch, deadline 600000 ms, priority 5, cpu 900m",
            "now       site edge: ",
        ],
    )?;

    outcome("cloud_edge_no_capacity")?;
    run(fixture, "far")?;
    let first = format!("runs on node {cloud} of site cloud: the edge has no room");
    let then = "edge: fits 0 nodes, ETA 1900 ms, refused: it has no room (no_room)\n";
    asking.says(
        "far",
        &first,
        &[then, "now       site cloud: ", "free at most cpu 100m (no_room)"],
    )?;
    fixture.kubectl.run(&["delete", "pod", "near", "--now"], "")?;
    let changed = ["changed   site cloud → edge\n", "edge: nodes that it fits 0 → 1\n"];
    eventually("it would be decided otherwise", BOUND, || {
        asking.says("far", &first, &changed)
    })?;
    let json: Value = serde_json::from_str(&asking.why(&fixture.namespace, "far -o json")?)?;
    ensure!(
        json["kind"] == "PodExplanation" && json["decided"]["site"] == "cloud" && json["now"]["site"] == "edge",
        "{json:#}"
    );
    let unnamed = unnamed_keys(include_str!("../../../docs/reference/output.md"), &json);
    ensure!(unnamed.is_empty(), "output.md does not name {unnamed:?}");
    ensure!(json["standing"]["node"] == *cloud, "{json:#}");

    run(fixture, "near-again")?;
    nodes.wan.close();
    outcome("held_no_capacity")?;
    for name in ["first", "second"] {
        let created = fixture.kubectl.create(&pod(name))?;
        let gates = &created["spec"]["schedulingGates"];
        ensure!(gates[0]["name"] == GATE, "{gates}");
    }
    let said = [
        "decided   gate: ",
        "now       gate: ",
        "nothing answers there (unreachable)",
        "kube-scheduler: ",
    ];
    let mut ahead = Vec::new();
    for name in ["first", "second"] {
        eventually("it is told for how long it is gated", BOUND, || {
            let json: Value = serde_json::from_str(&asking.why(&fixture.namespace, &format!("{name} -o json"))?)?;
            ensure!(json["standing"]["gatedSeconds"].as_u64() > Some(0), "{json:#}");
            let before = format!("{}/{name} does not run: gated by edgeward for ", fixture.namespace);
            let after =
                ": no site can be chosen for it yet; it waits behind edgeward's scheduling gate (held_no_capacity)";
            let answer = json["answer"].as_str().context("no answer")?;
            let waited = answer.strip_prefix(&before).and_then(|rest| rest.strip_suffix(after));
            ensure!(waited.is_some_and(|waited| waited.ends_with(['s', 'm'])), "{answer}");
            Ok(())
        })?;
        asking.says(name, "does not run: gated by edgeward for ", &said)?;
        let json: Value = serde_json::from_str(&asking.why(&fixture.namespace, &format!("{name} -o json"))?)?;
        ensure!(json["queue"]["gated"] == 2, "{json:#}");
        ahead.push(json["queue"]["ahead"].as_u64());
    }
    // The pods were created in the same second, so their uids decide the order.
    ahead.sort_unstable();
    ensure!(ahead == [Some(0), Some(1)], "{ahead:?}");

    let mut named = pod("named");
    named["spec"]["nodeName"] = json!(cloud);
    fixture.kubectl.create(&named)?;
    let text = asking.why(&fixture.namespace, "named")?;
    let cause = ": edgeward did not decide it: it was created with its nodeName, which edgeward leaves alone (";
    let first = text.lines().next().context("an answer")?;
    ensure!(
        first.contains(cause) && first.contains("; or edgeward did not answer"),
        "{text}"
    );

    let (namespace, kubectl) = fixture.another_namespace("unlabelled", json!({}))?;
    let mut nowhere = pod("nowhere");
    nowhere["spec"]["nodeSelector"] = json!({"why.example/nowhere": "true"});
    kubectl.create(&nowhere)?;
    let text = eventually("kube-scheduler finds no node", BOUND, || {
        let text = asking.why(&namespace, "nowhere")?;
        ensure!(text.contains("kube-scheduler finds no node for it: "), "{text}");
        Ok(text)
    })?;
    let cause = format!("namespace {namespace} is not labelled scheduling.why.example/managed=true");
    let first = text.lines().next().context("an answer")?;
    ensure!(
        first.ends_with(&format!(": edgeward did not decide it: {cause}")),
        "{text}"
    );

    let nobody = asking
        .why(&fixture.namespace, "pod/nobody")
        .err()
        .context("an answer about nobody")?;
    let expected = format!("there is no pod {}/nobody", fixture.namespace);
    ensure!(nobody.to_string().contains(&expected), "{nobody}");

    edgeward.kill()?;
    without_anybody(fixture, &asking, "first")
}

/// With every replica dead, `why` says so for a gated pod, and `release --all` under the wrong domain says so too.
fn without_anybody(fixture: &Fixture<'_>, asking: &Asking<'_, '_>, gated: &str) -> Result<()> {
    let namespace = &fixture.namespace;
    let first = eventually("nobody leads", BOUND, || {
        let text = asking.why(namespace, gated)?;
        let first = text.lines().next().context("an answer")?;
        let expected = ": it is not being released: no replica leads by the Lease ";
        ensure!(first.contains(expected), "{text}");
        Ok(first.to_owned())
    })?;
    let command = format!("edgeward release {gated} -n {namespace} --domain={DOMAIN}");
    ensure!(
        first.ends_with(&format!("; start a replica, or remove its gate: {command}")),
        "{first}"
    );

    let text = fixture.command(&["why", gated, "-n", namespace])?;
    let cause =
        format!(": its gate {GATE} is that of an edgeward with the domain {DOMAIN}, and example.io was asked about");
    let first = text.stdout.lines().next().unwrap_or_default();
    ensure!(text.succeeded && first.contains(&cause), "{text:?}");

    // The domain is only assumed, so the command fails while other pods stay gated.
    let all = format!("edgeward release --all --domain {DOMAIN}");
    let assumed = fixture.command(&["release", "--all"])?;
    ensure!(
        !assumed.succeeded && assumed.stderr.contains(&format!(" to release them: {all}\n")),
        "{assumed:?}"
    );
    // A domain that was named explicitly may be one of several, so the command succeeds with a hint.
    let named = fixture.command(&["release", "--all", "--domain", "nobody.example"])?;
    ensure!(named.succeeded && named.stderr.contains(&all), "{named:?}");

    let args: Vec<_> = command.split(' ').skip(1).collect();
    let one = fixture.command(&args)?;
    ensure!(one.succeeded && one.stdout.contains(" released\n"), "{one:?}");
    let args: Vec<_> = all.split(' ').skip(1).collect();
    let rest = fixture.command(&args)?;
    ensure!(rest.succeeded && rest.stdout.contains("1 released"), "{rest:?}");
    let again = fixture.command(&["release", "--all"])?;
    ensure!(again.succeeded && !again.stderr.contains(DOMAIN), "{again:?}");
    Ok(())
}
