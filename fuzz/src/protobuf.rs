//! Objects in protobuf, as watches bring them.

use edgeward_core::keys::Keys;
use edgeward_core::resources::ResourceNames;
use edgeward_core::testkit::protobuf::object;
use edgeward_core::wire::node;
use edgeward_core::wire::pod::read_record;
use edgeward_core::wire::protobuf::{Event, to_json};
use edgeward_core::wire::volumes::{read_affinity, read_claim, read_class};
use serde_json::Value;

/// A frame of a watch, and an object of each kind without its envelope.
///
/// # Panics
/// What is made of an object is no JSON, or does a reader harm.
pub fn check(data: &[u8]) {
    if let Ok(event) = Event::decode(data) {
        let _ = to_json(event.object);
    }
    let keys = Keys::new("example.io");
    for (api_version, kind) in [
        ("v1", "Pod"),
        ("v1", "Node"),
        ("v1", "Namespace"),
        ("v1", "PersistentVolumeClaim"),
        ("v1", "PersistentVolume"),
        ("storage.k8s.io/v1", "StorageClass"),
        ("v1", "Status"),
    ] {
        let Ok(json) = to_json(&object(api_version, kind, data)) else {
            continue;
        };
        serde_json::from_str::<Value>(&json).expect("it is JSON");
        let _ = read_record(&json, data.len(), &keys, &ResourceNames::default());
        let _ = node::from_json(&json);
        let _ = (read_claim(&json), read_affinity(&json), read_class(&json));
    }
}
