//! Pods that are restricted to some sites.

use edgeward_harness::prelude::*;
use edgeward_harness::registration::Registration;

use super::{fill, goes, is_gated_for, pod};
use crate::leader::events;

const SITES: &str = "slo.example.io/sites";

fn of_sites(fixture: &Fixture<'_>, name: &str, sites: &str) -> Value {
    let mut pod = pod(fixture, name, 500, 5);
    pod["metadata"]["annotations"][fixture.key(SITES)] = json!(sites);
    pod
}

/// Installs the policy of webhook/strict-sites for the test's namespace and domain.
fn install_strict_sites(fixture: &Fixture<'_>) -> Result<Vec<Registration>> {
    let objects = fixture.kubectl.render(&workspace().join("webhook/strict-sites"))?;
    ensure!(objects.len() == 2, "{objects:?}");
    let objects = objects.into_iter().map(|object| fixture.in_its_domain(object));
    Registration::of_policies(fixture, objects.collect())
}

e2e! { "sites::regional_pod_stays_in_its_region", Domain, regional_pod_stays_in_its_region }
/// Pods restricted to one region never leave it. They stay when another region has room, after their limit, and while edgeward
/// is down. A pod for a region that does not exist is gated, and an Event says why.
fn regional_pod_stays_in_its_region(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::edge_and_cloud(fixture, "1")?;
    let mut config = nodes.gating(&json!({"latency": "2s", "throughput": "2s", "batch": "5s"}));
    for (site, region) in ["eu", "us"].into_iter().enumerate() {
        config["sites"][site]["labels"] = json!({"region": region});
    }
    let mut edgeward = fixture.live_edgeward(&config)?;
    let _registered = fixture.register(&edgeward.url, &edgeward.ca)?;
    fill(fixture, &nodes)?;

    fixture
        .kubectl
        .create(&of_sites(fixture, "american", "region notin (eu)"))?;
    goes(fixture, &nodes, "american", "cloud", "cloud_pinned_by_pod")?;
    fixture
        .kubectl
        .create(&of_sites(fixture, "martian", "region in (mars)"))?;
    is_gated_for(fixture, "martian", "held_site_away")?;
    let event = eventually("that it is gated is told", BOUND, || {
        events::one(fixture, "martian", "Gated")
    })?;
    let note = event["note"].as_str().unwrap_or_default();
    ensure!(note.contains("not_in_sites"), "{note}");

    // The cloud has room for the pod, and its own region only later.
    fixture.kubectl.create(&of_sites(fixture, "european", "region=eu"))?;
    let european = fixture.kubectl.get("pod", "european")?;
    ensure!(european["spec"]["nodeSelector"] == nodes.selector("edge"), "{european}");
    fixture
        .kubectl
        .run(&["delete", "pod", "filler", "--grace-period=0", "--force"], "")?;
    goes(fixture, &nodes, "european", "edge", "edge_pinned_by_pod")?;
    let martian = fixture.kubectl.get("pod", "martian")?;
    ensure!(is_gated(&martian), "{martian}");

    let refused = fixture.kubectl.attempt(
        &["create", "-f", "-"],
        &of_sites(fixture, "typo", "region in (eu").to_string(),
    )?;
    ensure!(
        !refused.succeeded && refused.stderr.contains("is not site names or a selector"),
        "{refused:?}"
    );

    // With edgeward killed, the policy must act alone.
    edgeward.kill()?;
    let _strict = install_strict_sites(fixture)?;
    let is_refused = |pod: &Value| -> Result<()> {
        let said = fixture
            .kubectl
            .attempt(&["create", "--dry-run=server", "-f", "-"], &pod.to_string())?;
        ensure!(
            !said.succeeded && said.stderr.contains("edgeward has not chosen a site"),
            "{said:?}"
        );
        Ok(())
    };
    let arriving = of_sites(fixture, "arriving", "region=eu");
    eventually("the policy is in force", BOUND, || is_refused(&arriving))?;
    let mut bound = arriving.clone();
    bound["spec"]["nodeName"] = json!("somewhere");
    is_refused(&bound)?;
    // Pods that edgeward does not manage, or that state no sites, pass the policy.
    let dry_run = |pod: &Value| fixture.kubectl.dry_run(pod).map(drop);
    dry_run(&pod(fixture, "anywhere", 100, 5))?;
    let with = |pointer: &str, value: Value| {
        let mut pod = arriving.clone();
        pod["metadata"][pointer] = value;
        pod
    };
    let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true}]);
    dry_run(&with("ownerReferences", owner))?;
    dry_run(&with(
        "labels",
        json!({fixture.key("scheduling.example.io/managed"): "false"}),
    ))?;
    // Liqo creates shadow pods.
    let shadow = with("labels", json!({"liqo.io/managed-by": "shadowpod"}));
    is_refused(&shadow)?;
    let account = "--as=system:serviceaccount:liqo:liqo-controller-manager";
    let as_liqo = [
        "create",
        "--dry-run=server",
        account,
        "--as-group=system:masters",
        "-f",
        "-",
    ];
    fixture.kubectl.run(&as_liqo, &shadow.to_string())?;
    let mut gated = arriving.clone();
    gated["spec"]["schedulingGates"] = json!([{"name": fixture.key("scheduling.example.io/awaiting-capacity")}]);
    dry_run(&gated)?;

    let delete = ["delete", "pod", "european", "--grace-period=0", "--force"];
    fixture.kubectl.run(&delete, "")?;
    edgeward.start_again()?;
    let placed = eventually("it is placed again", BOUND, || {
        let created = fixture.kubectl.dry_run(&arriving)?;
        ensure!(
            annotation(&created, "site") == Some("edge") && !is_gated(&created),
            "{created}"
        );
        Ok(created)
    })?;

    // A complete placement passes the policy, and an incomplete one does not.
    edgeward.kill()?;
    let mut written = arriving.clone();
    written["metadata"]["annotations"] = placed["metadata"]["annotations"].clone();
    written["spec"]["nodeSelector"] = placed["spec"]["nodeSelector"].clone();
    dry_run(&written)?;
    for name in ["decision", "site", "decision-id", "timestamp"] {
        let mut less = written.clone();
        let annotations = less["metadata"]["annotations"].as_object_mut().context("annotations")?;
        let key = fixture.key(&format!("scheduling.example.io/{name}"));
        annotations.remove(&key).context(key)?;
        is_refused(&less)?;
    }
    written["spec"]["nodeSelector"] = json!({});
    is_refused(&written)
}
