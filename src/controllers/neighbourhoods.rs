//! Keeps the neighbourhoods of SloPolicies: chooses their clouds and writes them to `status.members`, which all replicas read.
//! This runs on the replica that holds the Lease.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use edgeward_decision::model::snapshot::Snapshot;
use edgeward_decision::placement::policy::{NamespacePolicies, Policies, Policy, Seen};
use edgeward_kube::units::{Micros, Moment};
use futures::{StreamExt as _, stream};
use kube::api::{Patch, PatchParams};
use kube::{Api, Error};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::block_in_place;
use tokio::time::timeout;

use super::Context;
use crate::instruments::logs::LogLimit;
use crate::watch::raw::{Gvr, Raw};

/// Interval at which members are chosen.
const PERIOD: Duration = Duration::from_secs(2);

/// Timeout of a write, and how many run at the same time.
const TIMEOUT: Duration = Duration::from_secs(5);
const AT_ONCE: usize = 8;

/// Since when a cloud outside has been better than a member, by namespace and policy.
type BetterSince = BTreeMap<Key, Option<Moment>>;

/// Namespace and name of a policy.
type Key = (String, String);

/// Keeps the neighbourhoods while this replica holds the Lease. Never returns. The dwell time starts again with a new leader.
pub async fn run(context: Context, policies: watch::Receiver<Arc<Policies>>) {
    let leadership = context.leadership.clone();
    while leadership.during(keep(&context, &policies)).await.is_none() {}
}

/// Writes changed members for ever. Writes that fail are retried in the next period.
async fn keep(context: &Context, policies: &watch::Receiver<Arc<Policies>>) {
    let (mut since, limit) = (BetterSince::new(), LogLimit::new(context.clock));
    loop {
        let policies = Arc::clone(&policies.borrow());
        let (snapshot, now) = (context.shared.snapshot(), context.clock.moment());
        let ttl = context.config.load().telemetry_ttl;
        // With an old view nothing is known of the clouds, so the members stay.
        let changed = match snapshot.is_stale(ttl, now) {
            true => vec![],
            // This may pass over all nodes, so it must not hold up the runtime's workers.
            false => block_in_place(|| changed(&policies, &snapshot, &mut since, ttl, now)),
        };
        let writes = changed
            .into_iter()
            .map(|(policy, members)| write(context, policy, members));
        let mut writes = pin!(stream::iter(writes).buffer_unordered(AT_ONCE));
        while let Some((policy, written)) = writes.next().await {
            match written {
                // The dwell time starts again.
                Ok(()) => drop(since.remove(&policy)),
                Err(error) => {
                    if let Some(held_back) = limit.due("write") {
                        let (namespace, name) = policy;
                        tracing::warn!(%error, namespace, name, held_back, "a neighbourhood cannot be written");
                    }
                }
            }
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// The policies whose members change, with `status.members` as it is to be: null without a neighbourhood.
fn changed(
    policies: &Policies,
    snapshot: &Snapshot,
    since: &mut BetterSince,
    ttl: Micros,
    now: Moment,
) -> Vec<(Key, Value)> {
    let all = policies.by_namespace.values().flat_map(NamespacePolicies::in_force);
    let all: Vec<(&Seen, &Policy)> = all.collect();
    let key = |seen: &Seen| (seen.namespace.clone(), seen.name.clone());
    let kept: BTreeSet<_> = all.iter().map(|(seen, _)| key(seen)).collect();
    since.retain(|policy, _| kept.contains(policy));
    let mut changed = vec![];
    for (seen, policy) in all {
        let members = match policy.neighbourhood() {
            Some(neighbourhood) => {
                let candidates = policy.candidates(snapshot, &seen.namespace, ttl, now);
                let better_since = since.entry(key(seen)).or_default();
                Some(neighbourhood.next(&seen.members, &candidates, better_since, now))
            }
            // A policy with faults keeps its members.
            None if policy.keeps_members() => continue,
            None => None,
        };
        if members.as_deref().unwrap_or_default() != seen.members {
            changed.push((key(seen), json!(members)));
        }
    }
    changed
}

async fn write(context: &Context, policy: Key, members: Value) -> (Key, anyhow::Result<()>) {
    let (namespace, name) = &policy;
    let api = Api::<Raw>::namespaced_with(context.client.clone(), namespace, &Gvr::POLICIES);
    let patch = Patch::Merge(json!({"status": {"members": members}}));
    let params = PatchParams::default();
    let written = match timeout(TIMEOUT, api.patch_status(name, &params, &patch)).await {
        // The policy was deleted meanwhile.
        Ok(Err(Error::Api(status))) if status.code == 404 => Ok(()),
        Ok(written) => written.map(drop).map_err(Into::into),
        Err(error) => Err(error.into()),
    };
    if written.is_ok() {
        tracing::info!(namespace, name, %members, "neighbourhood changed");
    }
    (policy, written)
}
