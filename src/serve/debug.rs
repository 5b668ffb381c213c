//! `/debug/…`: what decisions read, in JSON, for whoever looks into one. Only where asked for: names of nodes, namespaces
//! and pods are in it, and nothing else of pods.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use edgeward_core::engine::SharedState;
use edgeward_core::model::node::NodeId;
use edgeward_core::model::snapshot::Snapshot;
use edgeward_core::queue::{Plan, PlanAction, Step};
use edgeward_core::units::Moment;
use edgeward_core::wire::fleet_file;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::platform::clock::Clock;

/// How many entries a list has at most. What is more is told by the number beside it.
const ENTRIES: usize = 1_000;

/// What is shown.
#[derive(Debug, Clone)]
pub struct Debug {
    /// The snapshot: `/debug/view`, as a fleet file; and the reservations that it does not show: `/debug/ledger`, the oldest
    /// 1,000.
    pub shared: Arc<SharedState>,
    /// What is to be done about held pods, and the claims for them: `/debug/plan`, 1,000 of each.
    pub plans: watch::Receiver<Arc<Plan>>,
    /// The process's clock.
    pub clock: Clock,
}

impl Debug {
    pub(super) fn router(self) -> Router {
        let answer = |show: fn(&Debug) -> Value| {
            get(async move |State(debug): State<Debug>| {
                ([(CONTENT_TYPE, "application/json")], show(&debug).to_string()).into_response()
            })
        };
        Router::new()
            .route("/debug/view", answer(Debug::view))
            .route("/debug/ledger", answer(Debug::reservations))
            .route("/debug/plan", answer(Debug::plan))
            .with_state(self)
    }

    fn view(&self) -> Value {
        fleet_file::write(&self.shared.snapshot(), self.clock.moment())
    }

    fn reservations(&self) -> Value {
        let snapshot = self.shared.snapshot();
        let nodes = names(&snapshot);
        let now = self.clock.moment();
        let ledger = self.shared.ledger();
        let reservations = ledger.open_reservations().take(ENTRIES).map(|open| {
            let reservation = open.reservation;
            json!({
                "id": reservation.id.to_string(),
                "namespace": reservation.owner.namespace(),
                "controller": reservation.owner.controller(),
                "site": &*reservation.site,
                "node": nodes.get(&reservation.node),
                "cpuMillicores": reservation.amount.cpu.0,
                "memoryBytes": reservation.amount.memory.0,
                "releases": reservation.releases.as_deref(),
                "beyondShare": open.is_beyond_share,
                "ageSeconds": seconds(open.since, now),
            })
        });
        json!({
            "reservations": reservations.collect::<Value>(),
            "open": ledger.open(),
            "beyondShare": ledger.beyond_share(),
        })
    }

    fn plan(&self) -> Value {
        let plan = Arc::clone(&self.plans.borrow());
        let snapshot = self.shared.snapshot();
        let nodes = names(&snapshot);
        let now = self.clock.moment();
        let step = |step: &Step| {
            let (action, reason) = match step.action {
                PlanAction::Release => ("release", None),
                PlanAction::RemoveGate(reason) => ("letGo", Some(reason)),
                PlanAction::UpdateReason(reason) => ("note", Some(reason)),
            };
            json!({
                "namespace": &*step.pod.namespace,
                "pod": &*step.pod.name,
                "uid": &*step.pod.uid,
                "heldSeconds": seconds(step.since, now),
                "what": action,
                "reason": reason.map(|reason| reason.as_str()),
            })
        };
        let claims = snapshot.claims.iter().take(ENTRIES).map(|(node, claim)| {
            json!({
                "uid": &*claim.uid,
                "site": &*claim.site,
                "node": nodes.get(&node),
                "cpuMillicores": claim.amount.cpu.0,
                "memoryBytes": claim.amount.memory.0,
                "comes": claim.has_room,
            })
        });
        json!({
            "steps": plan.steps.iter().take(ENTRIES).map(step).collect::<Value>(),
            "claims": claims.collect::<Value>(),
            "held": plan.held,
            "oversized": plan.unread,
            "toDo": plan.steps.len(),
            "oldestSeconds": plan.oldest.map(|since| seconds(since, now)),
        })
    }
}

fn names(snapshot: &Snapshot) -> HashMap<NodeId, &str> {
    let nodes = snapshot.sites.iter().flat_map(|site| site.nodes());
    nodes.map(|node| (node.id, &*node.name)).collect()
}

fn seconds(since: Moment, now: Moment) -> f64 {
    now.since(since).as_millis_f64() / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use edgeward_core::keys::Keys;
    use edgeward_core::model::claims::Claim;
    use edgeward_core::model::decision_id::DecisionId;
    use edgeward_core::model::owner::Owner;
    use edgeward_core::model::workload::QueueKey;
    use edgeward_core::placement::ledger::Reservation;
    use edgeward_core::resources::Amounts;
    use edgeward_core::testkit;
    use edgeward_core::units::{Micros, Millicores};
    use edgeward_core::wire::pod::Pod;

    fn reservation(id: u128) -> Reservation {
        Reservation {
            id: DecisionId(id),
            owner: Owner::new("shop", Some("rs-1")),
            site: "edge".into(),
            node: NodeId(0),
            amount: Amounts {
                cpu: Millicores(500),
                ..Amounts::default()
            },
            priority: 0,
            releases: None,
        }
    }

    fn held() -> String {
        json!({
            "metadata": {"name": "camera", "namespace": "shop", "uid": "uid-1", "resourceVersion": "7",
                         "annotations": {"slo.example.io/class": "batch"}},
            "spec": {"schedulingGates": [{"name": "scheduling.example.io/awaiting-capacity"}],
                     "containers": [{"name": "c", "env": [{"name": "PASSWORD", "value": "hunter2"}]}]},
        })
        .to_string()
    }

    #[test]
    fn what_is_shown_has_names_and_numbers_within_bounds_and_nothing_else_of_pods() {
        let clock = Clock::start();
        let fleet = json!({
            "sites": [{"name": "edge", "kind": "edge"}],
            "nodes": [{"name": "edge-0", "labels": {"node.role/edge": "true"}, "allocatable": {"cpu": 4, "pods": 9}}],
        });
        let mut snapshot = testkit::snapshot(&fleet);
        let text = held();
        let record = Pod::from_json(&text)
            .unwrap()
            .record(text.len(), &Keys::new("example.io"));
        let pod = record.unwrap().unwrap().held.unwrap();
        let claims = Arc::make_mut(&mut snapshot.claims);
        let claim = Claim {
            uid: Arc::clone(&pod.uid),
            queue_key: QueueKey::LAST,
            site: "edge".into(),
            amount: Amounts::default(),
            has_room: true,
        };
        claims.add(NodeId(0), claim);
        let step = Step {
            pod,
            since: Moment(0),
            action: PlanAction::Release,
        };
        let plan = Plan {
            steps: vec![step; 1_200],
            held: 1_300,
            ..Plan::default()
        };
        let shared = SharedState::new(Arc::new(snapshot), Micros::from_secs(60));
        for id in 0..1_500 {
            shared.ledger().reserve(reservation(id), Moment(0), |_| id != 0);
        }
        let (_told, plans) = watch::channel(Arc::new(plan));
        let debug = Debug {
            shared: Arc::new(shared),
            plans,
            clock,
        };

        let reservations = debug.reservations();
        assert_eq!(
            (&reservations["open"], &reservations["beyondShare"]),
            (&json!(1_500), &json!(1))
        );
        assert_eq!(reservations["reservations"].as_array().unwrap().len(), ENTRIES);
        let mut first = reservations["reservations"][0].clone();
        assert!(first["ageSeconds"].take().is_f64());
        assert_eq!(
            first,
            json!({
                "id": "00000000-0000-0000-0000-000000000000", "namespace": "shop", "controller": "rs-1", "site": "edge",
                "node": "edge-0", "cpuMillicores": 500, "memoryBytes": 0, "releases": null, "beyondShare": true,
                "ageSeconds": null,
            })
        );

        let plan = debug.plan();
        assert_eq!((&plan["held"], &plan["toDo"]), (&json!(1_300), &json!(1_200)));
        assert_eq!(plan["steps"].as_array().unwrap().len(), ENTRIES);
        let mut first = plan["steps"][0].clone();
        assert!(first["heldSeconds"].take().is_f64());
        assert_eq!(
            first,
            json!({
                "namespace": "shop", "pod": "camera", "uid": "uid-1", "heldSeconds": null, "what": "release",
                "reason": null,
            })
        );
        assert_eq!(
            (&plan["claims"][0]["uid"], &plan["claims"][0]["node"]),
            (&json!("uid-1"), &json!("edge-0"))
        );
        assert!(!plan.to_string().contains("hunter2"));
    }
}
