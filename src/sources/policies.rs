//! SloPolicies, watched and published as one value.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use edgeward_core::placement::policy::{NamespacePolicies, Policies, Policy, Seen};
use kube::{Client, Resource as _};
use serde_json::Value;
use tokio::sync::{Notify, watch};

use crate::api::SloPolicy;
use crate::instruments::logs::LogLimit;
use crate::instruments::metrics::Metrics;
use crate::platform::blocking::{at_leisure, blocking};
use crate::platform::clock::Clock;
use crate::sources::objects;
use crate::sources::raw::Raw;
use crate::sources::watcher::Key;

/// The shortest time between two publications: many policies that are applied one after another are few versions.
const PAUSE: Duration = Duration::from_millis(100);

/// Publishes the policies of the cluster, while the custom resource is installed; none otherwise.
#[derive(Debug, Default)]
pub struct SloPolicies {
    current: Arc<ArcSwap<Policies>>,
    versions: watch::Sender<Arc<Policies>>,
}

impl SloPolicies {
    /// The policies in use, always the newest.
    pub fn current(&self) -> Arc<ArcSwap<Policies>> {
        Arc::clone(&self.current)
    }

    /// The same for those who wait.
    pub fn versions(&self) -> watch::Receiver<Arc<Policies>> {
        self.versions.subscribe()
    }

    /// Follows them, for ever. Calls `listed` once all were listed, or are known not to exist.
    pub async fn follow(self, client: Client, metrics: Arc<Metrics>, clock: Clock, listed: impl FnOnce()) {
        let (changes, limit) = (Changes::default(), LogLimit::new(clock));
        let read = |object: &_| read(object, &limit);
        let watched = objects::follow("slopolicies", client, &metrics, read, |seen, one| {
            changes.add(seen, one)
        });
        let published = async {
            let (mut known, mut listed) = (Known::default(), Some(listed));
            loop {
                let outdated = known.take(changes.next().await);
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

/// What was told of policies and is not published yet.
#[derive(Debug, Default)]
struct Changes {
    pending: Mutex<Pending>,
    added: Notify,
}

#[derive(Debug, Default)]
struct Pending {
    /// All that there are, where they were listed.
    all: Option<BTreeMap<Key, Arc<Seen>>>,
    /// What each is that changed since; `None` where it is gone.
    since: BTreeMap<Key, Option<Arc<Seen>>>,
}

impl Changes {
    fn add(&self, seen: Option<&BTreeMap<Key, Arc<Seen>>>, one: Option<&Key>) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        match (seen, one) {
            (Some(seen), Some(one)) => {
                let before = pending.since.remove(one).flatten();
                let now = seen.get(one).map(|now| after(before.as_ref(), now));
                pending.since.insert(one.clone(), now);
            }
            (seen, _) => {
                let Pending { all, since } = std::mem::take(&mut *pending);
                let before = |key: &Key| match since.get(key) {
                    Some(latest) => latest.as_ref(),
                    None => all.as_ref()?.get(key),
                };
                let listed = seen.into_iter().flatten();
                let listed = listed.map(|(key, now)| (key.clone(), after(before(key), now)));
                pending.all = Some(listed.collect());
            }
        }
        self.added.notify_one();
    }

    /// Waits until there is something.
    async fn next(&self) -> Pending {
        self.added.notified().await;
        std::mem::take(&mut *self.pending.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The policies of each namespace, by name.
#[derive(Debug, Default)]
struct Known(BTreeMap<Arc<str>, BTreeMap<String, Arc<Seen>>>);

impl Known {
    /// Takes over what has changed: the namespaces that are others now, and what there is in each.
    fn take(&mut self, pending: Pending) -> Vec<(Arc<str>, Vec<Arc<Seen>>)> {
        let mut outdated = BTreeSet::new();
        if let Some(all) = pending.all {
            let mut listed = BTreeMap::<Arc<str>, BTreeMap<_, _>>::new();
            for ((namespace, name), seen) in all {
                let before = self.0.get(&*namespace).and_then(|policies| policies.get(&name));
                let seen = after(before, &seen);
                listed.entry(namespace.into()).or_default().insert(name, seen);
            }
            let namespaces = self.0.keys().chain(listed.keys());
            outdated.extend(
                namespaces
                    .filter(|namespace| self.0.get(*namespace) != listed.get(*namespace))
                    .cloned(),
            );
            self.0 = listed;
        }
        for ((namespace, name), seen) in pending.since {
            let namespace = Arc::<str>::from(namespace);
            let policies = self.0.entry(Arc::clone(&namespace)).or_default();
            match seen {
                Some(seen) => {
                    let seen = after(policies.get(&name), &seen);
                    policies.insert(name, seen);
                }
                None => drop(policies.remove(&name)),
            }
            if policies.is_empty() {
                self.0.remove(&namespace);
            }
            outdated.insert(namespace);
        }
        let seen = |namespace: &str| {
            self.0
                .get(namespace)
                .into_iter()
                .flat_map(BTreeMap::values)
                .cloned()
                .collect()
        };
        outdated
            .into_iter()
            .map(|namespace| (Arc::clone(&namespace), seen(&namespace)))
            .collect()
    }
}

/// A version of a policy, and the one that was known of it before.
fn after(before: Option<&Arc<Seen>>, now: &Arc<Seen>) -> Arc<Seen> {
    let now = Arc::clone(now);
    match before {
        Some(before) => now.after(before),
        None => now,
    }
}

/// An SloPolicy as it was read. One with faults is logged.
pub(crate) fn read(object: &Raw<SloPolicy>, limit: &LogLimit) -> Option<Arc<Seen>> {
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

    fn seen(namespace: &str, name: &str, class: &str) -> (Key, Arc<Seen>) {
        let seen = Seen {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            generation: None,
            policy: Policy::read(&json!({"spec": {"selector": {}, "slo": {"class": class}}})),
        };
        ((namespace.to_owned(), name.to_owned()), Arc::new(seen))
    }

    #[test]
    fn a_fault_does_not_end_what_was_known_without() {
        let meanwhile = |known: &Known| {
            let seen = known.0.values().flat_map(BTreeMap::values);
            let policies = seen.map(|seen| match &seen.policy {
                Ok(_) => "whole".to_owned(),
                Err(refused) => refused.instead().map(ToString::to_string).unwrap_or_default(),
            });
            policies.collect::<Vec<_>>()
        };
        let (whole, faulty) = (seen("a", "x", "batch"), seen("a", "x", "fast"));
        let last = "the last version without faults counts meanwhile";
        for is_listed in [false, true] {
            for is_one_change in [false, true] {
                let (changes, mut known) = (Changes::default(), Known::default());
                let mut objects = BTreeMap::from([whole.clone()]);
                changes.add(Some(&objects), Some(&whole.0));
                if !is_one_change {
                    assert_eq!(outdated(&mut known, &changes), [("a".to_owned(), 1)]);
                }
                objects.extend([faulty.clone()]);
                let one = (!is_listed || is_one_change).then_some(&faulty.0);
                changes.add(Some(&objects), one);
                assert_eq!(outdated(&mut known, &changes), [("a".to_owned(), 1)]);
                assert_eq!(meanwhile(&known), [last]);
                // The same in another list is nothing new.
                changes.add(Some(&objects), None);
                assert_eq!(outdated(&mut known, &changes), []);
                assert_eq!(meanwhile(&known), [last]);
                // It is gone, and with it what it said.
                objects.clear();
                changes.add(Some(&objects), Some(&faulty.0));
                assert_eq!(outdated(&mut known, &changes), [("a".to_owned(), 0)]);
                changes.add(Some(&BTreeMap::from([faulty.clone()])), Some(&faulty.0));
                assert_eq!(outdated(&mut known, &changes), [("a".to_owned(), 1)]);
                assert_eq!(meanwhile(&known), [""]);
            }
        }
    }

    /// Which namespaces are others, and how many policies there are in each.
    fn outdated(known: &mut Known, changes: &Changes) -> Vec<(String, usize)> {
        let pending = std::mem::take(&mut *changes.pending.lock().unwrap());
        let outdated = known.take(pending).into_iter();
        outdated
            .map(|(namespace, seen)| (namespace.to_string(), seen.len()))
            .collect()
    }

    #[test]
    fn only_a_namespace_whose_policies_are_others_is_done_again() {
        let (changes, mut known) = (Changes::default(), Known::default());
        let mut objects: BTreeMap<_, _> = [("a", "x"), ("a", "y"), ("b", "x")]
            .map(|(namespace, name)| seen(namespace, name, "batch"))
            .into();
        changes.add(Some(&objects), None);
        assert_eq!(
            outdated(&mut known, &changes),
            [("a".to_owned(), 2), ("b".to_owned(), 1)]
        );
        // The same in another list.
        changes.add(Some(&objects), None);
        assert_eq!(outdated(&mut known, &changes), []);

        // Many changes of one policy are one of its namespace.
        for class in ["latency", "throughput", "latency"] {
            let (key, policy) = seen("a", "x", class);
            objects.insert(key.clone(), policy);
            changes.add(Some(&objects), Some(&key));
        }
        assert_eq!(outdated(&mut known, &changes), [("a".to_owned(), 2)]);
        let gone = objects.pop_last().unwrap().0;
        changes.add(Some(&objects), Some(&gone));
        assert_eq!(outdated(&mut known, &changes), [("b".to_owned(), 0)]);

        // The definition is not installed any more.
        changes.add(None, None);
        assert_eq!(outdated(&mut known, &changes), [("a".to_owned(), 0)]);
        assert_eq!(outdated(&mut known, &changes), []);
    }
}
