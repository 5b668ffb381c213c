//! A table test of the rules for pods without a node.

use serde_json::{Value, json};

use super::super::*;
use crate::cache::tests::{Fixture, bound, edge_node, of, pod, unschedulable, with};
use edgeward_decision::testkit::NOW;

/// The pod of the table, created now.
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
    /// The scheduler refuses the pod because no node fits. If the pod is new, it is created now.
    fn handles(&mut self, pod: &Value) {
        let pod = with(pod.clone(), "/spec/nodeSelector", json!({"no": "node"}));
        let message = format!("at {}", self.now.0);
        self.pod(&unschedulable(pod, &message));
        self.publish();
    }
}

/// One run of the table. A handled or kept pod was created when the table first named it.
struct Run {
    fixture: Fixture,
    older: Option<Value>,
    kept: Option<Value>,
}

impl Run {
    fn step(&mut self, step: &str) {
        let f = &mut self.fixture;
        let words: Vec<_> = step.split(' ').collect();
        let number = |at: usize| words[at].parse::<u32>().unwrap();
        match words[..] {
            ["new"] => f.pod(&new(f)),
            ["new", "on", node] => {
                let node = f.cache.nodes.ids[node];
                f.pod_with(&new(f), Some(node));
            }
            ["new", "refused"] => f.pod(&unschedulable(new(f), "no")),
            ["new", "nominated", node] => f.pod(&with(new(f), "/status/nominatedNodeName", node.into())),
            ["new", "changed"] => f.pod(&with(new(f), "/metadata/labels", json!({"changed": "true"}))),
            ["new", "gated"] => f.pod(&gated(new(f))),
            ["ranked", uid, ..] => {
                let pod = with(pod(uid, number(2)), "/spec/priority", number(3).into());
                let a = f.cache.nodes.ids["a"];
                f.pod_with(&pod, Some(a));
            }
            ["bound", uid, _, node] => f.pod(&bound(pod(uid, number(2)), node)),
            ["delete", uid] => f.cache.delete_pod(uid),
            ["node", name, _] => f.node(&edge_node(name, number(2))),
            ["older"] => self.older = Some(created(f, pod("older", 100))),
            ["other"] => self.older = Some(created(f, of("other", pod("older", 100)))),
            ["handles", "older"] => f.handles(self.older.as_ref().unwrap()),
            ["handles", uid] => f.handles(&created(f, pod(uid, 100))),
            ["keep"] => self.kept = Some(new(f)),
            ["kept"] => f.pod(self.kept.as_ref().unwrap()),
            ["list"] => f.cache.list_began(Kind::Pods),
            ["publish"] => drop(f.publish()),
            ["wait", _] => f.wait(number(1).into()),
            ["pass", _] => f.pass(number(1).into()),
            ["used", ref used @ ..] => assert_eq!(f.used(), taken(used)),
            _ => panic!("{step:?} is no step"),
        }
    }
}

fn taken(words: &[&str]) -> Vec<i64> {
    words.iter().map(|word| word.parse().unwrap()).collect()
}

#[test]
fn unbound_pod_charges_its_guessed_node_as_in_table() {
    for line in include_str!("unbound.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let (steps, used) = line.split_once(" | ").unwrap().1.split_once(" -> ").unwrap();
        let mut fixture = Fixture::new();
        fixture.node(&edge_node("a", 1000));
        fixture.node(&edge_node("b", 1000));
        fixture.cache.list_ended(Kind::Pods);
        let (older, kept) = (None, None);
        let mut run = Run { fixture, older, kept };
        steps.split("; ").for_each(|step| run.step(step));
        let mut fixture = run.fixture;
        assert_eq!(fixture.used(), taken(&used.split(' ').collect::<Vec<_>>()), "{line}");
        fixture.pass(60);
        assert_eq!(fixture.cache.next_change(), None, "{line}");
    }
}

#[test]
fn no_more_than_32_schedulers_are_remembered() {
    let mut fixture = Fixture::new();
    for number in 0..40 {
        fixture.wait(1);
        let name = format!("s{number}").into();
        fixture.cache.pods.unbound.handled(&name, 0, fixture.now);
    }
    let schedulers = &fixture.cache.pods.unbound.schedulers;
    let names: Vec<_> = schedulers.iter().map(|(name, _)| &**name).collect();
    assert_eq!(
        (names.len(), names.contains(&"s7"), names.contains(&"s8")),
        (32, false, true)
    );
}
