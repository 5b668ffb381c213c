//! The rights proof at the end of the end-to-end tests detects rights that are granted but not used.

use edgeward_harness::prelude::*;
use edgeward_harness::rights::proof::{Proof, granted_by, prove};

const HOME: &str = "edgeward-system";

/// A ClusterRole, or a Role of edgeward's own namespace.
fn role(kind: &str, group: &str, resource: &str, verbs: &[&str], name: Option<&str>) -> Value {
    let mut rule = json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
    if let Some(name) = name {
        rule["resourceNames"] = json!([name]);
    }
    json!({"kind": kind, "rules": [rule]})
}

fn lease(verb: &str, namespace: &str) -> Value {
    call("coordination.k8s.io", "leases", verb, Some(namespace), Some("edgeward"))
}

fn call(group: &str, resource: &str, verb: &str, namespace: Option<&str>, name: Option<&str>) -> Value {
    json!({
        "verb": verb,
        "requestURI": "/apis",
        "objectRef": {"apiGroup": group, "resource": resource, "namespace": namespace, "name": name},
        "annotations": {"authorization.k8s.io/decision": "allow"},
    })
}

fn proof(roles: &[Value], calls: &[Value]) -> Proof {
    let homes = BTreeSet::from([HOME.to_owned(), "test-system".to_owned()]);
    prove(&granted_by(roles), &calls.iter().collect::<Vec<_>>(), &homes, true)
}

#[test]
fn used_rights_give_no_complaint() {
    const GROUP: &str = "coordination.k8s.io";
    let roles = [
        role("Role", GROUP, "leases", &["get", "update"], Some("edgeward")),
        role("Role", GROUP, "leases", &["create"], None),
        role("ClusterRole", "", "pods", &["get", "list"], None),
        role("ClusterRole", "", "nodes", &["list"], None),
    ];
    let mut calls = vec![
        call("", "pods", "get", Some("theirs"), Some("waiting")),
        call("", "pods", "list", None, None),
        call("", "nodes", "list", None, None),
    ];
    for verb in ["get", "create", "update"] {
        calls.extend([lease(verb, HOME), lease(verb, "test-system")]);
    }
    let proof = proof(&roles, &calls);
    assert_eq!(proof.complaints, [""; 0]);
    assert_eq!((proof.used, proof.refused), (6, 0));
}

#[test]
fn right_wider_than_its_uses_is_reported() {
    const GROUP: &str = "coordination.k8s.io";
    let complaint = |role: Value, calls: &[Value]| {
        let complaints = proof(&[role], calls).complaints;
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        complaints.concat()
    };
    let calls = [lease("get", HOME), lease("get", "test-system")];
    let moved = role("ClusterRole", GROUP, "leases", &["get"], Some("edgeward"));
    assert_eq!(
        complaint(moved, &calls),
        r#"granted and wider than used, in edgeward's own namespace alone: get leases of group "coordination.k8s.io""#
    );
    let nameless = role("Role", GROUP, "leases", &["get"], None);
    assert_eq!(
        complaint(nameless, &calls),
        r#"granted and wider than used, for edgeward alone: get leases of group "coordination.k8s.io""#
    );
    let nameless = role("ClusterRole", "", "configs", &["watch"], None);
    let watch = call("", "configs", "watch", None, Some("zz-edgeward"));
    assert!(complaint(nameless, &[watch]).contains("for zz-edgeward alone"));
    // If two rules grant a right, the narrower one counts as used.
    let twice = [
        role("Role", GROUP, "leases", &["get"], Some("edgeward")),
        role("ClusterRole", GROUP, "leases", &["get"], None),
    ];
    let complaints = proof(&twice, &calls).complaints;
    assert_eq!(
        complaints,
        [r#"granted and never used: get leases of group "coordination.k8s.io""#]
    );
}

#[test]
fn call_outside_granted_scope_is_reported() {
    const GROUP: &str = "coordination.k8s.io";
    let named = role("Role", GROUP, "leases", &["get", "create"], Some("edgeward"));
    let other = call(GROUP, "leases", "get", Some(HOME), Some("other"));
    for (call, why) in [
        (lease("get", "theirs"), "elsewhere"),
        (other, "another name"),
        (lease("create", HOME), "a name does not allow to create"),
    ] {
        let proof = proof(std::slice::from_ref(&named), &[call]);
        assert_eq!(proof.refused, 1, "{why}");
        let first = &proof.complaints[0];
        assert!(first.starts_with("allowed, but not by the manifests: "), "{first}");
    }
    let mut refused = lease("get", HOME);
    refused["annotations"]["authorization.k8s.io/decision"] = json!("forbid");
    let complaints = proof(&[named], &[refused]).complaints;
    assert!(complaints[0].starts_with("not allowed: "), "{complaints:?}");
}

#[test]
fn call_refused_by_own_policy_is_reported() {
    let roles = [role("ClusterRole", "", "pods", &["patch"], None)];
    let mut refused = call("", "pods", "patch", Some("theirs"), Some("waiting"));
    let failure = "validation.policy.admission.k8s.io/validation_failure";
    for (policy, faults) in [("edgeward-confine-pods", 1), ("of-the-cluster", 0)] {
        refused["annotations"][failure] = json!(json!([{"message": "no", "policy": policy}]).to_string());
        let proof = proof(&roles, std::slice::from_ref(&refused));
        let told = proof.complaints.iter().filter(|it| it.starts_with("refused: "));
        assert_eq!(
            (proof.refused, told.count()),
            (faults, faults),
            "{:?}",
            proof.complaints
        );
    }
}

/// A non-resource path counts as used like any other right. Paths that are open to everyone need no right.
#[test]
fn path_right_is_used_and_open_path_needs_none() {
    let role = json!({"kind": "ClusterRole", "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]});
    let get = |uri: &str, decision: &str| json!({"verb": "get", "requestURI": uri, "annotations": {"authorization.k8s.io/decision": decision}});
    let of = |calls: &[Value]| proof(std::slice::from_ref(&role), calls);
    let fine = of(&[get("/metrics?x=1", "allow"), get("/version", "allow")]);
    assert_eq!((fine.complaints, fine.used, fine.refused), (vec![], 1, 0));
    let unused = of(&[get("/version", "allow")]);
    assert_eq!(
        unused.complaints,
        [r#"granted and never used: get /metrics of group """#]
    );
    assert_eq!(of(&[get("/metrics", "allow"), get("/healthz", "forbid")]).refused, 1);
}
