//! A cloud whose nodes are full while its virtual node still promises room.

use std::panic::resume_unwind;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use edgeward_harness::decision::{annotation, is_unschedulable};
use edgeward_harness::fixture::Fixture;
use edgeward_harness::peering::{Provider, Strategy, running};
use edgeward_harness::wait::{BOUND, eventually};
use edgeward_harness::workloads;
use serde_json::{Value, json};

use super::{FAR, NEAR, config, near_and_far, slo};

/// The near cloud's promise is 24 cores. Of its three nodes with 8 each, these are cordoned.
const CORDONED: [&str; 2] = ["near-2", "near-3"];

/// After the first word of a cloud that is full, no pod of that size is sent there.
const TOLD: Duration = Duration::from_secs(5);

/// The near cloud has no room for what its virtual node promises: it closes soon after the first word, and the next pods go to the
/// far cloud. A pod that can never run there closes it for its own controller, and for nobody else. A minute after the last word, one of
/// many pods tries; while it is refused too, the next minute begins. When there is room again one pod tries, then it opens.
pub(crate) fn full_near_cloud(fixture: &Fixture<'_>) -> Result<()> {
    let [near, _far] = near_and_far(fixture)?;
    fixture.offload(&fixture.namespace, Strategy::Local)?;
    let edgeward = fixture.live_edgeward(&config(fixture))?;
    let _registered = fixture.register(&edgeward.url, &edgeward.ca)?;
    goes(fixture, deployment("fills", 8, "1"), "edge")?;

    cordon(near, true)?;
    // Of one tenant alone: only virtual nodes have this label.
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
        let refused = edgeward.count("edgeward_site_refused_pods", &[("site", NEAR)])?;
        ensure!(refused > 0, "{refused}");
        Ok(())
    })?;
    goes(fixture, deployment("next", 4, "1"), FAR)?;

    fixture.kubectl.run(&["delete", "deployment", "first-word"], "")?;
    goes(fixture, deployment("too-soon", 1, "1"), FAR)?;
    let told = Instant::now();
    goes_near(fixture)?;
    println!(
        "liqo: one pod may try {:.1} s after the last word",
        told.elapsed().as_secs_f64()
    );
    one_tries(fixture)?;

    cordon(near, false)?;
    running(&fixture.kubectl, "app=tries", TRYING)?;
    goes(fixture, deployment("too-soon-again", 1, "1"), FAR)?;
    goes_near(fixture)?;
    let opens = fixture.kubectl.create(&pod("opens"))?;
    ensure!(annotation(&opens, "site") == Some(NEAR), "{opens}");
    running(&fixture.kubectl, "app=opens", 1)?;
    goes_near(fixture)?;
    goes(fixture, deployment("again", 4, "1"), NEAR)
}

/// How many pods are created at once when one may try.
const TRYING: usize = 8;

/// While the near cloud has no room, one of them is sent there, and is refused.
fn one_tries(fixture: &Fixture<'_>) -> Result<()> {
    let create = |number: usize| {
        let mut pod = pod("tries");
        pod["metadata"]["name"] = json!(format!("tries-{number}"));
        fixture.kubectl.create(&pod)
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..TRYING).map(|number| scope.spawn(move || create(number))).collect();
        let mut created = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        created.try_for_each(|created| created.map(drop))
    })?;
    let mut sites = sites_of(fixture, "tries")?;
    sites.sort();
    let mut expected = vec![FAR; TRYING - 1];
    expected.push(NEAR);
    ensure!(sites == expected, "{sites:?}");
    refused_there(fixture, "tries")?;
    goes(fixture, deployment("after", 2, "1"), FAR)
}

/// Waits until a pod may go to the near cloud. A dry run is no try, and says who may.
fn goes_near(fixture: &Fixture<'_>) -> Result<()> {
    eventually("a pod may go there again", 2 * BOUND, || {
        let asked = fixture.kubectl.dry_run(&pod("asks"))?;
        let site = annotation(&asked, "site");
        ensure!(site == Some(NEAR), "{site:?}");
        Ok(())
    })
}

/// Where the pods of this application were sent.
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

/// All of its pods are placed at this site, and run.
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

/// A pod of its is bound to the near cloud's virtual node, and the scheduler there has found no node for it.
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
