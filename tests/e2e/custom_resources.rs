//! Our custom resources on a real API server.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::scene::Scene;

fn policy(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "edgeward.io/v1alpha1", "kind": "SloPolicy", "metadata": {"name": name}, "spec": spec})
}

fn site(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "edgeward.io/v1alpha1", "kind": "Site", "metadata": {"name": name}, "spec": spec})
}

/// The API server takes the definitions and good objects, and refuses bad ones by a message that names field and value.
pub(crate) fn bad_ones_are_refused(scene: &Scene<'_>) -> Result<()> {
    scene.install_custom_resources()?;
    let slo = |slo: Value| policy("p", &json!({"selector": {}, "slo": slo}));
    let selector = |selector: Value| policy("p", &json!({"selector": selector, "slo": {"class": "batch"}}));
    let bad = [
        (slo(json!({})), "spec.slo.class: Required value"),
        (
            slo(json!({"class": "fast"})),
            "spec.slo.class: Unsupported value: \"fast\": supported values: \"latency\", \"throughput\", \"batch\"",
        ),
        (
            slo(json!({"class": "batch", "deadlineMs": 0})),
            "spec.slo.deadlineMs: Invalid value: 0: is not a whole number of milliseconds from 1 to 31536000000",
        ),
        (
            slo(json!({"class": "batch", "latencyTargetMs": 31_536_000_001_i64})),
            "spec.slo.latencyTargetMs: Invalid value: 31536000001: is not",
        ),
        (
            slo(json!({"class": "batch", "priority": 11})),
            "spec.slo.priority: Invalid value: 11: is not a whole number from 0 to 10",
        ),
        (
            slo(json!({"class": "batch", "offloadAllowed": "no"})),
            "spec.slo.offloadAllowed: Invalid value: \"string\"",
        ),
        (
            policy(
                "p",
                &json!({"selector": {}, "precedence": 2_000_000, "slo": {"class": "batch"}}),
            ),
            "spec.precedence: Invalid value: 2000000: is not a whole number from -1000000 to 1000000",
        ),
        (selector(json!({"matchLabels": {"a b": "c"}})), "a b is not a label key"),
        (
            selector(json!({"matchLabels": {"a": "c d"}})),
            "c d is not a label value",
        ),
        (
            selector(json!({"matchExpressions": [{"key": "a", "operator": "In"}]})),
            "values must be stated with operator In",
        ),
        (
            selector(json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]})),
            "values must be empty with operator Exists",
        ),
        (
            selector(json!({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]})),
            "spec.selector.matchExpressions[0].operator: Unsupported value: \"Gt\"",
        ),
        (
            site("s", &json!({"kind": "moon"})),
            "spec.kind: Unsupported value: \"moon\": supported values: \"edge\", \"cloud\", \"liqo\"",
        ),
        (
            site("s", &json!({"kind": "cloud", "nodeSelector": {}})),
            "spec.nodeSelector: Invalid value: 0: spec.nodeSelector in body should have at least 1 properties",
        ),
        (
            site("s", &json!({"kind": "cloud", "nodeSelector": {"zone": "b c"}})),
            "b c is not a label value",
        ),
        (
            site("s", &json!({"kind": "cloud", "probes": ["a:6443"]})),
            "a:6443 is not a WAN endpoint",
        ),
        (
            site("s", &json!({"kind": "cloud", "probes": ["icmp://a", "icmp://a"]})),
            "an endpoint is listed twice",
        ),
        (
            site("s", &json!({"kind": "edge", "probes": ["icmp://a"]})),
            "probes are not for a site of kind edge",
        ),
        (
            site("s", &json!({"kind": "edge", "rttThresholdMs": 5})),
            "thresholds are not for a site of kind edge",
        ),
        (
            site("s", &json!({"kind": "cloud", "rttThresholdMs": 0})),
            "spec.rttThresholdMs: Invalid value: 0: is not a number from 0.001 to 60000 with at most three decimals",
        ),
        (
            site("s", &json!({"kind": "cloud", "lossThresholdPct": 2.25})),
            "spec.lossThresholdPct: Invalid value: 2.25: is not a number from 0.1 to 100 with at most one decimal",
        ),
        (
            site("s", &json!({"kind": "cloud", "speedFactor": -1.5})),
            "spec.speedFactor: Invalid value: -1.5",
        ),
        (
            site("s", &json!({"kind": "cloud", "runtimeClassName": "A_b"})),
            "spec.runtimeClassName: Invalid value: \"A_b\": A_b is not the name of a RuntimeClass",
        ),
        (
            site("s", &json!({"kind": "cloud", "supports": ["gpu"]})),
            "spec.supports[0]: Unsupported value: \"gpu\"",
        ),
        (
            site(
                "s",
                &json!({"kind": "cloud", "tolerations": [{"operator": "Equal", "value": "x"}]}),
            ),
            "key may be empty only with operator Exists",
        ),
        (
            site(
                "s",
                &json!({"kind": "cloud", "tolerations": [{"key": "a", "operator": "Exists", "value": "x"}]}),
            ),
            "value must be empty with operator Exists",
        ),
        (
            site(
                "s",
                &json!({"kind": "cloud", "tolerations": [{"key": "a", "effect": "Never"}]}),
            ),
            "spec.tolerations[0].effect: Unsupported value: \"Never\"",
        ),
        (
            site(&"s".repeat(64), &json!({"kind": "cloud"})),
            "is longer than 63 characters",
        ),
    ];
    let mut wrong = Vec::new();
    for (object, expected) in bad {
        let said = scene
            .kubectl
            .attempt(&["create", "--dry-run=server", "-f", "-"], &object.to_string())?;
        if said.succeeded || !said.stderr.contains(expected) {
            wrong.push(format!(
                "{object}\n  expected {expected}\n  {}{}",
                said.stdout, said.stderr
            ));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));

    let good = [
        slo(json!({"class": "batch"})),
        policy(
            "p",
            &json!({
                "selector": {"matchLabels": {"app.kubernetes.io/name": "web", "empty": ""}, "matchExpressions": [
                    {"key": "tier", "operator": "NotIn", "values": ["a", ""]}, {"key": "x", "operator": "DoesNotExist"}]},
                "precedence": -5,
                "slo": {"class": "latency", "deadlineMs": 1, "latencyTargetMs": 31_536_000_000_i64, "priority": 10, "offloadAllowed": false},
            }),
        ),
        site("edge-of.town", &json!({"kind": "edge"})),
        site(
            "s",
            &json!({
                "kind": "cloud", "nodeSelector": {"zone": "b"}, "tolerations": [{"key": "cloud", "value": "b", "effect": "NoSchedule"}, {"operator": "Exists"}],
                "runtimeClassName": "kata.b", "probes": ["icmp://a", "tcp://[::1]:1", "https://a/b?c"], "rttThresholdMs": 60000,
                "lossThresholdPct": 0.1, "speedFactor": 1.125, "supports": ["hostPID", "persistentVolumeClaim"],
            }),
        ),
    ];
    for object in good {
        scene.kubectl.dry_run(&object)?;
    }
    Ok(())
}
