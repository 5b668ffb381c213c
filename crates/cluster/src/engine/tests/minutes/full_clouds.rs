//! Clouds whose virtual nodes promise more than the cluster behind them has.

use serde_json::{Value, json};

use super::*;
use edgeward_decision::model::snapshot::Site;

/// The remote scheduler's message for a pod without room.
const NO_ROOM: &str =
    "0/4 nodes are available: 4 Insufficient cpu. preemption: 0/4 nodes are available: 4 No preemption victims found.";

fn config() -> Arc<Config> {
    let cloud = |name: &str| json!({"name": name, "kind": "cloud", "nodeSelector": {"site": name}, "tolerations": []});
    let sites = json!([{"name": "edge", "kind": "edge"}, cloud("near"), cloud("far")]);
    Arc::new(Config::read(&json!({ "sites": sites })).unwrap())
}

/// A cluster with a full edge, a near and a far cloud. Each cloud promises 64 cores.
fn clouds() -> Cluster {
    let mut cluster = Cluster::of(
        config(),
        &[
            virtual_node("near"),
            virtual_node("far"),
            node("edge-0", json!({"node.role/edge": "true"}), "1"),
        ],
    );
    cluster.sees(&running(pod("full", "batch", "1", json!({"nodeName": "edge-0"}))));
    cluster.hears();
    cluster
}

fn virtual_node(site: &str) -> Change {
    let node = json!({
        "metadata": {"name": format!("{site}-0"), "labels": {"site": site}},
        "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "500"},
                   "conditions": [{"type": "Ready", "status": "True"}]},
    });
    Change::Node(Box::new(edgeward_kube::node::from_json(&node.to_string()).unwrap()))
}

fn running(mut pod: Value) -> Change {
    pod["status"] = json!({"phase": "Running"});
    record(&pod)
}

impl Cluster {
    /// Marks the watches as alive and the WAN as good, and publishes.
    fn hears(&mut self) -> Publication {
        for (site, millis) in [("near", 5), ("far", 20)] {
            let link = Link {
                state: LinkState::Healthy,
                rtt: Some(Micros::from_millis(millis)),
                loss: Some(edgeward_kube::units::Permille(0)),
                as_of: self.now.moment,
                ..Link::default()
            };
            self.sees(&Change::Link(site.into(), Some(link)));
        }
        for kind in [Kind::Nodes, Kind::Pods] {
            self.sees(&Change::WatchAlive(kind));
        }
        self.engine.publish(self.now)
    }

    fn full(&self) -> Vec<String> {
        let snapshot = self.shared.snapshot();
        let near = snapshot.sites.iter().find(|site| site.name() == "near");
        near.map(|near: &Site| near.full.iter().map(ToString::to_string).collect())
            .unwrap()
    }
}

/// The pod created with this decision, then bound. The caller adds what the remote cluster reports.
fn sent(name: &str, id: u128, cpu: &str, site: &str) -> Value {
    let mut pod = pod(name, "batch", cpu, json!({"nodeSelector": {"site": site}}));
    pod["metadata"]["annotations"]["scheduling.example.io/decision-id"] = json!(DecisionId(id).to_string());
    pod["status"] = json!({"phase": "Pending"});
    pod
}

fn bound(mut pod: Value) -> Value {
    let site = pod["spec"]["nodeSelector"]["site"].as_str().unwrap();
    pod["spec"]["nodeName"] = json!(format!("{site}-0"));
    pod
}

fn refused(pod: Value) -> Value {
    let mut pod = bound(pod);
    pod["status"]["conditions"] =
        json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": NO_ROOM}]);
    pod
}

#[test]
fn burst_moves_to_far_cloud_after_first_refusal_by_near_cloud() {
    /// Number of pods created until the first refusal comes back: 0.2 s, at one pod every 20 ms.
    const DELAY: usize = 10;
    const TRUTH: usize = 16;
    let mut cluster = clouds();
    let mut near: Vec<Value> = vec![];
    let (mut far, mut sent_after_the_word) = (0, 0);
    for round in 0..60_u128 {
        let name = format!("burst-{round}");
        let is_known = !cluster.full().is_empty();
        let (_, site) = cluster.review(round, &pod(&name, "batch", "1", json!({})));
        let site = site.unwrap();
        let pod = sent(&name, round, "1", &site);
        cluster.sees(&record(&pod));
        cluster.sees(&record(&bound(pod.clone())));
        if site == "near" {
            sent_after_the_word += usize::from(is_known);
            near.push(pod);
        } else {
            far += 1;
            cluster.sees(&running(bound(pod)));
        }
        if let Some(answered) = near.len().checked_sub(DELAY).map(|at| at.min(near.len() - 1)) {
            let pod = near[answered].clone();
            match answered < TRUTH {
                true => cluster.sees(&running(bound(pod))),
                false => cluster.sees(&record(&refused(pod))),
            }
        }
        cluster.now = NOW.at(cluster.now.moment.after(Micros::from_millis(20)));
        cluster.hears();
    }
    assert_eq!(sent_after_the_word, 0);
    assert_eq!(
        (near.len(), far),
        (TRUTH + DELAY, 60 - TRUTH - DELAY),
        "of 64 that are promised"
    );
    assert_eq!(cluster.full(), ["cpu 1 or more (1 waiting)"]);
    // A smaller pod may still go to the near cloud. The far cloud takes any pod.
    let go = |cluster: &Cluster, id, cpu| cluster.review(id, &pod("p", "batch", cpu, json!({}))).1;
    assert_eq!(go(&cluster, 100, "900m").as_deref(), Some("near"));
    assert_eq!(go(&cluster, 101, "1100m").as_deref(), Some("far"));
}
