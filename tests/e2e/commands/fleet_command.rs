//! `edgeward fleet` and `edgeward review --live` on a live cluster.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, thread};

use edgeward_harness::live::runs;
use edgeward_harness::prelude::*;

/// Runs edgeward as a command, with this configuration and cluster administrator rights.
pub(crate) fn edgeward(fixture: &Fixture<'_>, config: &Value, args: &[&str]) -> Result<Said> {
    edgeward_as(&fixture.kubeconfig(), fixture, config, args)
}

pub(crate) fn edgeward_as(kubeconfig: &Path, fixture: &Fixture<'_>, config: &Value, args: &[&str]) -> Result<Said> {
    let file = fixture.dir.join("command.yaml");
    fs::write(&file, config.to_string())?;
    fixture.command_as(kubeconfig, &[args, &[&format!("--config={}", file.display())]].concat())
}

/// The only item of the review of this object.
fn review(fixture: &Fixture<'_>, config: &Value, view: &[&str], object: &Value) -> Result<Value> {
    let file = fixture.dir.join("object.json");
    fs::write(&file, object.to_string())?;
    let file = format!("--filename={}", file.display());
    let namespace = format!("--namespace={}", fixture.namespace);
    let args = [&["review", &file, &namespace, "--output=json"], view].concat();
    let said = edgeward(fixture, config, &args)?;
    let mut list: Value = serde_json::from_str(&said.stdout).with_context(|| said.stderr.clone())?;
    ensure!(list["items"].as_array().map(Vec::len) == Some(1), "{list}");
    Ok(list["items"][0].take())
}

fn outcome(item: &Value) -> Value {
    json!([item["verdict"], item["site"], item["reason"]])
}

fn pod(name: &str, millicores: u32) -> Value {
    let slo = json!({"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "60000"});
    workloads::pod_of(name, slo, &format!("{millicores}m"))
}

e2e! { "fleet_command::fleet_file_matches_live_cluster", Nodes, fleet_file_matches_live_cluster }
/// The fleet file of a live cluster agrees with kubectl. A review on it agrees with the API server's answer.
fn fleet_file_matches_live_cluster(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::new(fixture)?;
    let edge = nodes.edge_node("edge-0", "2")?;
    let small = nodes.edge_node("edge-1", "1")?;
    let cloud = nodes.cloud_node("cloud-0")?;
    let config = nodes.config();
    let (_running, _registered) = fixture.registered_live(&config)?;
    for (name, millicores) in [("first", 1_500), ("second", 700)] {
        fixture.kubectl.create(&pod(name, millicores))?;
        runs(fixture, name)?;
    }
    fixture.kubectl.run(&["cordon", &small], "")?;
    wait_for_nobody(fixture)?;

    let said = edgeward(fixture, &config, &["fleet", "--output=yaml"])?;
    ensure!(said.succeeded, "{}", said.stderr);
    let file = fixture.dir.join("seen.yaml");
    fs::write(&file, &said.stdout)?;
    let fleet: Value = serde_saphyr::from_str(&said.stdout)?;
    for name in [&edge, &small, &cloud] {
        compare(fixture, &fleet, name)?;
    }
    // A refusal by kube-scheduler counts at once, not only after the 15 s in which it may change.
    let closed = &fleet["sites"][0]["closed"];
    let of_controllers = closed[&fixture.namespace].as_object();
    let pods = of_controllers.into_iter().flat_map(|pods| pods.values());
    let pods: Vec<_> = pods.filter_map(Value::as_u64).collect();
    ensure!(pods == [1], "{closed}");
    let wan = &fleet["sites"][1]["wan"];
    ensure!(wan["health"] == "healthy" && wan["rttMs"].is_number(), "{wan}");
    let table = edgeward(fixture, &config, &["fleet"])?.stdout;
    for name in ["edge  ", "cloud  ", &edge, &small, &cloud, "cordoned", "healthy, "] {
        ensure!(table.contains(name), "no {name} in\n{table}");
    }

    for millicores in [400, 700] {
        let asking = pod("asking", millicores);
        let offline = review(fixture, &config, &[&format!("--fleet={}", file.display())], &asking)?;
        eventually("both reviews agree", BOUND, || {
            let live = review(fixture, &config, &["--live"], &asking)?;
            ensure!(
                outcome(&live) == outcome(&offline),
                "live {live:#}, offline {offline:#}"
            );
            Ok(())
        })?;
    }
    Ok(())
}

e2e! { "fleet_command::fleet_is_read_through_proxy", Nodes, fleet_is_read_through_proxy }
/// KUBECONFIG is a list in which one file does not exist, and the cluster is behind a proxy.
fn fleet_is_read_through_proxy(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::new(fixture)?;
    let edge = nodes.edge_node("edge-0", "2")?;
    let (proxy, tunnels) = proxy()?;
    let mut kubeconfig: Value = serde_saphyr::from_str(&fs::read_to_string(fixture.kubeconfig())?)?;
    kubeconfig["clusters"][0]["cluster"]["proxy-url"] = json!(format!("http://{proxy}"));
    let file = fixture.dir.join("behind-a-proxy");
    fs::write(&file, kubeconfig.to_string())?;
    let files = env::join_paths([&fixture.dir.join("missing"), &file])?;
    let said = edgeward_as(Path::new(&files), fixture, &nodes.config(), &["fleet"])?;
    ensure!(
        said.succeeded && said.stdout.contains(&edge),
        "{}{}",
        said.stdout,
        said.stderr
    );
    ensure!(tunnels.load(Ordering::Relaxed) > 0, "nothing came through the proxy");
    Ok(())
}

/// Starts an HTTP proxy that opens tunnels and counts them.
fn proxy() -> Result<(SocketAddr, Arc<AtomicUsize>)> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let (address, tunnels) = (listener.local_addr()?, Arc::<AtomicUsize>::default());
    let opened = Arc::clone(&tunnels);
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let opened = Arc::clone(&opened);
            thread::spawn(move || tunnel(client, &opened));
        }
    });
    Ok((address, tunnels))
}

fn tunnel(mut client: TcpStream, opened: &AtomicUsize) -> io::Result<()> {
    let mut from_client = BufReader::new(client.try_clone()?);
    let (mut request, mut header) = (String::new(), String::from("first"));
    from_client.read_line(&mut request)?;
    while !header.trim_end().is_empty() {
        header.clear();
        from_client.read_line(&mut header)?;
    }
    let target = request.split(' ').nth(1).unwrap_or_default();
    let mut server = TcpStream::connect(target)?;
    opened.fetch_add(1, Ordering::Relaxed);
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
    let mut from_server = server.try_clone()?;
    thread::spawn(move || io::copy(&mut from_server, &mut client));
    io::copy(&mut from_client, &mut server)?;
    server.shutdown(Shutdown::Both)
}

/// Creates a pod that waits for a pod which is never created.
fn wait_for_nobody(fixture: &Fixture<'_>) -> Result<()> {
    let mut job = workloads::job("lonely", workloads::batch());
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "nobody"}}});
    job["spec"]["template"]["spec"]["affinity"] =
        json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    fixture.kubectl.create(&job)?;
    eventually("kube-scheduler finds no node", BOUND, || {
        let pods = fixture.kubectl.list("pods", "app=lonely")?;
        let conditions = pods.first().map(|pod| pod["status"]["conditions"].to_string());
        ensure!(
            conditions
                .as_ref()
                .is_some_and(|conditions| conditions.contains("Unschedulable")),
            "{conditions:?}"
        );
        Ok(())
    })
}

/// Compares a node of the fleet file with kubectl's view of it and of its pods.
fn compare(fixture: &Fixture<'_>, fleet: &Value, name: &str) -> Result<()> {
    let nodes = fleet["nodes"].as_array().context("nodes")?;
    let seen = nodes.iter().find(|node| node["name"] == name);
    let seen = seen.with_context(|| format!("{name} is not in the file"))?;
    let node = fixture.kubectl.get("node", name)?;
    ensure!(seen["labels"] == node["metadata"]["labels"], "{name}: {seen}");
    let cordoned = node["spec"]["unschedulable"] == true;
    ensure!(
        seen["unschedulable"] == cordoned && seen["ready"] == true,
        "{name}: {seen}"
    );
    let said = fixture.kubectl.run(
        &[
            "get",
            "pods",
            "--all-namespaces",
            "-o",
            "json",
            "--field-selector",
            &format!("spec.nodeName={name}"),
        ],
        "",
    )?;
    let pods: Value = serde_json::from_str(&said.stdout)?;
    let pods = pods["items"].as_array().context("items")?;
    let requested = pods.iter().map(|pod| {
        let cpu = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"].as_str();
        cpu.and_then(|cpu| cpu.strip_suffix('m')?.parse::<u64>().ok())
            .unwrap_or(0)
    });
    let used = match requested.sum::<u64>() {
        whole if whole % 1_000 == 0 => json!(whole / 1_000),
        millicores => json!(format!("{millicores}m")),
    };
    ensure!(seen["used"]["cpu"] == used, "{name}: {} and not {used}", seen["used"]);
    ensure!(
        seen["used"]["pods"] == pods.len(),
        "{name}: {} and not {}",
        seen["used"],
        pods.len()
    );
    Ok(())
}

e2e! { "fleet_command::live_review_shows_api_server_answer", Nodes, live_review_shows_api_server_answer }
/// The API server's answer, with warnings and refusals, and why it may lack an answer from edgeward.
fn live_review_shows_api_server_answer(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::edge_and_cloud(fixture, "2")?;
    let config = nodes.config();
    let (_running, _registered) = fixture.registered_live(&config)?;
    let live = |object: &Value| review(fixture, &config, &["--live"], object);

    // A template has no name, and its controller does not exist.
    let item = live(&workloads::deployment("web", 1, workloads::latency()))?;
    ensure!(
        outcome(&item) == json!(["edge", "edge", "edge_feasible_slo_met"]),
        "{item:#}"
    );
    ensure!(
        item["answer"]["nodeSelector"]
            .to_string()
            .contains(&nodes.label("edge")),
        "{item:#}"
    );

    let item = live(&workloads::pod("faulty", json!({"slo.example.io/class": "fast"})))?;
    ensure!(
        outcome(&item) == json!(["edge", "edge", "edge_invalid_slo"]),
        "{item:#}"
    );
    ensure!(
        item["warnings"][0]
            .as_str()
            .is_some_and(|text| text.contains("\"fast\"")),
        "{item:#}"
    );

    // A name that is already taken does not matter.
    fixture.kubectl.create(&pod("taken", 100))?;
    let item = live(&pod("taken", 100))?;
    ensure!(item["verdict"] == "edge", "{item:#}");

    let mut impossible = pod("impossible", 100);
    impossible["spec"]["containers"] = json!([]);
    let item = live(&impossible)?;
    ensure!(
        item["verdict"] == "refused" && item["answer"]["refusal"].is_string(),
        "{item:#}"
    );

    let causes = |item: &Value| item["answer"]["causes"].to_string();
    let item = live(&workloads::pod("no-slo", json!({})))?;
    ensure!(causes(&item).contains("passthrough_not_managed"), "{item:#}");
    let (unmanaged, _) = fixture.another_namespace("unmanaged", json!({}))?;
    let mut elsewhere = pod("elsewhere", 100);
    elsewhere["metadata"]["namespace"] = json!(unmanaged);
    let item = live(&elsewhere)?;
    ensure!(item["verdict"] == "passthrough" && item["reason"].is_null(), "{item:#}");
    let expected = format!("namespace {unmanaged} is not labelled scheduling.example.io/managed=true");
    ensure!(causes(&item).contains(&expected), "{item:#}");

    forbidden(fixture, &config)
}

/// A user without the right to list is told what is missing.
fn forbidden(fixture: &Fixture<'_>, config: &Value) -> Result<()> {
    let token = fixture.kubectl.run(&["create", "token", "default"], "")?.stdout;
    let mut nobody: Value = serde_saphyr::from_str(&fs::read_to_string(fixture.kubeconfig())?)?;
    nobody["users"] = json!([{"name": "nobody", "user": {"token": token.trim()}}]);
    nobody["contexts"][0]["context"]["user"] = json!("nobody");
    let file = fixture.dir.join("nobody.yaml");
    fs::write(&file, nobody.to_string())?;
    let said = edgeward_as(&file, fixture, config, &["fleet"])?;
    ensure!(!said.succeeded, "{}", said.stdout);
    let expected = format!(
        "\"system:serviceaccount:{}:default\" cannot list resource",
        fixture.namespace
    );
    ensure!(said.stderr.contains(&expected), "{}", said.stderr);
    Ok(())
}
