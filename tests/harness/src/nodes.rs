//! Nodes for one test: an edge and a cloud that other tests neither fill nor see, and a WAN between them.

use std::cell::RefCell;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::control_plane::{STOPPED, node};
use crate::decision::is_usable;
use crate::prelude::*;

/// The label that assigns a node to a test's edge or cloud. It is also the taint that keeps other tests' pods from the edge.
const LABEL: &str = "edgeward.test/site";

pub struct Nodes<'run> {
    name: String,
    domain: String,
    kubectl: Kubectl,
    nodes: RefCell<Vec<String>>,
    pub wan: Wan<'run>,
}

impl<'run> Nodes<'run> {
    /// Starts without nodes, and with a WAN that is up.
    pub fn new(fixture: &Fixture<'run>) -> Result<Self> {
        Ok(Self {
            name: fixture.namespace.clone(),
            domain: fixture.key("example.io"),
            kubectl: fixture.kubectl.clone(),
            nodes: RefCell::default(),
            wan: Wan::open(fixture.runtime)?,
        })
    }

    /// An edge node with this much CPU, and a cloud node with room for everything.
    pub fn edge_and_cloud(fixture: &Fixture<'run>, cpu: &str) -> Result<Self> {
        let nodes = Self::new(fixture)?;
        nodes.edge_node("edge-0", cpu)?;
        nodes.cloud_node("cloud-0")?;
        Ok(nodes)
    }

    /// An edge node of one core with its name, and a cloud node behind a WAN that is down.
    pub fn without_wan(fixture: &Fixture<'run>) -> Result<(Self, String)> {
        let nodes = Self::new(fixture)?;
        let node = nodes.edge_node("edge-0", "1")?;
        nodes.cloud_node("cloud-0")?;
        nodes.wan.close();
        Ok((nodes, node))
    }

    /// A configuration with the sites `edge` and `cloud` under the test's domain. It gates no pods.
    pub fn config(&self) -> Value {
        let toleration = json!({"key": "cloud", "value": "cloud", "effect": "NoSchedule"});
        json!({
            "domain": self.domain,
            "sites": [
                {"name": "edge", "kind": "edge", "nodeSelector": {LABEL: self.label("edge")},
                 "tolerations": [self.toleration()]},
                {"name": "cloud", "kind": "cloud", "nodeSelector": {LABEL: self.label("cloud")},
                 "tolerations": [toleration], "probes": [self.wan.probe()]},
            ],
            "onNoCapacity": "edge",
            "waitForTerminating": 0,
        })
    }

    pub fn gating(&self, limits: &Value) -> Value {
        let config = self.config();
        json!({"domain": config["domain"], "sites": config["sites"], "holdLimits": limits, "reservationTTL": "1h"})
    }

    pub fn label(&self, site: &str) -> String {
        format!("{}-{site}", self.name)
    }

    /// The label of the edge site's nodes, as `kubectl label` takes it.
    pub fn edge_label(&self) -> String {
        format!("{LABEL}={}", self.label("edge"))
    }

    pub fn toleration(&self) -> Value {
        json!({"key": LABEL, "value": self.name, "effect": "NoSchedule"})
    }

    pub fn selector(&self, site: &str) -> Value {
        json!({LABEL: self.label(site)})
    }

    pub fn edge_placement(&self) -> Value {
        json!({"nodeSelector": {LABEL: self.label("edge")}, "tolerations": [self.toleration()]})
    }

    /// Whether the pod is bound to a node of the edge or of the cloud; `None` if it is bound to neither.
    pub fn site_of(&self, pod: &Value) -> Option<&'static str> {
        let node = pod["spec"]["nodeName"].as_str()?.strip_prefix(&self.name)?;
        ["edge", "cloud"].into_iter().find(|site| node[1..].starts_with(site))
    }

    /// Required node affinity for the nodes of both sites. It keeps an undecided pod on these nodes.
    pub fn affinity(&self) -> Value {
        let values = [self.label("edge"), self.label("cloud")];
        let expressions = json!([{"key": LABEL, "operator": "In", "values": values}]);
        let terms = json!({"nodeSelectorTerms": [{"matchExpressions": expressions}]});
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
    }

    /// Stops kwok from running this node's pods and from writing their statuses, so that the test can. The node stays Ready for
    /// about 40 s.
    pub fn leave_alone(&self, node: &str) -> Result<()> {
        self.kubectl
            .run(&["label", "node", node, &format!("{STOPPED}=")], "")
            .map(drop)
    }

    /// Stops the node's kubelet. The node becomes not Ready until the kubelet is started again.
    pub fn stop(&self, node: &str) -> Result<()> {
        self.leave_alone(node)?;
        let condition = json!({"type": "Ready", "status": "False", "reason": "Stopped", "message": "for a test"});
        let patch = json!({"status": {"conditions": [condition]}});
        self.kubectl
            .patch("node", node, &patch, &["--subresource=status", "--type=strategic"])
    }

    pub fn start_again(&self, node: &str) -> Result<()> {
        self.kubectl
            .run(&["label", "node", node, &format!("{STOPPED}-")], "")
            .map(drop)
    }

    pub fn resize(&self, node: &str, cpu: &str) -> Result<()> {
        self.provide(node, "cpu", cpu)
    }

    pub fn provide(&self, node: &str, resource: &str, amount: &str) -> Result<()> {
        let resources = json!({resource: amount});
        let status = json!({"allocatable": resources, "capacity": resources});
        self.kubectl.patch_status("node", node, &status)
    }

    pub fn remove(&self, node: &str) -> Result<()> {
        self.kubectl.run(&["delete", "node", node], "").map(drop)
    }

    /// Creates an edge node with this much CPU, and waits until it is Ready.
    pub fn edge_node(&self, suffix: &str, cpu: &str) -> Result<String> {
        let resources = json!({"cpu": cpu, "memory": "64Gi", "pods": "110"});
        self.node(suffix, self.selector("edge"), self.toleration(), resources)
    }

    /// Creates an edge node with room for everything, and waits until it is Ready.
    pub(crate) fn wide_edge_node(&self, suffix: &str) -> Result<String> {
        self.node(suffix, self.selector("edge"), self.toleration(), everything())
    }

    /// Creates a cloud node with room for everything, and waits until it is Ready.
    pub fn cloud_node(&self, suffix: &str) -> Result<String> {
        let taint = json!({"key": "cloud", "value": "cloud", "effect": "NoSchedule"});
        self.node(suffix, self.selector("cloud"), taint, everything())
    }

    /// Creates a node of this cloud with this much CPU, and waits until it is Ready.
    pub fn node_of_cloud(&self, site: &str, suffix: &str, cpu: &str) -> Result<String> {
        let taint = json!({"key": "cloud", "value": "cloud", "effect": "NoSchedule"});
        let resources = json!({"cpu": cpu, "memory": "64Gi", "pods": "110"});
        self.node(suffix, self.selector(site), taint, resources)
    }

    /// Puts clouds of these names, each with a node of 8 CPUs, in the place of the configuration's cloud. Returns the nodes' names.
    pub fn put_clouds(&self, config: &mut Value, names: &[&str]) -> Result<Vec<String>> {
        let sites = config["sites"].as_array_mut().context("sites")?;
        let cloud = sites.pop().context("a cloud")?;
        let put = |name: &&str| {
            let mut cloud = cloud.clone();
            cloud["name"] = json!(name);
            cloud["nodeSelector"] = self.selector(name);
            sites.push(cloud);
            self.node_of_cloud(name, &format!("{name}-0"), "8")
        };
        names.iter().map(put).collect()
    }

    fn node(&self, suffix: &str, labels: Value, taint: Value, resources: Value) -> Result<String> {
        let name = format!("{}-{suffix}", self.name);
        self.kubectl.create(&node(&name, labels, json!([taint]), resources))?;
        self.nodes.borrow_mut().push(name.clone());
        eventually("the node is Ready and not tainted", BOUND, || {
            let node = self.kubectl.get("node", &name)?;
            ensure!(is_usable(&node), "{node}");
            Ok(())
        })?;
        Ok(name)
    }
}

pub fn for_long() -> Value {
    json!({"latency": "1h", "throughput": "1h", "batch": "1h"})
}

fn everything() -> Value {
    json!({"cpu": "1000", "memory": "4Ti", "pods": "5000"})
}

impl Drop for Nodes<'_> {
    fn drop(&mut self) {
        let nodes = self.nodes.take();
        let mut args = vec!["delete", "node", "--ignore-not-found", "--wait=false"];
        args.extend(nodes.iter().map(String::as_str));
        if let Err(error) = self.kubectl.run(&args, "") {
            eprintln!("{error:#}");
        }
    }
}

/// The WAN to the cloud: a loopback address that accepts or refuses connections. The address stays reserved for the test.
pub struct Wan<'run> {
    runtime: &'run Runtime,
    address: SocketAddr,
    way: RefCell<Way>,
}

enum Way {
    Open(JoinHandle<()>),
    /// The socket is bound, so that its address stays reserved, and refuses connections.
    Closed(TcpSocket),
    Neither,
}

impl<'run> Wan<'run> {
    pub fn open(runtime: &'run Runtime) -> Result<Self> {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (address, way) = runtime.block_on(async { listen(bound(any)?) })?;
        Ok(Self {
            runtime,
            address,
            way: RefCell::new(way),
        })
    }

    pub fn probe(&self) -> String {
        format!("tcp://{}", self.address)
    }

    pub fn close(&self) {
        if let Way::Open(accepting) = self.way.replace(Way::Neither) {
            accepting.abort();
            let socket = self.runtime.block_on(async {
                // Returns an error, because the task was aborted. The listening socket is now closed.
                let _ = accepting.await;
                bound(self.address)
            });
            match socket {
                Ok(socket) => drop(self.way.replace(Way::Closed(socket))),
                Err(error) => eprintln!("{}: {error:#}", self.address),
            }
        }
    }

    pub fn reopen(&self) -> Result<()> {
        let way = self.runtime.block_on(async {
            match self.way.replace(Way::Neither) {
                Way::Closed(socket) => listen(socket),
                Way::Open(_) | Way::Neither => listen(bound(self.address)?),
            }
        })?;
        self.way.replace(way.1);
        Ok(())
    }
}

fn bound(address: SocketAddr) -> Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

fn listen(socket: TcpSocket) -> Result<(SocketAddr, Way)> {
    let listener = socket.listen(128)?;
    Ok((listener.local_addr()?, Way::Open(tokio::spawn(accept(listener)))))
}

impl Drop for Wan<'_> {
    fn drop(&mut self) {
        self.close();
    }
}

async fn accept(listener: TcpListener) {
    loop {
        let _ = listener.accept().await;
    }
}
