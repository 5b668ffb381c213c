//! Checks that a replica leads, and that no pod is gated past its limit.

use edgeward_cluster::pod_record::GatedPod;
use jiff::SignedDuration;

use super::Facts;
use super::finding::Finding;
use crate::cli::installed::{LEASE, domain_option};

const AREA: &str = "leader";

/// How long a pod may stay gated after its limit. A refused release is retried within this time.
const RETRY: SignedDuration = SignedDuration::from_mins(1);

/// Checks that a replica leads. If edgeward is not installed, there is no Lease and no leader is expected.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let home = &facts.home;
    let leaderless = match &facts.lead {
        Some(Ok(holder)) => return vec![Finding::ok(AREA, format!("{holder} holds the Lease {home}/{LEASE}"))],
        Some(Err(leaderless)) if leaderless.since.is_some() || facts.is_installed => leaderless,
        _ => return vec![],
    };
    let text = format!("{leaderless}: gated pods are not released, and no Event reports a decision");
    vec![Finding::fault(AREA, text).fix(lead(facts))]
}

/// Reports the pods that should have been released.
pub(super) fn gated(facts: &Facts) -> Vec<Finding> {
    let Facts { now, home, .. } = facts;
    let config = &facts.found.config;
    let pods = facts.view.iter().flat_map(|view| &view.gated);
    let limits = pods.filter_map(|pod| Some((pod.limit(config, *now)?, pod)));
    let overdue: Vec<_> = limits.filter(|(limit, _)| now.duration_since(*limit) > RETRY).collect();
    let Some((limit, oldest)) = overdue.iter().min_by_key(|(limit, _)| *limit) else {
        return vec![];
    };
    let (GatedPod { namespace, name, .. }, many) = (&***oldest, overdue.len());
    let text =
        format!("pod {namespace}/{name} is gated beyond its limit, which was over at {limit:.0}; {many} such pods");
    let fix = match facts.lead {
        Some(Ok(_)) => format!(
            "kubectl -n {home} logs -l app.kubernetes.io/name=edgeward --prefix --tail=-1 | grep 'gated pod'   # what \
             hinders the leader"
        ),
        _ => lead(facts),
    };
    vec![Finding::fault(AREA, text).fix(fix)]
}

/// Returns how to get a leader, and the way out without one.
fn lead(facts: &Facts) -> String {
    let domain = domain_option(&facts.found.config.keys.domain);
    format!(
        "{}; one that is ready leads within 15 s. `edgeward release --all{domain}` releases gated pods without a leader",
        see_replicas(&facts.home)
    )
}

/// Returns the command that shows why no replica is ready.
pub(super) fn see_replicas(namespace: &str) -> String {
    format!("kubectl -n {namespace} get deployments,pods   # scale up, or repair, what should be ready")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::Timestamp;
    use serde_json::json;

    use super::super::finding::Level;
    use super::*;
    use crate::inspect::View;
    use crate::inspect::installation::Leaderless;
    use edgeward_cluster::testkit;
    use edgeward_decision::keys::Keys;

    fn now() -> Timestamp {
        Facts::example().now
    }

    fn facts(since: Option<Timestamp>) -> Facts {
        let leaderless = Leaderless {
            lease: "edgeward-system/edgeward".to_owned(),
            since,
        };
        Facts {
            lead: Some(Err(leaderless)),
            ..Facts::example()
        }
    }

    fn led() -> Facts {
        Facts {
            lead: Some(Ok("a_1".to_owned())),
            ..Facts::example()
        }
    }

    fn an_hour_ago() -> Option<Timestamp> {
        Some(now() + SignedDuration::from_millis(-3_600_123))
    }

    #[test]
    fn missing_leader_is_a_fault() {
        let judged = |facts: &Facts| {
            let found = judge(facts).pop().unwrap();
            (found.level, found.text, found.fix.unwrap_or_default())
        };
        let (level, text, _) = judged(&led());
        assert_eq!(
            (level, &*text),
            (Level::Ok, "a_1 holds the Lease edgeward-system/edgeward")
        );
        let nobody = "gated pods are not released, and no Event reports a decision";
        let since =
            format!("no replica leads by the Lease edgeward-system/edgeward, since 2026-11-21T10:59:59Z: {nobody}");
        let fix = "kubectl -n edgeward-system get deployments,pods   # scale up, or repair, what should be ready; one that \
                   is ready leads within 15 s. `edgeward release --all` releases gated pods without a leader";
        assert_eq!(judged(&facts(an_hour_ago())), (Level::Fault, since, fix.to_owned()));
        let (level, text, _) = judged(&facts(None));
        assert_eq!(level, Level::Fault);
        assert_eq!(
            text,
            format!("no replica leads: there is no Lease edgeward-system/edgeward: {nobody}")
        );
        // A missing installation is reported elsewhere, and only once.
        let nothing = Facts {
            is_installed: false,
            ..facts(None)
        };
        assert_eq!(judge(&nothing), []);
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
        testkit::record(&pod, &Keys::new("acme.dev")).gated_pod.unwrap()
    }

    #[test]
    fn pod_gated_beyond_its_limit_is_a_fault() {
        let gated = |mut facts: Facts, pods: &[Arc<GatedPod>]| {
            facts.found.config.keys = Keys::new("acme.dev");
            facts.view = Some(View {
                gated: pods.to_vec(),
                ..View::default()
            });
            super::gated(&facts).pop()
        };
        let leaderless = |pods: &[Arc<GatedPod>]| gated(facts(an_hour_ago()), pods);
        // Class batch has a limit of 300 s; the rest is time for a retry.
        let young = || pod("young", 355, |_| {});
        assert_eq!(leaderless(&[]), None);
        assert_eq!(leaderless(&[young()]), None);
        let found = leaderless(&[young(), pod("old", 365, |_| {})]).unwrap();
        assert_eq!(found.level, Level::Fault);
        assert_eq!(
            found.text,
            "pod shop/old is gated beyond its limit, which was over at 2026-11-21T11:58:55Z; 1 such pods"
        );
        let fix = found.fix.unwrap();
        assert!(
            fix.contains("`edgeward release --all --domain=acme.dev` releases"),
            "{fix}"
        );
        let pods = [pod("old", 365, |_| {}), pod("older", 7200, |_| {})];
        let found = gated(led(), &pods).unwrap();
        assert_eq!(
            found.text,
            "pod shop/older is gated beyond its limit, which was over at 2026-11-21T10:05:00Z; 2 such pods"
        );
        assert!(found.fix.unwrap().contains("logs -l app.kubernetes.io/name=edgeward"));
        // A class with a shorter limit.
        let latency = pod("latency", 100, |pod| {
            pod["metadata"]["annotations"]["slo.acme.dev/class"] = json!("latency")
        });
        assert!(leaderless(&[latency]).is_some());
        // A pod that other gates hold is never overdue.
        let others = |pod: &mut serde_json::Value| {
            let gates = pod["spec"]["schedulingGates"].as_array_mut().unwrap();
            gates.push(json!({"name": "other.example/gate"}));
        };
        assert_eq!(leaderless(&[pod("others", 7200, others)]), None);
        // A timestamp in the future, which a tenant can write, is not believed.
        let future = |pod: &mut serde_json::Value| {
            pod["metadata"]["annotations"]["scheduling.acme.dev/timestamp"] = json!("2027-01-01T00:00:00Z");
        };
        assert!(leaderless(&[pod("future", 7200, future)]).is_some());
    }
}
