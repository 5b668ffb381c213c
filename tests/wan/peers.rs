//! Processes of `edgeward peers` that find each other over an emulated network.

use std::fs::Permissions;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use edgeward_harness::clusters;
use edgeward_harness::prelude::*;
use edgeward_harness::wan::mesh::{Mesh, address};
use tempfile::TempDir;

const NODES: usize = 25;

/// Those nearer than this count as near.
const RANGE_MS: f64 = 30.0;

const REGIONS: usize = 5;

/// Processes that are killed.
const KILLED: usize = 5;

/// All clusters find all others in range, with their room. Killed ones are forgotten. A cluster of another CA is not found.
pub(crate) fn near_clusters_find_each_other() -> Result<()> {
    let rtt_ms = network();
    let mesh = Mesh::open(&rtt_ms)?;
    let dir = TempDir::new()?;
    let (federation, other) = (Authority::new()?, Authority::new()?);
    let authorities = [&*federation.certificate, &other.certificate].concat();
    let stranger = NODES - 1;
    let mut processes = vec![];
    for node in 0..NODES {
        let authority = match node {
            _ if node == stranger => &Authority::new()?,
            _ if node % 2 == 0 => &federation,
            _ => &other,
        };
        let known: Vec<_> = match node {
            0 => vec![address(stranger)],
            _ => (0..node).rev().take(2).map(address).collect(),
        };
        let dir = dir.path().join(node.to_string());
        authority
            .member(&format!("c{node}"))?
            .write_member(&dir, &authorities)?;
        let args = alone(&dir, address(node), &known, "4")?;
        let program = Path::new(env!("CARGO_BIN_EXE_edgeward"));
        let process = mesh.nodes[node].start("peers", program, &args, &dir)?;
        // One after the other, as clusters do not start all at once.
        eventually("it has started", BOUND, || {
            process.said("looking for peers").context("not yet")
        })?;
        processes.push(process);
    }
    let near = |node: usize| -> Result<BTreeMap<String, Value>> {
        let log = fs::read_to_string(dir.path().join(node.to_string()).join("peers.log"))?;
        let mut rounds = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let round = rounds.rfind(|line| line["round"].is_u64()).unwrap_or_default();
        let peers = round["near"].as_array().context("no round has ended")?.iter();
        Ok(peers
            .map(|peer| (peer["id"].as_str().unwrap_or_default().to_owned(), peer.clone()))
            .collect())
    };
    let in_range = |node: usize, alive: usize| -> Vec<usize> {
        let row = &rtt_ms[node];
        (0..alive)
            .filter(|peer| *peer != node && row[*peer] <= RANGE_MS)
            .collect()
    };
    eventually("all clusters in range are found", BOUND, || {
        for (node, process) in processes.iter_mut().take(stranger).enumerate() {
            process.ensure_running().with_context(|| process.tail())?;
            let found = near(node)?;
            for peer in in_range(node, stranger) {
                let found = found.get(&format!("c{peer}"));
                let room = found.with_context(|| format!("c{node} does not know c{peer}"))?["room"].clone();
                ensure!(room == json!("1 × 4 CPU, 8Gi"), "{room}");
            }
            let others = found.len() - in_range(node, stranger).len();
            ensure!(others == 0, "c{node} also has {others} that are far, or a stranger");
        }
        Ok(())
    })?;
    let alive = stranger - KILLED;
    for process in &mut processes[alive..stranger] {
        process.kill()?;
    }
    // A near peer is asked again after five rounds, and forgotten after three failures.
    eventually("those that are gone are forgotten", 2 * BOUND, || {
        for node in 0..alive {
            let found = near(node)?;
            let gone = (alive..NODES)
                .map(|gone| format!("c{gone}"))
                .find(|gone| found.contains_key(gone));
            ensure!(gone.is_none(), "c{node} knows {gone:?}");
            ensure!(
                in_range(node, alive)
                    .iter()
                    .all(|peer| found.contains_key(&format!("c{peer}"))),
                "c{node} forgot others"
            );
        }
        Ok(())
    })
}

/// The leader keeps a Peer for each near cluster. A Liqo site has at most the room that its cluster reports, and no more than
/// that once it is gone. The nearest other cluster with room is suggested. Disabled, it keeps nothing.
pub(crate) fn leader_keeps_near_clusters_as_objects() -> Result<()> {
    let network = Command::new("sh").args(["-c", NETWORK]).status()?;
    ensure!(network.success(), "no network in the sandbox");
    clusters::alone(Path::new(env!("CARGO_BIN_EXE_edgeward")), "peers", leader)
}

/// Gives the network namespace of the tests addresses of three clusters, and the default route that an API server asks for.
const NETWORK: &str = "ip link set lo up && ip link add peers type veth peer name beyond && \
    ip address add 203.0.113.1/24 dev peers && ip address add 203.0.113.2/24 dev peers && \
    ip address add 203.0.113.3/24 dev peers && ip link set peers up && ip link set beyond up && \
    ip route add default via 203.0.113.254";

/// The address of a cluster in that network.
fn end(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(203, 0, 113, last)
}

fn leader(fixture: &Fixture<'_>) -> Result<()> {
    let ends = [1, 2, 3].map(end);
    let federation = Authority::new()?;
    let member = |id: &str| -> Result<PathBuf> {
        let dir = fixture.dir.join(id);
        federation.member(id)?.write_member(&dir, &federation.certificate)?;
        Ok(dir)
    };
    let beside = |id: &str, own: usize, cpu: &str| -> Result<Process> {
        let dir = member(id)?;
        let args = alone(&dir, ends[own], &[ends[0]], cpu)?;
        let listen = format!("--listen={}:8444", ends[own]);
        Process::start(
            "peers",
            Path::new(env!("CARGO_BIN_EXE_edgeward")),
            &[args, vec![listen]].concat(),
            &dir,
        )
    };
    let mut behind = beside("behind", 1, "1")?;
    let mut other = beside("other", 2, "6")?;

    fixture.install_custom_resources()?;
    fixture.allow_peers()?;
    let nodes = Nodes::edge_and_cloud(fixture, "1")?;
    let node = format!("{}-cloud-0", fixture.namespace);
    fixture
        .kubectl
        .run(&["label", "node", &node, "liqo.io/remote-cluster-id=behind"], "")?;
    let mut config = nodes.config();
    config["sites"][1]["nodeSelector"]["liqo.io/remote-cluster-id"] = json!("behind");
    config["sites"][1]["supports"] = json!([]);
    config["explain"] = json!("full");
    config["liqo"] = json!({"enabled": false});
    config["peers"] = json!({"enabled": true, "address": ends[0], "allowedCidrs": ["203.0.113.0/24"], "ownCidrs": []});
    let home = member("home")?;
    let config_file = home.join("config.yaml");
    fs::write(&config_file, config.to_string())?;
    let program = home.join("edgeward");
    fs::write(
        &program,
        format!(
            "#!/bin/sh\nPOD_IP={} exec {} \"$@\"\n",
            ends[0],
            fixture.program.display()
        ),
    )?;
    fs::set_permissions(&program, Permissions::from_mode(0o755))?;
    let args = vec![
        format!("--config={}", config_file.display()),
        format!("--namespace={}", fixture.home()?),
        format!("--self-signed={}", home.join("tls").display()),
        format!("--peers-certificate={}", home.display()),
        format!("--peers-listen={}:8444", ends[0]),
    ];
    let edgeward = fixture.edgeward_of_arguments(&program, &home, args)?;
    let _registered = fixture.register(&edgeward.url, &edgeward.ca)?;

    let status = |id: &str| -> Result<Value> { Ok(fixture.kubectl.get("peer", id)?["status"].take()) };
    eventually("both clusters are objects", 2 * BOUND, || {
        behind.ensure_running()?;
        other.ensure_running()?;
        let (behind, other) = (status("behind")?, status("other")?);
        ensure!(
            behind["site"] == "cloud" && behind["room"] == "1 × 1 CPU, 8Gi",
            "{behind}"
        );
        ensure!(other["site"].is_null() && other["room"] == "1 × 6 CPU, 8Gi", "{other}");
        ensure!(other["identity"] == "spiffe://edge.test/cluster/other", "{other}");
        Ok(())
    })?;
    let slice = fixture
        .kubectl_in(&fixture.home()?)
        .get("endpointslice", "edgeward-peers")?;
    ensure!(slice["endpoints"][0]["addresses"] == json!([ends[0]]), "{slice}");
    let suggested = fixture.command(&["peers", "suggest"])?;
    let line = "liqoctl peer --remote-kubeconfig other.yaml --cpu 6 --memory 8Gi --pods 110";
    ensure!(suggested.stdout.contains(line), "{suggested:?}");

    let asked = workloads::pod_of("asked", json!({"slo.example.io/class": "batch"}), "2");
    let is_refused_by_report = || -> Result<bool> {
        let found = fixture.kubectl.dry_run(&asked)?;
        let explain = annotation(&found, "explain").with_context(|| found.to_string())?;
        Ok(explain.contains(r#""source":"report""#))
    };
    eventually("the site has the room that its cluster reports", BOUND, || {
        ensure!(is_refused_by_report()?);
        Ok(())
    })?;
    behind.kill()?;
    eventually("the cluster that is gone is no object", 2 * BOUND, || {
        let left = fixture.kubectl.list("peers", "")?;
        let names: Vec<_> = left.iter().map(|peer| &peer["metadata"]["name"]).collect();
        ensure!(names == ["other"], "{names:?}");
        Ok(())
    })?;
    eventually("nothing is reported any more", BOUND, || {
        ensure!(!is_refused_by_report()?);
        Ok(())
    })?;

    TcpStream::connect((ends[0], 8444))?;
    config["peers"]["enabled"] = json!(false);
    fs::write(&config_file, config.to_string())?;
    eventually("nothing is left once peers are disabled", BOUND, || {
        let left = fixture.kubectl.list("peers", "")?;
        ensure!(left.is_empty(), "{left:?}");
        let slice = fixture
            .kubectl_in(&fixture.home()?)
            .get("endpointslice", "edgeward-peers")?;
        ensure!(slice["endpoints"].as_array().is_none_or(Vec::is_empty), "{slice}");
        let open = TcpStream::connect((ends[0], 8444));
        ensure!(open.is_err(), "the port is open");
        Ok(())
    })
}

/// Five regions: a short way within each, and a long one between them. A busy machine makes no long way of a short one.
fn network() -> Vec<Vec<f64>> {
    let rtt = |one: usize, other: usize| match (one % REGIONS, other % REGIONS) {
        (region, same) if region == same => 2.0,
        _ => 200.0,
    };
    let row = |one| (0..NODES).map(|other| rtt(one, other)).collect();
    (0..NODES).map(row).collect()
}

/// The arguments of `edgeward peers` for a cluster with one node.
fn alone(dir: &Path, own: Ipv4Addr, known: &[Ipv4Addr], cpu: &str) -> Result<Vec<String>> {
    let config = json!({
        "peers": {
            "address": own,
            "allowedCidrs": ["198.51.100.0/24", "203.0.113.0/24"],
            "ownCidrs": [],
            "seeds": known,
            "maxRttMs": RANGE_MS,
        },
        "report": {},
    });
    let fleet = json!({
        "sites": [{"name": "edge", "kind": "edge"}],
        "nodes": [{"name": "node", "labels": {"node.role/edge": "true"}, "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": 110}}],
    });
    let file = |name: &str, content: &Value| -> Result<PathBuf> {
        let path = dir.join(name);
        fs::write(&path, content.to_string())?;
        Ok(path)
    };
    Ok(vec![
        "peers".to_owned(),
        format!("--config={}", file("config.json", &config)?.display()),
        format!("--fleet={}", file("fleet.json", &fleet)?.display()),
        format!("--certificate={}", dir.display()),
    ])
}
