//! A table of every kind of change: refused with which words, or accepted.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use edgeward_harness::fixture::{ENTRIES, ENTRY_OF_PODS, manifest};
use edgeward_harness::prelude::*;
use edgeward_harness::test_webhook;

use super::{ByHand, is_refused};

const GATE: &str = "scheduling.example.io/awaiting-capacity";

#[derive(serde::Deserialize)]
struct Row {
    what: String,
    pod: String,
    patch: Value,
    /// The policy's message; `None` if the patch is accepted.
    words: Option<String>,
}

fn op(op: &str, path: &str, value: Value) -> Value {
    json!({"op": op, "path": path, "value": value})
}

fn remove(path: &str) -> Value {
    json!({"op": "remove", "path": path})
}

/// Creates the pods of the table. One has three gates, edgeward's between the others, and a value in every field that may not
/// change. One has only edgeward's gate. Two do not belong to edgeward.
fn pods_to_try(fixture: &Fixture<'_>) -> Result<()> {
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}});
    let owner = fixture.kubectl.create(&owner)?;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]});
    let gates = |names: &[&str]| -> Value { names.iter().map(|name| json!({"name": name})).collect() };
    let mut gated = workloads::pod("gated", json!({"slo.example.io/class": "batch", "note": "theirs"}));
    gated["metadata"]["annotations"]["scheduling.example.io/reason"] = json!("held_no_capacity");
    gated["metadata"]["annotations"]["scheduling.example.io/wanRttMs"] = json!("5");
    gated["metadata"]["labels"] = json!({"app": "shop", "tier": "front"});
    gated["metadata"]["finalizers"] = json!(["edgeward.test/kept"]);
    gated["metadata"]["ownerReferences"] = json!([owner]);
    gated["spec"]["schedulingGates"] = gates(&["a.example/gate", GATE, "b.example/gate"]);
    gated["spec"]["nodeSelector"] = json!({"disk": "fast"});
    gated["spec"]["tolerations"] =
        json!([{"operator": "Exists", "effect": "NoExecute"}, {"key": "k", "operator": "Exists"}]);
    let mut bare = workloads::pod("bare", Value::Null);
    bare["spec"]["schedulingGates"] = gates(&[GATE]);
    let mut foreign = workloads::pod("foreign", json!({}));
    foreign["spec"]["schedulingGates"] = gates(&["a.example/gate", "scheduling.acme.dev/awaiting-capacity"]);
    let free = workloads::pod("free", json!({}));
    for pod in [gated, bare, foreign, free] {
        fixture.kubectl.create(&pod)?;
    }
    Ok(())
}

pub(super) fn pods(fixture: &Fixture<'_>, by_hand: &ByHand<'_, '_>) -> Result<()> {
    pods_to_try(fixture)?;
    let rows: Vec<Row> = serde_saphyr::from_str(include_str!("../../golden/confined/pods.yaml"))?;
    let tried = |row: &Row| by_hand.patch_pod(&row.pod, &row.patch);
    let (forbidden, permitted): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.words.is_some());
    let refused =
        |row: &Row| is_refused(tried(row), row.words.as_deref().unwrap_or_default()).context(row.what.clone());
    let first = *forbidden.first().context("a row")?;
    eventually("the policies are in force", BOUND, || refused(first))?;
    forbidden.iter().try_for_each(|row| refused(row))?;
    let image = first.patch.to_string();
    let args = [
        "patch",
        "pod",
        &first.pod,
        "--type=json",
        "--dry-run=server",
        "-p",
        &image,
    ];
    fixture
        .kubectl
        .run(&args, "")
        .context("by whoever operates the cluster")?;
    for row in &permitted {
        tried(row).context(row.what.clone())?;
    }

    let webhook = fixture.test_webhook(test_webhook::labels)?;
    let labels = webhook.register_for_updates(&fixture.kubectl, &fixture.namespace)?;
    let is_labelled = |row: &Row| {
        let pod = tried(row).context(row.what.clone())?;
        ensure!(pod["metadata"]["labels"]["seen-by"] == "test", "{pod:#}");
        Ok(())
    };
    eventually("the API server calls the webhook", BOUND, || is_labelled(permitted[0]))?;
    permitted.iter().try_for_each(|row| is_labelled(row))?;
    drop(labels);
    // With its finalizer the pod would never be gone.
    let free = json!([remove("/metadata/finalizers")]);
    fixture.kubectl.patch("pod", "gated", &free, &[])
}

/// edgeward may change only the registration's `caBundle`.
pub(super) fn registration(fixture: &Fixture<'_>, by_hand: &ByHand<'_, '_>) -> Result<()> {
    fixture.kubectl.create(&manifest()?)?;
    let tried = try_registration(by_hand);
    let args = ["delete", "mutatingwebhookconfiguration", "zz-edgeward"];
    fixture.kubectl.run(&args, "")?;
    tried
}

fn try_registration(by_hand: &ByHand<'_, '_>) -> Result<()> {
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/zz-edgeward";
    let tried = |operations: Value| by_hand.patch(path, &operations);
    let ca = STANDARD.encode(Authority::new()?.certificate);
    let of_pods = |field: &str| format!("/webhooks/{ENTRY_OF_PODS}/{field}");
    let url = json!({"url": "https://192.0.2.1/mutate", "caBundle": ca});
    let another = json!({
        "name": "another.edgeward.io", "clientConfig": url, "sideEffects": "None", "admissionReviewVersions": ["v1"],
    });
    let owner = json!([{"apiVersion": "v1", "kind": "Namespace", "name": "invented", "uid": "1"}]);
    for (what, operation) in [
        ("rules", op("replace", &of_pods("rules/0/operations"), json!(["*"]))),
        ("failurePolicy", op("replace", &of_pods("failurePolicy"), json!("Fail"))),
        ("a timeout", op("replace", &of_pods("timeoutSeconds"), json!(30))),
        ("whose pods", remove(&of_pods("namespaceSelector/matchExpressions/0"))),
        ("a condition", remove(&of_pods("matchConditions/0"))),
        (
            "another Service",
            op("replace", &of_pods("clientConfig/service/namespace"), json!("default")),
        ),
        ("another address", op("replace", &of_pods("clientConfig"), url.clone())),
        ("one entry less", remove("/webhooks/1")),
        ("one entry more", op("add", "/webhooks/-", another)),
        (
            "the order",
            json!({"op": "move", "from": "/webhooks/1", "path": "/webhooks/0"}),
        ),
    ] {
        is_refused(tried(json!([operation])), "change nothing of a webhook but caBundle").context(what)?;
    }
    for (what, operation) in [
        ("a label", op("add", "/metadata/labels/a", json!("b"))),
        (
            "an annotation",
            op(
                "add",
                "/metadata/annotations",
                json!({"cert-manager.io/inject-ca-from": "a/b"}),
            ),
        ),
        ("an owner", op("add", "/metadata/ownerReferences", owner)),
    ] {
        let words = "change no label, annotation, owner or finalizer of a registration";
        is_refused(tried(json!([operation])), words).context(what)?;
    }
    let bundles: Value = ENTRIES
        .map(|entry| op("add", &format!("/webhooks/{entry}/clientConfig/caBundle"), json!(ca)))
        .collect();
    tried(bundles).map(drop)
}
