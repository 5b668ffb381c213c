//! Applications of OAM: the workloads that KubeVela's built-in definitions make of their components.

use std::collections::BTreeMap;

use anyhow::{anyhow, ensure};
use edgeward_decision::document::{parse, within, without_nulls};
use edgeward_decision::keys::Keys;
use edgeward_kube::units::Quantity;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The trait of deploy/kubevela/traitdefinition.yaml.
const SLO_TRAIT: &str = "edgeward";

/// The fields of an Application that are read, in their wire form.
#[derive(Deserialize)]
struct Application {
    metadata: Metadata,
    spec: Spec,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    namespace: Option<String>,
}

#[derive(Deserialize)]
struct Spec {
    components: Vec<Component>,
    policies: Option<Vec<Typed>>,
}

#[derive(Deserialize)]
struct Component {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    properties: Value,
    traits: Option<Vec<Typed>>,
}

#[derive(Deserialize)]
struct Typed {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    properties: Value,
}

/// The properties of `webservice`, `worker`, `task` and `cron-task` that matter to a placement. The others use fewer than
/// `webservice`: see [`Properties::known_to`].
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Properties {
    image: String,
    cpu: Option<Amount>,
    memory: Option<Amount>,
    limit: Option<Limit>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    count: Option<u32>,
    volume_mounts: Option<VolumeMounts>,
    volumes: Option<Vec<Volume>>,
}

#[derive(Default, Deserialize)]
struct Limit {
    cpu: Option<Amount>,
    memory: Option<Amount>,
}

/// A quantity, which KubeVela takes only as a text.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String")]
struct Amount(String);

impl TryFrom<String> for Amount {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Quantity::parse(&text).map(|_| Self(text))
    }
}

/// Volumes by type. Those of other types tie a pod to no site.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VolumeMounts {
    pvc: Option<Vec<Claim>>,
    host_path: Option<Vec<HostPath>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Claim {
    name: String,
    claim_name: String,
}

#[derive(Deserialize)]
struct HostPath {
    name: String,
    path: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Volume {
    name: String,
    #[serde(rename = "type")]
    kind: Option<String>,
    claim_name: Option<String>,
}

/// The properties of edgeward's trait.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Slo {
    class: String,
    deadline: Option<u64>,
    target: Option<u64>,
    priority: Option<u64>,
    sites: Option<String>,
    profile: Option<String>,
    traits: Option<Vec<Need>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Need {
    name: String,
    required: Option<bool>,
}

#[derive(Deserialize)]
struct Scaler {
    replicas: Option<u32>,
}

/// Whether a document is an Application of OAM.
pub(in crate::cli) fn is_application(document: &Value) -> bool {
    document["apiVersion"] == "core.oam.dev/v1beta1" && document["kind"] == "Application"
}

/// Returns the place and the workload of each component of an Application. Adds what makes no pod, or is not read, to
/// `skipped`.
///
/// # Errors
/// A field has the wrong type or value; the error names it.
pub(in crate::cli) fn workloads(
    document: &Value,
    source: &str,
    keys: &Keys,
    skipped: &mut Vec<String>,
) -> anyhow::Result<Vec<(String, Value)>> {
    let application: Application = read(document, source, "")?;
    for policy in application.spec.policies.iter().flatten() {
        skipped.push(format!("{source}: policy of type {}", policy.kind));
    }
    let mut workloads = vec![];
    for (i, component) in application.spec.components.iter().enumerate() {
        let at = format!("spec.components[{i}]");
        let mut earlier = application.spec.components[..i].iter();
        ensure!(
            earlier.all(|earlier| earlier.name != component.name),
            "{source}: {at}.name: {:?} is taken by an earlier component",
            component.name
        );
        match component.kind.as_str() {
            "webservice" | "worker" | "task" | "cron-task" => {
                let workload = workload(component, &application.metadata, source, &at, keys, skipped)?;
                workloads.push((format!("{source}.{at}"), workload));
            }
            kind => skipped.push(format!("{source}.{at}: component {} of type {kind}", component.name)),
        }
    }
    Ok(workloads)
}

/// Reads the part of an Application at this place. Null is an empty object.
fn read<T: DeserializeOwned>(part: &Value, source: &str, at: &str) -> anyhow::Result<T> {
    let empty = json!({});
    let part = if part.is_null() { &empty } else { part };
    parse(part, at).map_err(|fault| anyhow!("{source}: {fault}"))
}

fn workload(
    component: &Component,
    application: &Metadata,
    source: &str,
    at: &str,
    keys: &Keys,
    skipped: &mut Vec<String>,
) -> anyhow::Result<Value> {
    let Component { name, kind, .. } = component;
    let properties: Properties = read(&component.properties, source, &within(at, "properties"))?;
    let properties = properties.known_to(kind);
    let (count, mut replicas) = (properties.count.unwrap_or(1), 1);
    let mut pod = properties.pod(name, &application.name);
    for (i, attached) in component.traits.iter().flatten().enumerate() {
        let at = within(at, format_args!("traits[{i}].properties"));
        match attached.kind.as_str() {
            SLO_TRAIT => {
                let slo: Slo = read(&attached.properties, source, &at)?;
                for (i, need) in slo.traits.iter().flatten().enumerate() {
                    let name = &need.name;
                    let is_one = !name.contains([',', '?']);
                    ensure!(
                        is_one,
                        "{source}: {at}.traits[{i}].name: {name:?} is not the name of one trait"
                    );
                }
                json_patch::merge(&mut pod["metadata"]["annotations"], &slo.annotations(keys));
            }
            metadata @ ("annotations" | "labels") => {
                let added: BTreeMap<String, Option<String>> = read(&attached.properties, source, &at)?;
                // KubeVela does not add the labels to the pods of a CronJob.
                if metadata == "annotations" || kind != "cron-task" {
                    json_patch::merge(&mut pod["metadata"][metadata], &json!(added));
                }
            }
            "scaler" => {
                let scaler: Scaler = read(&attached.properties, source, &at)?;
                replicas = scaler.replicas.unwrap_or(1);
            }
            other => skipped.push(format!("{source}: trait {other} of component {name}")),
        }
    }
    let name = match kind.as_str() {
        "task" => format!("{}-{name}", application.name),
        _ => name.clone(),
    };
    let (api, kind, spec) = match kind.as_str() {
        "task" => ("batch/v1", "Job", json!({"parallelism": count, "template": pod})),
        "cron-task" => {
            let job = json!({"spec": {"parallelism": count, "template": pod}});
            ("batch/v1", "CronJob", json!({"jobTemplate": job}))
        }
        _ => ("apps/v1", "Deployment", json!({"replicas": replicas, "template": pod})),
    };
    let metadata = without_nulls(json!({"name": name, "namespace": application.namespace}));
    Ok(json!({"apiVersion": api, "kind": kind, "metadata": metadata, "spec": spec}))
}

impl Properties {
    /// Drops the properties that KubeVela ignores for this type of component.
    fn known_to(self, kind: &str) -> Self {
        Self {
            limit: self.limit.filter(|_| kind == "webservice"),
            labels: self.labels.filter(|_| kind != "worker"),
            annotations: self.annotations.filter(|_| kind != "worker"),
            volume_mounts: self.volume_mounts.filter(|_| kind != "task"),
            ..self
        }
    }

    /// Returns the pod template.
    fn pod(self, component: &str, application: &str) -> Value {
        let mut labels = self.labels.unwrap_or_default();
        labels.insert("app.oam.dev/name".to_owned(), application.to_owned());
        labels.insert("app.oam.dev/component".to_owned(), component.to_owned());
        let volumes: Vec<_> = match self.volume_mounts {
            Some(mounts) => {
                let claims = mounts.pvc.into_iter().flatten().map(Claim::source);
                claims
                    .chain(mounts.host_path.into_iter().flatten().map(HostPath::source))
                    .collect()
            }
            None => self.volumes.into_iter().flatten().map(Volume::source).collect(),
        };
        // A limit counts only if the request is stated.
        let limit = self.limit.unwrap_or_default();
        let limits = json!({
            "cpu": self.cpu.clone().map(|cpu| limit.cpu.unwrap_or(cpu)),
            "memory": self.memory.clone().map(|memory| limit.memory.unwrap_or(memory)),
        });
        let requests = json!({"cpu": self.cpu, "memory": self.memory});
        without_nulls(json!({
            "metadata": {"labels": labels, "annotations": self.annotations.unwrap_or_default()},
            "spec": {
                "containers": [{
                    "name": component,
                    "image": self.image,
                    "resources": {"requests": requests, "limits": limits},
                }],
                "volumes": volumes,
            },
        }))
    }
}

impl Claim {
    fn source(self) -> Value {
        json!({"name": self.name, "persistentVolumeClaim": {"claimName": self.claim_name}})
    }
}

impl HostPath {
    fn source(self) -> Value {
        json!({"name": self.name, "hostPath": {"path": self.path}})
    }
}

impl Volume {
    /// Returns the volume of the pod. A type without a tie to a site becomes an emptyDir.
    fn source(self) -> Value {
        match self.claim_name.filter(|_| self.kind.as_deref() == Some("pvc")) {
            Some(claim) => json!({"name": self.name, "persistentVolumeClaim": {"claimName": claim}}),
            None => json!({"name": self.name, "emptyDir": {}}),
        }
    }
}

impl Slo {
    /// Returns the annotations that the trait adds to the pod template.
    fn annotations(self, keys: &Keys) -> Value {
        let number = |number: Option<u64>| number.map(|number| number.to_string());
        let traits: Vec<_> = self.traits.into_iter().flatten().map(Need::word).collect();
        let stated = [
            ("class", Some(self.class)),
            ("deadlineMs", number(self.deadline)),
            ("latencyTargetMs", number(self.target)),
            ("priority", number(self.priority)),
            ("sites", self.sites),
            ("profile", self.profile),
            ("traits", Some(traits.join(", ")).filter(|traits| !traits.is_empty())),
        ];
        let stated = stated.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let annotations = stated.map(|(name, value)| (format!("{}{name}", keys.slo_prefix), value.into()));
        Value::Object(annotations.collect::<Map<_, _>>())
    }
}

impl Need {
    fn word(self) -> String {
        let mark = if self.required == Some(false) { "?" } else { "" };
        self.name + mark
    }
}
