//! The neighbourhood of an SloPolicy: the few clouds that its pods may use.

use edgeward_harness::prelude::*;
use edgeward_harness::prometheus::{Exporter, Server, program};

const CLOUDS: [&str; 3] = ["near", "mid", "far"];

e2e! { "neighbourhoods::leader_keeps_the_best_clouds", Cluster, leader_keeps_the_best_clouds }
/// The leader writes the nearest cloud to the policy's status, and pods of the policy go to no other, also at a replica that does
/// not lead. A member that is gone is replaced at once. Another that becomes nearer takes its place after the dwell time. Without
/// the neighbourhood the status has no members, and every cloud is allowed.
fn leader_keeps_the_best_clouds(fixture: &Fixture<'_>) -> Result<()> {
    fixture.install_custom_resources()?;
    let (namespace, kubectl) = fixture.namespace_with_policies("shop")?;
    let exporter = Exporter::start(fixture.runtime.handle())?;
    let rtts = |near: f64, mid: f64, far: f64| {
        let says = CLOUDS.iter().zip([near, mid, far]);
        let says: Vec<_> = says
            .map(|(site, rtt)| format!(r#"rtt{{site="{site}"}} {rtt}"#))
            .collect();
        exporter.says(&says.iter().map(String::as_str).collect::<Vec<_>>());
    };
    rtts(0.012, 0.03, 0.06);
    let server = Server::start(&program()?, &exporter)?;
    let nodes = Nodes::new(fixture)?;
    nodes.edge_node("edge-0", "100m")?;
    let mut config = nodes.config();
    let names = nodes.put_clouds(&mut config, &CLOUDS)?;
    config["explain"] = json!("full");
    config["prometheus"] = json!({
        "url": format!("http://{}", server.address), "period": "1s", "queries": {"wanRttSeconds": "max by (site) (rtt)"},
    });
    let leader = fixture.live_edgeward_as("leader", &config)?;
    eventually("the distances are known", BOUND, || {
        for (site, seconds) in CLOUDS.iter().zip([0.012, 0.03, 0.06]) {
            let rtt = leader.metric("edgeward_wan_rtt_seconds", &[("site", site)])?;
            ensure!(rtt >= seconds, "{site}: {rtt}");
        }
        Ok(())
    })?;
    let follower = fixture.live_edgeward_as("follower", &config)?;
    let _registered = fixture.register_as("zz-edgeward", &[&namespace], &follower.url, &follower.ca)?;

    let policy = |neighbourhood: Value| {
        json!({
            "apiVersion": "edgeward.io/v1alpha1", "kind": "SloPolicy", "metadata": {"name": "web"},
            "spec": {"selector": {}, "slo": {"class": "batch"}, "neighbourhood": neighbourhood},
        })
    };
    kubectl.create(&policy(json!({"max": 1, "dwell": "4s"})))?;
    let are_members = |members: &Value| {
        eventually(&format!("the members are {members}"), BOUND, || {
            let status = kubectl.get("slopolicy", "web")?["status"].take();
            ensure!(status["members"] == *members, "{status}");
            Ok(())
        })
    };
    let asked = workloads::pod_of("asked", json!({}), "1");
    let goes_to = |site: &str| {
        eventually(&format!("the pod goes to {site}"), BOUND, || {
            let found = kubectl.dry_run(&asked)?;
            ensure!(annotation(&found, "site") == Some(site), "{found}");
            let name = found["metadata"]["annotations"]["slo.example.io/neighbourhood"].as_str();
            ensure!(name == Some("web"), "{found}");
            let explain = annotation(&found, "explain").unwrap_or_default();
            let refused = explain.matches(r#""not_in_neighbourhood":{"policy":"web"}"#).count();
            ensure!(refused == CLOUDS.len() - 1, "{explain}");
            Ok(())
        })
    };
    are_members(&json!(["near"]))?;
    goes_to("near")?;
    nodes.stop(&names[0])?;
    are_members(&json!(["mid"]))?;
    goes_to("mid")?;
    rtts(0.012, 0.09, 0.06);
    are_members(&json!(["far"]))?;
    goes_to("far")?;

    let without = json!({"spec": {"neighbourhood": null}});
    kubectl.run(
        &["patch", "slopolicy", "web", "--type=merge", "-p", &without.to_string()],
        "",
    )?;
    are_members(&Value::Null)?;
    eventually("every cloud is allowed", BOUND, || {
        let found = kubectl.dry_run(&asked)?;
        let explain = annotation(&found, "explain").unwrap_or_default();
        ensure!(!explain.contains("not_in_neighbourhood"), "{explain}");
        Ok(())
    })
}
