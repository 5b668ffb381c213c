use std::sync::Mutex;

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::*;

/// Generous enough for a busy machine.
const BOUND: Duration = Duration::from_secs(30);

/// An API server that keeps the last written version of one Lease.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Option<Value>>>);

impl Server {
    async fn answer(self, request: Request<Body>) -> anyhow::Result<Response<Body>> {
        let (head, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let mut lease = self.0.lock().unwrap();
        let code = match (&head.method, &*lease) {
            (&Method::GET, Some(_)) => StatusCode::OK,
            (&Method::GET, None) => StatusCode::NOT_FOUND,
            _ => {
                let mut written: Value = serde_json::from_slice(&body)?;
                let version = lease.as_ref().map(|lease| lease["metadata"]["resourceVersion"].clone());
                if version.unwrap_or_default() == written["metadata"]["resourceVersion"] {
                    written["metadata"]["resourceVersion"] = json!(uuid::Uuid::new_v4().to_string());
                    *lease = Some(written);
                    StatusCode::OK
                } else {
                    StatusCode::CONFLICT
                }
            }
        };
        let body = match (code, &*lease) {
            (StatusCode::OK, Some(lease)) => lease.to_string(),
            _ => {
                let reason = if code == StatusCode::CONFLICT {
                    "Conflict"
                } else {
                    "NotFound"
                };
                let status = json!({"kind": "Status", "status": "Failure", "reason": reason, "code": code.as_u16()});
                status.to_string()
            }
        };
        Ok(Response::builder().status(code).body(Body::from(body.into_bytes()))?)
    }

    fn election(&self) -> (Election, Leadership) {
        let server = self.clone();
        let service = tower::service_fn(move |request| Box::pin(server.clone().answer(request)));
        let client = Client::new(service, "default");
        Election::new(client, "ours", "edgeward", Clock::start(), Arc::default())
    }

    fn holder(&self) -> Option<String> {
        let lease = self.0.lock().unwrap();
        Some(lease.as_ref()?["spec"]["holderIdentity"].as_str()?.to_owned())
    }
}

#[tokio::test]
async fn it_is_handed_over_when_the_work_has_stopped() {
    let server = Server::default();
    let (election, leadership) = server.election();
    let metrics = Arc::clone(&election.metrics);
    let (resign, resigned) = oneshot::channel::<()>();
    let running = tokio::spawn(election.run(async {}, async { drop(resigned.await) }));
    let term = timeout(BOUND, leadership.acquired()).await.unwrap();
    assert!(leadership.is_held() && term.is_held());
    let holder = server.holder();
    assert!(holder.is_some());

    resign.send(()).unwrap();
    timeout(BOUND, term.over()).await.unwrap();
    assert!(!leadership.is_held());
    assert!(metrics.encode().contains("edgeward_leader 0"));
    assert_eq!(server.holder(), holder, "the term goes on");
    drop(term);
    timeout(BOUND, running).await.unwrap().unwrap();
    assert_eq!(server.holder(), None);

    let (election, leadership) = server.election();
    let _running = tokio::spawn(election.run(async {}, std::future::pending()));
    timeout(BOUND, leadership.acquired()).await.unwrap();
    assert!(server.holder().is_some());
}

#[tokio::test]
async fn who_never_began_leaves_the_lease_alone() {
    let server = Server::default();
    let (election, leadership) = server.election();
    timeout(BOUND, election.run(std::future::pending(), async {}))
        .await
        .unwrap();
    assert!(!leadership.is_held() && server.holder().is_none());
}

#[tokio::test]
async fn what_is_not_renewed_is_over_by_itself() {
    let clock = Clock::start();
    let (held_until, leadership) = Leadership::new(clock);
    let soon = clock.moment().after(edgeward_core::units::Micros::from_secs(1));
    held_until.send_replace(Some(soon));
    let term = timeout(BOUND, leadership.acquired()).await.unwrap();
    timeout(BOUND, term.over()).await.unwrap();
    assert!(!leadership.is_held() && clock.moment() >= soon);
}
