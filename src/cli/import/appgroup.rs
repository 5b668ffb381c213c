//! AppGroups of kube-scheduler's network-aware plugins (Diktyo). They name workloads, and what each depends on.

use edgeward_decision::document::without_nulls;
use edgeward_decision::model::group::Within;
use edgeward_kube::units::Micros;
use serde_json::{Value, json};

use super::field::Field;
use super::part::{Part, Parts};
use crate::cli::findings::Findings;

const API: &str = "appgroup.diktyo.x-k8s.io/v1alpha1";

/// Kinds whose pod template a patch can change. All are of `apps/v1`.
const KINDS: [&str; 3] = ["Deployment", "ReplicaSet", "StatefulSet"];

const LARGEST_COST: u64 = 10_000;

/// Adds the workloads of AppGroups. Returns how many AppGroups are there.
pub(super) fn convert(documents: &[Value], parts: &mut Parts, findings: &mut Findings) -> usize {
    let mut read = 0;
    for document in documents {
        let field = Field::document(document);
        if document["apiVersion"] != API || document["kind"] != "AppGroup" {
            field.get("kind").lost("is not read", findings);
            continue;
        }
        read += 1;
        add_group(&field, parts, findings);
    }
    read
}

fn add_group(document: &Field<'_>, parts: &mut Parts, findings: &mut Findings) {
    let (metadata, spec) = (document.get("metadata"), document.get("spec"));
    // The number of members and the sorting order the queue of kube-scheduler. They ask nothing of the places.
    spec.report_unknown("numMembers topologySortingAlgorithm workloads", findings);
    let name = metadata.get("name");
    let Some(group) = name.required(findings).and_then(|text| name.label(&text, findings)) else {
        return;
    };
    let namespace = metadata.get("namespace").text(findings);
    let mut added = vec![];
    for workload in spec.get("workloads").items(findings) {
        workload.report_unknown("workload dependencies", findings);
        if let Some(part) = part(&workload.get("workload"), &group, namespace.as_ref(), findings)
            && let Some(at) = parts.add(part, findings)
        {
            added.push((at, workload));
        }
    }
    for (from, workload) in added {
        for dependency in workload.get("dependencies").items(findings) {
            connect(from, &dependency, namespace.as_ref(), parts, findings);
        }
    }
}

/// The workload, with its patch.
fn part(workload: &Field<'_>, group: &str, of_group: Option<&String>, findings: &mut Findings) -> Option<Part> {
    report_unknown(workload, findings);
    let (api, kind) = (workload.get("apiVersion"), workload.get("kind"));
    if api.text(findings).is_some_and(|api| api != "apps/v1") {
        api.lost("is not apps/v1", findings);
        return None;
    }
    let text = kind.required(findings)?;
    if !KINDS.contains(&text.as_str()) {
        kind.lost(&format!("is none of {}", KINDS.join(", ")), findings);
        return None;
    }
    let name = workload.get("name").required(findings)?;
    let selector = workload.get("selector");
    let component = selector.label(&selector.required(findings)?, findings)?;
    let namespace = workload.get("namespace").text(findings).or_else(|| of_group.cloned());
    let mut part = Part::new(workload, namespace.clone(), group.to_owned(), component);
    part.manifest = json!({
        "apiVersion": "apps/v1",
        "kind": text,
        "metadata": without_nulls(json!({"name": name, "namespace": namespace})),
        "spec": {"template": {"metadata": {}}},
    });
    Some(part)
}

fn report_unknown(workload: &Field<'_>, findings: &mut Findings) {
    workload.report_unknown("kind name selector apiVersion namespace", findings);
}

/// Reads a dependency of a workload.
fn connect(from: usize, dependency: &Field<'_>, of_group: Option<&String>, parts: &mut Parts, findings: &mut Findings) {
    dependency.report_unknown("workload minBandwidth maxNetworkCost", findings);
    let other = dependency.get("workload");
    report_unknown(&other, findings);
    let selector = other.get("selector");
    let Some(text) = selector.required(findings) else {
        return;
    };
    let Some(to) = parts.find(from, &text, &selector, findings) else {
        return;
    };
    let namespace = other.get("namespace");
    if namespace.text(findings).as_ref().or(of_group) != parts.namespace(from) {
        namespace.lost("is another namespace, which near does not reach", findings);
        return;
    }
    let bandwidth = dependency.get("minBandwidth");
    if let Some(bits) = bandwidth.bandwidth(findings) {
        parts.add_traffic(from, to, bits);
    }
    if let Some(within) = limit(&dependency.get("maxNetworkCost"), parts.component(to), findings) {
        parts.limit(from, to, false, within);
    }
}

/// The limit that a cost would be. It is one only if the costs of the NetworkTopology are RTTs in milliseconds.
fn limit(cost: &Field<'_>, component: &str, findings: &mut Findings) -> Option<Within> {
    let ms = match cost.value {
        Value::Null => return None,
        value => value.as_u64().filter(|cost| *cost <= LARGEST_COST),
    };
    let Some(ms) = ms else {
        cost.lost("is not a whole number from 0 to 10000", findings);
        return None;
    };
    let (within, limit) = match ms {
        0 => (Within::Site, "site".to_owned()),
        ms => (Within::Rtt(Micros::from_millis(ms)), format!("{ms}ms")),
    };
    let fault = format!("is a cost without a unit: --fix writes near {component}={limit}, as if it were an RTT in ms");
    cost.fixable(&fault, findings).then_some(within)
}
