use std::sync::Mutex;

use futures::FutureExt as _;
use http::Method;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::*;
use crate::testkit::{api_server, failure};

/// Generous enough for a busy machine.
const BOUND: Duration = Duration::from_secs(30);

/// An API server that keeps the last written version of one Lease.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Option<Value>>>);

impl Server {
    fn answer(&self, method: &Method, mut written: Value) -> (u16, Value) {
        let mut lease = self.0.lock().unwrap();
        if method == Method::GET {
            return lease.clone().map_or_else(|| failure(404, ""), |lease| (200, lease));
        }
        let version = lease.as_ref().map(|lease| lease["metadata"]["resourceVersion"].clone());
        if version.unwrap_or_default() != written["metadata"]["resourceVersion"] {
            return failure(409, "");
        }
        written["metadata"]["resourceVersion"] = json!(uuid::Uuid::new_v4().to_string());
        (200, lease.insert(written).clone())
    }

    fn election(&self) -> (Election, Leadership) {
        let server = self.clone();
        let client = api_server(move |method, _, body| std::future::ready(server.answer(&method, body)));
        Election::new(client, "ours", "edgeward", Clock::start(), Arc::default())
    }

    fn holder(&self) -> Option<String> {
        let lease = self.0.lock().unwrap();
        Some(lease.as_ref()?["spec"]["holderIdentity"].as_str()?.to_owned())
    }
}

#[tokio::test]
async fn lease_is_handed_over_when_the_work_has_stopped() {
    let server = Server::default();
    let (election, leadership) = server.election();
    let metrics = Arc::clone(&election.metrics);
    let (resign, resigned) = oneshot::channel::<()>();
    let running = tokio::spawn(election.run(async {}, async { drop(resigned.await) }));
    timeout(BOUND, leadership.gained()).await.unwrap();
    let mut work = Box::pin(leadership.during(std::future::pending::<()>()));
    assert!(work.as_mut().now_or_never().is_none());
    let holder = server.holder();
    assert!(leadership.is_held() && holder.is_some());

    resign.send(()).unwrap();
    timeout(BOUND, leadership.lost()).await.unwrap();
    assert!(!leadership.is_held());
    assert!(metrics.encode().contains("edgeward_leader 0"));
    assert_eq!(server.holder(), holder, "the work goes on");
    assert_eq!(timeout(BOUND, work).await.unwrap(), None);
    timeout(BOUND, running).await.unwrap().unwrap();
    assert_eq!(server.holder(), None);

    let (election, leadership) = server.election();
    let _running = tokio::spawn(election.run(async {}, std::future::pending()));
    timeout(BOUND, leadership.gained()).await.unwrap();
    assert!(server.holder().is_some());
}

#[tokio::test]
async fn election_that_never_began_leaves_the_lease_alone() {
    let server = Server::default();
    let (election, leadership) = server.election();
    timeout(BOUND, election.run(std::future::pending(), async {}))
        .await
        .unwrap();
    assert!(!leadership.is_held() && server.holder().is_none());
}

#[tokio::test(start_paused = true)]
async fn leadership_that_is_not_renewed_ends_by_itself() {
    let clock = Clock::start();
    let (held_until, leadership) = Leadership::new(clock);
    let soon = clock.moment().after(edgeward_kube::units::Micros::from_secs(1));
    held_until.send_replace(Some(soon));
    let ended = leadership.during(std::future::pending::<()>());
    assert_eq!(timeout(BOUND, ended).await.unwrap(), None);
    assert!(!leadership.is_held() && clock.moment() >= soon);
}
