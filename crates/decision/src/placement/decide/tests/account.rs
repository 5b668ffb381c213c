//! The explanation of a verdict.

use serde_json::{Value, json};

use super::*;
use crate::placement::explain;

#[test]
fn known_rtt_is_on_every_cloud_decision() {
    let rtt = |wan: Value, selector: &str| {
        let pinned = with(pod(json!({})), "/spec/nodeSelector", json!({selector: "true"}));
        let fleet = with(fleet(0), "/sites/1/wan", wan);
        with_verdict(&fleet, &pinned, &Config::default(), |verdict| {
            verdict.rtt.map(|rtt| rtt.to_string())
        })
    };
    let stale = json!({"rttMs": 31, "ageSeconds": 999});
    assert_eq!(rtt(stale.clone(), "node.role/cloud").as_deref(), Some("31"));
    assert_eq!(
        rtt(json!({"reachable": false, "rttMs": 31}), "node.role/cloud").as_deref(),
        Some("31")
    );
    assert_eq!(rtt(json!(null), "node.role/cloud"), None);
    assert_eq!(rtt(stale, "node.role/edge"), None);
}

#[test]
fn short_explanation_names_no_node() {
    let short = |fleet: &Value| {
        with_verdict(fleet, &pod(json!({})), &Config::default(), |verdict| {
            explain::explain(verdict, crate::config::Explain::Short).unwrap()
        })
    };
    assert_eq!(
        short(&fleet(4000)),
        r#"{"cloud":{"eta":320,"fit":1},"edge":{"eta":270,"fit":0,"no":["no_room"]}}"#
    );
}
