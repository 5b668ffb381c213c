//! A cloud whose nodes are full while its virtual node still promises room.

use edgeward_harness::peering::{Provider, Strategy, running};
use edgeward_harness::prelude::*;

use super::{FAR, NEAR, config, near_and_far, slo};

/// The near cloud promises 24 cores: three nodes with 8 each. These two are cordoned.
const CORDONED: [&str; 2] = ["near-2", "near-3"];

/// After the first refusal by a full cloud, edgeward stops sending pods of that size within this time.
const TOLD: Duration = Duration::from_secs(5);

e2e! { "liqo::full_near_cloud_sends_pods_to_far", Peering, full_near_cloud_sends_pods_to_far }
/// The near cloud lacks the room that its virtual node promises. It closes soon after the first refusal, and the next pods go
/// to the far cloud. A pod that can never run there closes it only for its own controller. A minute after the last refusal the
/// cloud opens again, until another pod is refused. When the refused pod starts, the cloud opens at once.
fn full_near_cloud_sends_pods_to_far(fixture: &Fixture<'_>) -> Result<()> {
    let [near, _far] = near_and_far(fixture)?;
    fixture.offload(&fixture.namespace, Strategy::Local)?;
    let (edgeward, _registered) = fixture.registered_live(&config(fixture))?;
    goes(fixture, deployment("fills", 8, "1"), "edge")?;

    cordon(near, true)?;
    // Only virtual nodes have this label, so the pods of this tenant never fit in the near cloud.
    let mut odd = deployment("odd", 1, "50m");
    odd["spec"]["template"]["spec"]["topologySpreadConstraints"] = json!([{
        "maxSkew": 1,
        "topologyKey": "liqo.io/type",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "odd"}},
    }]);
    fixture.kubectl.create(&odd)?;
    refused_there(fixture, "odd")?;
    goes(fixture, deployment("others", 2, "1"), NEAR)?;
    fixture
        .kubectl
        .run(&["scale", "deployment", "odd", "--replicas=2"], "")?;
    eventually("the other pod of that tenant is sent elsewhere", BOUND, || {
        let mut sites: Vec<_> = sites_of(fixture, "odd")?;
        sites.sort();
        ensure!(sites == [FAR, NEAR], "{sites:?}");
        Ok(())
    })?;

    goes(fixture, deployment("last", 6, "1"), NEAR)?;
    fixture.kubectl.create(&deployment("first-word", 1, "1"))?;
    refused_there(fixture, "first-word")?;
    eventually("edgeward has heard it", TOLD, || {
        ensure!(edgeward.count("edgeward_site_refused_pods", &[("site", NEAR)])? > 0);
        Ok(())
    })?;
    goes(fixture, deployment("next", 4, "1"), FAR)?;

    fixture.kubectl.run(&["delete", "deployment", "first-word"], "")?;
    goes(fixture, deployment("too-soon", 1, "1"), FAR)?;
    let told = Instant::now();
    goes_near(fixture)?;
    println!(
        "liqo: pods may go again {:.1} s after the last word",
        told.elapsed().as_secs_f64()
    );
    fixture.kubectl.create(&pod("second-word"))?;
    refused_there(fixture, "second-word")?;
    goes(fixture, deployment("after", 2, "1"), FAR)?;

    cordon(near, false)?;
    running(&fixture.kubectl, "app=second-word", 1)?;
    goes_near(fixture)?;
    goes(fixture, deployment("again", 4, "1"), NEAR)
}

/// Waits until a pod may go to the near cloud. A dry run sends no pod.
fn goes_near(fixture: &Fixture<'_>) -> Result<()> {
    eventually("a pod may go there again", 2 * BOUND, || {
        let asked = fixture.kubectl.dry_run(&pod("asks"))?;
        ensure!(annotation(&asked, "site") == Some(NEAR));
        Ok(())
    })
}

fn sites_of(fixture: &Fixture<'_>, app: &str) -> Result<Vec<String>> {
    let pods = fixture.kubectl.list("pods", &format!("app={app}"))?;
    let sites = pods
        .iter()
        .map(|pod| annotation(pod, "site").unwrap_or("nowhere").to_owned());
    Ok(sites.collect())
}

fn pod(name: &str) -> Value {
    let mut pod = workloads::pod(name, slo());
    pod["metadata"]["labels"] = json!({"app": name});
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("1");
    pod
}

fn deployment(name: &str, replicas: u32, cpu: &str) -> Value {
    let mut deployment = workloads::deployment(name, replicas, slo());
    deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu);
    deployment
}

/// Fails unless all of the Deployment's pods are placed at this site and run.
fn goes(fixture: &Fixture<'_>, deployment: Value, site: &str) -> Result<()> {
    fixture.kubectl.create(&deployment)?;
    let name = deployment["metadata"]["name"].as_str().context("a name")?;
    let count = deployment["spec"]["replicas"].as_u64().context("replicas")?;
    let pods = running(&fixture.kubectl, &format!("app={name}"), count as usize)?;
    ensure!(
        pods.iter().all(|pod| annotation(pod, "site") == Some(site)),
        "{name}: not all at {site}: {pods:?}"
    );
    Ok(())
}

/// Waits until one of the pods is bound to the near cloud's virtual node and the scheduler there has found no node for it.
fn refused_there(fixture: &Fixture<'_>, name: &str) -> Result<()> {
    eventually("the cloud's scheduler has refused it", BOUND, || {
        let pods = fixture.kubectl.list("pods", &format!("app={name}"))?;
        let is_refused = |pod: &Value| pod["spec"]["nodeName"] == NEAR && is_unschedulable(pod);
        ensure!(pods.iter().any(is_refused), "{pods:?}");
        Ok(())
    })
}

fn cordon(cloud: &Provider, is_cordoned: bool) -> Result<()> {
    let verb = if is_cordoned { "cordon" } else { "uncordon" };
    CORDONED
        .iter()
        .try_for_each(|node| cloud.kubectl().run(&[verb, node], "").map(drop))
}
