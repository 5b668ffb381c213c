//! The only reader of a node's JSON. It produces a [`Node`].

use serde::de::Error as _;
use serde_json::Error;

use crate::constraints::{DECLARED, Taint};
use crate::excerpt::{LONGEST_NAME, excerpt};
use crate::node::{Node, NodeState, Profiled};
use crate::pod::{Condition, Metadata, Text};
use crate::resources::ResourceList;

/// Reads a node from its JSON text, without the pods on it. Cost: one pass, which skips every field that is not needed.
///
/// # Errors
/// The text is not a node with a name, or a field has the wrong type. A node with too many labels or taints is an error
/// too: without some of them, it would seem to take pods that it repels.
pub fn from_json(json: &str) -> Result<Node, Error> {
    let node: Wire<'_> = serde_json::from_str(json)?;
    if node.metadata.name.is_empty() {
        return Err(Error::missing_field("name"));
    }
    let spec = node.spec.unwrap_or_default();
    let status = node.status.unwrap_or_default();
    let allocatable = status.allocatable.unwrap_or_default();
    let mut amounts = allocatable.amounts();
    // A pod that requests a dropped resource does not fit.
    amounts.scalars.truncate(MAX_RESOURCES);
    let labels = node.metadata.labels.unwrap_or_default();
    let taints = spec.taints.unwrap_or_default();
    let counts = [
        (labels.iter().count(), MAX_LABELS, "labels"),
        (taints.len(), MAX_TAINTS, "taints"),
    ];
    if let Some((count, most, what)) = counts.into_iter().find(|(count, most, _)| count > most) {
        return Err(Error::custom(format_args!("it has {count} {what}, more than {most}")));
    }
    let ready = |condition: &Condition<'_>| condition.kind == "Ready" && condition.status == "True";
    let stated = labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
    let features = status.declared_features.iter().flatten().take(MAX_LABELS);
    let features = features.map(|feature| {
        let key = excerpt(format_args!("{DECLARED}{}", &**feature), LONGEST_NAME);
        (key, String::new())
    });
    let annotations = node.metadata.annotations.unwrap_or_default();
    let numbers = annotations.iter().filter(|(_, value)| is_number(value));
    Ok(Node {
        name: (*node.metadata.name).into(),
        labels: stated.chain(features).collect(),
        profiled: Profiled {
            annotations: numbers.take(MAX_ANNOTATIONS).collect(),
            addresses: addresses(status.addresses.as_deref().unwrap_or_default()),
        },
        state: NodeState {
            taints,
            cordoned: spec.unschedulable.unwrap_or(false),
            ready: status.conditions.iter().flatten().any(ready),
            young_until: None,
        },
        allocatable: amounts,
        slots: allocatable.0.get("pods").map_or(0, |pods| pods.units()),
        ..Node::default()
    })
}

#[derive(serde::Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    spec: Option<Spec>,
    status: Option<Status<'a>>,
}

#[derive(Default, serde::Deserialize)]
struct Spec {
    taints: Option<Vec<Taint>>,
    unschedulable: Option<bool>,
}

#[derive(Default, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    #[serde(borrow)]
    allocatable: Option<ResourceList<'a>>,
    conditions: Option<Vec<Condition<'a>>>,
    addresses: Option<Vec<Address<'a>>>,
    declared_features: Option<Vec<Text<'a>>>,
}

#[derive(serde::Deserialize)]
struct Address<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    address: Text<'a>,
}

/// Maximum number of labels of a node.
const MAX_LABELS: usize = 500;

/// Maximum number of taints of a node.
const MAX_TAINTS: usize = 100;

/// Maximum number of extended resources, huge pages and the like that are kept of a node. The first by name are kept.
const MAX_RESOURCES: usize = 100;

/// Maximum number of addresses that are kept of a node.
const MAX_ADDRESSES: usize = 16;

/// Maximum number of annotations that are kept of a node.
const MAX_ANNOTATIONS: usize = 64;

/// Maximum length of a numeric annotation value, in bytes.
const MAX_NUMBER: usize = 32;

fn is_number(value: &str) -> bool {
    value.len() <= MAX_NUMBER && value.parse::<f64>().is_ok_and(f64::is_finite)
}

/// The addresses by which other components in the cluster know the node.
fn addresses(addresses: &[Address<'_>]) -> Vec<Box<str>> {
    let internal = addresses
        .iter()
        .filter(|address| ["InternalIP", "Hostname"].contains(&&*address.kind))
        .map(|address| &*address.address)
        .filter(|address| address.len() <= LONGEST_NAME);
    internal.take(MAX_ADDRESSES).map(Box::from).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn node_is_read_with_fields_for_fitting() {
        let node = from_json(
            r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "e1", "labels": {"b": "2", "a": "1"}, "uid": "x"},
                "spec": {"unschedulable": true, "podCIDR": "10.0.0.0/24", "taints": [{"key": "k", "effect": "NoExecute", "timeAdded": null}]},
                "status": {"declaredFeatures": ["Some", "Other"], "capacity": {"cpu": "9"}, "allocatable": {"cpu": "3920m", "memory": "1Gi", "pods": "110", "example.com/gpu": "1"},
                           "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}]}}"#,
        )
        .unwrap();
        assert_eq!(&*node.name, "e1");
        let labels = [
            ("a", "1"),
            ("b", "2"),
            ("declaredFeatures:Other", ""),
            ("declaredFeatures:Some", ""),
        ];
        assert_eq!(node.labels.iter().collect::<Vec<_>>(), labels);
        assert_eq!(
            (node.allocatable.cpu.0, node.allocatable.memory.0, node.slots),
            (3920, 1 << 30, 110)
        );
        assert_eq!(node.allocatable.scalar("example.com/gpu"), 1);
        assert!(node.state.cordoned && node.state.ready);
        assert_eq!(
            (
                &*node.state.taints[0].key,
                &*node.state.taints[0].value,
                &*node.state.taints[0].effect
            ),
            ("k", "", "NoExecute")
        );
    }

    #[test]
    fn node_is_read_with_fields_for_profiles() {
        let node = from_json(
            r#"{"metadata": {"name": "e1", "annotations": {"watts": "12.5", "text": "x", "long": "0.000000000000000000000000000000001", "no": "NaN"}},
                "status": {"addresses": [{"type": "Hostname", "address": "e1.lan"}, {"type": "InternalIP", "address": "10.0.0.1"},
                                         {"type": "InternalIP", "address": "fd00::1"}, {"type": "ExternalIP", "address": "1.2.3.4"}]}}"#,
        )
        .unwrap();
        assert_eq!(
            node.profiled.annotations.iter().collect::<Vec<_>>(),
            [("watts", "12.5")]
        );
        assert_eq!(
            node.profiled.addresses,
            ["e1.lan", "10.0.0.1", "fd00::1"].map(Box::from)
        );
    }

    #[test]
    fn oversized_node_is_refused_and_extra_addresses_are_dropped() {
        let read = |labels: usize, taints: usize, resources: usize| {
            let named = |count: usize| (0..count).map(|i| (format!("example.com/{i}"), json!("1"))).collect();
            let [labels, resources]: [serde_json::Map<_, _>; 2] = [labels, resources].map(named);
            let address = json!({"type": "InternalIP", "address": "10.0.0.1"});
            let long = json!({"type": "Hostname", "address": "a".repeat(LONGEST_NAME + 1)});
            let addresses: Vec<_> = [long].into_iter().chain(vec![address; MAX_ADDRESSES + 1]).collect();
            let node = json!({
                "metadata": {"name": "e1", "labels": labels},
                "spec": {"taints": vec![json!({"key": "k", "effect": "NoSchedule"}); taints]},
                "status": {"allocatable": resources, "addresses": addresses},
            });
            from_json(&node.to_string()).map_err(|error| error.to_string())
        };
        let node = read(MAX_LABELS, MAX_TAINTS, MAX_RESOURCES).unwrap();
        assert_eq!(node.profiled.addresses, vec![Box::from("10.0.0.1"); MAX_ADDRESSES]);
        assert_eq!(read(501, 0, 0).unwrap_err(), "it has 501 labels, more than 500");
        assert_eq!(read(0, 101, 0).unwrap_err(), "it has 101 taints, more than 100");
        let kept = read(0, 0, MAX_RESOURCES + 1).unwrap().allocatable.scalars;
        assert_eq!(kept.len(), MAX_RESOURCES);
    }

    #[test]
    fn node_without_status_takes_no_pods() {
        let node = from_json(r#"{"metadata": {"name": "new"}, "spec": null}"#).unwrap();
        assert!(!node.state.ready);
        assert_eq!(node.slots, 0);
        assert!(from_json(r#"{"metadata": {}}"#).is_err());
    }
}
