//! Statuses of our custom resources, written by one replica.

mod profiles;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use edgeward_core::config::sites::SeenSite;
use edgeward_core::engine::SharedState;
use edgeward_core::model::link::{Link, LinkState};
use edgeward_core::model::liqo::ApiServerStatus;
use edgeward_core::model::site::SiteKind;
use edgeward_core::model::snapshot::Site;
use edgeward_core::placement::policy::{MAX_POLICIES, NamespacePolicies, Policies, Seen};
use edgeward_core::queue::Plan;
use edgeward_core::units::{Bytes, Millicores, Now, Permille};
use jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Error};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::watch;

pub use profiles::of_profiles;

use super::lease::Leadership;
use crate::api::{self, SiteStatus, SloPolicy, SloPolicyStatus};
use crate::instruments::logs::LogLimit;
use crate::platform::blocking::{at_leisure, blocking};
use crate::platform::clock::Clock;

/// The shortest time between two passes over what is to be written.
const PAUSE: Duration = Duration::from_secs(1);

/// After how long it is tried again to write what could not be written.
const RETRY: Duration = Duration::from_secs(15);

/// Writes the status of each policy when it is another, while the Lease is ours, for ever. Whose it becomes writes all of
/// them: what is the same already changes nothing.
pub async fn of_policies(
    policies: watch::Receiver<Arc<Policies>>,
    client: Client,
    clock: Clock,
    leadership: Leadership,
) {
    let write = || write_policies(policies.clone(), &client, clock);
    while leadership.during(write()).await.is_none() {}
}

async fn write_policies(mut policies: watch::Receiver<Arc<Policies>>, client: &Client, clock: Clock) {
    let (mut written, mut writer) = (BTreeMap::<Arc<str>, Written>::new(), Writer::new(clock));
    loop {
        let now = Arc::clone(&policies.borrow_and_update());
        written.retain(|namespace, _| now.by_namespace().contains_key(namespace));
        for (namespace, policies) in now.by_namespace() {
            let written = written.entry(Arc::clone(namespace)).or_default();
            if written.whole.as_ref().is_some_and(|whole| Arc::ptr_eq(whole, policies)) {
                continue;
            }
            let computed = Arc::clone(policies);
            // Seconds, where there are many and each has many labels.
            let statuses = at_leisure(clock, Duration::ZERO, blocking(move || statuses(&computed))).await;
            let api: Api<SloPolicy> = Api::namespaced(client.clone(), namespace);
            let is_whole = written.write(statuses, &api, &mut writer).await;
            written.whole = is_whole.then(|| Arc::clone(policies));
        }
        let is_complete = written.values().all(|written| written.whole.is_some());
        tokio::time::sleep(PAUSE).await;
        tokio::select! {
            () = tokio::time::sleep(RETRY), if !is_complete => {}
            changed = policies.changed() => if changed.is_err() { return },
        }
    }
}

/// What was written of the policies of a namespace, by name.
#[derive(Default)]
struct Written {
    statuses: HashMap<String, SloPolicyStatus>,
    /// Those of which every status is written.
    whole: Option<Arc<NamespacePolicies>>,
}

impl Written {
    /// Writes those that are others. Whether all are written.
    async fn write(
        &mut self,
        statuses: HashMap<String, SloPolicyStatus>,
        api: &Api<SloPolicy>,
        writer: &mut Writer,
    ) -> bool {
        let mut is_whole = true;
        self.statuses.retain(|name, _| statuses.contains_key(name));
        for (name, status) in statuses {
            if self.statuses.get(&name) == Some(&status) {
                continue;
            }
            match writer.write(api, &name, &status).await {
                true => drop(self.statuses.insert(name, status)),
                false => is_whole = false,
            }
        }
        is_whole
    }
}

/// The status of each of these policies, by name.
fn statuses(policies: &NamespacePolicies) -> HashMap<String, SloPolicyStatus> {
    let named = |seen: &Arc<Seen>, is_beyond| (seen.name.clone(), status(seen, is_beyond));
    let mut statuses: HashMap<_, _> = policies.seen().map(|seen| named(seen, false)).collect();
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

/// How often the state of sites is looked at.
const PERIOD: Duration = Duration::from_secs(10);

/// After how long a status is written of which only the time of the last probe is another.
const LAST_PROBE: SignedDuration = SignedDuration::from_secs(60);

/// What the status of a Site is made of.
pub struct Views {
    /// The Sites as they were read last.
    pub seen: watch::Receiver<BTreeMap<String, SeenSite>>,
    /// The view of the fleet.
    pub shared: Arc<SharedState>,
    /// What is to be done about the pods that are gated.
    pub plans: watch::Receiver<Arc<Plan>>,
}

/// Writes the status of each Site when it is another, at most every ten seconds, while the Lease is ours, for ever.
pub async fn of_sites(views: Views, client: Client, clock: Clock, leadership: Leadership) {
    let api = Api::all(client);
    while leadership.during(write_sites(&views, &api, clock)).await.is_none() {}
}

async fn write_sites(views: &Views, api: &Api<api::Site>, clock: Clock) {
    let mut seen = views.seen.clone();
    let (mut written, mut writer) = (HashMap::<String, SiteStatus>::new(), Writer::new(clock));
    loop {
        let (now, sites) = (clock.now(), seen.borrow_and_update().clone());
        written.retain(|name, _| sites.contains_key(name));
        let snapshot = views.shared.snapshot();
        let gated = views.plans.borrow().gated;
        for (name, seen) in sites {
            let site = snapshot.sites.iter().find(|site| site.name() == name);
            let status = site_status(&seen, site, gated, now);
            if written.get(&name).is_none_or(|written| has_changed(written, &status))
                && writer.write(api, &name, &status).await
            {
                written.insert(name, status);
            }
        }
        tokio::select! {
            () = tokio::time::sleep(PERIOD) => {}
            Ok(()) = seen.changed() => tokio::time::sleep(PAUSE).await,
        }
    }
}

fn has_changed(written: &SiteStatus, status: &SiteStatus) -> bool {
    let undated = |status: &SiteStatus| SiteStatus {
        last_probe: None,
        ..status.clone()
    };
    let at = |status: &SiteStatus| status.last_probe.as_ref()?.parse::<Timestamp>().ok();
    let is_late = match (at(written), at(status)) {
        (Some(before), Some(now)) => now.duration_since(before) >= LAST_PROBE,
        (before, now) => before != now,
    };
    undated(written) != undated(status) || is_late
}

/// What a person wants to know of a site. Cost: a pass over its nodes.
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
            "not in use yet: its nodes and its WAN are being looked at".to_owned(),
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
    let whole = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let waiting = |site: &Site| site.queues.iter().map(|group| group.waiting).sum::<u64>();
    let at = |link: Link| {
        let age = SignedDuration::from_micros(i64::try_from(now.moment.since(link.as_of).0).unwrap_or(i64::MAX));
        let at = now.wall.checked_sub(age).ok()?;
        Some(at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
    };
    SiteStatus {
        observed_generation: seen.generation,
        health: Some(health.to_owned()),
        reason: Some(reason).filter(|reason| !reason.is_empty()),
        nodes: site.map(|_| whole(nodes)),
        // In tenths of a core and in Mi, so that not every pod changes it.
        free_cpu: site.map(|site| Millicores(site.uncharged(|amounts| amounts.cpu.0) / 100 * 100).to_string()),
        free_memory: site.map(|site| {
            let free = Bytes(site.uncharged(|amounts| amounts.memory.0));
            free.whole_mebibytes().to_string()
        }),
        queue: site.map(|site| i64::try_from(waiting(site)).unwrap_or(i64::MAX)),
        full: site.map(full).filter(|full| !full.is_empty()),
        // Reported once, for the cluster that has the gated pods.
        gated: site.filter(|site| site.kind() == SiteKind::Edge).map(|_| whole(gated)),
        rtt_ms: link
            .and_then(|link| link.rtt)
            .map(|rtt| (rtt.as_millis_f64() * 10.0).round() / 10.0),
        loss_pct: link.and_then(|link| link.loss).map(percent),
        last_probe: link.and_then(at),
    }
}

/// `cpu 500m or more (3 wait), a pod slot or more (none waits)`.
fn full(site: &Site) -> String {
    let bounds: Vec<_> = site.full.iter().map(ToString::to_string).collect();
    bounds.join(", ")
}

/// Writes statuses, and logs once that it cannot: else there would be a line every few seconds.
struct Writer {
    /// Whether the last attempt failed, which was logged.
    fails: bool,
    /// Where some can be written and others cannot.
    limit: LogLimit,
}

impl Writer {
    fn new(clock: Clock) -> Self {
        Self {
            fails: false,
            limit: LogLimit::new(clock),
        }
    }

    /// Whether it was written, or never can be.
    async fn write<K>(&mut self, api: &Api<K>, name: &str, status: &impl Serialize) -> bool
    where
        K: Clone + Debug + DeserializeOwned,
    {
        let patch = Patch::Merge(json!({ "status": status }));
        match api.patch_status(name, &PatchParams::default(), &patch).await {
            Ok(_) => self.fails = false,
            // Deleted meanwhile.
            Err(Error::Api(status)) if status.code == 404 => {}
            Err(error) => {
                if !std::mem::replace(&mut self.fails, true)
                    && let Some(held_back) = self.limit.due("status")
                {
                    tracing::warn!(%error, name, held_back, "a status is not written; tried again without a word");
                }
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use edgeward_core::model::snapshot::Snapshot;
    use edgeward_core::placement::policy::Policy;
    use edgeward_core::testkit;
    use edgeward_core::testkit::NOW;

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
    fn a_policy_that_does_not_count_says_why() {
        let seen = |name: String, precedence: i64| {
            let spec = json!({"selector": {}, "precedence": precedence, "slo": {"class": "batch"}});
            Arc::new(Seen {
                namespace: "shop".to_owned(),
                name,
                generation: Some(3),
                policy: Policy::read(&json!({"spec": spec})),
            })
        };
        let many = (0..MAX_POLICIES).map(|at| seen(format!("p{at:04}"), 1));
        let refused = seen("refused".to_owned(), 1_000_001);
        let statuses = statuses(&NamespacePolicies::of(
            many.chain([seen("beyond".to_owned(), 0), refused]),
        ));
        assert_eq!(
            statuses["beyond"].faults,
            ["100 policies of the namespace come first, by precedence and then by name, and no more count"]
        );
        assert_eq!(
            statuses["refused"].faults,
            ["spec.precedence: 1000001 is not a whole number from -1000000 to 1000000"]
        );
        let sites = json!({"selector": {}, "precedence": 1, "slo": {"class": "batch", "sites": "a b"}});
        let sites = Arc::new(Seen {
            namespace: "shop".to_owned(),
            name: "sites".to_owned(),
            generation: Some(3),
            policy: Policy::read(&json!({"spec": sites})),
        });
        let status = &super::statuses(&NamespacePolicies::of([sites]))["sites"];
        assert_eq!(status.faults.len(), 2, "{:?}", status.faults);
        assert_eq!(
            status.faults[1],
            "its sites, its traits or its precedence cannot be read, so pods that it selects are refused meanwhile"
        );
        let last = &statuses["p0099"];
        assert_eq!((last.observed_generation, last.faults.len()), (Some(3), 0));
    }

    #[test]
    fn a_site_is_shown_by_its_usable_nodes_and_its_wan() {
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
    fn health_says_why() {
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
    fn the_time_of_a_probe_alone_is_written_once_a_minute() {
        let probed = |seconds: u32| {
            of(
                &fleet(&json!({"rttMs": 12, "lossPct": 0, "ageSeconds": seconds}), true),
                "cloud",
            )
        };
        assert!(!has_changed(&probed(60), &probed(60)));
        assert!(!has_changed(&probed(60), &probed(1)));
        assert!(has_changed(&probed(60), &probed(0)));
        let other = SiteStatus {
            queue: Some(1),
            ..probed(60)
        };
        assert!(has_changed(&probed(60), &other));
    }

    #[test]
    fn what_is_not_known_takes_an_earlier_value_away() {
        let status = serde_json::to_value(SiteStatus::default()).unwrap();
        assert!(status["rttMs"].is_null() && status.get("rttMs").is_some());
    }
}
