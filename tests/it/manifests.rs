//! The manifests say what the code does.

use edgeward::admit::server;
use edgeward::keys::Keys;
use serde_json::{Value, json};

fn webhook() -> Value {
    let text = include_str!("../../webhook/base/mutatingwebhookconfiguration.yaml");
    let configuration: Value = serde_saphyr::from_str(text).unwrap();
    assert_eq!(configuration["kind"], "MutatingWebhookConfiguration");
    // Configurations run in the order of their names, and we want the pod as the others leave it.
    assert_eq!(configuration["metadata"]["name"], "zz-edgeward");
    let webhooks = configuration["webhooks"].as_array().unwrap();
    assert_eq!(webhooks.len(), 1);
    webhooks[0].clone()
}

#[test]
fn the_api_server_calls_us_where_we_listen_and_for_what_we_decide() {
    let webhook = webhook();
    let service = &webhook["clientConfig"]["service"];
    assert_eq!(service["path"], server::PATH);
    assert_eq!(service["port"], 443);
    assert_eq!(
        webhook["rules"],
        json!([{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
            "scope": "Namespaced",
        }])
    );
    for (field, expected) in [
        ("admissionReviewVersions", json!(["v1"])),
        ("failurePolicy", json!("Ignore")),
        ("timeoutSeconds", json!(1)),
        ("sideEffects", json!("NoneOnDryRun")),
        ("reinvocationPolicy", json!("IfNeeded")),
    ] {
        assert_eq!(webhook[field], expected, "{field}");
    }
}

#[test]
fn the_certificate_is_for_the_service_that_is_called() {
    let service = webhook()["clientConfig"]["service"].clone();
    let help = include_str!("../../docs/cli.md");
    for name in ["name", "namespace"] {
        let default = format!("[default: {}]", service[name].as_str().unwrap());
        assert!(
            help.contains(&default),
            "serve's default for the Service is not {default}"
        );
    }
}

#[test]
fn selectors_and_conditions_use_the_keys_of_the_contract() {
    let webhook = webhook();
    let keys = Keys::new("example.io");
    let selector = &webhook["namespaceSelector"]["matchExpressions"];
    assert_eq!(
        selector[0],
        json!({"key": keys.managed, "operator": "In", "values": ["true"]})
    );
    let excluded = edgeward::config::Config::default().excluded_namespaces;
    assert_eq!(
        selector[1],
        json!({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": excluded})
    );

    let conditions = webhook["matchConditions"].as_array().unwrap();
    let expressions: String = conditions
        .iter()
        .map(|condition| condition["expression"].as_str().unwrap())
        .collect();
    let class = format!("{}class", keys.slo_prefix);
    for needed in [
        &*class,
        &*keys.managed,
        "DaemonSet",
        "kubernetes.io/config.mirror",
        "nodeName",
        "shadowpod",
    ] {
        assert!(expressions.contains(needed), "no condition reads {needed}");
    }
    // A condition that reads an absent field without `?` fails, and a failing condition is a call that fails.
    assert!(!expressions.contains("object.metadata.annotations") && !expressions.contains("object.metadata.labels"));
}
