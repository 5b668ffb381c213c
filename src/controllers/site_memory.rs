//! Keeps what is known of the clouds' nodes for the process that comes after, in a ConfigMap that one replica writes.

use std::sync::Arc;
use std::time::Duration;

use edgeward_core::engine::SharedState;
use edgeward_core::model::remembered_node::RememberedNode;
use edgeward_core::model::site::SiteKind;
use edgeward_core::model::snapshot::Snapshot;
use edgeward_core::units::Now;
use edgeward_core::wire::remembered_nodes;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, Client, Error};

use super::lease::Leadership;
use crate::api::SITE_MEMORY_KEY;
use crate::platform::clock::Clock;

/// The shortest time between two writes, and how often it is looked whether there is something to write.
const PERIOD: Duration = Duration::from_secs(10);

/// The most bytes of it. An object of the API server has room for a MiB.
const BYTES: usize = 512 * 1024;

/// Where it is kept.
pub struct SiteMemory {
    /// Of our own cluster.
    pub client: Client,
    /// Our own namespace.
    pub namespace: String,
    /// Name of the ConfigMap.
    pub name: String,
    /// The view of the fleet.
    pub shared: Arc<SharedState>,
    /// The process's clock.
    pub clock: Clock,
}

impl SiteMemory {
    /// Writes it when it is another, at most every ten seconds, while the Lease is ours, for ever.
    pub async fn run(self, leadership: Leadership) {
        loop {
            let term = leadership.acquired().await;
            tokio::select! {
                () = self.keep() => return,
                () = term.over() => {}
            }
        }
    }

    async fn keep(&self) {
        let maps = Api::namespaced(self.client.clone(), &self.namespace);
        let mut written = None;
        let mut fails = false;
        loop {
            let nodes = known(&self.shared.snapshot());
            if written.as_ref() != Some(&nodes) {
                match self.write(&maps, &nodes).await {
                    Ok(()) => {
                        written = Some(nodes);
                        fails = false;
                    }
                    Err(error) if !std::mem::replace(&mut fails, true) => {
                        let name = &self.name;
                        tracing::warn!(%error, name, "what is known of clouds is not kept; tried again without a word");
                    }
                    Err(_) => {}
                }
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    async fn write(&self, maps: &Api<ConfigMap>, nodes: &[RememberedNode]) -> kube::Result<()> {
        let map = self.config_map(nodes, self.clock.now());
        let params = PostParams::default();
        match maps.replace(&self.name, &params, &map).await {
            // Where there is nothing to keep, nothing is made.
            Err(Error::Api(status)) if status.code == 404 && nodes.is_empty() => Ok(()),
            Err(Error::Api(status)) if status.code == 404 => maps.create(&params, &map).await.map(drop),
            written => written.map(drop),
        }
    }

    fn config_map(&self, nodes: &[RememberedNode], now: Now) -> ConfigMap {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(self.name.clone());
        map.data = Some([(SITE_MEMORY_KEY.to_owned(), text(nodes, now))].into());
        map
    }
}

/// What there is to keep: the shapes of the nodes of every cloud, and of those that are gone; these first, for nobody else
/// knows them. Each node once.
fn known(snapshot: &Snapshot) -> Vec<RememberedNode> {
    let clouds = || snapshot.sites.iter().filter(|site| site.kind() == SiteKind::Cloud);
    let gone = clouds().flat_map(|cloud| cloud.remembered.iter().cloned());
    let is_gone = |name: &str| clouds().any(|cloud| cloud.remembered.iter().any(|gone| *gone.node.name == *name));
    // One that is back with less than it had is known as it was.
    let there = clouds()
        .flat_map(|cloud| cloud.nodes())
        .filter(|node| !is_gone(&node.name));
    let there = there.map(|node| RememberedNode {
        node: Arc::new(node.shape()),
        gone_since: None,
    });
    gone.chain(there).collect()
}

/// As many of them as there is room for, from the first.
fn text(nodes: &[RememberedNode], now: Now) -> String {
    let (mut fit, mut most) = (0, nodes.len());
    let text = |count: usize| remembered_nodes::write(&nodes[..count], now).to_string();
    let all = text(most);
    if all.len() <= BYTES {
        return all;
    }
    // A search for the last that fits.
    while fit + 1 < most {
        let middle = usize::midpoint(fit, most);
        match text(middle).len() <= BYTES {
            true => fit = middle,
            false => most = middle,
        }
    }
    tracing::warn!(
        kept = fit,
        of = nodes.len(),
        "there are too many nodes of clouds to keep all that is known of them"
    );
    text(fit)
}

#[cfg(test)]
mod tests {
    use edgeward_core::model::node::Node;
    use edgeward_core::testkit::NOW;
    use edgeward_core::units::Moment;
    use serde_json::Value;

    use super::*;

    fn node(name: String, label: &str) -> RememberedNode {
        RememberedNode {
            node: Arc::new(Node {
                name: name.into(),
                labels: [("label", label)].into_iter().collect(),
                ..Node::default()
            }),
            gone_since: None,
        }
    }

    #[test]
    fn what_does_not_fit_is_left_out_from_the_end() {
        let long = "x".repeat(1_000);
        let nodes: Vec<_> = (0..1_000).map(|i| node(format!("v{i:03}"), &long)).collect();
        let kept = text(&nodes, NOW);
        assert!((BYTES - 2_000..=BYTES).contains(&kept.len()), "{}", kept.len());
        let kept: Value = serde_json::from_str(&kept).unwrap();
        assert_eq!(kept["nodes"][0]["name"], "v000");
        let few = remembered_nodes::read(&serde_json::from_str(&text(&nodes[..2], NOW)).unwrap(), NOW).unwrap();
        assert_eq!(few, nodes[..2]);
    }

    #[test]
    fn nodes_that_are_gone_come_first_and_the_edge_is_not_kept() {
        let fleet = serde_json::json!({
            "sites": [{"name": "edge", "kind": "edge"}, {"name": "cloud", "kind": "cloud"}],
            "nodes": [
                {"name": "e", "labels": {"node.role/edge": "true"}, "allocatable": {"pods": 1}},
                {"name": "c", "labels": {"node.role/cloud": "true"}, "allocatable": {"pods": 1}, "used": {"pods": 1}},
            ],
            "rememberedNodes": [
                {"name": "v", "labels": {"node.role/cloud": "true"}, "allocatable": {"pods": 2}, "goneSeconds": 60},
            ],
        });
        let known = known(&edgeward_core::testkit::snapshot(&fleet));
        let names: Vec<_> = known.iter().map(|node| (&*node.node.name, node.gone_since)).collect();
        assert_eq!(names, [("v", Some(Moment(NOW.moment.0 - 60_000_000))), ("c", None)]);
        assert_eq!(known[1].node.pods, 0);
    }
}
