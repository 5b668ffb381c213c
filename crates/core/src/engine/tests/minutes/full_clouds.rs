//! Clouds whose virtual nodes promise more than there is behind them.

use serde_json::{Value, json};

use super::*;
use crate::model::snapshot::Site;

/// What the scheduler of the cluster behind a node says of a pod that it has no room for.
const NO_ROOM: &str =
    "0/4 nodes are available: 4 Insufficient cpu. preemption: 0/4 nodes are available: 4 No preemption victims found.";

fn config() -> Arc<Config> {
    let cloud = |name: &str| json!({"name": name, "kind": "cloud", "nodeSelector": {"site": name}, "tolerations": []});
    let sites = json!([{"name": "edge", "kind": "edge"}, cloud("near"), cloud("far")]);
    Arc::new(Config::read(&json!({ "sites": sites })).unwrap())
}

/// A cluster with a full edge, a near and a far cloud, each of which promises 64 cores.
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
    /// The watches are alive, the WAN is good, and what there is to be seen is published.
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

    /// So many seconds in which the WAN is good.
    fn pass_in_health(&mut self, seconds: u64) -> Vec<Publication> {
        let mut all = vec![];
        for _ in 0..seconds {
            all.extend(self.pass(1, true).into_iter().map(|(_, publication)| publication));
            all.push(self.hears());
        }
        all
    }

    fn full(&self) -> Vec<String> {
        let snapshot = self.shared.snapshot();
        let near = snapshot.sites.iter().find(|site| site.name() == "near");
        near.map(|near: &Site| near.full.iter().map(ToString::to_string).collect())
            .unwrap()
    }
}

/// The pod as it is created with this decision; then it is bound, and the cluster behind the node has a word on it.
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
    /// How many pods are created until the word on one comes back: 0.2 s, at one each 20 ms.
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
    // Who asks for less may still go, and the far cloud has everything.
    let go = |cluster: &Cluster, id, cpu| cluster.review(id, &pod("p", "batch", cpu, json!({}))).1;
    assert_eq!(go(&cluster, 100, "900m").as_deref(), Some("near"));
    assert_eq!(go(&cluster, 101, "1100m").as_deref(), Some("far"));
}

#[test]
fn one_of_each_replica_tries_at_most_and_the_next_go_when_it_runs() {
    let mut replicas = [clouds(), clouds()];
    let witness = Change::PodGone("witness".into());
    let both = |replicas: &mut [Cluster; 2], change: &Change| {
        for cluster in replicas {
            cluster.sees(change);
            cluster.hears();
        }
    };
    both(&mut replicas, &Change::Replicas(2));
    both(&mut replicas, &record(&refused(sent("witness", 1, "1", "near"))));
    both(&mut replicas, &witness);
    for cluster in &mut replicas {
        cluster.pass_in_health(59);
        assert_eq!(cluster.full(), ["cpu 1 or more (none waits)"]);
        cluster.pass_in_health(1);
        assert_eq!(cluster.full(), ["cpu 1 or more (one may try)"]);
    }
    let go = |cluster: &Cluster, id| cluster.review(id, &pod("p", "batch", "1", json!({}))).1.unwrap();
    assert_eq!([10, 11].map(|id| go(&replicas[0], id)), ["near", "far"]);
    // This one has not seen what the other has reserved: so many may try at once as there are replicas.
    assert_eq!([20, 21].map(|id| go(&replicas[1], id)), ["near", "far"]);
    // The pod of the one is refused by a quota: its reservation expires. The other's is seen by both.
    let try_ = sent("try", 20, "1", "near");
    both(&mut replicas, &record(&try_));
    for cluster in &mut replicas {
        cluster.pass_in_health(4);
        assert_eq!(go(cluster, 30), "far");
    }
    both(&mut replicas, &record(&refused(try_.clone())));
    assert_eq!(replicas[1].full(), ["cpu 1 or more (1 waits)"]);
    both(&mut replicas, &Change::PodGone("try".into()));
    for cluster in &mut replicas {
        cluster.pass_in_health(61);
        assert_eq!(go(cluster, 40), "near");
        cluster.shared.forget(DecisionId(40), "shop");
    }
    both(&mut replicas, &record(&bound(try_.clone())));
    both(&mut replicas, &running(bound(try_)));
    for cluster in &replicas {
        assert!(cluster.full().is_empty());
        assert_eq!([50, 51, 52].map(|id| go(cluster, id)), ["near", "near", "near"]);
    }
}

#[test]
fn of_held_pods_one_tries_and_the_others_follow_when_it_runs() {
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
        let mut held = pod(name, "batch", "500m", gates.clone());
        held["metadata"]["annotations"]["scheduling.example.io/reason"] = json!("held_no_capacity");
        cluster.sees(&record(&held));
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
    let names: BTreeSet<_> = steps.iter().map(|step| step.pod.name.to_string()).collect();
    assert_eq!(names, BTreeSet::from(["a".to_owned()]), "{steps:?}");
    let cloud = (Reason::CloudEdgeNoCapacity, Some("cloud".to_owned()));
    assert_eq!(cluster.release(&steps[0].pod, steps[0].since), cloud);
    // It is on its way: no other one goes.
    cluster.sees(&record(&remote("a", on_cloud())));
    assert!(step(&mut cluster, 3).is_empty());
    cluster.sees(&running(remote("a", on_cloud())));
    let names: BTreeSet<_> = step(&mut cluster, 2)
        .into_iter()
        .map(|step| step.pod.name.to_string())
        .collect();
    assert_eq!(names, BTreeSet::from(["b".to_owned(), "c".to_owned()]));
}
