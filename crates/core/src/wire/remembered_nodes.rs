//! Nodes of clouds that are gone, or may be soon: as a fleet file lists them, with ages, and as they are kept for the process
//! that comes after, with times.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::document::{self, Faults, Field};
use crate::model::remembered_node::RememberedNode;
use crate::units::{Micros, Now};
use crate::wire::fleet_file;

/// The field with the time since which one is gone.
const GONE_SINCE: &str = "goneSince";

/// These nodes, and since when they are gone, if they are.
pub fn write(nodes: &[RememberedNode], now: Now) -> Value {
    let nodes = nodes.iter().map(|remembered| {
        let mut node = fleet_file::write::shape(&remembered.node);
        if let Some(since) = remembered.gone_since {
            let since = now.at(since).wall;
            node[GONE_SINCE] = json!(since.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        }
        node
    });
    json!({ "nodes": nodes.collect::<Value>() })
}

/// Reads what [`write()`] has written. A time in the future is now.
///
/// # Errors
/// Every fault.
pub fn read(document: &Value, now: Now) -> Result<Vec<RememberedNode>, Faults> {
    document::read(document, |root| {
        let [nodes] = root.object(["nodes"])?;
        let nodes = nodes.required().list()?.into_iter();
        let node = |field: Field<'_>| {
            let (node, since) = fleet_file::shape(&field, GONE_SINCE)?;
            let text = since.string();
            let at = text.and_then(|text| text.parse::<jiff::Timestamp>().ok());
            if text.is_some() && at.is_none() {
                since.fault("is not a time (RFC 3339)".to_owned());
            }
            let age = at.map(|at| u64::try_from(now.wall.duration_since(at).as_micros()).unwrap_or(0));
            Some(RememberedNode {
                node: Arc::new(node?),
                gone_since: age.map(|age| now.moment.before(Micros(age))),
            })
        };
        Some(nodes.filter_map(node).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Moment;

    const HOUR: i64 = 3_600_000_000;

    fn now(text: &str, moment: i64) -> Now {
        Now {
            moment: Moment(moment),
            wall: text.parse().unwrap(),
        }
    }

    #[test]
    fn what_is_kept_is_read_by_another_process_at_another_time() {
        let document = json!({"nodes": [
            {"name": "v1", "labels": {"node.role/cloud": "true"}, "taints": [{"key": "cloud", "value": "cloud", "effect": "NoSchedule"}],
             "allocatable": {"cpu": "8", "memory": "1Gi", "pods": 110, "example.com/gpu": 2}, "goneSince": "2026-01-01T10:30:00Z"},
            {"name": "v2", "labels": {}, "allocatable": {"pods": 1}},
        ]});
        let first = now("2026-01-01T11:00:00Z", 0);
        let nodes = read(&document, first).unwrap();
        assert_eq!(nodes[0].gone_since, Some(Moment(-HOUR / 2)));
        assert_eq!(nodes[0].node.allocatable.scalar("example.com/gpu"), 2);
        assert_eq!((nodes[0].node.allocatable.cpu.0, nodes[0].node.slots), (8_000, 110));
        assert_eq!((nodes[1].gone_since, nodes[1].node.slots), (None, 1));

        let written = write(&nodes, now("2026-01-01T11:00:07Z", 7_000_000));
        let later = now("2026-01-01T12:00:00Z", 5 * HOUR);
        let again = read(&written, later).unwrap();
        assert_eq!(again[0].gone_since, Some(Moment(5 * HOUR - HOUR * 3 / 2)));
        assert_eq!(again[0].node, nodes[0].node);
        assert_eq!(again[1], nodes[1]);
        // A clock that was set back.
        let early = now("2025-01-01T00:00:00Z", 9);
        assert_eq!(read(&written, early).unwrap()[0].gone_since, Some(Moment(9)));
    }

    #[test]
    fn every_fault_is_named() {
        let faults = read(
            &json!({"nodes": [{"name": "", "allocatable": {"cpu": "many"}, "goneSince": "soon", "used": {}}]}),
            now("2026-01-01T11:00:00Z", 0),
        );
        assert_eq!(faults.unwrap_err().0.len(), 5);
    }
}
