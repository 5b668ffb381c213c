//! Builds pods for the fuzz targets from bytes: the shape that the API server sends, with arbitrary texts and numbers.

use arbitrary::Arbitrary;
use edgeward_decision::model::slo::NAMES;
use serde_json::{Map, Value, json};

/// The parts of a pod that the targets vary.
#[derive(Debug, Arbitrary)]
pub struct Pod<'a> {
    slo: Vec<(u8, &'a str)>,
    annotations: Vec<(&'a str, &'a str)>,
    labels: Vec<(&'a str, &'a str)>,
    selector: Vec<(&'a str, &'a str)>,
    tolerations: Vec<(&'a str, &'a str)>,
    gates: Vec<&'a str>,
    node: Option<&'a str>,
    /// Millicores and bytes of each container.
    containers: Vec<(u32, u64)>,
    priority: Option<i32>,
    unknown: Option<&'a str>,
}

impl Pod<'_> {
    /// The pod as JSON.
    pub fn json(&self) -> Value {
        let mut annotations = map(&self.annotations);
        for (name, value) in &self.slo {
            annotations.insert(
                format!("slo.example.io/{}", NAMES[usize::from(*name) % NAMES.len()]),
                json!(value),
            );
        }
        let container = |(cpu, memory): &(u32, u64)| {
            let requests = json!({"cpu": format!("{cpu}m"), "memory": memory.to_string()});
            json!({"name": "c", "image": "i", "resources": {"requests": requests}})
        };
        let toleration = |(key, value): &(&str, &str)| json!({"key": key, "operator": "Equal", "value": value});
        let mut spec = json!({
            "nodeSelector": map(&self.selector),
            "tolerations": self.tolerations.iter().map(toleration).collect::<Value>(),
            "schedulingGates": self.gates.iter().map(|name| json!({"name": name})).collect::<Value>(),
            "containers": self.containers.iter().map(container).collect::<Value>(),
        });
        let optional = [
            ("nodeName", self.node.map(|node| json!(node))),
            ("priority", self.priority.map(|priority| json!(priority))),
            ("fieldOfTheFuture", self.unknown.map(|text| json!([{"text": text}]))),
        ];
        for (name, value) in optional {
            if let Some(value) = value {
                spec[name] = value;
            }
        }
        json!({
            "metadata": {
                "name": "p", "namespace": "shop", "uid": "u", "resourceVersion": "1",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "annotations": annotations, "labels": map(&self.labels),
            },
            "spec": spec,
        })
    }
}

fn map(pairs: &[(&str, &str)]) -> Map<String, Value> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), json!(value)))
        .collect()
}
