//! Pods on virtual nodes show how much room the cluster behind the node has.

use serde_json::{Value, json};

use super::super::*;
use crate::cache::tests::{Fixture, bound, edge_node, of, pod, terminating, unschedulable};
use edgeward_decision::model::remote_room::MAX_BOUNDS;
use edgeward_decision::testkit::with;

const CPU: &str = "0/4 nodes are available: 1 node(s) had untolerated taint {a: b}, 3 Insufficient cpu.";

impl Fixture {
    /// A fixture with a virtual node of 64 cores.
    fn with_a_cloud() -> Self {
        let mut fixture = Self::new();
        let node = edge_node("cloud-0", 64_000);
        fixture.node(&with(node, "/metadata/labels", json!({"node.role/cloud": "true"})));
        for kind in Kind::REQUIRED {
            fixture.cache.list_ended(kind);
        }
        fixture
    }

    /// The bounds from which the cloud counts as full.
    fn full(&mut self) -> Vec<String> {
        let snapshot = self.publish();
        snapshot.sites[1].full.iter().map(ToString::to_string).collect()
    }

    /// Controllers to which the cloud is closed.
    fn closed_cloud(&mut self) -> Vec<String> {
        let snapshot = self.publish();
        let closed = snapshot.sites[1].closed.iter();
        closed.map(|(_, uid, pods)| format!("{uid}: {pods}")).collect()
    }
}

fn sent(uid: &str, millicores: u32) -> Value {
    let pod = with(
        pod(uid, millicores),
        "/spec/nodeSelector",
        json!({"node.role/cloud": "true"}),
    );
    bound(pod, "cloud-0")
}

fn refused(uid: &str, millicores: u32) -> Value {
    unschedulable(sent(uid, millicores), CPU)
}

/// The pod as mirrored after the remote cluster has started it.
fn begun(uid: &str, millicores: u32) -> Value {
    let waiting = json!([{"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}]);
    with(sent(uid, millicores), "/status/containerStatuses", waiting)
}

#[test]
fn cloud_is_full_from_smallest_refused_request() {
    let mut fixture = Fixture::with_a_cloud();
    fixture.pod(&sent("1", 500));
    assert!(fixture.full().is_empty());
    fixture.pod(&refused("1", 500));
    fixture.pod(&refused("2", 800));
    fixture.pod(&refused("2", 800));
    assert_eq!(fixture.full(), ["cpu 500m or more (2 waiting)"]);
    fixture.pod(&refused("3", 200));
    assert_eq!(fixture.full(), ["cpu 200m or more (3 waiting)"]);
    let waiting: u64 = fixture.publish().sites[1]
        .queues
        .iter()
        .map(|group| group.waiting)
        .sum();
    assert_eq!(waiting, 3);
    // The site is closed to no controller.
    assert!(fixture.closed_cloud().is_empty());
    fixture.cache.delete_pod("3");
    let room = with(
        sent("4", 100),
        "/spec/containers/0/resources/requests/memory",
        "1Gi".into(),
    );
    fixture.pod(&unschedulable(
        room,
        "0/1 nodes are available: 1 Insufficient memory, 1 Too many pods.",
    ));
    assert_eq!(
        fixture.full(),
        [
            "cpu 200m or more (2 waiting)",
            "memory 1Gi and a pod slot or more (1 waiting)"
        ],
        "for a while the least counts that there was"
    );
}

#[test]
fn edge_and_ending_pods_neither_fill_nor_close_the_cloud() {
    let mut fixture = Fixture::with_a_cloud();
    fixture.node(&edge_node("edge-0", 4000));
    fixture.pod(&unschedulable(bound(pod("1", 500), "edge-0"), CPU));
    fixture.pod(&bound(pod("2", 500), "edge-0"));
    fixture.pod(&terminating(refused("3", 500)));
    fixture.pod(&with(refused("4", 500), "/status/phase", "Failed".into()));
    fixture.pass(100);
    assert!(fixture.full().is_empty() && fixture.closed_cloud().is_empty());
    assert!(fixture.closed().is_empty());
}

/// Columns: events after a pod of 500 m was refused, and the bounds at the end.
const CASES: &str = "\
pass 100 | cpu 500m or more (1 waiting)
refused 2 500; delete 1; pass 100 | cpu 500m or more (1 waiting)
delete 1; publish; pass 59 | cpu 500m or more (0 waiting)
delete 1; publish; pass 60 |
# Whatever is said of pods that no scheduler put there.
delete 1; publish; pass 59; unbound 2 500; pass 1 |
# A new witness begins them anew.
delete 1; publish; pass 59; refused 2 500; publish; delete 2; publish; pass 59 | cpu 500m or more (0 waiting)
# Until a pod that asks for as much has begun, also the witness itself.
delete 1; publish; sent 2 500; begun 2 500 |
begun 1 500 |
# Other sites change, and change back.
delete 1; publish; other sites | cpu 500m or more (0 waiting)
delete 1; sent 2 400; begun 2 400 | cpu 500m or more (0 waiting)
sent 2 600; begun 2 600 | cpu 500m or more (1 waiting)
delete 1; list; begun 2 500; listed | cpu 500m or more (0 waiting)";

impl Fixture {
    fn step(&mut self, step: &str) {
        let words: Vec<_> = step.trim().split(' ').collect();
        let number = |at: usize| words[at].parse::<u32>().unwrap();
        match words[..] {
            ["pass", _] => self.pass(number(1).into()),
            ["publish"] => drop(self.publish()),
            ["list"] => self.cache.list_began(Kind::Pods),
            ["listed"] => self.cache.list_ended(Kind::Pods),
            ["delete", uid] => self.cache.delete_pod(uid),
            ["sent", uid, _] => self.pod(&sent(uid, number(2))),
            ["begun", uid, _] => self.pod(&begun(uid, number(2))),
            ["refused", uid, _] => self.pod(&refused(uid, number(2))),
            ["unbound", uid, _] => {
                let pod = with(refused(uid, number(2)), "/spec/nodeName", Value::Null);
                self.pod(&of("nobody", pod));
            }
            ["other", "sites"] => self.other_sites(),
            _ => panic!("{step:?} is no step"),
        }
    }

    fn other_sites(&mut self) {
        let sites = Config::default().sites;
        let mut far = SiteDefinition::clone(&sites[1]);
        far.name = "a-far-one".into();
        far.selector = [("far".to_owned(), "true".to_owned())].into();
        let mut more = sites.clone();
        more.insert(1, Arc::new(far));
        for (sites, cloud) in [(more, 2), (sites, 1)] {
            let config = Config {
                sites,
                ..Config::default()
            };
            self.configure(config);
            assert_eq!(self.publish().sites[cloud].full.len(), 1);
        }
    }
}

#[test]
fn cloud_is_full_while_pods_wait_and_60_s_longer() {
    for line in CASES.lines().filter(|line| !line.starts_with('#')) {
        let (steps, full) = line.split_once(" |").unwrap();
        let mut fixture = Fixture::with_a_cloud();
        fixture.pod(&refused("1", 500));
        fixture.publish();
        steps.split("; ").for_each(|step| fixture.step(step));
        assert_eq!(fixture.full().join(", "), full.trim(), "{line}");
    }
}

#[test]
fn refusal_for_other_causes_closes_cloud_to_its_controller() {
    let mut fixture = Fixture::with_a_cloud();
    let other = "0/4 nodes are available: 1 node(s) didn't match pod topology spread constraints, 3 Insufficient cpu.";
    fixture.pod(&unschedulable(sent("1", 500), other));
    let alone = with(sent("2", 500), "/metadata/ownerReferences", Value::Null);
    fixture.pod(&unschedulable(alone, other));
    assert_eq!((fixture.full(), fixture.closed_cloud()), (vec![], vec!["rs: 1".into()]));
    fixture.pod(&begun("1", 500));
    assert!(fixture.closed_cloud().is_empty());
}

#[test]
fn refused_pod_with_unset_cpu_request_sets_no_bound() {
    for (kind, resources, full) in [
        ("containers", json!({"requests": {"memory": "1Mi"}}), None),
        ("initContainers", Value::Null, None),
        (
            "containers",
            json!({"requests": {"cpu": "2m"}}),
            Some("cpu 3m or more (1 waiting)"),
        ),
    ] {
        let mut fixture = Fixture::with_a_cloud();
        let mut pod = refused("1", 1);
        let mut containers = pod["spec"][kind].as_array().cloned().unwrap_or_default();
        containers.push(json!({"name": "open", "resources": resources}));
        pod["spec"][kind] = json!(containers);
        fixture.pod(&pod);
        assert_eq!(fixture.full(), full.as_slice(), "{pod}");
        let closed = if full.is_none() { vec!["rs: 1"] } else { vec![] };
        assert_eq!(fixture.closed_cloud(), closed, "{pod}");
    }
}

#[test]
fn pod_without_status_for_15_s_closes_cloud_to_its_controller() {
    let mut fixture = Fixture::with_a_cloud();
    fixture.pod(&sent("1", 500));
    fixture.publish();
    fixture.pass(10);
    // A condition that says the pod is not mirrored does not restart its waiting time.
    let backing_off = json!([{"type": "PodScheduled", "status": "False", "reason": "OffloadingBackOff"}]);
    fixture.pod(&with(sent("1", 500), "/status/conditions", backing_off));
    fixture.pass(4);
    assert!(fixture.closed_cloud().is_empty());
    fixture.pass(1);
    assert_eq!(fixture.closed_cloud(), ["rs: 1"]);
    fixture.pod(&sent("1", 500));
    assert_eq!(fixture.closed_cloud(), ["rs: 1"]);
    assert_eq!(fixture.cache.next_change(), None);
    // A refusal by the scheduler replaces the silence, and the waiting time starts again after it.
    fixture.pod(&refused("1", 500));
    assert!(fixture.closed_cloud().is_empty());
    fixture.pod(&sent("1", 500));
    fixture.pass(14);
    assert!(fixture.closed_cloud().is_empty());
    fixture.pass(1);
    assert_eq!(fixture.closed_cloud(), ["rs: 1"]);
    fixture.pod(&begun("1", 500));
    assert!(fixture.closed_cloud().is_empty());
}

#[test]
fn thousands_of_refused_pods_keep_bounds_at_their_maximum() {
    const PODS: u32 = 3_000;
    let mut fixture = Fixture::with_a_cloud();
    let message = "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory.";
    let odd = |i: u32| {
        // No pod asks for less of both resources than another, so each gives a bound of its own.
        let requests = json!({"cpu": format!("{}m", 1_000 + i), "memory": (1_i64 << 30) - i64::from(i)});
        let pod = with(
            sent(&format!("odd-{i}"), 0),
            "/spec/containers/0/resources/requests",
            requests,
        );
        unschedulable(pod, message)
    };
    for i in 0..PODS {
        fixture.pod(&odd(i));
    }
    assert_eq!(fixture.full().len(), MAX_BOUNDS);
    // A bound that covers all the others is not dropped.
    fixture.pod(&refused("plain", 1_000));
    assert_eq!(fixture.full(), [format!("cpu 1 or more ({} waiting)", PODS + 1)]);
    fixture.cache.delete_pod("plain");
    for i in 0..PODS {
        fixture.cache.delete_pod(&format!("odd-{i}"));
    }
    fixture.publish();
    fixture.pass(60);
    assert_eq!(fixture.full(), Vec::<String>::new());
    assert_eq!(fixture.cache.next_change(), None);
}

#[test]
fn cloud_is_in_delta_when_it_fills_and_when_it_opens() {
    let mut fixture = Fixture::with_a_cloud();
    let cloud = fixture.cache.nodes.ids["cloud-0"];
    let gained_and_lost = |fixture: &mut Fixture| {
        let delta = fixture.delta();
        (delta.gained.contains(&cloud), delta.lost.contains(&cloud))
    };
    fixture.pod(&sent("1", 500));
    gained_and_lost(&mut fixture);
    fixture.pod(&refused("1", 500));
    assert_eq!(gained_and_lost(&mut fixture), (false, true));
    fixture.cache.delete_pod("1");
    gained_and_lost(&mut fixture);
    fixture.wait(60);
    assert_eq!(gained_and_lost(&mut fixture), (true, false));
}
