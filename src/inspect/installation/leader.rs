//! Who leads, by the Lease that replicas of edgeward hold in turn.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use serde::Serialize;

use crate::inspect::Connection;

/// What a Lease without a duration lasts, in seconds.
const DURATION: i32 = 15;

/// How long to wait for a renewal, of which one comes every 2.5 s at the latest.
const RENEWAL: Duration = Duration::from_secs(4);

/// The holder of the Lease, or that nobody holds it.
pub type Lead = Result<String, Leaderless>;

/// That nobody leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Leaderless {
    /// The Lease, as `namespace/name`.
    pub lease: String,
    /// When it was renewed last, or given back; `None` where there is none.
    pub since: Option<Timestamp>,
}

impl Connection {
    /// Who holds this Lease. One that seems to have lapsed is looked at twice, 4 s apart: who renews it and who asks have clocks
    /// of their own.
    ///
    /// # Errors
    /// The API server cannot be reached, or does not say.
    pub async fn lead(&self, namespace: &str, name: &str) -> anyhow::Result<Lead> {
        let nobody = |since| {
            Err(Leaderless {
                lease: format!("{namespace}/{name}"),
                since,
            })
        };
        let Some(lease) = self.get::<Lease>(namespace, name).await? else {
            return Ok(nobody(None));
        };
        let Some(since) = lapsed(&lease, self.clock.wall()) else {
            return Ok(Ok(holder(lease)));
        };
        tokio::time::sleep(RENEWAL).await;
        match self.get::<Lease>(namespace, name).await? {
            Some(again) if again.metadata.resource_version != lease.metadata.resource_version => Ok(Ok(holder(again))),
            _ => Ok(nobody(Some(since))),
        }
    }
}

fn holder(lease: Lease) -> String {
    lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default()
}

/// Since when nobody holds it, by the clock of whoever held it last.
fn lapsed(lease: &Lease, now: Timestamp) -> Option<Timestamp> {
    let spec = lease.spec.clone().unwrap_or_default();
    let created = lease.metadata.creation_timestamp.as_ref().map(|at| at.0);
    let renewed = spec.renew_time.map(|at| at.0).or(created).unwrap_or(Timestamp::MIN);
    let is_held = spec.holder_identity.is_some_and(|holder| !holder.is_empty());
    let lasts = SignedDuration::from_secs(spec.lease_duration_seconds.unwrap_or(DURATION).into());
    (!is_held || now.duration_since(renewed) > lasts).then_some(renewed)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use crate::platform::clock::Clock;
    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    fn lease(holder: &str, renewed: Timestamp, version: &str) -> (u16, Value) {
        let spec = json!({"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": format!("{renewed:.6}")});
        let metadata = json!({"namespace": "home", "name": "edgeward", "resourceVersion": version});
        (200, json!({"metadata": metadata, "spec": spec}))
    }

    fn refusal(code: u16) -> (u16, Value) {
        let reason = if code == 404 { "NotFound" } else { "Forbidden" };
        let status = json!({"kind": "Status", "status": "Failure", "code": code, "message": "no", "reason": reason});
        (code, status)
    }

    /// What is found where the API server gives these answers, the last one first.
    async fn found(answers: Vec<(u16, Value)>) -> anyhow::Result<Lead> {
        let answers = Arc::new(Mutex::new(answers));
        let told = Arc::clone(&answers);
        let service = tower::service_fn(move |request: Request<Body>| {
            assert_eq!(
                request.uri().path(),
                "/apis/coordination.k8s.io/v1/namespaces/home/leases/edgeward"
            );
            let (code, answer) = told.lock().unwrap().pop().unwrap();
            async move {
                let answer = Response::builder()
                    .status(code)
                    .body(Body::from(answer.to_string().into_bytes()));
                Ok::<_, Infallible>(answer.unwrap())
            }
        });
        let client = Client::new(service, "default");
        let connection = Connection::to(client, "test".to_owned());
        let found = connection.lead("home", "edgeward").await;
        assert!(answers.lock().unwrap().is_empty());
        found
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_leads_where_nobody_renews_the_lease() {
        let now = Timestamp::from_second(Clock::start().wall().as_second()).unwrap();
        let ago = |seconds| now - SignedDuration::from_secs(seconds);
        let nobody = |since| {
            Err(Leaderless {
                lease: "home/edgeward".to_owned(),
                since,
            })
        };
        let by = |holder: &str| Ok(holder.to_owned());
        for (answers, expected) in [
            (vec![lease("web-1", ago(1), "7")], by("web-1")),
            (vec![refusal(404)], nobody(None)),
            // Killed, long ago.
            (
                vec![lease("web-1", ago(3600), "7"), lease("web-1", ago(3600), "7")],
                nobody(Some(ago(3600))),
            ),
            // Given back, a moment ago.
            (
                vec![lease("", ago(1), "7"), lease("", ago(1), "7")],
                nobody(Some(ago(1))),
            ),
            // Renewed by somebody whose clock is slow; and taken.
            (
                vec![lease("web-1", ago(58), "8"), lease("web-1", ago(60), "7")],
                by("web-1"),
            ),
            (vec![lease("web-2", ago(0), "8"), lease("", ago(1), "7")], by("web-2")),
            (vec![refusal(404), lease("", ago(1), "7")], nobody(Some(ago(1)))),
        ] {
            let said = format!("{answers:?}");
            assert_eq!(found(answers).await.unwrap(), expected, "{said}");
        }
        assert!(found(vec![refusal(403)]).await.is_err());
    }
}
