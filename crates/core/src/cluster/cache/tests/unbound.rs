//! The rule for pods without a node, as a table.

use serde_json::{Value, json};

use super::super::*;
use crate::cluster::cache::tests::{Fixture, bound, edge_node, of, pod, unschedulable, with};
use crate::testkit::NOW;

/// The pod that the table is about, as it is created now.
fn new(fixture: &Fixture) -> Value {
    created(fixture, pod("new", 500))
}

fn created(fixture: &Fixture, pod: Value) -> Value {
    let created = NOW.at(fixture.now).wall.to_string();
    with(pod, "/metadata/creationTimestamp", created.into())
}

fn gated(pod: Value) -> Value {
    with(pod, "/spec/schedulingGates", json!([{"name": "x"}]))
}

impl Fixture {
    /// The scheduler refuses a pod, which is created now unless it was created before. There is no node for it.
    fn handles(&mut self, pod: &Value) {
        let pod = with(pod.clone(), "/spec/nodeSelector", json!({"no": "node"}));
        let message = format!("at {}", self.now.0);
        self.pod(&unschedulable(pod, &message));
        self.publish();
    }
}

/// What happens to two nodes of 1000 m, and what each has taken of it in the end.
type Case = (&'static str, fn(&mut Fixture), [i64; 2]);

const CASES: &[Case] = &[
    ("a new pod charges its guess", |f| f.pod(&new(f)), [500, 0]),
    (
        "the node of its reservation",
        |f| {
            let b = f.cache.names["b"];
            f.pod_with(&new(f), Some(b));
        },
        [0, 500],
    ),
    (
        "displaced where it fits no other node, it keeps its node",
        |f| {
            f.pod(&new(f));
            f.publish();
            f.pod(&bound(pod("one", 600), "a"));
            f.pod(&bound(pod("two", 600), "b"));
        },
        [1100, 600],
    ),
    (
        "a refused pod charges nothing",
        |f| {
            f.pod(&new(f));
            f.publish();
            f.pod(&unschedulable(new(f), "no"));
        },
        [0, 0],
    ),
    (
        "nor does one that was refused",
        |f| {
            f.pod(&unschedulable(new(f), "no"));
            f.pod(&new(f));
        },
        [0, 0],
    ),
    (
        "nor one that was nominated",
        |f| {
            f.pod(&with(new(f), "/status/nominatedNodeName", "b".into()));
            assert_eq!(f.used(), [0, 500]);
            f.pod(&new(f));
        },
        [0, 0],
    ),
    (
        "a guess charges for 30 s",
        |f| {
            f.pod(&new(f));
            f.pass(29);
        },
        [500, 0],
    ),
    (
        "and no longer",
        |f| {
            f.pod(&new(f));
            f.pass(30);
        },
        [0, 0],
    ),
    (
        "whatever fits later",
        |f| {
            f.pod(&new(f));
            f.pass(30);
            f.node(&edge_node("a", 2000));
            f.pod(&with(new(f), "/metadata/labels", json!({"changed": "true"})));
        },
        [0, 0],
    ),
    (
        "longer while its scheduler handles older pods",
        |f| {
            let older = created(f, pod("older", 100));
            f.wait(1);
            f.pod(&new(f));
            f.pass(28);
            f.handles(&older);
            f.pass(4);
        },
        [500, 0],
    ),
    (
        "but not 5 s after the last",
        |f| {
            let older = created(f, pod("older", 100));
            f.wait(1);
            f.pod(&new(f));
            f.pass(28);
            f.handles(&older);
            f.pass(5);
        },
        [0, 0],
    ),
    (
        "nor once it has handled a younger one",
        |f| {
            let older = created(f, pod("older", 100));
            f.wait(1);
            f.pod(&new(f));
            f.pass(27);
            f.handles(&created(f, pod("younger", 100)));
            f.pass(2);
            f.handles(&older);
            f.pass(1);
        },
        [0, 0],
    ),
    (
        "nor while another scheduler does",
        |f| {
            let older = created(f, of("other", pod("older", 100)));
            f.wait(1);
            f.pod(&new(f));
            f.pass(29);
            f.handles(&older);
            f.pass(1);
        },
        [0, 0],
    ),
    (
        "a list shows a pod of 29 s",
        |f| {
            let pod = new(f);
            f.wait(29);
            f.cache.list_began(Kind::Pods);
            f.pod(&pod);
        },
        [500, 0],
    ),
    (
        "and of 30 s",
        |f| {
            let pod = new(f);
            f.wait(30);
            f.cache.list_began(Kind::Pods);
            f.pod(&pod);
        },
        [0, 0],
    ),
    (
        "also during a backlog",
        |f| {
            let (older, pod) = (created(f, pod("older", 100)), new(f));
            f.wait(30);
            f.handles(&older);
            f.cache.list_began(Kind::Pods);
            f.pod(&pod);
        },
        [500, 0],
    ),
    (
        "a pod that loses its last gate has 30 s again",
        |f| {
            f.pod(&gated(new(f)));
            f.pass(60);
            assert_eq!(f.used(), [0, 0]);
            f.pod(&new(f));
            f.pass(29);
        },
        [500, 0],
    ),
    (
        "a guess that is taken moves",
        |f| {
            f.pod(&new(f));
            f.publish();
            f.pod(&bound(pod("bound", 600), "a"));
        },
        [600, 500],
    ),
    (
        "the pod behind moves, not the one ahead",
        |f| {
            for (uid, priority) in [("ahead", 1), ("behind", 0)] {
                let pod = with(pod(uid, 300 + 100 * priority), "/spec/priority", priority.into());
                let a = f.cache.names["a"];
                f.pod_with(&pod, Some(a));
            }
            f.publish();
            f.pod(&bound(pod("bound", 500), "a"));
        },
        [900, 300],
    ),
    (
        "a pod that fits none charges none for now",
        |f| {
            f.pod(&bound(pod("1", 600), "a"));
            f.pod(&bound(pod("2", 600), "b"));
            f.pod(&new(f));
        },
        [600, 600],
    ),
    (
        "until a node gains room",
        |f| {
            f.pod(&bound(pod("1", 600), "a"));
            f.pod(&bound(pod("2", 600), "b"));
            f.pod(&new(f));
            f.pass(29);
            f.cache.delete_pod("1");
        },
        [500, 600],
    ),
    (
        "within its time",
        |f| {
            f.pod(&bound(pod("1", 600), "a"));
            f.pod(&bound(pod("2", 600), "b"));
            f.pod(&new(f));
            f.pass(30);
            f.cache.delete_pod("1");
        },
        [0, 600],
    ),
];

#[test]
fn pod_without_node_charges_a_guess_for_its_time() {
    for (name, happens, used) in CASES {
        let mut fixture = Fixture::new();
        fixture.node(&edge_node("a", 1000));
        fixture.node(&edge_node("b", 1000));
        fixture.cache.list_ended(Kind::Pods);
        happens(&mut fixture);
        assert_eq!(fixture.used(), used, "{name}");
        fixture.pass(60);
        assert_eq!(fixture.cache.next_change(), None, "{name}");
    }
}

#[test]
fn no_more_than_32_schedulers_are_remembered() {
    let mut fixture = Fixture::new();
    for number in 0..40 {
        fixture.wait(1);
        let name = format!("s{number}").into();
        fixture.cache.unbound_pods.handled(&name, 0, fixture.now);
    }
    let schedulers = &fixture.cache.unbound_pods.schedulers;
    assert_eq!((schedulers.len(), schedulers.contains_key("s7")), (32, false));
    assert!(schedulers.contains_key("s8"));
}
