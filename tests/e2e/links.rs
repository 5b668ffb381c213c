//! Links between sites, as a real Prometheus server measures them.

use edgeward_harness::balancer::Balancer;
use edgeward_harness::clients;
use edgeward_harness::live::{pod, runs};
use edgeward_harness::prelude::*;
use edgeward_harness::prometheus::{Exporter, Server, program};
use futures::future::try_join_all;

e2e! { "links::transfer_of_an_input_counts", Domain, transfer_of_an_input_counts }
/// The input of a pod takes 343.6 s to the cloud at 50 Mbit/s. The measured bandwidth comes before the stated one. A pod whose
/// deadline is shorter stays at the edge, which is full.
fn transfer_of_an_input_counts(fixture: &Fixture<'_>) -> Result<()> {
    let exporter = Exporter::start(fixture.runtime.handle())?;
    exporter.says(&[r#"bandwidth{source="edge",target="cloud"} 5e7"#]);
    let server = Server::start(&program()?, &exporter)?;
    let nodes = Nodes::edge_and_cloud(fixture, "1")?;
    let mut config = nodes.config();
    config["explain"] = json!("full");
    config["sites"][1]["downlink"] = json!("1G");
    config["prometheus"] = json!({
        "url": format!("http://{}", server.address), "period": "1s", "timeout": "1s", "staleness": "5s",
        "queries": {"linkBandwidthBits": "max by (source, target) (bandwidth)"},
    });
    let (_edgeward, _registered) = fixture.registered_live(&config)?;
    let asking = |deadline: &str| {
        let slo = json!({"slo.example.io/class": "batch", "slo.example.io/deadlineMs": deadline, "slo.example.io/input": "2Gi"});
        fixture.in_its_domain(workloads::pod_of("asked", slo, "500m"))
    };
    fixture.kubectl.create(&pod(fixture, "filler", 800))?;
    runs(fixture, "filler")?;
    let wan_ms = |pod: &Value| -> Result<f64> {
        let explain: Value = serde_json::from_str(annotation(pod, "explain").context("an explanation")?)?;
        explain["cloud"]["wanMs"].as_f64().with_context(|| explain.to_string())
    };
    let is_placed = |deadline: &str, site: &str, seconds: f64| {
        eventually(&format!("deadline {deadline}: {site}"), BOUND, || {
            let found = fixture.kubectl.dry_run(&asking(deadline))?;
            ensure!(annotation(&found, "site") == Some(site), "{found}");
            let wan = wan_ms(&found)?;
            ensure!((1_000.0 * seconds..1_000.0 * seconds + 100.0).contains(&wan), "{wan}");
            Ok(())
        })
    };
    is_placed("400000", "cloud", 343.597)?;
    is_placed("300000", "edge", 343.597)?;
    // Without a measurement the stated bandwidth counts.
    exporter.says(&["up_to_date 1"]);
    is_placed("300000", "cloud", 17.179)
}

e2e! { "links::bandwidth_is_room", Domain, bandwidth_is_room }
/// Two pods of 8 Mbit/s share the cloud's uplink of 20 Mbit/s. The third is gated, with the numbers, until one of them is gone.
fn bandwidth_is_room(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::edge_and_cloud(fixture, "1")?;
    let mut config = nodes.gating(&json!({"batch": "1h"}));
    config["explain"] = json!("full");
    config["sites"][1]["uplink"] = json!("20M");
    let (_edgeward, _registered) = fixture.registered_live(&config)?;
    fixture.kubectl.create(&pod(fixture, "filler", 800))?;
    runs(fixture, "filler")?;
    let mut sending = pod(fixture, "sends", 500);
    sending["metadata"]["annotations"]["kubernetes.io/egress-bandwidth"] = json!("8M");
    let named = |name: &str| {
        let mut pod = sending.clone();
        pod["metadata"]["name"] = json!(name);
        pod
    };
    for name in ["a", "b"] {
        let created = fixture.kubectl.create(&named(name))?;
        ensure!(annotation(&created, "site") == Some("cloud"), "{created}");
    }
    let third = fixture.kubectl.create(&named("c"))?;
    ensure!(is_gated(&third), "{third}");
    let explain = annotation(&third, "explain").unwrap_or_default();
    ensure!(
        explain.contains(r#""no_bandwidth":{"egressBits":8000000,"egressLeftBits":4000000}"#),
        "{explain}"
    );
    // A pod without traffic goes there.
    let other = fixture.kubectl.create(&pod(fixture, "other", 500))?;
    ensure!(annotation(&other, "site") == Some("cloud"), "{other}");
    fixture.kubectl.run(&["delete", "pod", "a"], "")?;
    eventually("the third pod goes to the cloud", BOUND, || {
        let third = fixture.kubectl.get("pod", "c")?;
        ensure!(annotation(&third, "site") == Some("cloud"), "{third}");
        Ok(())
    })
}

e2e! { "links::burst_on_two_replicas_spends_bandwidth_once", Domain, burst_on_two_replicas_spends_bandwidth_once }
/// Two replicas get a burst of pods of 8 Mbit/s for a cloud with 20 Mbit/s. Never more than two go there; the others are gated.
fn burst_on_two_replicas_spends_bandwidth_once(fixture: &Fixture<'_>) -> Result<()> {
    const PODS: usize = 10;
    let nodes = Nodes::edge_and_cloud(fixture, "1")?;
    let mut config = nodes.gating(&json!({"batch": "1h"}));
    config["sites"][1]["uplink"] = json!("20M");
    fixture.count_replicas(2)?;
    let replicas = ["a", "b"].map(|name| fixture.live_edgeward_as(name, &config));
    let replicas: Vec<_> = replicas.into_iter().collect::<Result<_>>()?;
    let (balancer, authorities) = Balancer::before(fixture, &replicas)?;
    let _registered = fixture.register(&balancer.url(), &authorities)?;
    fixture.kubectl.create(&pod(fixture, "filler", 800))?;
    runs(fixture, "filler")?;
    let client = fixture.runtime.block_on(clients::client(fixture))?;
    let path = format!("/api/v1/namespaces/{}/pods", fixture.namespace);
    let creating = (0..PODS).map(|number| {
        let mut sending = fixture.in_its_domain(pod(fixture, &format!("sends-{number}"), 500));
        sending["metadata"]["annotations"]["kubernetes.io/egress-bandwidth"] = json!("8M");
        let (client, path) = (&client, &path);
        async move { clients::post(client, path, &sending).await }
    });
    let created = fixture.runtime.block_on(try_join_all(creating))?;
    let placed = |pods: &[Value]| {
        pods.iter()
            .filter(|pod| annotation(pod, "site") == Some("cloud"))
            .count()
    };
    ensure!(placed(&created) <= 2, "{created:?}");
    ensure!(
        created.iter().filter(|pod| is_gated(pod)).count() == PODS - placed(&created),
        "{created:?}"
    );
    eventually("two of the pods share the bandwidth", BOUND, || {
        let pods = fixture.kubectl.list("pods", "")?;
        ensure!(placed(&pods) == 2, "{} in the cloud", placed(&pods));
        Ok(())
    })
}
