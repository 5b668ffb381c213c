//! Pods that kube-scheduler is placing.

use super::*;

/// The site of a pod that tolerates the cloud or not, to which kube-scheduler offers no node of these sites.
fn site(fleet: &Value, tolerates: bool, not_offered: &[&str]) -> Option<String> {
    let tolerations = if tolerates {
        json!([{"key": "cloud", "operator": "Exists"}])
    } else {
        json!([])
    };
    let workload = Workload {
        unpatchable: true,
        ..workload(&with(pod(json!({})), "/spec/tolerations", tolerations))
    };
    let snapshot = testkit::snapshot(fleet);
    let room = Room::of(&snapshot).without_offer(not_offered);
    let verdict = decide(&workload, &room, &ungated(), NOW);
    verdict.site().map(|site| site.name().to_owned())
}

#[test]
fn scheduled_pod_must_tolerate_the_cloud_itself() {
    assert_eq!(site(&fleet(4_000), true, &[]).as_deref(), Some("cloud"));
    assert_eq!(site(&fleet(4_000), false, &[]).as_deref(), Some("edge"));
}

#[test]
fn site_that_kube_scheduler_does_not_offer_is_full() {
    assert_eq!(site(&fleet(0), true, &["edge"]).as_deref(), Some("cloud"));
    assert_eq!(site(&fleet(0), true, &["edge", "cloud"]).as_deref(), Some("edge"));
    assert_eq!(site(&fleet(0), false, &["edge"]).as_deref(), Some("edge"));
}

#[test]
fn site_where_placeholders_give_way_need_not_be_offered() {
    assert_eq!(
        site(&headroom::kept_warm(1_000, -10, 0), true, &["edge"]).as_deref(),
        Some("edge")
    );
}
