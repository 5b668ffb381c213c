//! The only reader of Liqo's objects (`v1beta1` of its API groups): JSON in, the fields that a decision reads out.
//!
//! The size of what is kept of an object is bounded.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use edgeward_decision::model::liqo::{ApiServerStatus, Offloading, OffloadingPhase, REMOTE_CLUSTER_ID, Strategy};
use edgeward_kube::constraints::is_label_value;
use edgeward_kube::units::Micros;

/// Label of an object that another cluster replicated here. Such an object is about the namespaces of that cluster.
const REPLICATED: &str = "liqo.io/replicated";

/// The name that Liqo requires of a NamespaceOffloading.
const OFFLOADING: &str = "offloading";

/// Maximum number of namespaces that are kept of a NamespaceMap.
const MAX_NAMESPACES: usize = 10_000;

/// Maximum number of labels that are kept of a VirtualNode.
const MAX_LABELS: usize = 64;

/// Maximum length of a label key: a domain, `/`, and a name.
const LONGEST_KEY: usize = 317;

/// Maximum length of an API server's address, in bytes. A longer address is not kept.
const LONGEST_URL: usize = 1_024;

/// A `ForeignCluster`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignCluster {
    /// Id of the cluster.
    pub cluster: Box<str>,
    /// Address of the API server.
    pub api_server_url: Option<Box<str>>,
    /// Whether Liqo reaches the API server. `None` if the object does not say.
    pub api_server: Option<ApiServerStatus>,
}

/// A `VirtualNode`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualNode {
    /// Id of the cluster behind it.
    pub cluster: Box<str>,
    /// Labels that its node gets. The provider of the cluster chooses most of them.
    pub labels: BTreeMap<Box<str>, Box<str>>,
}

/// A `NamespaceMap` for namespaces of the local cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceMap {
    /// Id of the cluster that the namespaces are offloaded to.
    pub cluster: Box<str>,
    /// Progress of each namespace there.
    pub namespaces: BTreeMap<Box<str>, OffloadingPhase>,
}

/// The latency from a `Connection` between gateways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latency {
    /// RTT.
    pub rtt: Micros,
    /// Time of the measurement.
    pub at: Timestamp,
}

/// Reads a ForeignCluster. Returns `None` if it has no cluster id.
pub fn foreign_cluster(json: &str) -> Option<ForeignCluster> {
    let object: Value = serde_json::from_str(json).ok()?;
    let status = &object["status"];
    let url = status["apiServerUrl"].as_str();
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    let condition = conditions.find(|condition| condition["type"] == "APIServerStatus");
    Some(ForeignCluster {
        cluster: cluster_id(&object["spec"]["clusterID"])?,
        api_server_url: url
            .filter(|url| !url.is_empty() && url.len() <= LONGEST_URL)
            .map(Box::from),
        // An unknown word must not count as a good state.
        api_server: condition
            .map(|condition| word(ApiServerStatus::of_word, &condition["status"], ApiServerStatus::None)),
    })
}

/// Reads a VirtualNode. Returns `None` if it has no cluster id.
pub fn virtual_node(json: &str) -> Option<VirtualNode> {
    let object: Value = serde_json::from_str(json).ok()?;
    let labels = object["spec"]["labels"].as_object().into_iter().flatten();
    let labels = labels.filter_map(|(key, value)| Some((key, value.as_str()?)));
    let labels = labels.filter(|(key, value)| key.len() <= LONGEST_KEY && is_label_value(value));
    Some(VirtualNode {
        cluster: cluster_id(&object["spec"]["clusterID"])?,
        labels: labels
            .map(|(key, value)| (key.as_str().into(), value.into()))
            .take(MAX_LABELS)
            .collect(),
    })
}

/// Reads a NamespaceOffloading, which names no clusters. Returns `None` if its name makes Liqo ignore it.
pub fn namespace_offloading(json: &str) -> Option<Offloading> {
    let object: Value = serde_json::from_str(json).ok()?;
    if object["metadata"]["name"] != OFFLOADING {
        return None;
    }
    let phase = &object["status"]["offloadingPhase"];
    let phase = match phase.as_str() {
        _ if object["metadata"]["deletionTimestamp"].is_string() => OffloadingPhase::Terminating,
        Some("Ready") => OffloadingPhase::Accepted,
        None | Some("") => OffloadingPhase::InProgress,
        Some(_) => word(OffloadingPhase::of_word, phase, OffloadingPhase::Unknown),
    };
    let strategy = &object["spec"]["podOffloadingStrategy"];
    Some(Offloading {
        // The default of the API server.
        strategy: Some(word(Strategy::of_word, strategy, Strategy::LocalAndRemote)),
        phase,
        ..Offloading::default()
    })
}

/// Reads a NamespaceMap. Returns `None` if another cluster replicated it here, or if it names no cluster.
pub fn namespace_map(json: &str) -> Option<NamespaceMap> {
    let object: Value = serde_json::from_str(json).ok()?;
    let labels = &object["metadata"]["labels"];
    if labels[REPLICATED] == "true" {
        return None;
    }
    let desired = object["spec"]["desiredMapping"].as_object().into_iter().flatten();
    let desired = desired.map(|(namespace, _)| (namespace.as_str().into(), OffloadingPhase::InProgress));
    let mut namespaces: BTreeMap<Box<str>, _> = desired.take(MAX_NAMESPACES).collect();
    let current = object["status"]["currentMapping"].as_object().into_iter().flatten();
    for (namespace, mapping) in current.take(MAX_NAMESPACES) {
        let phase = word(OffloadingPhase::of_word, &mapping["phase"], OffloadingPhase::Unknown);
        namespaces.insert(namespace.as_str().into(), phase);
    }
    Some(NamespaceMap {
        cluster: cluster_id(&labels[REMOTE_CLUSTER_ID])?,
        namespaces,
    })
}

/// Reads the cluster and the latency of a Connection. Returns `None` if it is not up, or has no measurement.
pub fn connection(json: &str) -> Option<(Box<str>, Latency)> {
    let object: Value = serde_json::from_str(json).ok()?;
    let status = &object["status"];
    if status["value"] != "Connected" {
        return None;
    }
    let latency = Latency {
        rtt: parse_latency(status["latency"]["value"].as_str()?)?,
        at: status["latency"]["timestamp"].as_str()?.parse().ok()?,
    };
    Some((cluster_id(&object["metadata"]["labels"][REMOTE_CLUSTER_ID])?, latency))
}

/// Parses `12ms`, or microseconds with `us` or either Unicode micro sign. Returns `None` for `N/A`.
fn parse_latency(text: &str) -> Option<Micros> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let number: u64 = number.parse().ok()?;
    match unit {
        "ms" => Some(Micros(number.checked_mul(1_000)?)),
        "\u{3bc}s" | "\u{b5}s" | "us" => Some(Micros(number)),
        _ => None,
    }
}

fn cluster_id(id: &Value) -> Option<Box<str>> {
    let id = id.as_str().filter(|id| !id.is_empty() && is_label_value(id));
    id.map(Box::from)
}

fn word<T>(of_word: fn(&str) -> Option<T>, text: &Value, other: T) -> T {
    text.as_str().and_then(of_word).unwrap_or(other)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn foreign_cluster_gives_api_server_url_and_status() {
        let read =
            |status: Value| foreign_cluster(&json!({"spec": {"clusterID": "far"}, "status": status}).to_string());
        let conditions = |status: &str| {
            json!({"apiServerUrl": "https://far:6443", "conditions": [
                {"type": "Other", "status": "Established"},
                {"type": "APIServerStatus", "status": status, "message": "m"},
            ]})
        };
        for status in ApiServerStatus::ALL {
            let read = read(conditions(status.as_str())).unwrap();
            assert_eq!((&*read.cluster, read.api_server), ("far", Some(status)));
            assert_eq!(read.api_server_url.as_deref(), Some("https://far:6443"));
        }
        assert_eq!(
            read(conditions("Wonderful")).unwrap().api_server,
            Some(ApiServerStatus::None)
        );
        let new = read(Value::Null).unwrap();
        assert_eq!((new.api_server, new.api_server_url), (None, None));
        let long = json!({"apiServerUrl": "https://".to_owned() + &"a".repeat(2_000)});
        assert_eq!(read(long).unwrap().api_server_url, None);
        assert_eq!(foreign_cluster(r#"{"spec": {"clusterID": "no id"}}"#), None);
        assert_eq!(foreign_cluster(r#"{"spec": {}}"#), None);
        assert_eq!(foreign_cluster("[]"), None);
    }

    #[test]
    fn namespace_offloading_gives_strategy_and_phase() {
        use OffloadingPhase::{Accepted, InProgress, SomeFailed, Terminating, Unknown};
        use Strategy::{Local, LocalAndRemote, Remote};
        let ending = json!("2026-01-01T00:00:00Z");
        for (strategy, phase, deletion, expected) in [
            (json!("Remote"), json!("Ready"), json!(null), (Remote, Accepted)),
            (json!("Local"), json!("SomeFailed"), json!(null), (Local, SomeFailed)),
            (json!("New"), json!("New"), json!(null), (LocalAndRemote, Unknown)),
            (json!(null), json!(null), json!(null), (LocalAndRemote, InProgress)),
            (json!("Local"), json!("Ready"), ending, (Local, Terminating)),
        ] {
            let object = |name: &str| {
                json!({
                    "metadata": {"name": name, "deletionTimestamp": deletion},
                    "spec": {"podOffloadingStrategy": strategy}, "status": {"offloadingPhase": phase},
                })
            };
            let read = namespace_offloading(&object("offloading").to_string()).unwrap();
            assert_eq!((read.strategy, read.phase), (Some(expected.0), expected.1));
            assert_eq!(namespace_offloading(&object("another").to_string()), None);
        }
    }

    #[test]
    fn namespace_map_gives_phase_of_each_namespace() {
        let object = |labels: Value| {
            json!({
                "metadata": {"labels": labels},
                "spec": {"desiredMapping": {"shop": "shop-edge", "new": "new-edge"}},
                "status": {"currentMapping": {
                    "shop": {"remoteNamespace": "shop-edge", "phase": "Accepted"},
                    "bad": {"phase": "CreationLoopBackOff"}, "going": {"phase": "Terminating"}, "odd": {},
                }},
            })
        };
        let ours = json!({"liqo.io/remote-cluster-id": "far", "liqo.io/replication": "true"});
        let map = namespace_map(&object(ours.clone()).to_string()).unwrap();
        let phases = map.namespaces.iter();
        let phases: Vec<_> = phases
            .map(|(name, phase)| format!("{name} {}", phase.as_str()))
            .collect();
        let expected = "bad CreationLoopBackOff,going Terminating,new InProgress,odd Unknown,shop Accepted";
        assert_eq!(phases.join(","), expected);
        let mut theirs = ours;
        theirs["liqo.io/replicated"] = json!("true");
        assert_eq!(namespace_map(&object(theirs).to_string()), None);
        assert_eq!(namespace_map(&object(json!({})).to_string()), None);
    }

    #[test]
    fn connection_latency_reads_ms_and_microseconds() {
        let read = |value: &str, latency: &str| {
            let object = json!({
                "metadata": {"labels": {"liqo.io/remote-cluster-id": "far"}},
                "status": {"value": value, "latency": {"value": latency, "timestamp": "2026-01-01T00:00:00Z"}},
            });
            connection(&object.to_string()).map(|(_, latency)| latency.rtt.0)
        };
        assert_eq!(read("Connected", "12ms"), Some(12_000));
        assert_eq!(read("Connected", "840\u{3bc}s"), Some(840));
        assert_eq!(read("Connected", "840\u{b5}s"), Some(840));
        for other in [
            "N/A",
            "",
            "ms",
            "-1ms",
            "1s",
            "99999999999999999999ms",
            "18446744073709551615ms",
        ] {
            assert_eq!(read("Connected", other), None, "{other}");
        }
        assert_eq!(read("Error", "12ms"), None);
    }
}
