//! A recorded run of an end-to-end test, asked of another engine: the same steps give the same verdicts.

use std::collections::HashMap;

use serde_json::Value;

use super::*;
use crate::model::link::LinkState;
use crate::model::pod_record::HeldPod;
use crate::units::Permille;
use crate::wire::node;
use crate::wire::pod::Pod;

/// Written by the test `held::until_the_wan_is_back` under `EDGEWARD_BLESS=1`: its configuration, and a line for each step.
const RUN: &str = include_str!("../../../../../tests/e2e/golden/run.jsonl");

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

fn kind(value: &Value) -> Kind {
    let name = text(value);
    Kind::ALL.into_iter().find(|kind| kind.as_str() == name).unwrap()
}

fn time(value: &Value) -> Now {
    Now {
        moment: Moment(value[0].as_i64().unwrap()),
        wall: text(&value[1]).parse().unwrap(),
    }
}

fn id(value: &Value) -> DecisionId {
    DecisionId::parse(text(value)).unwrap()
}

fn link(value: &Value) -> Option<Link> {
    let state = value.get("state")?;
    Some(Link {
        state: LinkState::ALL
            .into_iter()
            .find(|known| known.as_str() == state)
            .unwrap(),
        rtt: value["rtt"].as_u64().map(Micros),
        loss: value["loss"]
            .as_u64()
            .map(|loss| Permille(u32::try_from(loss).unwrap())),
        as_of: Moment(value["asOf"].as_i64().unwrap()),
    })
}

fn change(value: &Value, config: &Arc<Config>) -> Change {
    match value.as_str() {
        Some("telemetry") => return Change::Telemetry(Box::default()),
        Some("settings") => return Change::Settings(Arc::clone(config)),
        Some("sites") => return Change::Sites(Arc::clone(config)),
        Some("firstRound") => return Change::FirstRound(Arc::clone(config)),
        _ => {}
    }
    let (name, of) = value.as_object().unwrap().iter().next().unwrap();
    match (name.as_str(), of) {
        ("node", object) => Change::Node(Box::new(node::from_json(&object.to_string()).unwrap())),
        ("pod", object) => {
            let json = object.to_string();
            let record = Pod::from_json(&json).unwrap().record(json.len(), &config.keys);
            Change::Pod(Box::new(record.unwrap().unwrap()))
        }
        ("nodeGone", name) => Change::NodeGone(text(name).into()),
        ("podGone", uid) => Change::PodGone(text(uid).into()),
        ("as" | "link", _) => Change::Link(text(&value["link"]).to_owned(), link(&value["as"])),
        ("managed" | "namespace", _) => {
            Change::Namespace(text(&value["namespace"]).into(), value["managed"].as_bool().unwrap())
        }
        ("replicas", ready) => Change::Replicas(u32::try_from(ready.as_u64().unwrap()).unwrap()),
        ("listBegan", of) => Change::ListBegan(kind(of)),
        ("listEnded", of) => Change::ListEnded(kind(of)),
        ("watchAlive", of) => Change::WatchAlive(kind(of)),
        ("watchLost", of) => Change::WatchLost(kind(of)),
        _ => panic!("{name}: {of} is no change"),
    }
}

#[test]
fn a_recorded_run_gives_the_same_verdicts() {
    let mut lines = RUN.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let config = Arc::new(Config::read(&lines.next().unwrap()["config"]).unwrap());
    let shared = Arc::<SharedState>::default();
    let mut engine = Engine::new(Arc::clone(&config), Arc::clone(&shared));
    let mut held = HashMap::<Box<str>, Arc<HeldPod>>::new();
    let mut draft = None;
    let mut reasons = BTreeMap::<String, u32>::new();
    for (number, step) in (2..).zip(lines) {
        let context = || DecisionContext {
            config: &config,
            id: id(&step["id"]),
            now: time(&step["at"]),
        };
        let read = Snapshots::default();
        let found = if let Some(applied) = step.get("apply") {
            let change = change(applied, &config);
            if let Change::Pod(pod) = &change
                && let Some(pod) = &pod.held
            {
                held.insert(Box::from(&*pod.uid), Arc::clone(pod));
            }
            engine.apply(&change, time(&step["at"]));
            continue;
        } else if let Some(at) = step.get("prepare") {
            draft = Some(engine.prepare(time(at)));
            continue;
        } else if step.get("commit").is_some() {
            engine.commit(draft.take().unwrap());
            continue;
        } else if let Some(forgotten) = step.get("forget") {
            shared.forget(id(forgotten), text(&step["namespace"]));
            continue;
        } else if let Some(uid) = step.get("release") {
            let waited = Micros(step["waited"].as_u64().unwrap());
            let pod = &held[text(uid)];
            let workload = pod.workload.clone().unwrap();
            account(&shared.release(&read, pod, workload, waited, context()).0)
        } else {
            let json = step["review"]["pod"].to_string();
            let pod = Pod::from_json(&json).unwrap();
            let workload = pod.workload(text(&step["review"]["namespace"]).into(), &config.keys);
            let is_wanted = step["wanted"].as_bool().unwrap();
            account(&shared.review(&read, &workload, context(), || is_wanted))
        };
        assert_eq!(found, step["verdict"], "line {number}");
        *reasons.entry(text(&found["reason"]).to_owned()).or_default() += 1;
    }
    let expected = [
        "edge_feasible_slo_met",
        "edge_offload_not_allowed",
        "edge_too_large",
        "held_no_capacity",
        "released_cloud",
        "released_timeout",
    ];
    let missing: Vec<_> = expected
        .into_iter()
        .filter(|reason| !reasons.contains_key(*reason))
        .collect();
    assert!(missing.is_empty(), "{missing:?} of {reasons:?}");
}
