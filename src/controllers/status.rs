//! Statuses of our custom resources. The leader writes them.

mod profiles;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use edgeward_cluster::queue::Plan;
use edgeward_decision::config::sites::SeenSite;
use edgeward_decision::model::link::LinkState;
use edgeward_decision::model::liqo::ApiServerStatus;
use edgeward_decision::model::site::SiteKind;
use edgeward_decision::model::snapshot::Site;
use edgeward_decision::placement::patch::timestamp;
use edgeward_decision::placement::policy::{MAX_POLICIES, NamespacePolicies, Policies, Seen};
use edgeward_kube::units::{Bytes, Micros, Millicores, Moment, Now, Permille};
use edgeward_profiles::All;
use kube::api::{Patch, PatchParams};
use kube::{Api, Error};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::block_in_place;

use super::Context;
use crate::api::{SiteStatus, SloPolicyStatus};
use crate::instruments::metrics::count;
use crate::watch::raw::{Gvr, Raw};

/// The shortest and the longest time between two passes over the statuses.
const PAUSE: Duration = Duration::from_secs(1);
const PERIOD: Duration = Duration::from_secs(10);

/// Interval at which a status is written if only its times changed.
const TIMES: Micros = Micros::from_secs(60);

/// Kind, namespace and name. The namespace is empty for cluster-scoped objects.
type Key = (Gvr, String, String);

/// Writes the statuses of Sites, SloPolicies and PerformanceProfiles.
pub struct Statuses {
    /// What the controllers share.
    pub context: Context,
    /// The Sites as read last.
    pub sites: watch::Receiver<BTreeMap<String, SeenSite>>,
    /// The SloPolicies as read last.
    pub policies: watch::Receiver<Arc<Policies>>,
    /// The latest evaluations of profiles.
    pub profiles: watch::Receiver<Arc<All>>,
    /// The release plan, which counts the gated pods.
    pub plans: watch::Receiver<Arc<Plan>>,
}

impl Statuses {
    /// Writes each changed status while this replica holds the Lease. Never returns. A new leader writes all statuses; a
    /// write of an unchanged status has no effect.
    pub async fn run(mut self) {
        let leadership = self.context.leadership.clone();
        while leadership.during(self.keep()).await.is_none() {}
    }

    /// Writes statuses for ever: every [`PERIOD`], and after each change of a Site or an SloPolicy and each evaluation of a
    /// profile. The first failure of a series is logged; writes are retried in the next pass.
    async fn keep(&mut self) {
        let (mut written, mut kept) = (BTreeMap::<Key, (Value, Moment)>::new(), BTreeMap::new());
        let mut fails = false;
        loop {
            let now = self.context.clock.moment();
            // This passes over all nodes and policies, so it must not hold up the runtime's workers.
            let statuses = block_in_place(|| self.statuses(&mut kept));
            written.retain(|key, _| statuses.contains_key(key));
            let mut failure = None;
            for (key, status) in statuses {
                let is_due = |(known, at): &(Value, Moment)| {
                    known != &status && (now.since(*at) >= TIMES || undated(known) != undated(&status))
                };
                if !written.get(&key).is_none_or(is_due) {
                    continue;
                }
                match self.write(&key, &status).await {
                    Ok(()) => drop(written.insert(key, (status, now))),
                    Err(error) => failure = Some((key, error)),
                }
            }
            if let (false, Some(((kind, _, name), error))) = (fails, &failure) {
                let kind = kind.plural;
                tracing::warn!(%error, kind, name, "a status cannot be written; retrying silently");
            }
            fails = failure.is_some();
            tokio::time::sleep(PAUSE).await;
            tokio::select! {
                () = tokio::time::sleep(PERIOD) => {}
                Ok(()) = self.sites.changed() => {}
                Ok(()) = self.policies.changed() => {}
                Ok(()) = self.profiles.changed() => {}
            }
        }
    }

    async fn write(&self, (kind, namespace, name): &Key, status: &Value) -> kube::Result<()> {
        let client = self.context.client.clone();
        let api: Api<Raw> = match &**namespace {
            "" => Api::all_with(client, kind),
            namespace => Api::namespaced_with(client, namespace, kind),
        };
        let patch = Patch::Merge(json!({ "status": status }));
        match api.patch_status(name, &PatchParams::default(), &patch).await {
            // The object was deleted meanwhile.
            Err(Error::Api(status)) if status.code == 404 => Ok(()),
            written => written.map(drop),
        }
    }

    /// The current status of each object.
    fn statuses(&mut self, kept: &mut BTreeMap<String, profiles::Kept>) -> BTreeMap<Key, Value> {
        let now = self.context.clock.now();
        let (snapshot, gated) = (self.context.shared.snapshot(), self.plans.borrow().gated);
        let mut all = BTreeMap::new();
        for (name, seen) in &*self.sites.borrow_and_update() {
            let site = snapshot.sites.iter().find(|site| site.name() == name);
            let status = json!(site_status(seen, site, gated, now));
            all.insert((Gvr::SITES, String::new(), name.clone()), status);
        }
        let policies = Arc::clone(&self.policies.borrow_and_update());
        for (seen, status) in policies.by_namespace.values().flat_map(policy_statuses) {
            let key = (Gvr::POLICIES, seen.namespace.clone(), seen.name.clone());
            all.insert(key, json!(status));
        }
        let evaluated = Arc::clone(&self.profiles.borrow_and_update());
        for (name, status) in profiles::statuses(&evaluated, kept, &self.context.config.load(), now) {
            all.insert((Gvr::PROFILES, String::new(), name), json!(status));
        }
        all
    }
}

/// The status without the times at which it was true.
fn undated(status: &Value) -> Value {
    let mut status = status.clone();
    let scores = status.get_mut("scores").and_then(Value::as_array_mut);
    for score in scores.into_iter().flatten().filter_map(Value::as_object_mut) {
        score.remove("asOf");
    }
    let fields = status.as_object_mut().into_iter();
    fields.for_each(|fields| fields.retain(|field, _| !["lastProbe", "evaluated"].contains(&field.as_str())));
    status
}

/// The status of each of these policies.
fn policy_statuses(policies: &NamespacePolicies) -> impl Iterator<Item = (&Seen, SloPolicyStatus)> {
    let seen = policies.seen().map(|seen| (&**seen, status(seen, false)));
    seen.chain(policies.beyond().iter().map(|seen| (&**seen, status(seen, true))))
}

fn status(seen: &Seen, is_beyond: bool) -> SloPolicyStatus {
    let mut faults = vec![];
    if let Err(refused) = &seen.policy {
        faults.extend(refused.faults.0.iter().map(ToString::to_string));
        faults.extend(refused.instead.iter().map(|instead| instead.what.clone()));
    }
    if is_beyond {
        faults.push(format!(
            "{MAX_POLICIES} policies of the namespace come first, by precedence and then by name, and no more count"
        ));
    }
    SloPolicyStatus {
        observed_generation: seen.generation,
        faults,
        // Another controller writes them.
        members: None,
    }
}

/// Builds the status of a site. Cost: one pass over its nodes.
fn site_status(seen: &SeenSite, site: Option<&Site>, gated: usize, now: Now) -> SiteStatus {
    let nodes = site.map_or(0, |site| site.usable_nodes().count());
    let link = site.and_then(|site| site.link);
    let (health, reason) = match (&seen.refused, site) {
        (Some(why), _) => ("Refused", why.clone()),
        (None, None) => (
            "Unknown",
            "not in use yet: its nodes and its WAN are being inspected".to_owned(),
        ),
        (None, Some(site)) if nodes == 0 => (
            "Missing",
            format!("none of {} nodes is Ready and not cordoned", site.nodes.len()),
        ),
        (None, Some(site)) => wan(site),
    };
    let waiting = |site: &Site| site.queues.iter().map(|group| group.waiting).sum::<u64>();
    let bounds = |site: &Site| site.full.iter().map(ToString::to_string).collect::<Vec<_>>();
    let full = site.map(|site| bounds(site).join(", "));
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
        full: full.filter(|full| !full.is_empty()),
        // Only the edge reports gated pods, because they belong to its cluster.
        gated: site.filter(|site| site.kind() == SiteKind::Edge).map(|_| count(gated)),
        rtt_ms: link
            .and_then(|link| link.rtt)
            .map(|rtt| (rtt.as_millis_f64() * 10.0).round() / 10.0),
        loss_pct: link.and_then(|link| link.loss).map(percent),
        last_probe: link.map(|link| timestamp(now.at(link.as_of).wall)),
    }
}

/// The health of a site with usable nodes, and the reason.
fn wan(site: &Site) -> (&'static str, String) {
    let api_server = site.api_server.filter(|status| *status != ApiServerStatus::Established);
    if let Some(status) = api_server {
        let reason = format!("Liqo does not reach its API server: {}", status.as_str());
        return ("Unreachable", reason);
    }
    match site.link {
        _ if site.kind() == SiteKind::Edge => ("Ready", String::new()),
        None if site.definition.probes.is_empty() => {
            ("Unreachable", "no probes: nothing is known of the WAN".to_owned())
        }
        None => ("Unreachable", "nothing is known of the WAN yet".to_owned()),
        Some(link) => match link.state {
            LinkState::Healthy => ("Ready", String::new()),
            LinkState::Degraded => {
                let rtt = link.rtt.map_or("unknown".to_owned(), |rtt| format!("{rtt} ms"));
                let loss = link.loss.map(percent);
                let loss = loss.map_or("unknown".to_owned(), |loss| format!("{loss} %"));
                ("Degraded", format!("RTT {rtt}, loss {loss}"))
            }
            LinkState::Unreachable => ("Unreachable", "nothing answers".to_owned()),
        },
    }
}

fn percent(loss: Permille) -> f64 {
    f64::from(loss.0) / 10.0
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
                members: vec![],
            })
        };
        let faults = |policies: &NamespacePolicies, name: &str| {
            let statuses = policy_statuses(policies).filter(|(seen, _)| seen.name == name);
            statuses.last().unwrap().1.faults
        };
        let many = (0..MAX_POLICIES).map(|at| seen(format!("p{at:04}"), 1));
        let refused = seen("refused".to_owned(), 1_000_001);
        let policies = NamespacePolicies::of(many.chain([seen("beyond".to_owned(), 0), refused]));
        assert_eq!(
            faults(&policies, "beyond"),
            ["100 policies of the namespace come first, by precedence and then by name, and no more count"]
        );
        assert_eq!(
            faults(&policies, "refused"),
            ["spec.precedence: 1000001 is not a whole number from -1000000 to 1000000"]
        );
        let sites = json!({"selector": {}, "precedence": 1, "slo": {"class": "batch", "sites": "a b"}});
        let sites = Arc::new(Seen {
            namespace: "shop".to_owned(),
            name: "sites".to_owned(),
            generation: Some(3),
            policy: Policy::read(&json!({"spec": sites})),
            members: vec![],
        });
        let faults_of_sites = faults(&NamespacePolicies::of([sites]), "sites");
        assert_eq!(faults_of_sites.len(), 2, "{faults_of_sites:?}");
        assert_eq!(
            faults_of_sites[1],
            "its sites, its traits or its precedence cannot be read, so pods that it selects are refused meanwhile"
        );
        assert!(faults(&policies, "p0099").is_empty());
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
    fn unknown_status_value_is_written_as_null() {
        let status = serde_json::to_value(SiteStatus::default()).unwrap();
        assert!(status["rttMs"].is_null() && status.get("rttMs").is_some());
    }
}
