//! A near cloud that reports its free room.

use edgeward_harness::peering::{Strategy, running};
use edgeward_harness::prelude::*;

use super::{FAR, NEAR, config, near_and_far, slo};

/// Pods of one core for which the near cloud has room. Its virtual node promises room for 24.
const ROOM: usize = 16;
const BURST: usize = 50;

e2e! { "liqo::reported_room_bounds_a_burst", Peering, reported_room_bounds_a_burst }
/// The near cloud has less room than its virtual node promises, and says so. A burst sends no more pods there than fit, and one
/// for each replica. The others go to the far cloud, and no scheduler refuses a pod.
fn reported_room_bounds_a_burst(fixture: &Fixture<'_>) -> Result<()> {
    let [near, far] = near_and_far(fixture)?;
    fixture.offload(&fixture.namespace, Strategy::Local)?;
    let definitions = workspace().join("deploy/crds").display().to_string();
    near.kubectl()
        .run(&["apply", "--server-side", "-k", &definitions], "")?;
    near.kubectl()
        .run(&["label", "nodes", "--all", "node.role/edge=true"], "")?;
    near.kubectl().run(&["cordon", "near-3"], "")?;
    let of_near = json!({"sites": [{"name": "edge", "kind": "edge"}], "report": {}});
    let _reporter = fixture.edgeward_at(near, &of_near)?;
    eventually("the near cloud reports", BOUND, || {
        let status = near.kubectl().get("clusterreport", "self")?["status"].take();
        let shape = &status["room"][0];
        ensure!(shape["cpu"] == "8" && shape["nodes"] == 2, "{status}");
        Ok(())
    })?;

    fixture.allow_reports()?;
    fixture.reads_report_of(near.kubectl(), &near.kubeconfig())?;
    let mut config = config(fixture);
    config["explain"] = json!("full");
    let sites = config["sites"].as_array_mut().context("no sites")?;
    let of_near = sites
        .iter_mut()
        .find(|site| site["name"] == NEAR)
        .context("no near cloud")?;
    of_near["report"] = json!({"kubeconfigSecretRef": {"name": "edgeward-neighbours", "key": "near"}});
    let (_edgeward, _registered) = fixture.registered_live(&config)?;
    let large = workloads::pod_of("large", slo(), "12");
    eventually("the report is read", BOUND, || {
        let asked = fixture.kubectl.dry_run(&large)?;
        let explain = annotation(&asked, "explain").unwrap_or_default();
        ensure!(explain.contains(r#""source":"report""#), "{explain}");
        Ok(())
    })?;
    fixture.kubectl.create(&deployment("fills", 8))?;
    running(&fixture.kubectl, "app=fills", 8)?;

    fixture.kubectl.create(&deployment("burst", BURST))?;
    let pods = running(&fixture.kubectl, "app=burst", BURST)?;
    let count = |site| pods.iter().filter(|pod| annotation(pod, "site") == Some(site)).count();
    let [at_near, at_far] = [NEAR, FAR].map(count);
    println!("liqo: {BURST} pods: {at_near} near, {at_far} far; room for {ROOM} near");
    ensure!(
        (ROOM - 1..=ROOM + 1).contains(&at_near) && at_near + at_far == BURST,
        "{at_near}, {at_far}"
    );
    for provider in [near, far] {
        let copies = provider.kubectl_in(&fixture.namespace).list("pods", "")?;
        let refused = copies.iter().filter(|pod| is_unschedulable(pod)).count();
        ensure!(refused == 0, "{refused} of {} in {}", copies.len(), provider.id);
    }
    Ok(())
}

fn deployment(name: &str, replicas: usize) -> Value {
    let mut deployment = workloads::deployment(name, replicas as u32, slo());
    deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("1");
    deployment
}
