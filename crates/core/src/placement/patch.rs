//! Verdict and pod to JSONPatch.
//!
//! For a pod that arrives only `add` operations, whose parents exist or are created first: a patch that does not apply
//! rejects the pod even under `failurePolicy: Ignore`. The pod is never re-serialised, so fields unknown to us survive.

mod release;

pub use release::{release, remove_gate, update_reason};

use std::borrow::Cow;
use std::sync::Arc;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation};
use serde_json::{Map, Value, json};

use crate::config::Config;
use crate::model::constraints::Toleration;
use crate::model::site::SiteKind;
use crate::model::snapshot::Site;
use crate::placement::explain::explain;
use crate::placement::verdict::{Action, Reason, Verdict};
use crate::wire::pod::{Pod, StringMap};

/// What identifies one decision: when it was made, and its random id.
#[derive(Debug, Clone)]
pub struct Stamp {
    /// Wall-clock time.
    pub at: jiff::Timestamp,
    /// Unique among decisions.
    pub id: String,
}

/// The most bytes that all keys and values of a pod's annotations may take; with more the API server refuses the pod.
/// Source: `apimachinery/pkg/api/validation.TotalAnnotationSizeLimitB`.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// How long a gate we wrote is recognised as our own.
const RECENT: jiff::SignedDuration = jiff::SignedDuration::from_secs(30);

/// The annotation by which a ReplicaSet chooses whom to delete first.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Its value on a pod in a cloud: a ReplicaSet deletes pods of a lower cost first, and others have 0.
const CLOUD_DELETION_COST: &str = "-100";

/// The operations that write the verdict on the pod. A placement: the site's selector, tolerations and RuntimeClass and
/// the label of placed pods where they are missing, and our annotations, over whatever stood there under our keys. A
/// hold: our gate, and since when and why. Either: the SLO that the pod has inherited. Empty for a pod that already
/// carries all of it, and for any other verdict. Where the pod's own annotations leave no room for ours, the
/// explanation is left out, then all of them but the sites and traits of a policy: the placement counts.
pub fn patch(pod: &Pod<'_>, verdict: &Verdict<'_>, config: &Config, stamp: &Stamp) -> Vec<PatchOperation> {
    let explanation = explain(verdict, config.explain);
    let mut wanted = match verdict.action {
        Action::Place(site) => annotations(pod, verdict, site, config, stamp, explanation),
        Action::Gate if is_gated(pod, config, stamp) => return Vec::new(),
        Action::Gate => gated(verdict, config, stamp, explanation),
        Action::PassThrough | Action::Deny => return Vec::new(),
    };
    let mut operations = Vec::new();
    let inherited = pod.inherited().iter();
    wanted.extend(inherited.map(|(key, value)| (&**key, Cow::Borrowed(&**value))));
    if !fit(pod, &wanted, config) {
        wanted.retain(|(key, _)| *key != config.keys.explain);
    }
    if !fit(pod, &wanted, config) {
        // Better refused than gated without the sites and traits of its policy.
        wanted.retain(|(key, _)| config.keys.is_of_policy(key));
    }
    annotate(pod, wanted, config, &mut operations);
    match verdict.site() {
        Some(site) => {
            select(pod, site, &verdict.trait_labels, &mut operations);
            exclude(pod, site, &mut operations);
            tolerate(pod, site, &mut operations);
            classify(pod, site, config, &mut operations);
            label(pod, config, &mut operations);
        }
        None => gate(pod, config, &mut operations),
    }
    operations
}

fn add<const N: usize>(operations: &mut Vec<PatchOperation>, path: [&str; N], value: Value) {
    let path = PointerBuf::from_tokens(path);
    operations.push(PatchOperation::Add(AddOperation { path, value }));
}

/// Annotations that are to be written.
type Wanted<'a> = Vec<(&'a str, Cow<'a, str>)>;

/// Whether the pod may carry these annotations beside its own.
fn fit(pod: &Pod<'_>, wanted: &Wanted<'_>, config: &Config) -> bool {
    let own = pod.annotations().into_iter().flat_map(StringMap::iter);
    let own = own.filter(|(key, _)| !config.keys.written().contains(key));
    let own: usize = own.map(|(key, value)| key.len() + value.len()).sum();
    let ours: usize = wanted.iter().map(|(key, value)| key.len() + value.len()).sum();
    own + ours <= ANNOTATIONS_LIMIT
}

fn annotations<'a>(
    pod: &Pod<'_>,
    verdict: &'a Verdict<'_>,
    site: &'a Site,
    config: &'a Config,
    stamp: &'a Stamp,
    explanation: Option<String>,
) -> Wanted<'a> {
    let keys = &config.keys;
    let always = [
        (&*keys.decision, site.kind().as_str().into()),
        (&keys.site, site.name().into()),
        (&keys.reason, verdict.reason.as_str().into()),
        (&keys.timestamp, time(stamp).into()),
        (&keys.decision_id, stamp.id.as_str().into()),
    ];
    let states_cost = site.kind() == SiteKind::Cloud && pod.annotation(DELETION_COST).is_none();
    let optional = [
        (&*keys.wan_rtt_ms, verdict.rtt.map(|rtt| rtt.to_string())),
        (&keys.explain, explanation),
        (DELETION_COST, states_cost.then(|| CLOUD_DELETION_COST.to_owned())),
    ];
    let optional = optional.into_iter();
    let optional = optional.filter_map(|(key, value)| Some((key, value?.into())));
    always.into_iter().chain(optional).collect()
}

/// Whether the pod carries a gate of ours, made a moment ago: it is under review again.
fn is_gated(pod: &Pod<'_>, config: &Config, stamp: &Stamp) -> bool {
    let keys = &config.keys;
    let is_recent = |text: &str| {
        let at: Result<jiff::Timestamp, _> = text.parse();
        at.is_ok_and(|at| stamp.at.duration_since(at).abs() <= RECENT)
    };
    let is_reason = |text: &str| {
        Reason::ALL
            .iter()
            .any(|reason| reason.is_gate() && reason.as_str() == text)
    };
    let of_placements = [&keys.decision, &keys.site, &keys.decision_id];
    pod.gate(&keys.gate).is_some()
        && pod.annotation(&keys.timestamp).is_some_and(is_recent)
        && pod.annotation(&keys.reason).is_some_and(is_reason)
        && of_placements.iter().all(|key| pod.annotation(key).is_none())
}

/// Since when and why a pod is gated.
fn gated<'a>(verdict: &Verdict<'_>, config: &'a Config, stamp: &Stamp, explanation: Option<String>) -> Wanted<'a> {
    let keys = &config.keys;
    let always = [
        (&*keys.reason, verdict.reason.as_str().into()),
        (&keys.timestamp, time(stamp).into()),
    ];
    let explanation = explanation.map(|text| (&*keys.explain, text.into()));
    always.into_iter().chain(explanation).collect()
}

/// RFC 3339, to the second.
fn time(stamp: &Stamp) -> String {
    stamp.at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Writes `wanted`. A key of ours that the pod brought along and this decision does not write must go: then the map
/// is added again as a whole, since a `remove` is not in our vocabulary.
fn annotate(pod: &Pod<'_>, wanted: Wanted<'_>, config: &Config, operations: &mut Vec<PatchOperation>) {
    let parents = pod.parents();
    let map = |pairs: Wanted<'_>| -> Map<String, Value> {
        let pairs = pairs.into_iter();
        pairs.map(|(key, value)| (key.to_owned(), value.into())).collect()
    };
    let Some(found) = parents.annotations else {
        if wanted.is_empty() {
            return;
        }
        if parents.metadata {
            add(operations, ["metadata", "annotations"], map(wanted).into());
        } else {
            add(operations, ["metadata"], json!({ "annotations": map(wanted) }));
        }
        return;
    };
    let is_wanted = |key: &str| wanted.iter().any(|(k, _)| *k == key);
    let stale = config
        .keys
        .written()
        .into_iter()
        .any(|key| found.get(key).is_some() && !is_wanted(key));
    if stale {
        let kept = found.iter().filter(|(key, _)| !config.keys.written().contains(key));
        let mut all: Map<_, _> = kept.map(|(key, value)| (key.to_owned(), Value::from(value))).collect();
        all.append(&mut map(wanted));
        add(operations, ["metadata", "annotations"], all.into());
        return;
    }
    for (key, value) in wanted {
        if found.get(key) != Some(&*value) {
            add(operations, ["metadata", "annotations", key], value.into());
        }
    }
}

fn select(pod: &Pod<'_>, site: &Site, trait_labels: &[Box<str>], operations: &mut Vec<PatchOperation>) {
    let of_traits = trait_labels.iter().map(|label| (&**label, "true"));
    let selector = site.definition.selector().chain(of_traits);
    let Some(found) = pod.parents().node_selector else {
        let selector: Map<_, _> = selector
            .map(|(key, value)| (key.to_owned(), Value::from(value)))
            .collect();
        add(operations, ["spec", "nodeSelector"], selector.into());
        return;
    };
    for (key, value) in selector.filter(|(key, _)| found.get(key).is_none()) {
        add(operations, ["spec", "nodeSelector", key], value.into());
    }
}

/// Keeps the pod from nodes that carry the edge's selector and are not of the edge: each term of its required node affinity excludes
/// them by name. A term that requires nothing allows no node, and is left alone. The affinity is added again as a whole, with every
/// field that it has.
fn exclude(pod: &Pod<'_>, site: &Site, operations: &mut Vec<PatchOperation>) {
    let other_than = |name: &Arc<str>| json!({"key": "metadata.name", "operator": "NotIn", "values": [&**name]});
    let excluded: Vec<Value> = site.foreign.iter().take(MAX_EXCLUDED).map(other_than).collect();
    if excluded.is_empty() {
        return;
    }
    let Some(before) = pod.affinity() else { return };
    let mut affinity = before.clone();
    let required = child(&mut affinity, "nodeAffinity").and_then(|of_nodes| child(of_nodes, REQUIRED));
    let Some(required) = required else { return };
    if required.is_null() {
        *required = json!({"nodeSelectorTerms": [{"matchFields": excluded}]});
    } else {
        let terms = required.get_mut("nodeSelectorTerms").and_then(Value::as_array_mut);
        for term in terms.into_iter().flatten() {
            let is_empty = |field: &str| term[field].as_array().is_none_or(Vec::is_empty);
            if is_empty("matchExpressions") && is_empty("matchFields") {
                continue;
            }
            let own = term["matchFields"].as_array().cloned().unwrap_or_default();
            let missing = excluded.iter().filter(|one| !own.contains(one));
            term["matchFields"] = own.iter().chain(missing).cloned().collect();
        }
    }
    if affinity != before {
        add(operations, ["spec", "affinity"], affinity);
    }
}

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

/// The most nodes that a pod is kept from.
const MAX_EXCLUDED: usize = 64;

/// A field of an object, which is made if it is missing; `None` of what is no object.
fn child<'v>(value: &'v mut Value, field: &str) -> Option<&'v mut Value> {
    if value.is_null() {
        *value = json!({});
    }
    Some(value.as_object_mut()?.entry(field).or_insert(Value::Null))
}

fn tolerate(pod: &Pod<'_>, site: &Site, operations: &mut Vec<PatchOperation>) {
    let missing = |wanted: &&Toleration<'_>| !pod.tolerations().any(|toleration| toleration.covers(wanted));
    let missing: Vec<Value> = site
        .definition
        .tolerations
        .iter()
        .filter(missing)
        .map(|wanted| json!(wanted))
        .collect();
    if missing.is_empty() {
        return;
    }
    if !pod.parents().tolerations {
        add(operations, ["spec", "tolerations"], missing.into());
        return;
    }
    for toleration in missing {
        add(operations, ["spec", "tolerations", "-"], toleration);
    }
}

/// Adds the site's RuntimeClass. The API server takes none for a pod that exists, as one with our gate does.
fn classify(pod: &Pod<'_>, site: &Site, config: &Config, operations: &mut Vec<PatchOperation>) {
    let is_missing = !pod.parents().runtime_class && pod.gate(&config.keys.gate).is_none();
    if let Some(class) = site.definition.runtime_class.as_deref().filter(|_| is_missing) {
        add(operations, ["spec", "runtimeClassName"], class.into());
    }
}

/// Labels a pod that is placed. Whatever the pod brings along under this key stays: its controller may select by it.
fn label(pod: &Pod<'_>, config: &Config, operations: &mut Vec<PatchOperation>) {
    let key = &config.keys.placed;
    match pod.parents().labels {
        None => add(operations, ["metadata", "labels"], json!({key: "true"})),
        Some(found) if found.get(key).is_none() => {
            add(operations, ["metadata", "labels", key], "true".into());
        }
        Some(_) => {}
    }
}

fn gate(pod: &Pod<'_>, config: &Config, operations: &mut Vec<PatchOperation>) {
    let gate = json!({"name": config.keys.gate});
    if pod.gate(&config.keys.gate).is_some() {
        return;
    }
    match pod.parents().scheduling_gates {
        true => add(operations, ["spec", "schedulingGates", "-"], gate),
        false => add(operations, ["spec", "schedulingGates"], json!([gate])),
    }
}

#[cfg(test)]
mod tests;
