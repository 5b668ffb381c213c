//! Statuses of our custom resources. The leader writes them.

mod profiles;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use edgeward_cluster::queue::Plan;
use edgeward_decision::config::sites::SeenSite;
use edgeward_decision::model::link::{Link, LinkState};
use edgeward_decision::model::liqo::ApiServerStatus;
use edgeward_decision::model::site::SiteKind;
use edgeward_decision::model::snapshot::Site;
use edgeward_decision::placement::patch::timestamp;
use edgeward_decision::placement::policy::{MAX_POLICIES, NamespacePolicies, Policies, Seen};
use edgeward_kube::units::{Bytes, Micros, Millicores, Moment, Now, Permille};
use kube::api::{Patch, PatchParams};
use kube::{Api, Error};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::block_in_place;

pub use profiles::of_profiles;

use super::Context;
use crate::api::{self, SiteStatus, SloPolicy, SloPolicyStatus};
use crate::instruments::metrics::count;
use crate::platform::clock::Clock;

/// The shortest and the longest time between two passes over the statuses.
const PAUSE: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_secs(10);

/// Namespace and name. The namespace is empty for cluster-scoped objects.
type Key = [String; 2];

/// Interval at which a status is written if only its times changed.
const TIMES: Micros = Micros::from_secs(60);

/// Writes statuses for ever. They are computed after each change, and at least every [`PERIOD`]. `least` is the least
/// time between writing one status and another. The first failure of a series is logged; writes are retried in the
/// next pass.
async fn keep<T: Clone, S: Serialize + PartialEq, K: Clone + Debug + DeserializeOwned>(
    mut changes: watch::Receiver<T>,
    api: impl Fn(&str) -> Api<K>,
    clock: Clock,
    mut statuses: impl FnMut(T, Now) -> BTreeMap<Key, S>,
    least: impl Fn(&S, &S) -> Micros,
) {
    let mut written = BTreeMap::<Key, (S, Moment)>::new();
    let mut fails = false;
    loop {
        let now = clock.now();
        let seen = changes.borrow_and_update().clone();
        // This passes over all nodes or policies, so it must not hold up the runtime's workers.
        let statuses = block_in_place(|| statuses(seen, now));
        written.retain(|key, _| statuses.contains_key(key));
        let mut failure = None;
        for (key, status) in statuses {
            if written
                .get(&key)
                .is_some_and(|written| !is_due(written, &status, now.moment, &least))
            {
                continue;
            }
            let ([namespace, name], patch) = (&key, Patch::Merge(json!({ "status": status })));
            match api(namespace).patch_status(name, &PatchParams::default(), &patch).await {
                Ok(_) => {}
                // The object was deleted meanwhile.
                Err(Error::Api(status)) if status.code == 404 => {}
                Err(error) => {
                    failure = Some((key, error));
                    continue;
                }
            }
            written.insert(key, (status, now.moment));
        }
        if let (false, Some(([_, name], error))) = (fails, &failure) {
            tracing::warn!(%error, name, "a status cannot be written; retrying silently");
        }
        fails = failure.is_some();
        tokio::time::sleep(PAUSE).await;
        tokio::select! {
            () = tokio::time::sleep(PERIOD) => {}
            Ok(()) = changes.changed() => {}
        }
    }
}

/// Whether a status must be written again.
fn is_due<S: PartialEq>((known, at): &(S, Moment), status: &S, now: Moment, least: impl Fn(&S, &S) -> Micros) -> bool {
    known != status && now.since(*at) >= least(known, status)
}

/// Writes each changed policy status while this replica holds the Lease. Never returns. A new leader writes all
/// statuses; a write of an unchanged status has no effect.
pub async fn of_policies(context: Context, policies: watch::Receiver<Arc<Policies>>) {
    let api = |namespace: &str| Api::<SloPolicy>::namespaced(context.client.clone(), namespace);
    let of_all = |policies: Arc<Policies>, _| policies.by_namespace().values().flat_map(|of| statuses(of)).collect();
    let write = || keep(policies.clone(), api, context.clock, of_all, |_, _| Micros(0));
    while context.leadership.during(write()).await.is_none() {}
}

/// The status of each of these policies.
fn statuses(policies: &NamespacePolicies) -> BTreeMap<Key, SloPolicyStatus> {
    let named = |seen: &Arc<Seen>, is_beyond| {
        let key = [seen.namespace.clone(), seen.name.clone()];
        (key, status(seen, is_beyond))
    };
    let mut statuses: BTreeMap<_, _> = policies.seen().map(|seen| named(seen, false)).collect();
    statuses.extend(policies.beyond().iter().map(|seen| named(seen, true)));
    statuses
}

fn status(seen: &Seen, is_beyond: bool) -> SloPolicyStatus {
    let mut faults = vec![];
    if let Err(refused) = &seen.policy {
        faults.extend(refused.faults().0.iter().map(ToString::to_string));
        faults.extend(refused.instead().map(ToString::to_string));
    }
    if is_beyond {
        faults.push(format!(
            "{MAX_POLICIES} policies of the namespace come first, by precedence and then by name, and no more count"
        ));
    }
    SloPolicyStatus {
        observed_generation: seen.generation,
        faults,
    }
}

/// Writes each changed Site status while this replica holds the Lease. Never returns. `sites` are the Sites as read
/// last; the release plan counts the gated pods.
pub async fn of_sites(
    context: Context,
    sites: watch::Receiver<BTreeMap<String, SeenSite>>,
    plans: watch::Receiver<Arc<Plan>>,
) {
    let api = |_: &str| Api::<api::Site>::all(context.client.clone());
    let of_all = |sites: BTreeMap<String, SeenSite>, now| {
        let (snapshot, gated) = (context.shared.snapshot(), plans.borrow().gated);
        let status = |(name, seen): (String, SeenSite)| {
            let site = snapshot.sites.iter().find(|site| site.name() == name);
            let status = site_status(&seen, site, gated, now);
            ([String::new(), name], status)
        };
        sites.into_iter().map(status).collect()
    };
    let write = || keep(sites.clone(), api, context.clock, of_all, least);
    while context.leadership.during(write()).await.is_none() {}
}

/// A changed status is written at once, and a changed time alone every [`TIMES`].
fn least(written: &SiteStatus, status: &SiteStatus) -> Micros {
    let undated = |status: &SiteStatus| SiteStatus {
        last_probe: None,
        ..status.clone()
    };
    match undated(written) == undated(status) {
        true => TIMES,
        false => Micros(0),
    }
}

/// Builds the status of a site. Cost: one pass over its nodes.
fn site_status(seen: &SeenSite, site: Option<&Site>, gated: usize, now: Now) -> SiteStatus {
    let nodes = site.map_or(0, |site| site.usable_nodes().count());
    let link = site.and_then(|site| site.link);
    let is_cloud = site.is_some_and(|site| site.kind() == SiteKind::Cloud);
    let percent = |loss: Permille| f64::from(loss.0) / 10.0;
    let numbers = |link: Link| {
        let rtt = link.rtt.map_or("unknown".to_owned(), |rtt| format!("{rtt} ms"));
        let loss = link
            .loss
            .map_or("unknown".to_owned(), |loss| format!("{} %", percent(loss)));
        format!("RTT {rtt}, loss {loss}")
    };
    let (health, reason) = match (&seen.refused, site, link) {
        (Some(why), ..) => ("Refused", why.clone()),
        (None, None, _) => (
            "Unknown",
            "not in use yet: its nodes and its WAN are being inspected".to_owned(),
        ),
        (None, Some(site), _) if nodes == 0 => (
            "Missing",
            format!("none of {} nodes is Ready and not cordoned", site.nodes.len()),
        ),
        (
            None,
            Some(Site {
                api_server: Some(status),
                ..
            }),
            _,
        ) if *status != ApiServerStatus::Established => (
            "Unreachable",
            format!("Liqo does not reach its API server: {}", status.as_str()),
        ),
        (None, Some(site), None) if is_cloud && site.definition.probes.is_empty() => {
            ("Unreachable", "no probes: nothing is known of the WAN".to_owned())
        }
        (None, Some(_), None) if is_cloud => ("Unreachable", "nothing is known of the WAN yet".to_owned()),
        (None, Some(_), Some(link)) if is_cloud => match link.state {
            LinkState::Healthy => ("Ready", String::new()),
            LinkState::Degraded => ("Degraded", numbers(link)),
            LinkState::Unreachable => ("Unreachable", "nothing answers".to_owned()),
        },
        (None, Some(_), _) => ("Ready", String::new()),
    };
    let waiting = |site: &Site| site.queues.iter().map(|group| group.waiting).sum::<u64>();
    SiteStatus {
        observed_generation: seen.generation,
        health: Some(health.to_owned()),
        reason: Some(reason).filter(|reason| !reason.is_empty()),
        nodes: site.map(|_| count(nodes)),
        // Rounded to tenths of a core and to Mi, so that not every pod changes the status.
        free_cpu: site.map(|site| Millicores(site.uncharged(|amounts| amounts.cpu.0) / 100 * 100).to_string()),
        free_memory: site.map(|site| {
            let free = Bytes(site.uncharged(|amounts| amounts.memory.0));
            free.whole_mebibytes().to_string()
        }),
        queue: site.map(|site| count(waiting(site))),
        full: site.map(full).filter(|full| !full.is_empty()),
        // Only the edge reports gated pods, because they belong to its cluster.
        gated: site.filter(|site| site.kind() == SiteKind::Edge).map(|_| count(gated)),
        rtt_ms: link
            .and_then(|link| link.rtt)
            .map(|rtt| (rtt.as_millis_f64() * 10.0).round() / 10.0),
        loss_pct: link.and_then(|link| link.loss).map(percent),
        last_probe: link.map(|link| timestamp(now.at(link.as_of).wall)),
    }
}

/// Formats the bounds of full capacity: `cpu 500m or more (3 wait), a pod slot or more (none waits)`.
fn full(site: &Site) -> String {
    let bounds: Vec<_> = site.full.iter().map(ToString::to_string).collect();
    bounds.join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use edgeward_decision::model::snapshot::Snapshot;
    use edgeward_decision::placement::policy::Policy;
    use edgeward_decision::testkit;
    use edgeward_decision::testkit::NOW;

    fn fleet(wan: &Value, ready: bool) -> Snapshot {
        let allocatable = json!({"cpu": "4", "memory": "8Gi", "pods": 10});
        let labels = json!({"node.role/cloud": "true"});
        testkit::snapshot(&json!({
            "sites": [
                {"name": "edge", "kind": "edge", "queues": [
                    {"class": "batch", "waiting": 2}, {"class": "latency", "waiting": 1}]},
                {"name": "cloud", "kind": "cloud", "wan": wan},
            ],
            "nodes": [
                {"name": "e", "labels": {"node.role/edge": "true"}, "allocatable": allocatable, "used": {"cpu": "1250m", "memory": "1Gi"}},
                {"name": "c", "labels": labels, "allocatable": allocatable, "ready": ready},
                {"name": "d", "labels": labels, "allocatable": allocatable, "unschedulable": true},
            ],
        }))
    }

    fn of(snapshot: &Snapshot, name: &str) -> SiteStatus {
        let site = snapshot.sites.iter().find(|site| site.name() == name);
        site_status(&SeenSite::default(), site, 7, NOW)
    }

    fn health(status: &SiteStatus) -> (&str, Option<&str>) {
        (status.health.as_deref().unwrap(), status.reason.as_deref())
    }

    #[test]
    fn status_of_ignored_policy_says_why() {
        let seen = |name: String, precedence: i64| {
            let spec = json!({"selector": {}, "precedence": precedence, "slo": {"class": "batch"}});
            Arc::new(Seen {
                namespace: "shop".to_owned(),
                name,
                generation: Some(3),
                policy: Policy::read(&json!({"spec": spec})),
            })
        };
        let key = |name: &str| ["shop".to_owned(), name.to_owned()];
        let many = (0..MAX_POLICIES).map(|at| seen(format!("p{at:04}"), 1));
        let refused = seen("refused".to_owned(), 1_000_001);
        let statuses = statuses(&NamespacePolicies::of(
            many.chain([seen("beyond".to_owned(), 0), refused]),
        ));
        assert_eq!(
            statuses[&key("beyond")].faults,
            ["100 policies of the namespace come first, by precedence and then by name, and no more count"]
        );
        assert_eq!(
            statuses[&key("refused")].faults,
            ["spec.precedence: 1000001 is not a whole number from -1000000 to 1000000"]
        );
        let sites = json!({"selector": {}, "precedence": 1, "slo": {"class": "batch", "sites": "a b"}});
        let sites = Arc::new(Seen {
            namespace: "shop".to_owned(),
            name: "sites".to_owned(),
            generation: Some(3),
            policy: Policy::read(&json!({"spec": sites})),
        });
        let status = &super::statuses(&NamespacePolicies::of([sites]))[&key("sites")];
        assert_eq!(status.faults.len(), 2, "{:?}", status.faults);
        assert_eq!(
            status.faults[1],
            "its sites, its traits or its precedence cannot be read, so pods that it selects are refused meanwhile"
        );
        let last = &statuses[&key("p0099")];
        assert_eq!((last.observed_generation, last.faults.len()), (Some(3), 0));
    }

    #[test]
    fn site_status_shows_usable_nodes_capacity_and_wan() {
        let good = json!({"rttMs": 12.34, "lossPct": 0.5, "ageSeconds": 30});
        let fleet = fleet(&good, true);
        let edge = of(&fleet, "edge");
        assert_eq!(health(&edge), ("Ready", None));
        assert_eq!((edge.nodes, edge.queue, edge.last_probe), (Some(1), Some(3), None));
        assert_eq!((edge.gated, of(&fleet, "cloud").gated), (Some(7), None));
        assert_eq!(
            (edge.free_cpu.as_deref(), edge.free_memory.as_deref()),
            (Some("2700m"), Some("7Gi"))
        );
        let cloud = of(&fleet, "cloud");
        assert_eq!(health(&cloud), ("Ready", None));
        assert_eq!(
            (cloud.nodes, cloud.rtt_ms, cloud.loss_pct),
            (Some(1), Some(12.3), Some(0.5))
        );
        assert_eq!(cloud.last_probe.as_deref(), Some("2025-12-31T23:59:30Z"));
    }

    #[test]
    fn status_of_unhealthy_site_says_why() {
        let of_wan = |wan: Value| of(&fleet(&wan, true), "cloud");
        let slow = of_wan(json!({"rttMs": 250, "lossPct": 1}));
        assert_eq!(health(&slow), ("Degraded", Some("RTT 250 ms, loss 1 %")));
        let gone = of_wan(json!({"reachable": false}));
        assert_eq!(health(&gone), ("Unreachable", Some("nothing answers")));
        let mut unreached = fleet(&json!({"rttMs": 1, "lossPct": 0}), true);
        unreached.sites[1].api_server = Some(ApiServerStatus::Error);
        assert_eq!(
            health(&of(&unreached, "cloud")),
            ("Unreachable", Some("Liqo does not reach its API server: Error"))
        );
        let unprobed = of_wan(Value::Null);
        assert_eq!(
            health(&unprobed),
            ("Unreachable", Some("no probes: nothing is known of the WAN"))
        );
        let missing = of(&fleet(&json!({"rttMs": 1}), false), "cloud");
        assert_eq!(
            health(&missing),
            ("Missing", Some("none of 2 nodes is Ready and not cordoned"))
        );
        let seen = SeenSite {
            generation: Some(4),
            refused: Some("kind: is missing".to_owned()),
        };
        let refused = site_status(&seen, None, 7, NOW);
        assert_eq!(
            (refused.observed_generation, health(&refused)),
            (Some(4), ("Refused", Some("kind: is missing")))
        );
    }

    #[test]
    fn probe_time_alone_is_written_once_a_minute() {
        let probed = |seconds: u32| {
            of(
                &fleet(&json!({"rttMs": 12, "lossPct": 0, "ageSeconds": seconds}), true),
                "cloud",
            )
        };
        let is_due = |status: &SiteStatus, seconds| {
            let now = Moment(0).after(Micros::from_secs(seconds));
            is_due(&(probed(60), Moment(0)), status, now, least)
        };
        assert!(!is_due(&probed(60), 60));
        assert!(!is_due(&probed(1), 59) && is_due(&probed(1), 60));
        let other = SiteStatus {
            queue: Some(1),
            ..probed(60)
        };
        assert!(is_due(&other, 0));
    }

    #[test]
    fn unknown_status_value_is_written_as_null() {
        let status = serde_json::to_value(SiteStatus::default()).unwrap();
        assert!(status["rttMs"].is_null() && status.get("rttMs").is_some());
    }
}
