//! The pods of a document: the pods in it, and the pods that its workloads would create.

use anyhow::{Context as _, anyhow, bail};
use edgeward_decision::keys::Keys;
use edgeward_decision::pod::Pod;
use serde_json::{Map, Value, json};

use super::oam;
use crate::admission::review::Request;

/// Workload kinds that determine their pods: the kind, the path of the pod template, and the kind of the pods'
/// controller.
const WORKLOADS: [(&str, &str, &str); 6] = [
    ("Deployment", "/spec/template", "ReplicaSet"),
    ("ReplicaSet", "/spec/template", "ReplicaSet"),
    ("StatefulSet", "/spec/template", "StatefulSet"),
    ("DaemonSet", "/spec/template", "DaemonSet"),
    ("Job", "/spec/template", "Job"),
    ("CronJob", "/spec/jobTemplate/spec/template", "Job"),
];

/// A pod to be reviewed.
#[derive(Default)]
pub(in crate::cli) struct Subject {
    /// The file, and the place in it.
    pub(in crate::cli) source: String,
    /// The pod as JSON.
    pub(super) text: String,
    /// The namespace that the pod or its AdmissionReview names.
    pub(in crate::cli) namespace: Option<String>,
    /// Whether an API server has sent the pod, in an AdmissionReview. It has filled in the defaults already.
    pub(super) arrived: bool,
    /// Hints about the manifest that cannot be seen in the pod alone.
    pub(super) hints: Vec<String>,
    /// Number of further pods that the workload creates at once with this pod.
    pub(in crate::cli) others: u64,
}

/// Adds the pods of a document to `subjects`. Adds a document of a kind without pods to `skipped`.
///
/// # Errors
/// The document has no kind, or lacks a field that its kind requires.
pub(in crate::cli) fn collect(
    document: &Value,
    source: &str,
    keys: &Keys,
    subjects: &mut Vec<Subject>,
    skipped: &mut Vec<String>,
) -> anyhow::Result<()> {
    let Some(kind) = document["kind"].as_str() else {
        bail!("{source}: has no kind; expected a Pod, a workload, a List of them or an AdmissionReview");
    };
    match kind {
        "Pod" => subjects.push(of_pod(document, source)),
        "AdmissionReview" => subjects.push(of_admission_review(document, source)?),
        _ if oam::is_application(document) => {
            for (place, workload) in oam::workloads(document, source, keys, skipped)? {
                collect(&workload, &place, keys, subjects, skipped)?;
            }
        }
        kind if kind.ends_with("List") => {
            let items = document["items"].as_array();
            let items = items.with_context(|| format!("{source}: items is not a list"))?;
            for (i, item) in items.iter().enumerate() {
                // The items of a PodList do not repeat their kind.
                let mut item = item.clone();
                let of_list = kind.strip_suffix("List").filter(|kind| !kind.is_empty());
                if let Some(kind) = of_list.filter(|_| item["kind"].is_null()) {
                    json_patch::merge(&mut item, &json!({ "kind": kind }));
                }
                collect(&item, &format!("{source}.items[{i}]"), keys, subjects, skipped)?;
            }
        }
        kind => match WORKLOADS.iter().find(|(name, ..)| *name == kind) {
            Some(&(_, template, controller)) => {
                let template = document.pointer(template).filter(|template| template.is_object());
                let template = template.with_context(|| format!("{source}: kind {kind} without a pod template"))?;
                subjects.push(of_workload(document, kind, template, controller, source, keys));
            }
            None => skipped.push(format!("{source}: kind {kind}")),
        },
    }
    Ok(())
}

fn of_pod(pod: &Value, source: &str) -> Subject {
    let mut pod = pod.clone();
    json_patch::merge(&mut pod, &json!({"apiVersion": "v1", "kind": "Pod"}));
    Subject {
        source: source.to_owned(),
        namespace: pod["metadata"]["namespace"].as_str().map(str::to_owned),
        text: pod.to_string(),
        ..Subject::default()
    }
}

fn of_admission_review(document: &Value, source: &str) -> anyhow::Result<Subject> {
    let text = document.to_string();
    let request = Request::read(text.as_bytes()).with_context(|| source.to_owned())?;
    let object = request.object.filter(|_| request.is_pod_create());
    let object = object.with_context(|| format!("{source}: the request is not the creation of a pod"))?;
    Ok(Subject {
        source: source.to_owned(),
        text: object.get().to_owned(),
        namespace: Some(request.namespace().to_owned()).filter(|namespace| !namespace.is_empty()),
        arrived: true,
        ..Subject::default()
    })
}

/// Returns the pod that the workload's controller would create.
fn of_workload(workload: &Value, kind: &str, template: &Value, controller: &str, source: &str, keys: &Keys) -> Subject {
    // The workload's uid is the owner's only if the workload itself controls the pods.
    let uid = workload["metadata"]["uid"].as_str().filter(|_| kind == controller);
    let name = workload["metadata"]["name"].as_str().unwrap_or("unnamed");
    // The name of a CronJob's Job ends with a minute. Its pods have the times of the CronJob's earlier Jobs.
    let owner_name = match kind {
        "CronJob" => format!("{name}-29000000"),
        _ => name.to_owned(),
    };
    let owner = json!({
        "apiVersion": if controller == "Job" { "batch/v1" } else { "apps/v1" },
        "kind": controller,
        "name": owner_name,
        "uid": uid.map_or_else(|| uuid::Uuid::nil().to_string(), str::to_owned),
        "controller": true,
    });
    let mut pod = template.clone();
    let metadata = json!({"generateName": format!("{name}-"), "ownerReferences": [owner]});
    json_patch::merge(
        &mut pod,
        &json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata}),
    );
    Subject {
        source: source.to_owned(),
        namespace: workload["metadata"]["namespace"].as_str().map(str::to_owned),
        hints: hints(&pod["metadata"]["annotations"], kind, &workload["metadata"], keys),
        others: replicas(kind, &workload["spec"]).saturating_sub(1),
        text: pod.to_string(),
        ..Subject::default()
    }
}

/// Returns the number of pods that a workload creates at once: one, if the cluster or a schedule decides.
fn replicas(kind: &str, spec: &Value) -> u64 {
    let field = if kind == "Job" { "parallelism" } else { "replicas" };
    spec[field].as_u64().unwrap_or(1)
}

/// Returns hints about annotations of a workload that have no effect on its pods, which have `annotations`.
/// [`Item::of`](super::report::Item::of) adds the hints about the pod itself.
fn hints(annotations: &Value, kind: &str, workload: &Value, keys: &Keys) -> Vec<String> {
    let class = format!("{}class", keys.slo_prefix);
    let misplaced = workload["annotations"].as_object().into_iter().flat_map(Map::keys);
    let misplaced = misplaced.filter(|key| key.starts_with(&keys.slo_prefix) && annotations.get(key).is_none());
    let misplaced = misplaced.map(|key| format!("{key} is on the {kind}; edgeward reads its pod template"));
    let mut hints: Vec<_> = misplaced.collect();
    if kind == "DaemonSet" && annotations.get(&class).is_some() {
        hints.push(format!("{class} has no effect on a DaemonSet, whose pods pass through"));
    }
    hints
}

impl Subject {
    /// Parses the pod.
    ///
    /// # Errors
    /// A field has the wrong type; the error names it.
    pub(in crate::cli) fn pod(&self) -> anyhow::Result<Pod<'_>> {
        let mut deserializer = serde_json::Deserializer::from_str(&self.text);
        serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
            let text = error.inner().to_string();
            // The position refers to a text that the user has not seen.
            let message = text.rsplit_once(" at line ").map_or(&*text, |(message, _)| message);
            // A fault of the whole pod has the path `.`, which is left out.
            let path = error.path().iter().next().map(|_| format!("{}: ", error.path()));
            anyhow!("{}: {}{message}", self.source, path.unwrap_or_default())
        })
    }
}
