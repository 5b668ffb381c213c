use serde_json::json;

use super::*;
use crate::model::node::Node;
use crate::wire::node;

const HOUR: i64 = 3_600_000_000;

fn node(name: &str, label: &str) -> Node {
    let node = json!({
        "metadata": {"name": name, "labels": {label: "true", "kubernetes.io/hostname": name}},
        "spec": {"unschedulable": true, "taints": [
            {"key": "cloud", "value": "cloud", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
            {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        ]},
        "status": {"allocatable": {"cpu": "8", "pods": "9", "example.com/gpu": "2"},
                   "conditions": [{"type": "Ready", "status": "True"}]},
    });
    node::from_json(&node.to_string()).unwrap()
}

/// A cache that has listed an edge node and a cloud's node at this moment.
fn listed(at: i64) -> Cache {
    let mut cache = Cache::new(&Config::default());
    list(
        &mut cache,
        &[node("edge", "node.role/edge"), node("cloud", "node.role/cloud")],
        at,
    );
    cache
}

fn list(cache: &mut Cache, nodes: &[Node], at: i64) {
    cache.list_began(Kind::Nodes);
    for node in nodes {
        cache.apply_node(node.clone());
    }
    cache.record_event(Kind::Nodes, Moment(at));
    cache.list_ended(Kind::Nodes);
}

fn delete(cache: &mut Cache, name: &str, at: i64) {
    cache.record_event(Kind::Nodes, Moment(at));
    cache.delete_node(name);
}

/// Names of the nodes that are remembered of the cloud, and since when.
fn remembered(cache: &mut Cache, at: i64) -> Vec<(String, Option<i64>)> {
    let snapshot = cache.publish(Moment(at));
    assert!(snapshot.sites[0].remembered.is_empty());
    let nodes = snapshot.sites[1].remembered.iter();
    nodes
        .map(|node| (node.node.name.to_string(), node.gone_since.map(|since| since.0)))
        .collect()
}

#[test]
fn a_deleted_node_of_a_cloud_is_remembered_for_a_while_as_what_it_could_hold() {
    let mut cache = listed(0);
    assert!(remembered(&mut cache, 1).is_empty());
    assert_eq!(cache.next_change(), None);
    delete(&mut cache, "edge", 5);
    delete(&mut cache, "cloud", 7);
    cache.take_delta();
    assert_eq!(remembered(&mut cache, 8), [("cloud".to_owned(), Some(7))]);
    assert!(cache.take_delta().other);
    let snapshot = cache.publish(Moment(9));
    let site = &snapshot.sites[1];
    assert!(site.nodes.is_empty());
    let shape = &site.remembered[0].node;
    assert_eq!((shape.allocatable.cpu.0, shape.slots), (8_000, 9));
    assert_eq!(shape.allocatable.scalar("example.com/gpu"), 2);
    assert_eq!(shape.labels.get("kubernetes.io/hostname"), Some("cloud"));
    let taints: Vec<_> = shape.taints.iter().map(|taint| &*taint.key).collect();
    assert_eq!(taints, ["cloud"]);
    assert!(!shape.ready && !shape.cordoned);

    assert_eq!(cache.next_change(), Some(Moment(7 + HOUR)));
    assert_eq!(remembered(&mut cache, 6 + HOUR).len(), 1);
    cache.take_delta();
    assert!(remembered(&mut cache, 7 + HOUR).is_empty());
    assert!(cache.take_delta().other);
    assert_eq!(cache.next_change(), None);
}

#[test]
fn a_node_that_is_back_is_not_remembered_and_a_setting_changes_for_how_long() {
    let mut cache = listed(0);
    delete(&mut cache, "cloud", 7);
    cache.apply_node(node("cloud", "node.role/cloud"));
    assert!(remembered(&mut cache, 9).is_empty());
    delete(&mut cache, "cloud", 10);
    cache.configure(&Config {
        site_memory: Micros(5),
        ..Config::default()
    });
    assert_eq!(remembered(&mut cache, 14).len(), 1);
    assert!(remembered(&mut cache, 15).is_empty());
    cache.apply_node(node("cloud", "node.role/cloud"));
    cache.configure(&Config {
        site_memory: Micros(0),
        ..Config::default()
    });
    delete(&mut cache, "cloud", 17);
    assert!(remembered(&mut cache, 17).is_empty());
    // One that leaves the site by its labels is not deleted.
    let mut cache = listed(0);
    cache.apply_node(node("cloud", "other"));
    delete(&mut cache, "cloud", 2);
    assert!(remembered(&mut cache, 3).is_empty());
}

#[test]
fn a_node_that_is_back_with_less_is_remembered_until_it_has_it_all() {
    let mut cache = listed(0);
    delete(&mut cache, "cloud", 7);
    let mut back = node("cloud", "node.role/cloud");
    back.allocatable.scalars.clear();
    cache.apply_node(back.clone());
    assert_eq!(remembered(&mut cache, 9), [("cloud".to_owned(), Some(7))]);
    back.slots += 1;
    cache.apply_node(back);
    assert_eq!(remembered(&mut cache, 11).len(), 1);
    // It is gone again before it has it all; and is registered before it has its labels.
    delete(&mut cache, "cloud", 12);
    assert_eq!(remembered(&mut cache, 12), [("cloud".to_owned(), Some(7))]);
    cache.apply_node(node("cloud", "other"));
    assert_eq!(remembered(&mut cache, 12).len(), 1);
    cache.apply_node(node("cloud", "node.role/cloud"));
    assert!(remembered(&mut cache, 13).is_empty());
}

#[test]
fn what_was_kept_and_is_not_listed_is_gone_since_then_or_since_it_says() {
    let kept = |name: &str, gone_since| RememberedNode {
        node: Arc::new(node(name, "node.role/cloud").shape()),
        gone_since,
    };
    let mut cache = Cache::new(&Config::default());
    cache.remember(&[
        kept("cloud", None),
        kept("back", Some(Moment(-50))),
        kept("lost", None),
        kept("gone", Some(Moment(-100))),
        kept("long-gone", Some(Moment(-2 * HOUR))),
    ]);
    let there = ["cloud", "back"].map(|name| node(name, "node.role/cloud"));
    list(&mut cache, &there, 10);
    let expected = [("gone".to_owned(), Some(-100)), ("lost".to_owned(), Some(10))];
    assert_eq!(remembered(&mut cache, 11), expected);
    // Other sites are counted beside these, and know the same.
    let mut next = cache.successor(&Config::default());
    list(&mut next, &there[..1], 12);
    let expected = [
        ("back".to_owned(), Some(12)),
        ("gone".to_owned(), Some(-100)),
        ("lost".to_owned(), Some(10)),
    ];
    assert_eq!(remembered(&mut next, 13), expected);
    // What is there is not remembered as gone, whatever somebody says.
    next.remember(&[kept("cloud", Some(Moment(1)))]);
    assert_eq!(remembered(&mut next, 14).len(), 3);
    let mut more = kept("cloud", Some(Moment(1)));
    Arc::make_mut(&mut more.node).slots += 1;
    next.remember(&[more]);
    assert_eq!(remembered(&mut next, 15).len(), 4);
}

#[test]
fn those_that_are_gone_longest_are_forgotten_where_there_are_many() {
    let mut cache = listed(0);
    let count = i64::try_from(MOST).unwrap() + 3;
    for i in 0..count {
        let name = format!("v{i:04}");
        cache.apply_node(node(&name, "node.role/cloud"));
        delete(&mut cache, &name, i);
    }
    let remembered = remembered(&mut cache, count);
    assert_eq!(remembered.len(), MOST);
    assert_eq!(remembered[0], ("v0003".to_owned(), Some(3)));
}
