//! What is done about the engine's effects: requirements that are met, Events, metrics and log lines.

use std::collections::BTreeMap;

use edgeward_core::cluster::cache::Kind;
use edgeward_core::engine::Effect;

use crate::controllers::events::Events;
use crate::instruments::logs::LogLimit;
use crate::serve::Requirement;

/// Carries out the engine's effects. Never blocks: the engine waits meanwhile.
pub(super) struct EffectHandler {
    /// Met when everything of a kind is listed and published.
    pub(super) listed: BTreeMap<Kind, Requirement>,
    pub(super) events: Events,
    /// Bounds the lines about pods and nodes, whose authors can cause them.
    pub(super) log_limit: LogLimit,
}

impl EffectHandler {
    pub(super) fn handle(&mut self, effect: Effect) {
        match effect {
            Effect::Listed(kind) => {
                if let Some(listed) = self.listed.remove(&kind) {
                    listed.met();
                }
            }
            Effect::Decided(decision) => self.events.decided(*decision),
            Effect::NodeFault(fault) => {
                if let Some(held_back) = self.log_limit.due("node fault") {
                    tracing::warn!(node = &*fault.node, held_back, "{fault}");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use edgeward_core::cluster::cache::NodeFault;
    use edgeward_core::model::decision_id::DecisionId;
    use edgeward_core::model::pod_record::Decided;
    use edgeward_core::model::site::SiteKind;
    use edgeward_core::resources::Amounts;
    use edgeward_core::units::Moment;
    use edgeward_core::wire::pod::ObservedDecision;
    use http::{Request, Response};
    use http_body_util::BodyExt as _;
    use kube::Client;
    use kube::client::Body;
    use serde_json::Value;
    use tokio::time::timeout;

    use super::*;
    use crate::controllers::events::Recorder;
    use crate::controllers::lease::Leadership;
    use crate::platform::clock::Clock;
    use crate::serve::Readiness;
    use crate::testkit::Log;

    /// Long enough for a busy machine.
    const BOUND: Duration = Duration::from_secs(30);

    /// A handler of a replica that leads, and the reasons of the Events that an API server was sent.
    fn handler(readiness: &Readiness) -> (EffectHandler, Arc<Mutex<Vec<String>>>) {
        let written = Arc::<Mutex<Vec<String>>>::default();
        let keep = Arc::clone(&written);
        let service = tower::service_fn(move |request: Request<Body>| {
            let keep = Arc::clone(&keep);
            Box::pin(async move {
                let body = request.into_body().collect().await?.to_bytes();
                let event: Value = serde_json::from_slice(&body)?;
                let reason = event["reason"].as_str().unwrap_or_default();
                keep.lock().unwrap().push(reason.to_owned());
                let response = Response::builder().status(201);
                anyhow::Ok(response.body(Body::from(body.to_vec()))?)
            })
        });
        let clock = Clock::start();
        let client = Client::new(service, "default");
        let (recorder, events) = Recorder::new(client, clock, Arc::default());
        let (leads, leadership) = Leadership::new(clock);
        leads.send_replace(Some(Moment(i64::MAX)));
        tokio::spawn(async move {
            let _leads = leads;
            recorder.run(leadership).await;
        });
        let handler = EffectHandler {
            listed: [(Kind::Pods, readiness.require("pods"))].into(),
            events,
            log_limit: LogLimit::new(clock),
        };
        (handler, written)
    }

    async fn is_written(written: &Mutex<Vec<String>>, reason: &str) {
        let waited = timeout(BOUND, async {
            while written.lock().unwrap().iter().all(|one| one != reason) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        waited.await.unwrap_or_else(|_| panic!("no Event {reason}"));
    }

    #[tokio::test]
    async fn each_effect_is_carried_out() {
        let log = Log::default();
        let to = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || to.clone());
        let subscriber = subscriber.finish();
        let _logged = tracing::subscriber::set_default(subscriber);
        let readiness = Readiness::default();
        let (mut handler, written) = handler(&readiness);

        assert_eq!(readiness.missing(), ["pods"]);
        handler.handle(Effect::Listed(Kind::Nodes));
        assert_eq!(readiness.missing(), ["pods"]);
        handler.handle(Effect::Listed(Kind::Pods));
        assert!(readiness.missing().is_empty());

        handler.handle(Effect::Decided(Box::new(ObservedDecision {
            namespace: "shop".into(),
            uid: "u1".into(),
            site: Some(("cloud".to_owned(), SiteKind::Cloud)),
            gated: false,
            request: Amounts::default(),
            was_gated: false,
            decided: Decided {
                id: DecisionId(1),
                reason: "cloud_best_effort".into(),
                at: Clock::start().wall(),
                name: "camera".into(),
                rtt_ms: None,
                explain: None,
                slo: None,
                faults: vec![],
            },
        })));
        is_written(&written, "PlacedCloud").await;

        // A node whose labels go forth and back; whoever may change them could fill the log.
        for _ in 0..100 {
            handler.handle(Effect::NodeFault(NodeFault {
                node: "a".into(),
                sites: vec!["edge".to_owned(), "cloud".to_owned()],
            }));
        }
        let told = log
            .text()
            .matches("node a carries the selectors of edge and cloud")
            .count();
        assert!((10..50).contains(&told), "{told}");
    }
}
