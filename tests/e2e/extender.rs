//! kube-scheduler asks edgeward where pods run. No webhook is registered.

use edgeward_harness::documentation::documented;
use edgeward_harness::prelude::*;

e2e! { "extender::kube_scheduler_sends_pods_where_the_webhook_would", Nodes, 40, kube_scheduler_sends_pods_where_the_webhook_would }
/// Pods with an SLO go where a review would send them: to the edge, to the cloud once the edge is full, and to nowhere else if they
/// may not leave. A burst fills the edge exactly. Other pods go where kube-scheduler likes. All of them run while edgeward is down.
fn kube_scheduler_sends_pods_where_the_webhook_would(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::edge_and_cloud(fixture, "1")?;
    let edge = format!("{}-edge-0", fixture.namespace);
    let mut config = nodes.config();
    config["extender"] = json!({"enabled": true});
    let mut edgeward = fixture.live_edgeward(&config)?;
    let _scheduler = scheduler(fixture, &edgeward)?;
    let slo = || json!({"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "60000"});
    let pod = |name: &str, annotations: Value| free_pod(fixture, &nodes, name, annotations);

    // kube-scheduler prefers the larger node.
    fixture.kubectl.create(&pod("free", json!({})))?;
    runs_at(fixture, &nodes, "free", "cloud")?;
    for (name, site) in [("first", "edge"), ("second", "cloud")] {
        let pod = pod(name, slo());
        reviewed(fixture, &edgeward, &pod, site)?;
        fixture.kubectl.create(&pod)?;
        runs_at(fixture, &nodes, name, site)?;
    }

    let mut tied = slo();
    tied["slo.example.io/offloadAllowed"] = json!("false");
    let tied = pod("tied", tied);
    reviewed(fixture, &edgeward, &tied, "edge")?;
    fixture.kubectl.create(&tied)?;
    eventually("kube-scheduler says why the pod waits", BOUND, || {
        let pod = fixture.kubectl.get("pod", "tied")?;
        let told = pod["status"]["conditions"].to_string();
        ensure!(
            told.contains("edgeward chose edge (edge_offload_not_allowed)"),
            "{told}"
        );
        Ok(())
    })?;
    nodes.resize(&edge, "2")?;
    runs_at(fixture, &nodes, "tied", "edge")?;

    // 2.8 CPUs are free.
    nodes.resize(&edge, "4")?;
    let mut burst = workloads::deployment("burst", 8, slo());
    let template = pod("burst", slo());
    burst["spec"]["template"]["spec"] = template["spec"].clone();
    eventually("edgeward sees the larger node", BOUND, || {
        is_reviewed(fixture, &edgeward, &pod("asking", slo()), "edge")
    })?;
    fixture.kubectl.create(&fixture.in_its_domain(burst))?;
    eventually("the burst runs", BOUND, || {
        let pods = fixture.kubectl.list("pods", "app=burst")?;
        let mut sites: Vec<_> = pods.iter().filter_map(|pod| nodes.site_of(pod)).collect();
        sites.sort_unstable();
        ensure!(sites == [["cloud"; 4], ["edge"; 4]].concat(), "{sites:?}");
        Ok(())
    })?;
    let filtered = edgeward.count(
        "edgeward_extender_calls_total",
        &[("verb", "filter"), ("verdict", "edge")],
    )?;
    ensure!(filtered >= 6, "{filtered}");

    edgeward.kill()?;
    for (name, annotations) in [("alone", slo()), ("alone-and-free", json!({}))] {
        fixture.kubectl.create(&pod(name, annotations))?;
        runs_at(fixture, &nodes, name, "cloud")?;
    }
    Ok(())
}

/// Another kube-scheduler, configured as the guide shows. Its name is that of the test's namespace. The timeout is longer, so that
/// a busy machine does not matter.
fn scheduler(fixture: &Fixture<'_>, edgeward: &Edgeward<'_>) -> Result<Process> {
    let shown = documented("yaml", "kind: KubeSchedulerConfiguration")?;
    let mut config: Value = serde_saphyr::from_str(shown)?;
    let ca = fixture.dir.join("edgeward.crt");
    fs::write(&ca, &edgeward.ca)?;
    config["profiles"][0]["schedulerName"] = json!(fixture.namespace);
    let extender = &mut config["extenders"][0];
    extender["urlPrefix"] = json!(edgeward.url.replace("/mutate", "/extender"));
    extender["tlsConfig"] = json!({"caFile": ca});
    extender["httpTimeout"] = json!("30s");
    for verb in ["filter", "prioritize"] {
        let field = &mut extender[&format!("{verb}Verb")];
        ensure!(field == verb, "{field}");
        *field = json!(format!("{verb}?timeout=30s"));
    }
    fixture.another_scheduler(&config)
}

/// A pod of 600 millicores for that scheduler, which may run at both sites.
fn free_pod(fixture: &Fixture<'_>, nodes: &Nodes<'_>, name: &str, annotations: Value) -> Value {
    let mut pod = workloads::pod_of(name, annotations, "600m");
    pod["spec"]["schedulerName"] = json!(fixture.namespace);
    pod["spec"]["tolerations"] = json!([nodes.toleration(), {"key": "cloud", "operator": "Exists"}]);
    pod["spec"]["affinity"] = nodes.affinity();
    fixture.in_its_domain(pod)
}

/// Waits until a review would send the pod to this site.
fn reviewed(fixture: &Fixture<'_>, edgeward: &Edgeward<'_>, pod: &Value, site: &str) -> Result<()> {
    eventually(&format!("a review says {site}"), BOUND, || {
        is_reviewed(fixture, edgeward, pod, site)
    })
}

fn is_reviewed(fixture: &Fixture<'_>, edgeward: &Edgeward<'_>, pod: &Value, site: &str) -> Result<()> {
    let answer = edgeward.ask(&fixture.namespace, pod)?;
    ensure!(answer["response"]["auditAnnotations"]["site"] == site, "{answer}");
    Ok(())
}

fn runs_at(fixture: &Fixture<'_>, nodes: &Nodes<'_>, name: &str, site: &str) -> Result<()> {
    let bound = eventually(&format!("{name} has a node"), BOUND, || {
        let pod = fixture.kubectl.get("pod", name)?;
        nodes.site_of(&pod).with_context(|| pod["status"].to_string())
    })?;
    ensure!(bound == site, "{name} is at {bound}");
    Ok(())
}
