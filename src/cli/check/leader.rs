//! Whether somebody leads, and the pods that stay gated where nobody does.

use std::sync::Arc;

use edgeward_core::config::Config;
use edgeward_core::model::pod_record::GatedPod;
use jiff::{SignedDuration, Timestamp};

use super::finding::Finding;
use crate::cli::installed::{LEASE, domain_option};
use crate::inspect::Connection;
use crate::inspect::installation::{Lead, Leaderless};

const AREA: &str = "leader";

/// How long after its limit a pod may be gated still: one whose release was refused is tried again within this time.
const RETRY: SignedDuration = SignedDuration::from_mins(1);

/// What is known of the replicas.
pub(super) struct Replicas {
    /// How many the Deployment is to have; `None` where there is none, or nobody says.
    pub(super) wanted: Option<i32>,
    pub(super) lead: anyhow::Result<Lead>,
}

/// Asks who leads in edgeward's namespace. Takes 4 s where that seems to be nobody.
pub(super) async fn ask(connection: &Connection, home: &str) -> Replicas {
    Replicas {
        wanted: connection.wanted_replicas(home, "edgeward").await.unwrap_or_default(),
        lead: connection.lead(home, LEASE).await,
    }
}

impl Replicas {
    /// Whether somebody leads. `None` where nobody can be expected to: without the ServiceAccount there is no Lease either.
    pub(super) fn judge(&self, home: &str, domain: &str, is_installed: bool) -> Option<Finding> {
        let how = match &self.lead {
            Err(error) => return Some(Finding::unknown(AREA, error)),
            Ok(Ok(holder)) => return Some(Finding::ok(AREA, format!("{holder} holds the Lease {home}/{LEASE}"))),
            Ok(Err(Leaderless { since: None, .. })) if !is_installed => return None,
            Ok(Err(Leaderless { since: None, .. })) => format!("in {home}: there is no Lease {LEASE}"),
            Ok(Err(Leaderless { since: Some(since), .. })) => format!("by the Lease {home}/{LEASE}, since {since:.0}"),
        };
        let text = format!("nobody leads {how}: gated pods are not released, and nothing is told of decisions");
        Some(Finding::fault(AREA, text).fix(self.fix(home, domain)))
    }

    /// Pods that should have been released.
    pub(super) fn gated(&self, pods: &[Arc<GatedPod>], home: &str, config: &Config, now: Timestamp) -> Option<Finding> {
        let limits = pods.iter().filter_map(|pod| Some((pod.limit(config, now)?, pod)));
        let overdue: Vec<_> = limits.filter(|(limit, _)| now.duration_since(*limit) > RETRY).collect();
        let (limit, oldest) = overdue.iter().min_by_key(|(limit, _)| *limit)?;
        let (GatedPod { namespace, name, .. }, many) = (&***oldest, overdue.len());
        let text =
            format!("pod {namespace}/{name} is gated beyond its limit, which was over at {limit:.0}; {many} such pods");
        let domain = &config.keys.domain;
        let fix = match self.lead {
            Ok(Ok(_)) => format!(
                "kubectl -n {home} logs -l app.kubernetes.io/name=edgeward --prefix --tail=-1 | grep 'gated pod'{}",
                way_out("what hinders the leader", domain)
            ),
            _ => self.fix(home, domain),
        };
        Some(Finding::fault(AREA, text).fix(fix))
    }

    fn fix(&self, home: &str, domain: &str) -> String {
        let command = match self.wanted {
            Some(_) => start(home, self.wanted),
            None => format!("kubectl -n {home} get deployments,pods"),
        };
        command + &way_out("a replica that is ready leads within 15 s", domain)
    }
}

/// The command that brings replicas up: of a Deployment that is to have none, no restart does.
pub(super) fn start(namespace: &str, wanted: Option<i32>) -> String {
    match wanted {
        Some(0) => format!("kubectl -n {namespace} scale deployment edgeward --replicas=2"),
        _ => format!("kubectl -n {namespace} rollout restart deployment edgeward"),
    }
}

/// What a person may do instead.
fn way_out(first: &str, domain: &str) -> String {
    let of_domain = domain_option(domain);
    format!("   # {first}; `edgeward release --all{of_domain}` lets gated pods go without")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::finding::Level;
    use super::*;
    use edgeward_core::keys::Keys;
    use edgeward_core::wire::pod::Pod;

    const HOME: &str = "edgeward-system";

    fn now() -> Timestamp {
        "2026-11-21T12:00:00Z".parse().unwrap()
    }

    fn replicas(lead: Lead, wanted: Option<i32>) -> Replicas {
        Replicas { wanted, lead: Ok(lead) }
    }

    fn led() -> Lead {
        Ok("a_1".to_owned())
    }

    fn leaderless(since: Option<Timestamp>) -> Lead {
        Err(Leaderless {
            lease: "edgeward-system/edgeward".to_owned(),
            since,
        })
    }

    fn an_hour_ago() -> Option<Timestamp> {
        Some(now() + SignedDuration::from_millis(-3_600_123))
    }

    #[test]
    fn somebody_must_lead() {
        let judged = |replicas: &Replicas| {
            let found = replicas.judge(HOME, "example.io", true).unwrap();
            (found.level, found.text, found.fix.unwrap_or_default())
        };
        let (level, text, _) = judged(&replicas(led(), Some(2)));
        assert_eq!(
            (level, &*text),
            (Level::Ok, "a_1 holds the Lease edgeward-system/edgeward")
        );
        let restart = "kubectl -n edgeward-system rollout restart deployment edgeward   # a replica that is ready leads within 15 s; `edgeward release \
                       --all` lets gated pods go without";
        let scale = "kubectl -n edgeward-system scale deployment edgeward --replicas=2   # a replica that is ready leads within \
                     15 s; `edgeward release --all` lets gated pods go without";
        let look = "kubectl -n edgeward-system get deployments,pods   # a replica that is ready leads within 15 s; \
                    `edgeward release --all` lets gated pods go without";
        let nobody = "gated pods are not released, and nothing is told of decisions";
        let since = format!("nobody leads by the Lease edgeward-system/edgeward, since 2026-11-21T10:59:59Z: {nobody}");
        for (wanted, fix) in [(Some(2), restart), (None, look), (Some(0), scale)] {
            let found = judged(&replicas(leaderless(an_hour_ago()), wanted));
            assert_eq!(found, (Level::Fault, since.clone(), fix.to_owned()));
        }
        let (level, text, _) = judged(&replicas(leaderless(None), Some(1)));
        assert_eq!(level, Level::Fault);
        assert_eq!(
            text,
            format!("nobody leads in edgeward-system: there is no Lease edgeward: {nobody}")
        );
        // That there is nothing is said once.
        assert_eq!(replicas(leaderless(None), None).judge(HOME, "example.io", false), None);
        let lead = Err(anyhow::anyhow!("no route to host"));
        assert_eq!(judged(&Replicas { wanted: None, lead }).0, Level::Warning);
    }

    fn pod(name: &str, seconds: i64, change: impl FnOnce(&mut serde_json::Value)) -> Arc<GatedPod> {
        let at = (now() - SignedDuration::from_secs(seconds)).to_string();
        let mut pod = json!({
            "metadata": {
                "name": name, "namespace": "shop", "uid": name, "resourceVersion": "1", "creationTimestamp": at,
                "annotations": {
                    "slo.acme.dev/class": "batch", "scheduling.acme.dev/timestamp": at,
                    "scheduling.acme.dev/reason": "held_no_capacity",
                },
            },
            "spec": {"schedulingGates": [{"name": "scheduling.acme.dev/awaiting-capacity"}], "containers": []},
        });
        change(&mut pod);
        let text = pod.to_string();
        let record = Pod::from_json(&text).unwrap().record(&Keys::new("acme.dev"));
        record.unwrap().unwrap().gated_pod.unwrap()
    }

    #[test]
    fn no_pod_is_gated_beyond_its_limit() {
        let config = Config {
            keys: Keys::new("acme.dev"),
            ..Config::default()
        };
        let leaderless = replicas(leaderless(an_hour_ago()), Some(0));
        let gated = |pods: &[Arc<GatedPod>]| leaderless.gated(pods, HOME, &config, now());
        // Of class batch, 300 s, and some more to try again.
        let young = || pod("young", 355, |_| {});
        assert_eq!(gated(&[]), None);
        assert_eq!(gated(&[young()]), None);
        let found = gated(&[young(), pod("old", 365, |_| {})]).unwrap();
        assert_eq!(found.level, Level::Fault);
        assert_eq!(
            found.text,
            "pod shop/old is gated beyond its limit, which was over at 2026-11-21T11:58:55Z; 1 such pods"
        );
        assert_eq!(
            found.fix.unwrap(),
            "kubectl -n edgeward-system scale deployment edgeward --replicas=2   # a replica that is ready leads within 15 s; \
             `edgeward release --all --domain=acme.dev` lets gated pods go without"
        );
        let led = replicas(led(), Some(2));
        let pods = [pod("old", 365, |_| {}), pod("older", 7200, |_| {})];
        let found = led.gated(&pods, HOME, &config, now()).unwrap();
        assert_eq!(
            found.text,
            "pod shop/older is gated beyond its limit, which was over at 2026-11-21T10:05:00Z; 2 such pods"
        );
        assert!(found.fix.unwrap().contains("logs -l app.kubernetes.io/name=edgeward"));
        // A class that may wait less.
        let latency = pod("latency", 100, |pod| {
            pod["metadata"]["annotations"]["slo.acme.dev/class"] = json!("latency")
        });
        assert!(gated(&[latency]).is_some());
        // For the gates of others however long.
        let others = |pod: &mut serde_json::Value| {
            let gates = pod["spec"]["schedulingGates"].as_array_mut().unwrap();
            gates.push(json!({"name": "other.example/gate"}));
        };
        assert_eq!(gated(&[pod("others", 7200, others)]), None);
        // What a tenant says of a time to come is not believed.
        let future = |pod: &mut serde_json::Value| {
            pod["metadata"]["annotations"]["scheduling.acme.dev/timestamp"] = json!("2027-01-01T00:00:00Z");
        };
        assert!(gated(&[pod("future", 7200, future)]).is_some());
    }
}
