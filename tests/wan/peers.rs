//! Processes of `edgeward peers` that find each other over an emulated network.

use std::fs::Permissions;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use edgeward_harness::clusters;
use edgeward_harness::control_plane::FailureDetection;
use edgeward_harness::peering::{Cloud, Layout, Strategy};
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

/// Three clusters, the first with a virtual node of the second by the real Liqo. In each, the leader keeps a Peer for both others.
/// The site has at most the room that its cluster reports, and no such bound once the report has ended. The cluster without a
/// virtual node is suggested. Disabled, edgeward keeps nothing.
pub(crate) fn leaders_keep_near_clusters_as_objects() -> Result<()> {
    let network = Command::new("sh").args(["-c", NETWORK]).status()?;
    ensure!(network.success(), "no network in the sandbox");
    clusters::peered(
        Path::new(env!("CARGO_BIN_EXE_edgeward")),
        &HOME_AND_NEAR,
        "peers",
        |home| clusters::in_another(home, "peers::other", true, |other| three_clusters(home, other)),
    )
}

/// The virtual node promises room for 24 cores, and the cluster has 8.
const HOME_AND_NEAR: Layout = Layout {
    clouds: &[Cloud {
        id: "near",
        virtual_nodes: &[("near", 24)],
        nodes: &[8],
    }],
    detection: FailureDetection::AsDefault,
};

/// Gives the network namespace of the tests addresses of three clusters, and the default route that an API server asks for.
const NETWORK: &str = "ip link show peers >/dev/null 2>&1 && exit; ip link set lo up && ip link add peers type veth peer name beyond && \
    ip address add 203.0.113.1/24 dev peers && ip address add 203.0.113.2/24 dev peers && \
    ip address add 203.0.113.3/24 dev peers && ip link set peers up && ip link set beyond up && \
    ip route add default via 203.0.113.254";

/// A cluster of the federation.
struct Member {
    /// Its edgeward's files, its certificate for peers among them.
    dir: PathBuf,
    address: Ipv4Addr,
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Member {
    /// Writes its certificate, and a program that tells edgeward the address of its pod.
    fn new(id: &str, last: u8, federation: &Authority, fixture: &Fixture<'_>, kubeconfig: PathBuf) -> Result<Self> {
        let dir = fixture.dir.join(id);
        federation.member(id)?.write_member(&dir, &federation.certificate)?;
        let (address, program) = (Ipv4Addr::new(203, 0, 113, last), dir.join("edgeward"));
        let script = format!(
            "#!/bin/sh\nPOD_IP={address} exec {} \"$@\"\n",
            fixture.program.display()
        );
        fs::write(&program, script)?;
        fs::set_permissions(&program, Permissions::from_mode(0o755))?;
        Ok(Self {
            dir,
            address,
            program,
            kubeconfig,
        })
    }

    fn set_config(&self, config: &Value) -> Result<()> {
        Ok(fs::write(self.dir.join("config.yaml"), config.to_string())?)
    }

    fn start<'m, 'run: 'm>(&'m self, fixture: &Fixture<'run>, config: &Value) -> Result<Edgeward<'m>> {
        self.set_config(config)?;
        let in_dir = |name: &str| self.dir.join(name).display().to_string();
        let args = vec![
            format!("--config={}", in_dir("config.yaml")),
            format!("--namespace={}", fixture.home()?),
            format!("--self-signed={}", in_dir("tls")),
            format!("--peers-certificate={}", self.dir.display()),
            format!("--peers-listen={}:8444", self.address),
        ];
        fixture.edgeward_of_arguments(self.kubeconfig.clone(), &self.program, &self.dir, args)
    }
}

fn three_clusters(home: &Fixture<'_>, other: &Fixture<'_>) -> Result<()> {
    let federation = Authority::new()?;
    let near = home.providers().first().context("no provider")?;
    for (fixture, kubectl) in [(home, near.kubectl()), (other, &other.kubectl)] {
        let definitions = workspace().join("deploy/crds").display().to_string();
        kubectl.run(&["apply", "--server-side", "-k", &definitions], "")?;
        fixture.allow_peers()?;
        fixture.allow_reports()?;
    }
    home.install_custom_resources()?;
    home.offload(&home.namespace, Strategy::Local)?;
    near.kubectl().run(&["create", "namespace", &home.home()?], "")?;
    near.kubectl()
        .run(&["label", "nodes", "--all", "node.role/edge=true"], "")?;

    let of_home = Member::new("home", 1, &federation, home, home.edgeward_kubeconfig())?;
    let of_near = Member::new("near", 2, &federation, home, near.kubeconfig())?;
    let of_other = Member::new("other", 3, &federation, other, other.edgeward_kubeconfig())?;
    let config = |member: &Member, sites: Value| {
        json!({
            "sites": sites,
            "explain": "full",
            "report": {},
            "peers": {
                "enabled": true,
                "address": member.address,
                "allowedCidrs": ["203.0.113.0/24"],
                "ownCidrs": [],
                "seeds": if member.address == of_home.address { vec![] } else { vec![of_home.address] },
            },
        })
    };
    let edge = json!({"name": "edge", "kind": "edge"});
    let mut config_of_home = config(&of_home, json!([edge, near.site()]));
    let edgeward = of_home.start(home, &config_of_home)?;
    let mut behind = of_near.start(home, &config(&of_near, json!([edge])))?;
    let _other = of_other.start(other, &config(&of_other, json!([edge])))?;
    let _registered = home.register(&edgeward.url, &edgeward.ca)?;

    for (kubectl, peers) in [
        (&home.kubectl, ["near", "other"]),
        (near.kubectl(), ["home", "other"]),
        (&other.kubectl, ["home", "near"]),
    ] {
        eventually("both other clusters are objects", 2 * BOUND, || {
            for id in peers {
                let status = kubectl.get("peer", id)?["status"].take();
                let identity = format!("spiffe://edge.test/cluster/{id}");
                ensure!(
                    status["identity"] == identity && status["rttMs"].is_number(),
                    "{status}"
                );
                let room = if id == "near" {
                    "1 × 8 CPU, 256Gi"
                } else {
                    "2 × 4 CPU, 8Gi"
                };
                ensure!(status["room"] == room, "{status}");
                let is_site = peers == ["near", "other"] && id == "near";
                ensure!(
                    status["site"] == if is_site { json!("near") } else { json!(null) },
                    "{status}"
                );
            }
            Ok(())
        })?;
    }
    let slice = home.kubectl_in(&home.home()?).get("endpointslice", "edgeward-peers")?;
    ensure!(
        slice["endpoints"][0]["addresses"] == json!([of_home.address]),
        "{slice}"
    );
    let suggested = home.command(&["peers", "suggest"])?;
    let line = "liqoctl peer --remote-kubeconfig other.yaml --cpu 8 --memory 16Gi";
    ensure!(suggested.stdout.contains(line), "{suggested:?}");

    let asked = workloads::pod_of("asked", json!({"slo.example.io/class": "batch"}), "12");
    let is_refused_by_report = || -> Result<bool> {
        let found = home.kubectl.dry_run(&asked)?;
        let explain = annotation(&found, "explain").with_context(|| found.to_string())?;
        Ok(explain.contains(r#""source":"report""#))
    };
    eventually("the site has the room that its cluster reports", BOUND, || {
        ensure!(is_refused_by_report()?, "{}", home.kubectl.dry_run(&asked)?);
        Ok(())
    })?;
    behind.kill()?;
    eventually("the cluster that is gone is no object", 2 * BOUND, || {
        for kubectl in [&home.kubectl, &other.kubectl] {
            let left = kubectl.list("peers", "")?;
            let names: Vec<_> = left.iter().map(|peer| &peer["metadata"]["name"]).collect();
            ensure!(names.len() == 1 && names[0] != "near", "{names:?}");
        }
        Ok(())
    })?;
    eventually("nothing is reported any more", BOUND, || {
        ensure!(!is_refused_by_report()?);
        Ok(())
    })?;

    TcpStream::connect((of_home.address, 8444))?;
    config_of_home["peers"]["enabled"] = json!(false);
    of_home.set_config(&config_of_home)?;
    eventually("nothing is left once peers are disabled", BOUND, || {
        let left = home.kubectl.list("peers", "")?;
        ensure!(left.is_empty(), "{left:?}");
        let slice = home.kubectl_in(&home.home()?).get("endpointslice", "edgeward-peers")?;
        ensure!(slice["endpoints"].as_array().is_none_or(Vec::is_empty), "{slice}");
        let open = TcpStream::connect((of_home.address, 8444));
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
