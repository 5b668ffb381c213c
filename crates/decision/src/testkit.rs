//! Inputs for tests, also of other crates: a time, fleets, pods and reservations, written or generated.

mod generated;

use serde_json::Value;

use crate::config::Config;
use crate::fleet_file;
use crate::keys::Keys;
use crate::model::decision_id::DecisionId;
use crate::model::link::{Link, LinkState};
use crate::model::scorer::{FEATURES, MAX_FEATURE, Network, ONE, Provenance, Scorer, WIDTH};
use crate::model::snapshot::Snapshot;
use crate::model::workload::Workload;
use crate::placement::ledger::Reservation;
use crate::pod::Pod;
use edgeward_kube::node::NodeId;
use edgeward_kube::resources::Amounts;
use edgeward_kube::units::{Micros, Millicores, Moment, Now};

pub use generated::{fleet, huge_pod, pod};

/// The time at which tests decide: midnight, a thousand seconds after the process started.
pub const NOW: Now = Now {
    moment: Moment(1_000_000_000),
    wall: jiff::Timestamp::constant(1_767_225_600, 0),
};

/// The snapshot of a fleet file.
#[allow(clippy::panic)]
pub fn snapshot(fleet: &Value) -> Snapshot {
    fleet_file::read(fleet, &Config::default(), NOW.moment).unwrap_or_else(|faults| panic!("{faults}"))
}

/// A pod of namespace `shop` as decisions read it.
#[allow(clippy::unwrap_used)]
pub fn workload(pod: &Value, keys: &Keys) -> Workload<'static> {
    let text = pod.to_string();
    let pod = Pod::from_json(&text).unwrap();
    pod.workload("shop".into(), keys).into_owned()
}

/// A link that was measured at this moment, without a loss.
pub fn link(state: LinkState, rtt_ms: u64, as_of: Moment) -> Link {
    Link {
        state,
        rtt: Some(Micros::from_millis(rtt_ms)),
        as_of,
        ..Link::default()
    }
}

/// A reservation on this node of the edge, for a pod of namespace `shop` that is being created.
pub fn reservation(id: u128, node: u32, millicores: i64) -> Reservation {
    Reservation {
        id: DecisionId(id),
        namespace: "shop".into(),
        controller: None,
        site: "edge".into(),
        node: NodeId(node),
        amount: cpu(millicores),
        labels: "".into(),
        membership: None,
        priority: 0,
        releases: None,
        is_for_scheduler: false,
    }
}

/// A scorer whose score is this weight, in units of 1/4096, times one feature.
pub fn scorer(feature: &str, weight: i16) -> Scorer {
    let mut network = Network::default();
    let at = FEATURES.iter().position(|name| *name == feature).unwrap_or(0);
    network.first_weights[at][0] = ONE as i16;
    network.second_weights[0][0] = ONE as i16;
    network.last_weights[0] = weight;
    of_network(network)
}

/// A scorer with this network, a margin of 0 and the widest ranges.
pub fn of_network(network: Network) -> Scorer {
    let scorer = Scorer {
        schema_version: 1,
        features: FEATURES.map(str::to_owned).into(),
        ranges: [[-MAX_FEATURE, MAX_FEATURE]; WIDTH],
        margin: 0,
        network,
        provenance: Provenance::default(),
        sha256: String::new(),
    };
    scorer.sealed()
}

/// A request of CPU alone.
pub fn cpu(millicores: i64) -> Amounts {
    Amounts {
        cpu: Millicores(millicores),
        ..Amounts::default()
    }
}

/// The document with another value at this pointer, or one more at the end of a list (`-`).
#[allow(clippy::unwrap_used)]
pub fn with(mut document: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let key = key.replace("~1", "/");
    match document.pointer_mut(parent).unwrap() {
        Value::Array(list) if key == "-" => list.push(value),
        parent => parent[key] = value,
    }
    document
}

#[cfg(test)]
mod tests;
