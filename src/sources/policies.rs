//! Watches SloPolicies and publishes them as one value.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use edgeward_core::placement::policy::{NamespacePolicies, Policies, Policy, Seen};
use kube::{Client, Resource as _};
use serde_json::Value;
use tokio::sync::watch;

use crate::instruments::logs::LogLimit;
use crate::instruments::metrics::Metrics;
use crate::platform::blocking::{at_leisure, blocking};
use crate::platform::clock::Clock;
use crate::sources::objects::{self, Rights};
use crate::sources::raw::{Gvr, Raw};

/// The shortest time between two publications. Many policies applied in a row result in few versions.
const PAUSE: Duration = Duration::from_millis(100);

/// Publishes the policies of the cluster while the CRD is installed, and none otherwise.
#[derive(Debug, Default)]
pub struct SloPolicies {
    current: Arc<ArcSwap<Policies>>,
    versions: watch::Sender<Arc<Policies>>,
}

impl SloPolicies {
    /// The current policies.
    pub fn current(&self) -> Arc<ArcSwap<Policies>> {
        Arc::clone(&self.current)
    }

    /// The current policies for waiting tasks.
    pub fn versions(&self) -> watch::Receiver<Arc<Policies>> {
        self.versions.subscribe()
    }

    /// Follows the policies. Never returns. Calls `listed` once all were listed or the CRD is known to be absent.
    pub async fn follow(self, client: Client, metrics: Arc<Metrics>, clock: Clock, listed: impl FnOnce()) {
        let (seen, mut objects) = watch::channel(objects::Seen::default());
        let limit = LogLimit::new(clock);
        let read = |object: &Raw, before: Option<&Arc<Seen>>| read_after(object, before, &limit);
        let watched = objects::follow(Gvr::POLICIES, Rights::Needed, &client, &metrics, read, |change| {
            seen.send_if_modified(change);
        });
        let published = async {
            let (mut before, mut listed) = (Known::default(), Some(listed));
            while objects.changed().await.is_ok() {
                let Some(now) = known(&objects.borrow_and_update()) else {
                    continue;
                };
                let outdated = outdated(&before, &now);
                before = now;
                if !outdated.is_empty() {
                    self.publish(outdated, &limit, clock).await;
                }
                if let Some(listed) = listed.take() {
                    listed();
                }
            }
        };
        tokio::join!(watched, published);
    }

    /// Replaces the policies of these namespaces.
    async fn publish(&self, outdated: Vec<(Arc<str>, Vec<Arc<Seen>>)>, limit: &LogLimit, clock: Clock) {
        let mut policies = Policies::clone(&self.current.load());
        at_leisure(clock, PAUSE, async {
            let policies = blocking(move || {
                for (namespace, seen) in outdated {
                    policies.replace(namespace, NamespacePolicies::of(seen));
                }
                Arc::new(policies)
            });
            let policies = policies.await;
            self.current.store(Arc::clone(&policies));
            if let Some(held_back) = limit.due("changed") {
                tracing::info!(in_force = policies.len(), held_back, "policies changed");
            }
            self.versions.send_replace(policies);
        })
        .await;
    }
}

/// The policies of each namespace, by name.
type Known = BTreeMap<Arc<str>, BTreeMap<String, Arc<Seen>>>;

/// Groups the policies by namespace; `None` if they are not known.
fn known(objects: &objects::Seen<Arc<Seen>>) -> Option<Known> {
    let mut known = Known::new();
    for ((namespace, name), seen) in objects.all()? {
        let policies = known.entry(namespace.as_str().into()).or_default();
        policies.insert(name.clone(), Arc::clone(seen));
    }
    Some(known)
}

/// The namespaces whose policies changed, each with its current policies.
fn outdated(before: &Known, now: &Known) -> Vec<(Arc<str>, Vec<Arc<Seen>>)> {
    let namespaces: BTreeSet<_> = before.keys().chain(now.keys()).collect();
    let others = namespaces
        .into_iter()
        .filter(|namespace| before.get(*namespace) != now.get(*namespace));
    let seen = |namespace: &str| now.get(namespace).into_iter().flat_map(BTreeMap::values).cloned();
    others
        .map(|namespace| (Arc::clone(namespace), seen(namespace).collect()))
        .collect()
}

/// Reads an SloPolicy, given the previously known version.
fn read_after(object: &Raw, before: Option<&Arc<Seen>>, limit: &LogLimit) -> Option<Arc<Seen>> {
    let now = read(object, limit)?;
    Some(match before {
        Some(before) => now.after(before),
        None => now,
    })
}

/// Reads an SloPolicy. Faults are logged.
pub(crate) fn read(object: &Raw, limit: &LogLimit) -> Option<Arc<Seen>> {
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
    Some(Arc::new(Seen {
        namespace,
        name,
        generation: value["metadata"]["generation"].as_i64(),
        policy,
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::sources::objects::Key;

    fn seen(namespace: &str, name: &str, class: &str) -> (Key, Arc<Seen>) {
        let seen = Seen {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            generation: None,
            policy: Policy::read(&json!({"spec": {"selector": {}, "slo": {"class": class}}})),
        };
        ((namespace.to_owned(), name.to_owned()), Arc::new(seen))
    }

    /// The changed namespaces, each with its number of policies.
    fn namespaces(before: &Known, now: &Known) -> Vec<(String, usize)> {
        let outdated = outdated(before, now).into_iter();
        outdated
            .map(|(namespace, seen)| (namespace.to_string(), seen.len()))
            .collect()
    }

    #[test]
    fn only_a_namespace_whose_policies_are_others_is_done_again() {
        let mut objects = objects::Seen::without_objects(objects::Standing::Pending);
        assert!(known(&objects).is_none());
        objects.standing = objects::Standing::Listed;
        objects.objects = [("a", "x"), ("a", "y"), ("b", "x")]
            .map(|(namespace, name)| seen(namespace, name, "batch"))
            .into();
        let before = known(&objects).unwrap();
        let both = [("a".to_owned(), 2), ("b".to_owned(), 1)];
        assert_eq!(namespaces(&Known::default(), &before), both);
        assert_eq!(namespaces(&before, &known(&objects).unwrap()), []);

        objects.objects.extend([seen("a", "x", "latency")]);
        let now = known(&objects).unwrap();
        assert_eq!(namespaces(&before, &now), [("a".to_owned(), 2)]);
        objects.objects.pop_last();
        assert_eq!(namespaces(&now, &known(&objects).unwrap()), [("b".to_owned(), 0)]);
    }

    #[test]
    fn fault_does_not_end_what_was_known_without() {
        let limit = LogLimit::new(Clock::start());
        let object = |class: &str| {
            let spec = json!({"selector": {}, "slo": {"class": class}});
            let object = json!({"metadata": {"namespace": "a", "name": "x"}, "spec": spec});
            Raw::from_json(object.to_string().into()).unwrap()
        };
        let whole = read_after(&object("batch"), None, &limit).unwrap();
        let faulty = read_after(&object("fast"), Some(&whole), &limit).unwrap();
        let again = read_after(&object("fast"), Some(&faulty), &limit).unwrap();
        for seen in [&faulty, &again] {
            let instead = seen.policy.as_ref().unwrap_err().instead().map(ToString::to_string);
            assert_eq!(
                instead.as_deref(),
                Some("the last version without faults counts meanwhile")
            );
        }
        assert_eq!(faulty, again);
        let alone = read_after(&object("fast"), None, &limit).unwrap();
        assert!(alone.policy.as_ref().unwrap_err().instead().is_none());
    }
}
