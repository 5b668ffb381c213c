//! Moves over minutes.

use edgeward_harness::live::pod;
use edgeward_harness::prelude::*;
use edgeward_harness::prometheus::{Exporter, Server, program};
use jiff::Timestamp;

const REPLICAS: u32 = 4;

/// How long nothing may happen.
const WATCHED: Duration = Duration::from_secs(60);

fn slo(fixture: &Fixture<'_>) -> Value {
    fixture.in_its_domain(json!({"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "600000"}))
}

fn moving(nodes: &Nodes<'_>, dwell: &str) -> Value {
    let mut config = nodes.config();
    config["moves"] = json!({"enabled": true, "dwell": dwell, "perMinute": 60});
    config
}

fn deployment(fixture: &Fixture<'_>, nodes: &Nodes<'_>, replicas: u32) -> Value {
    let mut deployment = workloads::deployment("web", replicas, slo(fixture));
    let spec = &mut deployment["spec"]["template"]["spec"];
    spec["affinity"] = nodes.affinity();
    spec["tolerations"] = json!([nodes.toleration()]);
    fixture.in_its_domain(deployment)
}

/// Number of pods that run at this site.
fn running(fixture: &Fixture<'_>, nodes: &Nodes<'_>, site: &str) -> Result<usize> {
    let pods = fixture.kubectl.list("pods", "app=web")?;
    let there = pods
        .iter()
        .filter(|pod| nodes.site_of(pod) == Some(site) && pod["status"]["phase"] == "Running");
    Ok(there.count())
}

fn run_at(fixture: &Fixture<'_>, nodes: &Nodes<'_>, site: &str, replicas: usize) -> Result<()> {
    eventually(&format!("{replicas} run at {site}"), 3 * BOUND, || {
        let running = running(fixture, nodes, site)?;
        ensure!(running == replicas, "{running}");
        Ok(())
    })
}

fn evicted(edgeward: &Edgeward<'_>, why: &str) -> Result<u64> {
    edgeward.count("edgeward_moves_total", &[("why", why), ("result", "evicted")])
}

fn create_filler(fixture: &Fixture<'_>) -> Result<()> {
    fixture.kubectl.create(&pod(fixture, "filler", 3_900))?;
    edgeward_harness::live::runs(fixture, "filler")
}

fn delete_filler(fixture: &Fixture<'_>) -> Result<()> {
    let args = [
        "delete",
        "pod",
        "filler",
        "--grace-period=0",
        "--force",
        "--ignore-not-found",
    ];
    fixture.kubectl.run(&args, "").map(drop)
}

e2e! { "moves::flapping_edge_moves_nothing", Domain, flapping_edge_moves_nothing }
/// A filler comes and goes for a minute, each time for less than `dwell`. No pod is evicted until it stays away.
fn flapping_edge_moves_nothing(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::edge_and_cloud(fixture, "4")?;
    let (edgeward, _registered) = fixture.registered_live(&moving(&nodes, "8s"))?;
    eventually("it leads", BOUND, || edgeward.leads())?;
    create_filler(fixture)?;
    fixture.kubectl.create(&deployment(fixture, &nodes, REPLICAS))?;
    run_at(fixture, &nodes, "cloud", REPLICAS as usize)?;
    let (begun, mut times) = (Instant::now(), 0);
    while begun.elapsed() < WATCHED {
        delete_filler(fixture)?;
        std::thread::sleep(Duration::from_secs(2));
        create_filler(fixture)?;
        std::thread::sleep(Duration::from_secs(2));
        times += 1;
    }
    let evicted = evicted(&edgeward, "home")?;
    println!("moves: the filler came and went {times} times in 60 s, {evicted} evictions");
    ensure!(evicted == 0, "{evicted} evictions");
    delete_filler(fixture)?;
    run_at(fixture, &nodes, "edge", REPLICAS as usize)?;
    fixture.kubectl.run(&["delete", "deployment", "--all"], "").map(drop)
}

e2e! { "moves::next_leader_waits_a_dwell", Domain, next_leader_waits_a_dwell }
/// The leader is killed after an eviction. The next one evicts after a whole `dwell`.
fn next_leader_waits_a_dwell(fixture: &Fixture<'_>) -> Result<()> {
    const DWELL: Duration = Duration::from_secs(10);
    let nodes = Nodes::edge_and_cloud(fixture, "4")?;
    let config = moving(&nodes, "10s");
    let mut first = fixture.live_edgeward_as("first", &config)?;
    eventually("it leads", BOUND, || first.leads())?;
    let second = fixture.live_edgeward_as("second", &config)?;
    let _registered = fixture.register(&second.url, &second.ca)?;
    create_filler(fixture)?;
    fixture.kubectl.create(&deployment(fixture, &nodes, REPLICAS))?;
    run_at(fixture, &nodes, "cloud", REPLICAS as usize)?;
    delete_filler(fixture)?;
    eventually("it evicts one", 3 * BOUND, || {
        ensure!(evicted(&first, "home")? > 0, "none");
        Ok(())
    })?;
    first.kill()?;
    eventually("the next leads", 3 * BOUND, || second.leads())?;
    let begun = Instant::now();
    eventually("the next evicts", 3 * BOUND, || {
        ensure!(evicted(&second, "home")? > 0, "none");
        Ok(())
    })?;
    let waited = begun.elapsed();
    println!(
        "moves: the next leader evicted after {:.1} s, dwell 10 s",
        waited.as_secs_f64()
    );
    // It led for a moment before it was asked.
    ensure!(waited + Duration::from_secs(2) >= DWELL, "{waited:?}");
    fixture.kubectl.run(&["delete", "deployment", "--all"], "").map(drop)
}

e2e! { "moves::unschedulable_pod_is_replaced", Domain, unschedulable_pod_is_replaced }
/// A pod was sent to a full edge, because the WAN was down. When the cloud is good again, another pod takes its place.
fn unschedulable_pod_is_replaced(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::edge_and_cloud(fixture, "4")?;
    nodes.wan.close();
    let (edgeward, _registered) = fixture.registered_live(&moving(&nodes, "10s"))?;
    eventually("it leads", BOUND, || edgeward.leads())?;
    create_filler(fixture)?;
    fixture.kubectl.create(&deployment(fixture, &nodes, 1))?;
    eventually("its pod has no node", BOUND, || {
        let pods = fixture.kubectl.list("pods", "app=web")?;
        ensure!(pods.iter().any(is_unschedulable), "{} pods", pods.len());
        Ok(())
    })?;
    let begun = Instant::now();
    nodes.wan.reopen()?;
    run_at(fixture, &nodes, "cloud", 1)?;
    println!(
        "moves: a pod without a node was replaced after {:.1} s",
        begun.elapsed().as_secs_f64()
    );
    ensure!(evicted(&edgeward, "unschedulable")? == 1, "not one eviction");
    fixture.kubectl.run(&["delete", "deployment", "--all"], "").map(drop)
}

fn greenness() -> Value {
    let query = "sum by (site) (watts)";
    json!({
        "apiVersion": "edgeward.io/v1alpha1", "kind": "PerformanceProfile", "metadata": {"name": "greenness"},
        "spec": {
            "better": "lower", "equation": "cm_normalized_watts",
            "metrics": [{"name": "watts", "normMin": 0, "normMax": 400, "by": "site", "promQL": query}],
            "margin": 0.05, "dwell": "0s", "period": "5s", "staleness": "20s",
        },
    })
}

/// The earliest and the latest creation of the pods, all of which run at this site.
fn created(fixture: &Fixture<'_>, nodes: &Nodes<'_>, site: &str, replicas: usize) -> Result<[Timestamp; 2]> {
    let created = eventually(&format!("all run at {site}"), 3 * BOUND, || {
        let pods = fixture.kubectl.list("pods", "app=web")?;
        let there = pods
            .iter()
            .filter(|pod| nodes.site_of(pod) == Some(site) && pod["status"]["phase"] == "Running");
        let created = there.filter_map(|pod| pod["metadata"]["creationTimestamp"].as_str()?.parse().ok());
        let created: Vec<Timestamp> = created.collect();
        ensure!(
            created.len() == replicas && pods.len() == replicas,
            "{} of {}",
            created.len(),
            pods.len()
        );
        Ok(created)
    })?;
    let [first, last] = [created.iter().min(), created.iter().max()].map(Option::<&Timestamp>::copied);
    first.zip(last).map(<[_; 2]>::from).context("no pods")
}

e2e! { "moves::flipping_profile_moves_there_and_back", Cluster, flipping_profile_moves_there_and_back }
/// A profile prefers the cloud, and after that the edge again. The pods go there and back, two dwells apart.
fn flipping_profile_moves_there_and_back(fixture: &Fixture<'_>) -> Result<()> {
    const DWELL: i64 = 5;
    let exporter = Exporter::start(fixture.runtime.handle())?;
    let says = |edge: u32, cloud: u32| {
        let lines = [("edge", edge), ("cloud", cloud)].map(|(site, watts)| format!("watts{{site=\"{site}\"}} {watts}"));
        exporter.says(&[&lines[0], &lines[1]]);
    };
    says(100, 300);
    let server = Server::start(&program()?, &exporter)?;
    fixture.install_custom_resources()?;
    let nodes = Nodes::edge_and_cloud(fixture, "8")?;
    let mut config = moving(&nodes, &format!("{DWELL}s"));
    config["prometheus"] = json!({"url": format!("http://{}", server.address)});
    let (edgeward, _registered) = fixture.registered_live(&config)?;
    eventually("it leads", BOUND, || edgeward.leads())?;
    fixture.kubectl.create(&greenness())?;
    let mut web = deployment(fixture, &nodes, 3);
    web["spec"]["template"]["metadata"]["annotations"][fixture.key("slo.example.io/profile")] = json!("greenness");
    fixture.kubectl.create(&web)?;
    created(fixture, &nodes, "edge", 3)?;
    says(300, 100);
    let [_, last_there] = created(fixture, &nodes, "cloud", 3)?;
    says(100, 300);
    let [first_back, _] = created(fixture, &nodes, "edge", 3)?;
    let apart = first_back.as_second() - last_there.as_second();
    let evicted = evicted(&edgeward, "profile")?;
    println!("moves: {evicted} moves by a profile, there and back {apart} s apart, dwell {DWELL} s");
    // Kubernetes cuts times to seconds.
    ensure!(
        apart >= 2 * DWELL - 1 && evicted == 6,
        "{evicted} moves, {apart} s apart"
    );
    fixture.kubectl.run(&["delete", "deployment", "--all"], "").map(drop)
}
