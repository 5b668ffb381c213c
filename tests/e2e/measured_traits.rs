//! A trait that sites have while a value in a real Prometheus server is within a bound.

use edgeward_harness::live::pod;
use edgeward_harness::prelude::*;
use edgeward_harness::prometheus::{Exporter, Server, program};

e2e! { "measured_traits::pod_runs_only_where_data_is_fresh", Domain, pod_runs_only_where_data_is_fresh }
/// A pod goes to the cloud whose frames are fresh. While they are old, the next one is gated beyond its limit, and its
/// annotations have the value and the bound. An age that swings around the bound does not release it, and fresh frames do.
fn pod_runs_only_where_data_is_fresh(fixture: &Fixture<'_>) -> Result<()> {
    let exporter = Exporter::start(fixture.runtime.handle())?;
    let is_old = |seconds: u32| exporter.says(&[&format!("age{{site=\"cloud\"}} {seconds}")]);
    is_old(30);
    let server = Server::start(&program()?, &exporter)?;
    let nodes = Nodes::edge_and_cloud(fixture, "8")?;
    let mut config = nodes.gating(&json!({"batch": "1s"}));
    config["explain"] = json!("full");
    config["prometheus"] = json!({
        "url": format!("http://{}", server.address), "period": "1s", "timeout": "1s", "staleness": "10s",
        "traits": [{"name": "FreshFrames", "query": "max by (site) (age)", "atMost": 60}],
    });
    let (_edgeward, _registered) = fixture.registered_live(&config)?;
    let asking = |name: &str| {
        let mut pod = pod(fixture, name, 100);
        pod["metadata"]["annotations"]["slo.example.io/traits"] = json!("FreshFrames");
        fixture.in_its_domain(pod)
    };
    let becomes = |what: &str, expected: &str| {
        eventually(what, BOUND, || {
            let found = fixture.kubectl.dry_run(&asking("asked"))?;
            let explain = annotation(&found, "explain").unwrap_or_default();
            ensure!(explain.contains(expected), "{found}");
            Ok(())
        })
    };
    becomes("the frames in the cloud are fresh", r#""refusals":{}"#)?;
    let first = fixture.kubectl.create(&asking("first"))?;
    ensure!(outcome(&first)?.starts_with("cloud: "), "{first}");

    is_old(83);
    becomes("the frames are old", r#""value":83"#)?;
    let second = fixture.kubectl.create(&asking("second"))?;
    ensure!(is_gated(&second), "{second}");
    let explain = annotation(&second, "explain").unwrap_or_default();
    for part in [r#""atMost":60"#, r#""trait":"FreshFrames""#, r#""value":null"#] {
        ensure!(explain.contains(part), "{explain}");
    }
    for seconds in [59, 61, 59, 61] {
        is_old(seconds);
        becomes("the age is seen", &format!(r#""value":{seconds}"#))?;
        let second = fixture.kubectl.get("pod", "second")?;
        ensure!(is_gated(&second), "{second}");
        ensure!(annotation(&second, "reason") == Some("held_site_away"), "{second}");
    }
    is_old(59);
    eventually("the second pod goes to the cloud", BOUND, || {
        let second = fixture.kubectl.get("pod", "second")?;
        ensure!(!is_gated(&second), "{second}");
        ensure!(annotation(&second, "site") == Some("cloud"), "{second}");
        Ok(())
    })
}
