//! Finds the leader by the Lease that the replicas of edgeward compete for.

use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use serde::Serialize;

use crate::inspect::Connection;

/// Duration of a Lease that states none, in seconds.
const DURATION: i32 = 15;

/// How long to wait for a renewal. Renewals are at most 2.5 s apart.
const RENEWAL: Duration = Duration::from_secs(4);

/// The holder of the Lease, or the state of a Lease without a holder.
pub type Lead = Result<String, Leaderless>;

/// A Lease without a holder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Leaderless {
    /// The Lease as `namespace/name`.
    pub lease: String,
    /// When the Lease was last renewed or released; `None` if it does not exist.
    pub since: Option<Timestamp>,
}

impl fmt::Display for Leaderless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.since {
            Some(since) => write!(f, "no replica leads by the Lease {}, since {since:.0}", self.lease),
            None => write!(f, "no replica leads: there is no Lease {}", self.lease),
        }
    }
}

impl Connection {
    /// Returns the holder of this Lease. A Lease that looks expired is read again after 4 s, because the clock of its
    /// holder may differ from ours.
    ///
    /// # Errors
    /// The API server cannot be reached, or refuses to answer.
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

/// Since when the Lease has had no holder, by the clock of its last holder; `None` if it is held.
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
    use std::sync::{Arc, Mutex};

    use crate::platform::clock::Clock;
    use serde_json::{Value, json};

    use super::*;
    use crate::testkit::{api_server, failure};

    fn lease(holder: &str, renewed: Timestamp, version: &str) -> (u16, Value) {
        let spec = json!({"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": format!("{renewed:.6}")});
        let metadata = json!({"namespace": "home", "name": "edgeward", "resourceVersion": version});
        (200, json!({"metadata": metadata, "spec": spec}))
    }

    /// Returns the result if the API server gives these answers, the last one first.
    async fn found(answers: Vec<(u16, Value)>) -> anyhow::Result<Lead> {
        let answers = Arc::new(Mutex::new(answers));
        let told = Arc::clone(&answers);
        let client = api_server(move |_, uri, _| {
            assert_eq!(
                uri.path(),
                "/apis/coordination.k8s.io/v1/namespaces/home/leases/edgeward"
            );
            std::future::ready(told.lock().unwrap().pop().unwrap())
        });
        let connection = Connection::to(client, "test".to_owned());
        let found = connection.lead("home", "edgeward").await;
        assert!(answers.lock().unwrap().is_empty());
        found
    }

    #[tokio::test(start_paused = true)]
    async fn lease_without_renewal_has_no_leader() {
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
            (vec![failure(404, "no")], nobody(None)),
            // The holder was killed long ago.
            (
                vec![lease("web-1", ago(3600), "7"), lease("web-1", ago(3600), "7")],
                nobody(Some(ago(3600))),
            ),
            // The Lease was released a moment ago.
            (
                vec![lease("", ago(1), "7"), lease("", ago(1), "7")],
                nobody(Some(ago(1))),
            ),
            // The Lease is renewed by a holder with a slow clock, and then acquired.
            (
                vec![lease("web-1", ago(58), "8"), lease("web-1", ago(60), "7")],
                by("web-1"),
            ),
            (vec![lease("web-2", ago(0), "8"), lease("", ago(1), "7")], by("web-2")),
            (vec![failure(404, "no"), lease("", ago(1), "7")], nobody(Some(ago(1)))),
        ] {
            let said = format!("{answers:?}");
            assert_eq!(found(answers).await.unwrap(), expected, "{said}");
        }
        assert!(found(vec![failure(403, "no")]).await.is_err());
    }
}
