//! Turns a verdict about a pod into a JSONPatch.
//!
//! A new pod gets only `add` operations, whose parents exist or are created first. A patch that does not apply would reject
//! the pod even under `failurePolicy: Ignore`. The pod is never re-serialised, so unknown fields survive.
//!
//! A patch of a gated pod first tests the pod's resourceVersion, so it never overwrites a later change.

use std::borrow::Cow;
use std::sync::Arc;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, RemoveOperation, TestOperation};
use serde_json::{Map, Value, json};

use crate::config::Config;
use crate::keys::Keys;
use crate::model::site::SiteKind;
use crate::model::snapshot::Site;
use crate::placement::explain::explain;
use crate::placement::verdict::{Action, Assessment, Reason, Verdict};
use crate::pod::Pod;
use edgeward_kube::constraints::{Taint, Toleration};
use edgeward_kube::pod::StringMap;

/// Identifies one decision by its time and its random id.
#[derive(Debug, Clone)]
pub struct Stamp {
    /// Wall-clock time.
    pub at: jiff::Timestamp,
    /// Unique among decisions.
    pub id: String,
}

/// The most bytes in all keys and values of a pod's annotations; the API server refuses a pod with more. Source:
/// `apimachinery/pkg/api/validation.TotalAnnotationSizeLimitB`.
const ANNOTATIONS_LIMIT: usize = 256 * 1024;

/// How long after its timestamp a gate counts as edgeward's own when a pod is reviewed again.
const RECENT: jiff::SignedDuration = jiff::SignedDuration::from_secs(30);

/// The annotation by which a ReplicaSet chooses the pods to delete first.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// The deletion cost of a pod in a cloud. A ReplicaSet deletes pods with a lower cost first, and the default is 0.
const CLOUD_DELETION_COST: &str = "-100";

/// The operations that write the verdict on the pod. Empty for a verdict that writes nothing, and for a pod that already
/// carries all of it.
///
/// A placement adds the site's selector, tolerations and RuntimeClass, and the label of placed pods, each only if it is
/// missing. It replaces existing annotations under edgeward's keys. A gate adds the scheduling gate, its time and its
/// reason. Both add the SLO that the pod inherits from a policy.
///
/// If the pod's own annotations leave too little space, the explanation is dropped first. Then all other annotations are
/// dropped except the sites and traits of a policy, because the placement is more important.
pub fn patch(pod: &Pod<'_>, verdict: &Verdict<'_>, config: &Config, stamp: &Stamp) -> Vec<PatchOperation> {
    let writes_nothing = match verdict.action {
        Action::Place(_) => false,
        Action::Gate => is_gated(pod, config, stamp),
        Action::PassThrough | Action::Deny => true,
    };
    if writes_nothing {
        return Vec::new();
    }
    let mut wanted = annotations(pod, verdict, config, stamp);
    let mut operations = Vec::new();
    let inherited = pod.inherited().iter();
    wanted.extend(inherited.map(|(key, value)| (&**key, Cow::Borrowed(&**value))));
    if !fit(pod, &wanted, config) {
        wanted.retain(|(key, _)| *key != config.keys.explain);
    }
    if !fit(pod, &wanted, config) {
        // The pod must not be gated without the sites and traits of its policy, even if the API server refuses it.
        wanted.retain(|(key, _)| config.keys.is_of_policy(key));
    }
    annotate(pod, wanted, config, &mut operations);
    match verdict.site() {
        Some(site) => {
            select(pod, site, &verdict.trait_labels, &mut operations);
            exclude(pod, site, &mut operations);
            tolerate(pod, site, &mut operations);
            leave_sooner(pod, verdict, site, &mut operations);
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

/// Annotations to write, by key.
type Wanted<'a> = Vec<(&'a str, Cow<'a, str>)>;

/// Whether the API server's limit leaves space for these annotations on the pod.
fn fit(pod: &Pod<'_>, wanted: &Wanted<'_>, config: &Config) -> bool {
    let own = pod.annotations().into_iter().flat_map(StringMap::iter);
    let own = own.filter(|(key, _)| !config.keys.written().contains(key));
    let own: usize = own.map(|(key, value)| key.len() + value.len()).sum();
    let ours: usize = wanted.iter().map(|(key, value)| key.len() + value.len()).sum();
    own + ours <= ANNOTATIONS_LIMIT
}

/// The annotations of a placement, or those that say since when and why a pod is gated.
fn annotations<'a>(pod: &Pod<'_>, verdict: &'a Verdict<'_>, config: &'a Config, stamp: &'a Stamp) -> Wanted<'a> {
    let (keys, site) = (&config.keys, verdict.site());
    let is_cloud = site.is_some_and(|site| site.kind() == SiteKind::Cloud);
    let states_cost = is_cloud && pod.annotation(DELETION_COST).is_none();
    let rtt = verdict.rtt.filter(|_| site.is_some());
    let all: [(&str, Option<Cow<'_, str>>); 8] = [
        (&keys.decision, site.map(|site| site.kind().as_str().into())),
        (&keys.site, site.map(|site| site.name().into())),
        (&keys.reason, Some(verdict.reason.as_str().into())),
        (&keys.timestamp, Some(timestamp(stamp.at).into())),
        (&keys.decision_id, site.map(|_| stamp.id.as_str().into())),
        (&keys.wan_rtt_ms, rtt.map(|rtt| rtt.to_string().into())),
        (&keys.explain, explain(verdict, config.explain).map(Cow::from)),
        (DELETION_COST, states_cost.then(|| CLOUD_DELETION_COST.into())),
    ];
    all.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}

/// Whether the pod carries a recent gate of edgeward's, because it is reviewed again.
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

/// A time in RFC 3339, to the second.
pub fn timestamp(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Writes `wanted`. If the pod brought an annotation of edgeward's that this decision does not write, the whole map is
/// added again without it, because a new pod's patch contains no `remove`.
fn annotate(pod: &Pod<'_>, wanted: Wanted<'_>, config: &Config, operations: &mut Vec<PatchOperation>) {
    let (found, written) = (pod.annotations(), config.keys.written());
    let own = |key: &str| found.and_then(|found| found.get(key));
    let is_wanted = |key: &str| wanted.iter().any(|(wanted, _)| *wanted == key);
    let is_stale = written.iter().any(|key| own(key).is_some() && !is_wanted(key));
    if !is_stale && (found.is_some() || wanted.is_empty()) {
        for (key, value) in wanted {
            if own(key) != Some(&*value) {
                add(operations, ["metadata", "annotations", key], value.into());
            }
        }
        return;
    }
    let kept = found
        .into_iter()
        .flat_map(StringMap::iter)
        .filter(|(key, _)| !written.contains(key));
    let kept = kept.map(|(key, value)| (key, Cow::Borrowed(value)));
    let all = kept.chain(wanted).map(|(key, value)| (key.to_owned(), value.into()));
    let all: Map<String, Value> = all.collect();
    if pod.metadata.is_some() {
        add(operations, ["metadata", "annotations"], all.into());
    } else {
        add(operations, ["metadata"], json!({ "annotations": all }));
    }
}

fn select(pod: &Pod<'_>, site: &Site, trait_labels: &[Box<str>], operations: &mut Vec<PatchOperation>) {
    let of_traits = trait_labels.iter().map(|label| (&**label, "true"));
    let selector = site.definition.selector().chain(of_traits);
    add_missing(
        operations,
        ["spec", "nodeSelector"],
        pod.spec.constraints.node_selector.as_ref(),
        selector,
    );
}

/// Adds entries to a map of the pod. An entry that the pod has stays as it is.
fn add_missing<'p>(
    operations: &mut Vec<PatchOperation>,
    [parent, field]: [&str; 2],
    found: Option<&StringMap<'_>>,
    wanted: impl Iterator<Item = (&'p str, &'p str)>,
) {
    let Some(found) = found else {
        let all: Map<_, _> = wanted.map(|(key, value)| (key.to_owned(), value.into())).collect();
        add(operations, [parent, field], all.into());
        return;
    };
    for (key, value) in wanted.filter(|(key, _)| found.get(key).is_none()) {
        add(operations, [parent, field, key], value.into());
    }
}

/// Keeps the pod off nodes that carry the site's selector but belong elsewhere: each term of its required node affinity
/// excludes them by name. A term without requirements matches no node and stays as it is. The affinity is replaced as a
/// whole, with all its fields.
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

/// The most nodes that a placement excludes.
const MAX_EXCLUDED: usize = 64;

/// A field of an object, created if it is missing; `None` if `value` is not an object. A null `value` becomes an object.
fn child<'v>(value: &'v mut Value, field: &str) -> Option<&'v mut Value> {
    if value.is_null() {
        *value = json!({});
    }
    Some(value.as_object_mut()?.entry(field).or_insert(Value::Null))
}

fn tolerate(pod: &Pod<'_>, site: &Site, operations: &mut Vec<PatchOperation>) {
    let is_missing = |wanted: &&Toleration| !pod.tolerations().any(|toleration| toleration.covers(wanted));
    let missing = site.definition.tolerations.iter().filter(is_missing);
    let missing = missing.map(|wanted| json!(wanted)).collect();
    append(
        operations,
        ["spec", "tolerations"],
        pod.spec.tolerations.is_some(),
        missing,
    );
}

/// The taints of a node that is lost, which evict its pods.
const LOST: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// How long a pod stays on such a node if it does not say so itself. Source: the admission plugin DefaultTolerationSeconds, which
/// runs before webhooks.
const DEFAULT_SECONDS: i64 = 300;

/// Shortens the pod's time on a lost node of the site: of the tolerations that match a taint, the first counts. Does nothing if the
/// pod could run nowhere else, if no new pod would take its place or that pod would need its data or its identity, or if its own
/// time is not the default.
fn leave_sooner(pod: &Pod<'_>, verdict: &Verdict<'_>, site: &Site, operations: &mut Vec<PatchOperation>) {
    let Some(seconds) = site.definition.unreachable_seconds else {
        return;
    };
    let has_default = |key: &&str| {
        let lost = Taint {
            key: (*key).into(),
            value: "".into(),
            effect: "NoExecute".into(),
        };
        let mut own = pod.tolerations().filter(|own| own.tolerates(&lost)).peekable();
        own.peek().is_some() && own.all(|own| own.seconds == Some(DEFAULT_SECONDS))
    };
    let is_elsewhere = |other: &Assessment<'_>| other.is_possible() && other.site.name() != site.name();
    let is_replaceable = pod.controller_kind().is_some_and(|kind| kind != "StatefulSet") && !pod.has_volume_claims();
    if is_replaceable && verdict.sites.iter().any(is_elsewhere) && LOST.iter().all(has_default) {
        for key in LOST {
            let toleration =
                json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
            add(operations, ["spec", "tolerations", "0"], toleration);
        }
    }
}

/// Appends items to a list of the pod, which may not exist yet.
fn append(operations: &mut Vec<PatchOperation>, [parent, field]: [&str; 2], exists: bool, items: Vec<Value>) {
    if exists {
        for item in items {
            add(operations, [parent, field, "-"], item);
        }
    } else if !items.is_empty() {
        add(operations, [parent, field], items.into());
    }
}

/// Adds the site's RuntimeClass. A gated pod gets none, because the API server accepts it only at creation.
fn classify(pod: &Pod<'_>, site: &Site, config: &Config, operations: &mut Vec<PatchOperation>) {
    let is_missing = !pod.spec.names_runtime_class() && pod.gate(&config.keys.gate).is_none();
    if let Some(class) = site.definition.runtime_class.as_deref().filter(|_| is_missing) {
        add(operations, ["spec", "runtimeClassName"], class.into());
    }
}

/// Labels a placed pod. An existing value of this label stays, because the pod's controller may select by it.
fn label(pod: &Pod<'_>, config: &Config, operations: &mut Vec<PatchOperation>) {
    let placed = [(&*config.keys.placed, "true")].into_iter();
    add_missing(operations, ["metadata", "labels"], pod.label_map(), placed);
}

fn gate(pod: &Pod<'_>, config: &Config, operations: &mut Vec<PatchOperation>) {
    if pod.gate(&config.keys.gate).is_none() {
        let gate = json!({"name": config.keys.gate});
        append(
            operations,
            ["spec", "schedulingGates"],
            pod.spec.scheduling_gates.is_some(),
            vec![gate],
        );
    }
}

/// Releases a pod: adds the placement of the verdict, and removes edgeward's gate. `None` if the pod has no such gate or no
/// resourceVersion.
pub fn release(pod: &Pod<'_>, verdict: &Verdict<'_>, config: &Config, stamp: &Stamp) -> Option<Vec<PatchOperation>> {
    without_gate(pod, patch(pod, verdict, config, stamp), &config.keys)
}

/// Removes edgeward's gate and changes nothing else. `None` in the same cases as [`release`].
pub fn remove_gate(pod: &Pod<'_>, keys: &Keys) -> Option<Vec<PatchOperation>> {
    without_gate(pod, Vec::new(), keys)
}

fn without_gate(pod: &Pod<'_>, placement: Vec<PatchOperation>, keys: &Keys) -> Option<Vec<PatchOperation>> {
    let at = pod.gate(&keys.gate)?;
    let path = PointerBuf::from_tokens(["spec", "schedulingGates", &at.to_string()]);
    let name = path.with_trailing_token("name");
    let mut operations = vec![is_version(pod)?, test(name, &keys.gate)];
    operations.extend(placement);
    operations.push(PatchOperation::Remove(RemoveOperation { path }));
    Some(operations)
}

/// Writes why a gated pod keeps waiting. Its time restarts if only gates of others held it so far. `None` if the pod has no
/// resourceVersion.
pub fn update_reason(pod: &Pod<'_>, reason: Reason, config: &Config, stamp: &Stamp) -> Option<Vec<PatchOperation>> {
    let keys = &config.keys;
    let mut wanted: Wanted<'_> = vec![(&keys.reason, reason.as_str().into())];
    if pod.annotation(&keys.reason) == Some(Reason::HeldForeignGate.as_str()) {
        wanted.push((&keys.timestamp, timestamp(stamp.at).into()));
    }
    let kept = [&keys.timestamp, &keys.explain];
    for key in kept {
        if let (Some(value), false) = (pod.annotation(key), wanted.iter().any(|(wanted, _)| wanted == key)) {
            wanted.push((key, value.into()));
        }
    }
    let mut operations = vec![is_version(pod)?];
    annotate(pod, wanted, config, &mut operations);
    Some(operations)
}

fn is_version(pod: &Pod<'_>) -> Option<PatchOperation> {
    let path = PointerBuf::from_tokens(["metadata", "resourceVersion"]);
    Some(test(path, pod.resource_version()?))
}

fn test(path: PointerBuf, value: &str) -> PatchOperation {
    let value = value.into();
    PatchOperation::Test(TestOperation { path, value })
}

#[cfg(test)]
mod tests;
