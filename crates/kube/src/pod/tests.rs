use super::*;

#[test]
fn invalid_pod_error_names_the_cause() {
    let error = Pod::from_json(r#"{"spec": {"containers": [{"resources": {"requests": {"cpu": "lots"}}}]}}"#);
    assert!(error.unwrap_err().to_string().contains("`lots` is not a quantity"));
    assert!(Pod::from_json(r#"{"metadata": {}}"#).is_err());
}

#[test]
fn each_revision_of_a_stateful_set_is_a_controller() {
    let controller = |labels: serde_json::Value| {
        let owners = serde_json::json!([{"kind": "StatefulSet", "uid": "u1", "controller": true}]);
        let metadata = serde_json::json!({"labels": labels, "ownerReferences": owners});
        let pod = serde_json::json!({"metadata": metadata, "spec": {}}).to_string();
        let pod = Pod::from_json(&pod).unwrap();
        pod.controller_key().map(String::from)
    };
    let revision = |hash: &str| serde_json::json!({"controller-revision-hash": format!("web-{hash}")});
    assert_eq!(controller(serde_json::json!({})).as_deref(), Some("u1"));
    assert_eq!(controller(revision("6c5f7d8b9")).as_deref(), Some("u1/6c5f7d8b9"));
    assert_eq!(controller(revision(&"9".repeat(17))).as_deref(), Some("u1"));
}

#[test]
fn jobs_of_a_cron_job_are_one_controller() {
    let key = |kind: &str, name: &str| {
        let owners = serde_json::json!([{"kind": kind, "name": name, "uid": "u1", "controller": true}]);
        let pod = serde_json::json!({"metadata": {"ownerReferences": owners}, "spec": {}}).to_string();
        Pod::from_json(&pod)
            .unwrap()
            .controller_key()
            .map(String::from)
            .unwrap()
    };
    assert_eq!(key("Job", "nightly-report-29384820"), "cronjob/nightly-report");
    let others = [
        ("Job", "report"),
        ("Job", "report-2938482"),
        ("Job", "report-2938482x"),
        ("Job", "-29384820"),
    ];
    for (kind, name) in others.into_iter().chain([("ReplicaSet", "web-29384820")]) {
        assert_eq!(key(kind, name), "u1", "{kind} {name}");
    }
    assert_eq!(key("Job", &format!("{}-29384820", "n".repeat(53))), "u1");
}
