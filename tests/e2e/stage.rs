//! Nodes of one trial's own: an edge and a cloud that other trials neither fill nor see, and a WAN between them.

use std::cell::RefCell;
use std::net::TcpListener;

use anyhow::Result;
use serde_json::{Value, json};

use crate::control_plane::node;
use crate::kubectl::Kubectl;
use crate::patience::{BOUND, eventually};
use crate::scene::Scene;

/// The label by which a node is of a trial's edge or cloud.
const LABEL: &str = "edgeward.test/stage";

/// Two sites of the trial's own. Their nodes go with it.
pub(crate) struct Stage {
    name: String,
    kubectl: Kubectl,
    nodes: RefCell<Vec<String>>,
    /// Accepts the probes of the cloud site.
    wan: TcpListener,
}

impl Stage {
    pub(crate) fn new(scene: &Scene<'_>) -> Result<Self> {
        Ok(Self {
            name: scene.namespace.clone(),
            kubectl: scene.kubectl.clone(),
            nodes: RefCell::default(),
            wan: TcpListener::bind("127.0.0.1:0")?,
        })
    }

    /// A configuration with the two sites, `edge` and `cloud`.
    pub(crate) fn config(&self) -> Result<Value> {
        let probe = format!("tcp://{}", self.wan.local_addr()?);
        let toleration = json!({"key": "cloud", "value": "cloud", "effect": "NoSchedule"});
        Ok(json!({
            "sites": [
                {"name": "edge", "kind": "edge", "nodeSelector": {LABEL: self.label("edge")}},
                {"name": "cloud", "kind": "cloud", "nodeSelector": {LABEL: self.label("cloud")},
                 "tolerations": [toleration], "probes": [probe]},
            ],
        }))
    }

    /// The value of the label of one of the sites' nodes.
    pub(crate) fn label(&self, site: &str) -> String {
        format!("{}-{site}", self.name)
    }

    /// Creates an edge node with so much CPU, and waits until it is Ready.
    pub(crate) fn edge_node(&self, suffix: &str, cpu: &str) -> Result<String> {
        let labels = json!({LABEL: self.label("edge")});
        self.node(
            suffix,
            labels,
            json!([]),
            json!({"cpu": cpu, "memory": "64Gi", "pods": "110"}),
        )
    }

    /// Creates a cloud node with room for everything, and waits until it is Ready.
    pub(crate) fn cloud_node(&self, suffix: &str) -> Result<String> {
        let labels = json!({LABEL: self.label("cloud")});
        let taints = json!([{"key": "cloud", "value": "cloud", "effect": "NoSchedule"}]);
        self.node(
            suffix,
            labels,
            taints,
            json!({"cpu": "1000", "memory": "4Ti", "pods": "5000"}),
        )
    }

    fn node(&self, suffix: &str, labels: Value, taints: Value, resources: Value) -> Result<String> {
        let name = format!("{}-{suffix}", self.name);
        self.kubectl.create(&node(&name, labels, taints, resources))?;
        self.nodes.borrow_mut().push(name.clone());
        let timeout = format!("--timeout={}s", BOUND.as_secs());
        self.kubectl
            .run(&["wait", "--for=condition=Ready", "node", &name, &timeout], "")?;
        eventually("the node is not tainted any more", BOUND, || {
            let taints = self.kubectl.get("node", &name)?["spec"]["taints"].to_string();
            anyhow::ensure!(!taints.contains("not-ready"), "{taints}");
            Ok(())
        })?;
        Ok(name)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let nodes = self.nodes.take();
        let mut args = vec!["delete", "node", "--ignore-not-found", "--wait=false"];
        args.extend(nodes.iter().map(String::as_str));
        if let Err(error) = self.kubectl.run(&args, "") {
            eprintln!("{error:#}");
        }
    }
}
