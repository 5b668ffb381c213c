//! Watches SloPolicies and publishes them as one value.

use std::sync::Arc;

use arc_swap::ArcSwap;
use edgeward_cluster::engine::Change;
use edgeward_decision::placement::policy::{Policies, Policy, Seen};
use kube::{Client, Resource as _};
use serde_json::Value;
use tokio::sync::watch;

use crate::instruments::logs::LogLimit;
use crate::instruments::metrics::Metrics;
use crate::observer::Changes;
use crate::platform::blocking::{at_leisure, blocking};
use crate::platform::clock::Clock;
use crate::watch::objects::{self, Rights};
use crate::watch::raw::{Gvr, Raw};

/// Publishes the policies of the cluster while the CRD is installed, and none otherwise.
#[derive(Debug, Default)]
pub struct SloPolicies {
    /// The current policies.
    pub current: Arc<ArcSwap<Policies>>,
    /// The current policies for waiting tasks.
    pub versions: watch::Sender<Arc<Policies>>,
}

impl SloPolicies {
    /// Follows the policies. Never returns. Calls `listed` once all were listed or the CRD is known to be absent, and
    /// after each change.
    pub async fn follow(
        self,
        client: Client,
        metrics: Arc<Metrics>,
        clock: Clock,
        changes: Changes,
        listed: impl Fn(),
    ) {
        let (seen, mut objects) = watch::channel(objects::Seen::default());
        let limit = LogLimit::new(clock);
        let read = |object: &Raw, before: Option<&Arc<Seen>>| read(object, before, &limit);
        let watched = objects::follow(Gvr::POLICIES, Rights::Needed, &client, &metrics, read, &seen, |seen| {
            seen
        });
        let published = async {
            while objects.changed().await.is_ok() {
                let all = objects
                    .borrow_and_update()
                    .all()
                    .map(|all| all.values().cloned().collect::<Vec<_>>());
                let Some(all) = all else { continue };
                let publish = async {
                    let policies = blocking(move || Arc::new(Policies::of(all))).await;
                    self.current.store(Arc::clone(&policies));
                    changes
                        .send(Change::Neighbourhoods(Arc::new(policies.neighbourhoods())))
                        .await;
                    if let Some(held_back) = limit.due("changed") {
                        tracing::info!(in_force = policies.in_force(), held_back, "SloPolicies read");
                    }
                    self.versions.send_replace(policies);
                    listed();
                };
                at_leisure(clock, publish).await;
            }
        };
        tokio::join!(watched, published);
    }
}

/// Reads an SloPolicy, given the previously known version. Faults are logged.
pub(crate) fn read(object: &Raw, before: Option<&Arc<Seen>>, limit: &LogLimit) -> Option<Arc<Seen>> {
    let meta = object.meta();
    let (namespace, name) = (meta.namespace.clone()?, meta.name.clone()?);
    // The API server sends JSON.
    let value: Value = serde_json::from_str(object.json()).ok()?;
    let policy = Policy::read(&value);
    if let Err(faults) = &policy
        && let Some(held_back) = limit.due("refused")
    {
        tracing::warn!(namespace, name, error = %faults, held_back, "an SloPolicy is not in force as it is");
    }
    let now = Seen {
        namespace,
        name,
        generation: value["metadata"]["generation"].as_i64(),
        policy,
        members: members(&value["status"]),
    };
    Some(Arc::new(match before {
        Some(before) => now.after(before),
        None => now,
    }))
}

/// The clouds of the policy's neighbourhood, as its status names them.
fn members(status: &Value) -> Vec<Box<str>> {
    let members = status["members"].as_array().into_iter().flatten();
    members.filter_map(Value::as_str).map(Box::from).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn invalid_policy_keeps_its_last_valid_version() {
        let limit = LogLimit::new(Clock::start());
        let object = |class: &str| {
            let spec = json!({"selector": {}, "slo": {"class": class}});
            let object = json!({"metadata": {"namespace": "a", "name": "x"}, "spec": spec});
            Raw::from_json(object.to_string().into()).unwrap()
        };
        let whole = read(&object("batch"), None, &limit).unwrap();
        let faulty = read(&object("fast"), Some(&whole), &limit).unwrap();
        let again = read(&object("fast"), Some(&faulty), &limit).unwrap();
        assert_eq!(faulty, again);
        let instead = |seen: &Seen| {
            seen.policy
                .as_ref()
                .unwrap_err()
                .instead
                .as_ref()
                .map(|one| one.what.clone())
        };
        assert_eq!(
            instead(&faulty).as_deref(),
            Some("the last version without faults counts meanwhile")
        );
        assert_eq!(instead(&read(&object("fast"), None, &limit).unwrap()), None);
    }
}
