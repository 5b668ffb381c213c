//! Tests of the decision, by its steps.

mod account;
mod apart;
mod bandwidth;
mod candidates;
mod capacity;
mod data;
pub(in crate::placement) mod decisions;
mod gating;
mod groups;
mod headroom;
mod learned;
mod liqo;
mod near;
mod profiles;
mod properties;
mod reports;
mod scheduling;
mod sites;
mod time;
mod traits;

use serde_json::{Value, json};

use super::*;
use crate::config::Gating;
use crate::model::site::SiteKind;
use crate::placement::verdict::RefusalCode;
use crate::pod::Pod;
use crate::testkit;
use crate::testkit::NOW;
pub(in crate::placement) use crate::testkit::with;
use edgeward_kube::units::Micros;

/// Site and reason of a decision, or only the reason if the pod is not placed.
fn outcome(fleet: &Value, pod: &Value) -> String {
    outcome_with(fleet, pod, &ungated())
}

/// A configuration that places pods which would otherwise be gated.
fn ungated() -> Config {
    Config {
        gating: Gating::never(),
        ..Config::default()
    }
}

fn outcome_with(fleet: &Value, pod: &Value, config: &Config) -> String {
    with_verdict(fleet, pod, config, |verdict| match verdict.site() {
        Some(site) => format!("{}: {}", site.name(), verdict.reason.as_str()),
        None => verdict.reason.as_str().to_owned(),
    })
}

fn workload(pod: &Value) -> Workload<'static> {
    testkit::workload(pod, &Config::default().keys)
}

fn warnings(fleet: &Value, pod: &Value) -> Vec<String> {
    with_verdict(fleet, pod, &ungated(), |verdict| verdict.warnings.clone())
}

fn with_verdict<T>(fleet: &Value, pod: &Value, config: &Config, read: impl FnOnce(&Verdict<'_>) -> T) -> T {
    let snapshot = testkit::snapshot(fleet);
    let text = pod.to_string();
    let pod = Pod::from_json(&text).unwrap();
    let workload = pod.workload("shop".into(), &config.keys);
    read(&decide(&workload, &Room::of(&snapshot), config, NOW))
}

/// An edge node of 4 cores with `used` millicores taken, and a cloud node of 64 cores behind a WAN of 25 ms.
pub(in crate::placement) fn fleet(used_millicores: u32) -> Value {
    json!({
        "sites": [
            {"name": "edge", "kind": "edge"},
            {"name": "cloud", "kind": "cloud", "wan": {"rttMs": 25, "lossPct": 0.1}},
        ],
        "nodes": [
            {"name": "e1", "labels": {"node.role/edge": "true", "disk": "ssd"},
             "allocatable": {"cpu": "4", "memory": "8Gi", "pods": 110},
             "used": {"cpu": format!("{used_millicores}m"), "pods": 5}},
            {"name": "c1", "labels": {"node.role/cloud": "true"},
             "taints": [{"key": "cloud", "value": "cloud", "effect": "NoSchedule"}],
             "allocatable": {"cpu": "64", "memory": "256Gi", "pods": 500}},
        ],
    })
}

/// A pod of class latency that requests 500 m. The model estimates 270 ms at the edge and 320 ms in the cloud behind 25 ms.
pub(in crate::placement) fn pod(slo: Value) -> Value {
    let mut annotations = json!({"slo.example.io/class": "latency"});
    for (name, value) in slo.as_object().unwrap() {
        annotations[format!("slo.example.io/{name}")] = value.clone();
    }
    json!({
        "metadata": {"name": "web", "annotations": annotations},
        "spec": {"containers": [{"resources": {"requests": {"cpu": "500m", "memory": "256Mi"}}}]},
    })
}

/// The edge, and two clouds whose nodes share the label `any: cloud`.
pub(in crate::placement) fn two_clouds() -> Value {
    let cloud = |name: &str, rtt: u32| json!({"name": name, "kind": "cloud", "nodeSelector": {"c": name}, "wan": {"rttMs": rtt, "lossPct": 0}});
    let node = |name: &str| json!({"name": name, "labels": {"c": name, "any": "cloud"}, "taints": [{"key": "cloud", "value": "cloud", "effect": "NoSchedule"}], "allocatable": {"cpu": 9, "memory": "9Gi", "pods": 9}});
    json!({
        "sites": [{"name": "edge", "kind": "edge"}, cloud("far", 80), cloud("near", 20)],
        "nodes": [fleet(0)["nodes"][0], node("far"), node("near")],
    })
}
