//! Gangs of Kubernetes' own PodGroups, on a control plane that serves and schedules them.

use edgeward_harness::clusters::in_another_with_gangs;
use edgeward_harness::prelude::*;

const GANG: u32 = 4;

e2e! { "groups::pod_group_runs_at_one_site", Machine, pod_group_runs_at_one_site }
/// A PodGroup of four pods of 1 CPU, and room for two at the edge. Three pods wait for the fourth, and then all run in the cloud.
/// With the WAN down, another gang waits whole; none of its pods is Unschedulable. With room for four at the edge, all run
/// there.
fn pod_group_runs_at_one_site(fixture: &Fixture<'_>) -> Result<()> {
    in_another_with_gangs(fixture, "groups::pod_groups", |fixture| {
        fixture.allow_groups()?;
        let nodes = Nodes::edge_and_cloud(fixture, "4")?;
        let config = nodes.gating(&json!({"latency": "5s", "throughput": "5s", "batch": "5s"}));
        let (_edgeward, _registered) = fixture.registered_live(&config)?;
        fixture.kubectl.create(&workloads::pod_of("filler", slo(), "2"))?;
        bound_at_edge(fixture, &nodes, "filler")?;
        start(fixture, "first", GANG - 1)?;
        are_gated(fixture, "first", GANG - 1)?;
        fixture.kubectl.create(&member("first", GANG - 1))?;
        run_at(fixture, &nodes, "first", "cloud")?;

        nodes.wan.close();
        eventually("no cloud answers", BOUND, || {
            let asking = fixture.kubectl.dry_run(&workloads::pod_of("asking", slo(), "3"))?;
            ensure!(is_gated(&asking), "{asking}");
            Ok(())
        })?;
        start(fixture, "second", GANG)?;
        are_gated(fixture, "second", GANG)?;
        let rival = workloads::pod_of("rival", slo(), "1");
        fixture.kubectl.create(&rival)?;
        bound_at_edge(fixture, &nodes, "rival")?;
        are_gated(fixture, "second", GANG)?;
        nodes.resize(&format!("{}-edge-0", fixture.namespace), "7")?;
        run_at(fixture, &nodes, "second", "edge")
    })
}

fn bound_at_edge(fixture: &Fixture<'_>, nodes: &Nodes<'_>, name: &str) -> Result<()> {
    eventually(&format!("{name} is at the edge"), BOUND, || {
        let pod = fixture.kubectl.get("pod", name)?;
        ensure!(nodes.site_of(&pod) == Some("edge"), "{}", pod["status"]);
        Ok(())
    })
}

fn slo() -> Value {
    json!({"slo.example.io/class": "batch"})
}

fn member(gang: &str, number: u32) -> Value {
    let mut pod = workloads::pod_of(&format!("{gang}-{number}"), slo(), "1");
    pod["metadata"]["labels"] = json!({"gang": gang});
    pod["spec"]["schedulingGroup"] = json!({"podGroupName": gang});
    pod
}

/// Creates a PodGroup and some of its pods.
fn start(fixture: &Fixture<'_>, gang: &str, pods: u32) -> Result<()> {
    let group = json!({
        "apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": gang},
        "spec": {"schedulingPolicy": {"gang": {"minCount": GANG}}},
    });
    fixture.kubectl.run(&["create", "-f", "-"], &group.to_string())?;
    (0..pods).try_for_each(|number| fixture.kubectl.create(&member(gang, number)).map(drop))
}

fn are_gated(fixture: &Fixture<'_>, gang: &str, pods: u32) -> Result<()> {
    eventually(&format!("{gang} is gated"), BOUND, || {
        let all = fixture.kubectl.list("pods", &format!("gang={gang}"))?;
        let gated = all
            .iter()
            .filter(|pod| is_gated(pod) && annotation(pod, "reason") == Some("held_group"));
        ensure!(gated.count() == pods as usize, "{all:?}");
        Ok(())
    })
}

fn run_at(fixture: &Fixture<'_>, nodes: &Nodes<'_>, gang: &str, site: &str) -> Result<()> {
    eventually(&format!("{gang} runs at {site}"), BOUND, || {
        let all = fixture.kubectl.list("pods", &format!("gang={gang}"))?;
        let here = all
            .iter()
            .filter(|pod| nodes.site_of(pod) == Some(site) && pod["status"]["phase"] == "Running");
        ensure!(here.count() == GANG as usize, "{all:?}");
        Ok(())
    })
}
