//! Tests of what is read from the cluster. End-to-end tests cover the writes.

use serde_json::json;

use super::*;

#[test]
fn endpoints_use_webhook_port_and_merge_readiness_of_slices() {
    let slice = |name: &str, ports: serde_json::Value, endpoints: serde_json::Value| -> EndpointSlice {
        let slice = json!({"metadata": {"name": name}, "addressType": "IPv4", "ports": ports, "endpoints": endpoints});
        serde_json::from_value(slice).unwrap()
    };
    let both = json!([{"name": "metrics", "port": 8080}, {"name": "webhook", "port": 8443}]);
    let slices = [
        slice(
            "a",
            both.clone(),
            json!([
                {"addresses": ["10.0.0.1"], "conditions": {"ready": true}},
                {"addresses": ["10.0.0.2"], "conditions": {"ready": false, "serving": true, "terminating": true}},
                {"addresses": ["10.0.0.3"]},
            ]),
        ),
        // The endpoint moves from one slice to the other.
        slice(
            "b",
            both,
            json!([{"addresses": ["10.0.0.2"], "conditions": {"ready": true}}]),
        ),
        slice(
            "c",
            json!([{"name": "", "port": 443}]),
            json!([{"addresses": ["fd00::1"], "conditions": {}}]),
        ),
        slice(
            "d",
            json!([{"name": "x", "port": 1}, {"name": "y", "port": 2}]),
            json!([{"addresses": ["10.0.0.4"]}]),
        ),
    ];
    let expected = [
        ("10.0.0.1:8443", true),
        ("10.0.0.2:8443", true),
        ("10.0.0.3:8443", true),
        ("[fd00::1]:443", true),
    ];
    let expected = expected.map(|(address, is_ready)| (address.to_owned(), is_ready));
    assert_eq!(endpoints(&slices), BTreeMap::from(expected));
    let leaving = &slices[..1];
    assert!(!endpoints(leaving)["10.0.0.2:8443"]);
}

#[test]
fn configuration_without_ca_bundle_yields_empty_bundles() {
    let manifest = include_str!("../../../webhook/base/mutatingwebhookconfiguration.yaml");
    let configuration: MutatingWebhookConfiguration = serde_saphyr::from_str(manifest).unwrap();
    let bundles: Vec<_> = ca_bundles(Some(&configuration)).collect();
    assert_eq!(bundles, [b""; 3]);
    assert_eq!(ca_bundles(None).count(), 0);
}
