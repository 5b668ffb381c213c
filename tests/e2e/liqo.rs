//! edgeward in a cluster that the real Liqo peers with another. Pods on a virtual node run in the other cluster, and their
//! status comes back.

pub(crate) mod definitions;
pub(crate) mod discovered;

use edgeward_harness::control_plane::EDGE_NODES;
use edgeward_harness::peering::{Provider, Strategy, running};
use edgeward_harness::prelude::*;

use crate::commands::fleet_command;

const NOT_ALLOWED: &str = "virtual-node.liqo.io/not-allowed";

/// The sites as a user configures them. Only here do these tests state where a cloud is.
fn config(fixture: &Fixture<'_>) -> Value {
    let mut sites = vec![json!({"name": "edge", "kind": "edge"})];
    sites.extend(fixture.providers().iter().map(Provider::site));
    json!({"sites": sites})
}

fn cloud<'run>(fixture: &Fixture<'run>) -> Result<&'run Provider> {
    fixture.providers().first().context("peered with nobody")
}

/// The line of this site in the output of `edgeward fleet`.
fn site_of_fleet(fixture: &Fixture<'_>, config: &Value, site: &str) -> Result<String> {
    let fleet = fleet_command::edgeward(fixture, config, &["fleet"])?;
    let mut lines = fleet.stdout.lines();
    let line = lines.find(|line| line.split_whitespace().next() == Some(site));
    line.map(str::to_owned)
        .with_context(|| format!("no {site} in {}{}", fleet.stdout, fleet.stderr))
}

/// SLO annotations that every site meets.
fn slo() -> Value {
    json!({"slo.example.io/class": "throughput", "slo.example.io/deadlineMs": "60000"})
}

e2e! { "liqo::edge_fills_before_liqo_cloud", Peering, 106, edge_fills_before_liqo_cloud }
/// A Deployment's pods fill the edge, and the rest run in the provider cluster. In the home cluster each of them is Running.
fn edge_fills_before_liqo_cloud(fixture: &Fixture<'_>) -> Result<()> {
    const REPLICAS: usize = 12;
    /// Each requests 1 CPU.
    const AT_THE_EDGE: usize = 8;
    let (cloud, namespace) = (cloud(fixture)?, &fixture.namespace);
    fixture.offload(namespace, Strategy::Local)?;
    let (_edgeward, _registered) = fixture.registered_live(&config(fixture))?;
    let mut deployment = workloads::deployment("elastic", REPLICAS as u32, slo());
    deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("1");
    fixture.kubectl.create(&deployment)?;

    let pods = running(&fixture.kubectl, "app=elastic", REPLICAS)?;
    let counts = pods.iter().fold(BTreeMap::new(), |mut counts, pod| {
        let where_and_why = (annotation(pod, "site"), annotation(pod, "reason"));
        *counts.entry(where_and_why).or_insert(0) += 1;
        counts
    });
    let expected = [
        ((Some("edge"), Some("edge_feasible_slo_met")), AT_THE_EDGE),
        ((Some(cloud.id), Some("cloud_edge_no_capacity")), REPLICAS - AT_THE_EDGE),
    ];
    ensure!(counts == BTreeMap::from(expected), "{counts:?}");
    for pod in &pods {
        let is_mirrored = pod["metadata"]["labels"]["liqo.io/shadowPod"] == "true";
        let is_there = pod["spec"]["nodeName"]
            .as_str()
            .is_some_and(|node| node.starts_with(cloud.id));
        let is_sent = annotation(pod, "site") == Some(cloud.id);
        ensure!(is_mirrored == is_sent && is_there == is_sent, "{pod}");
    }

    // In the provider cluster they are different pods, on the provider's own nodes. They also carry the decision.
    let there = cloud.kubectl_in(namespace);
    let copies = there.list("pods", "liqo.io/managed-by=shadowpod")?;
    ensure!(copies.len() == REPLICAS - AT_THE_EDGE, "{}", copies.len());
    for copy in &copies {
        let is_run = copy["status"]["phase"] == "Running" && copy["spec"]["nodeSelector"].is_null();
        ensure!(is_run && annotation(copy, "site") == Some(cloud.id), "{copy}");
    }

    let args = ["scale", "deployment", "elastic", &format!("--replicas={AT_THE_EDGE}")];
    fixture.kubectl.run(&args, "")?;
    eventually("the cloud is empty", BOUND, || {
        ensure!(there.list("pods", "")?.is_empty());
        Ok(())
    })?;
    let left = running(&fixture.kubectl, "app=elastic", AT_THE_EDGE)?;
    let is_at_the_edge = |pod: &Value| annotation(pod, "site") == Some("edge");
    ensure!(left.iter().all(is_at_the_edge), "{left:?}");
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Edge,
    Cloud,
    Nowhere,
}

/// The outcome of a pod: the reason, where it runs, and how often it tolerates the virtual nodes' taint.
type Fate = (Option<&'static str>, Place, usize);

/// A pod that fits the edge, a pod that no edge node can hold, and a pod without an SLO.
const KINDS: [&str; 3] = ["small", "large", "plain"];

/// The outcome of each kind by the namespace's strategy, with edgeward's webhook after Liqo's, and before it.
///
/// If edgeward runs first, it learns from the NamespaceOffloading that `Remote` keeps a pod from the edge.
const FATES: [(Strategy, [Fate; 3], [Fate; 3]); 3] = {
    use Place::{Cloud, Edge};
    const FITS: Option<&str> = Some("edge_feasible_slo_met");
    const FULL: Option<&str> = Some("cloud_edge_no_capacity");
    const PINNED: Option<&str> = Some("cloud_pinned_by_pod");
    [
        (
            Strategy::Local,
            [(FITS, Edge, 0), (FULL, Cloud, 1), (None, Edge, 0)],
            [(FITS, Edge, 0), (FULL, Cloud, 1), (None, Edge, 0)],
        ),
        (
            Strategy::LocalAndRemote,
            // kube-scheduler chooses where the last one runs: see `ANYWHERE`.
            [(FITS, Edge, 1), (FULL, Cloud, 1), (None, Edge, 1)],
            [(FITS, Edge, 1), (FULL, Cloud, 2), (None, Edge, 1)],
        ),
        (
            Strategy::Remote,
            [(PINNED, Cloud, 1), (PINNED, Cloud, 1), (None, Cloud, 1)],
            [(PINNED, Cloud, 2), (PINNED, Cloud, 2), (None, Cloud, 1)],
        ),
    ]
};

const ANYWHERE: (Strategy, &str) = (Strategy::LocalAndRemote, "plain");

e2e! { "liqo::liqo_and_edgeward_webhooks_coexist", Peering, 105, liqo_and_edgeward_webhooks_coexist }
/// Liqo's webhook and edgeward's change the same pods, in both orders and under every strategy.
fn liqo_and_edgeward_webhooks_coexist(fixture: &Fixture<'_>) -> Result<()> {
    let mut namespaces = Vec::new();
    for (strategy, ..) in FATES {
        let suffix = format!("{strategy:?}").to_lowercase();
        let (namespace, _) = fixture.another_namespace(&suffix, json!({MANAGED: "true"}))?;
        fixture.offload(&namespace, strategy)?;
        namespaces.push(namespace);
    }
    let edgeward = fixture.live_edgeward(&config(fixture))?;
    let names: Vec<_> = namespaces.iter().map(String::as_str).collect();
    let mut complaints = Vec::new();
    for order in ["zz", "aa"] {
        let registered = format!("{order}-edgeward");
        let _registered = fixture.register_as(&registered, &names, &edgeward.url, &edgeward.ca)?;
        let name = |kind: &str| format!("{kind}-{order}");
        for namespace in &namespaces {
            for kind in KINDS {
                let annotations = if kind == "plain" { json!({}) } else { slo() };
                let mut pod = workloads::pod(&name(kind), annotations);
                let cpu = if kind == "large" { "5" } else { "100m" };
                pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu);
                fixture.kubectl_in(namespace).create(&pod)?;
            }
        }
        for (namespace, (strategy, after, before)) in namespaces.iter().zip(FATES) {
            let expected = if order == "zz" { after } else { before };
            for (kind, expected) in KINDS.into_iter().zip(expected) {
                let pod = settled(&fixture.kubectl_in(namespace), &name(kind))?;
                let (reason, place, tolerations) = seen(&pod);
                let place = if (strategy, kind) == ANYWHERE {
                    expected.1
                } else {
                    place
                };
                if (reason, place, tolerations) != expected {
                    complaints.push(format!(
                        "{registered}, {strategy:?}, {kind}: {reason:?}, {place:?}, {tolerations}, not {expected:?}: {pod}"
                    ));
                }
            }
        }
    }
    ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
    Ok(())
}

fn seen(pod: &Value) -> (Option<&str>, Place, usize) {
    let place = match pod["spec"]["nodeName"].as_str() {
        None => Place::Nowhere,
        Some(node) if EDGE_NODES.contains(&node) => Place::Edge,
        Some(_) => Place::Cloud,
    };
    let tolerations = pod["spec"]["tolerations"].as_array().into_iter().flatten();
    let count = tolerations.filter(|one| one["key"] == NOT_ALLOWED).count();
    (annotation(pod, "reason"), place, count)
}

/// The pod, once it runs or kube-scheduler has found no node for it.
fn settled(kubectl: &Kubectl, name: &str) -> Result<Value> {
    eventually("it runs or is unschedulable", BOUND, || {
        let pod = kubectl.get("pod", name)?;
        ensure!(
            pod["status"]["phase"] == "Running" || is_unschedulable(&pod),
            "{}",
            pod["status"]
        );
        Ok(pod)
    })
}
