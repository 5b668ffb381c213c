//! Every kind of change, tried by hand: what is refused, and by which words, and what is taken.

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use edgeward_harness::fixture::{ENTRIES, ENTRY_OF_PODS, Fixture, manifest};
use edgeward_harness::pki::Authority;
use edgeward_harness::test_webhook;
use edgeward_harness::wait::{BOUND, eventually};
use edgeward_harness::workloads;
use serde_json::{Value, json};

use super::{ByHand, is_refused};

const GATE: &str = "scheduling.example.io/awaiting-capacity";

/// What is tried, on which pod, by which operations.
type Row = (&'static str, &'static str, Value);

/// As in JSON pointers.
const OURS: &str = "/metadata/annotations/scheduling.example.io~1";

fn op(op: &str, path: &str, value: Value) -> Value {
    json!({"op": op, "path": path, "value": value})
}

fn remove(path: &str) -> Value {
    json!({"op": "remove", "path": path})
}

/// Gated by three gates, ours between those of others, with something of everything that may not change; and one with nothing but its
/// gate; and two that are none of edgeward's.
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

/// With the words of the policy, without `edgeward may `.
fn forbidden() -> Vec<(&'static str, Vec<Row>)> {
    let image = "/spec/containers/0/image";
    let owner = json!([{"apiVersion": "v1", "kind": "Namespace", "name": "invented", "uid": "1"}]);
    let everything = json!({"operator": "Exists"});
    let preference = json!({"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}});
    let preferred = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}});
    vec![
        (
            "change nothing of a pod's spec but",
            vec![
                ("an image", "gated", json!([op("replace", image, json!("other"))])),
                (
                    "an image and the gate",
                    "bare",
                    json!([op("replace", image, json!("other")), remove("/spec/schedulingGates")]),
                ),
                (
                    "a deadline",
                    "gated",
                    json!([op("add", "/spec/activeDeadlineSeconds", json!(1))]),
                ),
            ],
        ),
        (
            "change only pods behind its own gate, and take off no other",
            vec![
                (
                    "a pod that is not gated",
                    "free",
                    json!([op("add", "/metadata/labels", json!({"a": "b"}))]),
                ),
                (
                    "the gate of another",
                    "gated",
                    json!([remove("/spec/schedulingGates/0")]),
                ),
                ("all gates", "gated", json!([remove("/spec/schedulingGates")])),
                (
                    "the gate of another domain",
                    "foreign",
                    json!([remove("/spec/schedulingGates/1")]),
                ),
            ],
        ),
        (
            "change no owner and no finalizer",
            vec![
                (
                    "an owner invented",
                    "bare",
                    json!([op("add", "/metadata/ownerReferences", owner.clone())]),
                ),
                (
                    "an owner exchanged",
                    "gated",
                    json!([op("replace", "/metadata/ownerReferences", owner)]),
                ),
                (
                    "an owner taken away",
                    "gated",
                    json!([remove("/metadata/ownerReferences")]),
                ),
                (
                    "a finalizer",
                    "bare",
                    json!([op("add", "/metadata/finalizers", json!(["edgeward.test/new"]))]),
                ),
                (
                    "a finalizer taken away",
                    "gated",
                    json!([remove("/metadata/finalizers")]),
                ),
            ],
        ),
        (
            "change or remove no label",
            vec![
                (
                    "a label changed",
                    "gated",
                    json!([op("replace", "/metadata/labels/app", json!("other"))]),
                ),
                ("a label taken away", "gated", json!([remove("/metadata/labels/app")])),
                ("all labels", "gated", json!([remove("/metadata/labels")])),
            ],
        ),
        (
            "change or remove no annotation but its own",
            vec![
                (
                    "an annotation changed",
                    "gated",
                    json!([op("replace", "/metadata/annotations/note", json!("ours"))]),
                ),
                (
                    "an annotation taken away",
                    "gated",
                    json!([remove("/metadata/annotations/note")]),
                ),
                (
                    "an SLO",
                    "gated",
                    json!([op(
                        "replace",
                        "/metadata/annotations/slo.example.io~1class",
                        json!("latency")
                    )]),
                ),
                (
                    "all annotations",
                    "gated",
                    json!([remove("/metadata/annotations"), remove("/spec/schedulingGates/1")]),
                ),
            ],
        ),
        (
            "change no affinity but",
            vec![("a preference", "bare", json!([op("add", "/spec/affinity", preferred)]))],
        ),
        (
            "change no toleration",
            vec![(
                "the seconds of a toleration",
                "gated",
                json!([op("add", "/spec/tolerations/0/tolerationSeconds", json!(5))]),
            )],
        ),
        (
            "add no toleration without a key",
            vec![
                (
                    "a toleration of everything",
                    "gated",
                    json!([op("add", "/spec/tolerations/-", everything.clone())]),
                ),
                (
                    "and the gate",
                    "bare",
                    json!([
                        op("add", "/spec/tolerations/-", everything),
                        remove("/spec/schedulingGates")
                    ]),
                ),
            ],
        ),
    ]
}

fn permitted() -> Vec<Row> {
    let cloud = json!({"key": "cloud", "operator": "Equal", "value": "cloud", "effect": "NoSchedule"});
    let term = json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["v"]}]}]});
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": term}});
    // A Site may bring any key.
    let exists = json!({"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"});
    let placed =
        json!({"scheduling.example.io/decision": "cloud", "controller.kubernetes.io/pod-deletion-cost": "-100"});
    let (cost, selector) = (
        "/metadata/annotations/controller.kubernetes.io~1pod-deletion-cost",
        "/spec/nodeSelector",
    );
    vec![
        (
            "a release",
            "gated",
            json!([
                op("test", "/spec/schedulingGates/1/name", json!(GATE)),
                op("add", &format!("{OURS}decision"), json!("cloud")),
                op("add", &format!("{OURS}reason"), json!("cloud_edge_no_capacity")),
                remove(&format!("{OURS}wanRttMs")),
                op("add", cost, json!("-100")),
                op("add", &format!("{selector}/node.role~1cloud"), json!("true")),
                op("add", "/spec/tolerations/-", cloud.clone()),
                op("add", "/spec/tolerations/-", exists),
                remove("/spec/schedulingGates/1"),
            ]),
        ),
        (
            "a release of a pod that has nothing",
            "bare",
            json!([
                op("add", "/metadata/annotations", placed),
                op("add", selector, json!({"node.role/cloud": "true"})),
                op("add", "/spec/affinity", affinity),
                op("add", "/spec/tolerations/-", cloud),
                remove("/spec/schedulingGates/0"),
            ]),
        ),
        ("a let-go", "gated", json!([remove("/spec/schedulingGates/1")])),
        (
            "a let-go of a pod that has nothing",
            "bare",
            json!([remove("/spec/schedulingGates/0")]),
        ),
        (
            "going on waiting",
            "gated",
            json!([
                op("add", &format!("{OURS}reason"), json!("held_site_away")),
                op("add", &format!("{OURS}timestamp"), json!("2026-01-01T00:00:00Z"))
            ]),
        ),
        (
            "going on waiting, of a pod that has nothing",
            "bare",
            json!([op(
                "add",
                "/metadata/annotations",
                json!({"scheduling.example.io/reason": "held_no_capacity"})
            )]),
        ),
    ]
}

pub(super) fn pods(fixture: &Fixture<'_>, by_hand: &ByHand<'_, '_>) -> Result<()> {
    pods_to_try(fixture)?;
    let tried = |(_, pod, operations): &Row| by_hand.patch_pod(pod, operations);
    let forbidden = forbidden();
    let (words, rows) = &forbidden[0];
    eventually("the policies are in force", BOUND, || {
        is_refused(tried(&rows[0]), words)
    })?;
    for (words, rows) in &forbidden {
        for row in rows {
            is_refused(tried(row), words).context(row.0)?;
        }
    }
    let (_, pod, image) = &rows[0];
    let args = [
        "patch",
        "pod",
        pod,
        "--type=json",
        "--dry-run=server",
        "-p",
        &image.to_string(),
    ];
    fixture
        .kubectl
        .run(&args, "")
        .context("by whoever operates the cluster")?;
    for row in permitted() {
        tried(&row).context(row.0)?;
    }

    let webhook = fixture.test_webhook(test_webhook::labels)?;
    let labels = webhook.register_for_updates(&fixture.kubectl, &fixture.namespace)?;
    let is_labelled = |row: &Row| {
        let pod = tried(row).context(row.0)?;
        ensure!(pod["metadata"]["labels"]["seen-by"] == "test", "{pod:#}");
        Ok(())
    };
    let permitted = permitted();
    eventually("the API server calls the webhook", BOUND, || is_labelled(&permitted[0]))?;
    permitted.iter().try_for_each(is_labelled)?;
    drop(labels);
    // Or it would never be gone.
    let free = json!([remove("/metadata/finalizers")]).to_string();
    let args = ["patch", "pod", "gated", "--type=json", "-p", &free];
    fixture.kubectl.run(&args, "").map(drop)
}

/// Its caBundle is edgeward's, and nothing else of it.
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
