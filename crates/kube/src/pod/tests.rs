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
        pod.controller_uid().map(String::from)
    };
    let revision = |hash: &str| serde_json::json!({"controller-revision-hash": format!("web-{hash}")});
    assert_eq!(controller(serde_json::json!({})).as_deref(), Some("u1"));
    assert_eq!(controller(revision("6c5f7d8b9")).as_deref(), Some("u1/6c5f7d8b9"));
    assert_eq!(controller(revision(&"9".repeat(17))).as_deref(), Some("u1"));
}

#[test]
fn jobs_of_a_cron_job_have_one_key() {
    let key = |api_version: &str, kind: &str, name: &str| {
        let owner =
            serde_json::json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": "u1", "controller": true});
        let pod = serde_json::json!({"metadata": {"ownerReferences": [owner]}, "spec": {}}).to_string();
        let pod = Pod::from_json(&pod).unwrap();
        assert_eq!(pod.controller_uid().as_deref(), Some("u1"));
        pod.job_key().map(String::from)
    };
    let cron_job = key("batch/v1", "Job", "nightly-report-29384820");
    assert_eq!(cron_job.as_deref(), Some("cronjob/nightly-report"));
    for (api_version, name) in [
        ("batch/v1", "report"),
        ("batch/v1", "report-2938482"),
        ("batch/v1", "report-2938482x"),
        ("batch/v1", "report-20261129"),
        ("batch/v1", "report-84512312"),
        ("batch/v1", "-29384820"),
        ("batch.volcano.sh/v1alpha1", "report-29384820"),
    ] {
        assert_eq!(
            key(api_version, "Job", name).as_deref(),
            Some("u1"),
            "{api_version} {name}"
        );
    }
    let long = format!("{}-29384820", "n".repeat(53));
    assert_eq!(key("batch/v1", "Job", &long).as_deref(), Some("u1"));
    assert_eq!(key("apps/v1", "ReplicaSet", "web-29384820"), None);
}
