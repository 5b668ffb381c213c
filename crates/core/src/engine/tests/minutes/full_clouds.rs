//! Clouds whose virtual nodes promise more than the cluster behind them has.

use serde_json::{Value, json};

use super::*;
use crate::model::snapshot::Site;

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
            node("edge-0", "node.role/edge", "1"),
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
    Change::Node(Box::new(crate::wire::node::from_json(&node.to_string()).unwrap()))
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
                loss: Some(crate::units::Permille(0)),
                as_of: self.now.moment,
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
fn a_burst_goes_on_to_the_far_cloud_with_the_first_word_of_the_near_one() {
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
    assert_eq!(cluster.full(), ["cpu 1 or more (1 waits)"]);
    // A smaller pod may still go to the near cloud. The far cloud takes any pod.
    let go = |cluster: &Cluster, id, cpu| cluster.review(id, &pod("p", "batch", cpu, json!({}))).1;
    assert_eq!(go(&cluster, 100, "900m").as_deref(), Some("near"));
    assert_eq!(go(&cluster, 101, "1100m").as_deref(), Some("far"));
}

#[test]
fn gated_pods_go_60_s_after_the_last_witness() {
    let config = Arc::<Config>::default();
    let mut cluster = Cluster::of(
        config,
        &[
            node("edge-0", "node.role/edge", "1"),
            node("cloud-0", "node.role/cloud", "8"),
        ],
    );
    cluster.sees(&running(pod("full", "batch", "1", json!({"nodeName": "edge-0"}))));
    let remote = |name: &str, spec: Value| {
        let mut pod = pod(
            name,
            "batch",
            "500m",
            json!({"nodeSelector": {"node.role/cloud": "true"}}),
        );
        pod["spec"]
            .as_object_mut()
            .unwrap()
            .extend(spec.as_object().unwrap().clone());
        pod["status"] = json!({"phase": "Pending"});
        pod
    };
    let on_cloud = || json!({"nodeName": "cloud-0"});
    let mut witness = remote("witness", on_cloud());
    witness["status"]["conditions"] =
        json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": NO_ROOM}]);
    cluster.sees(&record(&witness));
    let gates = json!({"schedulingGates": [{"name": "scheduling.example.io/awaiting-capacity"}]});
    for name in ["a", "b", "c"] {
        let mut gated = pod(name, "batch", "500m", gates.clone());
        gated["metadata"]["annotations"]["scheduling.example.io/reason"] = json!("held_no_capacity");
        cluster.sees(&record(&gated));
    }
    let step = |cluster: &mut Cluster, seconds: u64| -> Vec<_> {
        let mut steps = vec![];
        for _ in 0..seconds {
            let mut published = cluster.pass(1, true);
            cluster.has_a_link(LinkState::Healthy);
            published.push((0, cluster.engine.publish(cluster.now)));
            let plans = published.into_iter().filter_map(|(_, publication)| publication.plan);
            steps.extend(plans.flat_map(|plan| plan.steps));
        }
        steps
    };
    assert!(step(&mut cluster, 20).is_empty());
    cluster.sees(&Change::PodGone("witness".into()));
    assert!(step(&mut cluster, 59).is_empty());
    let steps = step(&mut cluster, 2);
    let names: BTreeSet<_> = steps.iter().map(|step| &*step.pod.name).collect();
    assert_eq!(names, BTreeSet::from(["a", "b", "c"]), "{steps:?}");
    let cloud = (Reason::CloudEdgeNoCapacity, Some("cloud".to_owned()));
    assert_eq!(cluster.release(&steps[0].pod, steps[0].since), cloud);
}
