//! Estimated completion times.

use serde_json::{Value, json};

use super::*;

#[test]
fn queue_time_counts_only_pods_that_are_ahead() {
    // 500 m does not fit, 400 m does.
    let queue = |group: Value| with(fleet(3600), "/sites/0/queues", json!([group]));
    let tight = pod(json!({"deadlineMs": "300"}));
    let queued = |fleet: &Value, pod: &Value, config: &Config| {
        with_verdict(fleet, pod, config, |verdict| {
            verdict.sites[0].estimate.queue.to_string()
        })
    };
    let is_behind = |group: Value| queued(&queue(group), &tight, &Config::default()) != "0";
    assert!(is_behind(json!({"class": "latency", "waiting": 1})));
    assert!(is_behind(
        json!({"class": "latency", "waiting": 1, "priority": 1, "sloPriority": 0})
    ));
    assert!(!is_behind(json!({"class": "latency", "waiting": 1, "sloPriority": 4})));
    assert!(!is_behind(
        json!({"class": "latency", "waiting": 1, "priority": -1, "sloPriority": 10})
    ));
    assert!(!is_behind(json!({"class": "batch", "waiting": 9})));
    // kube-scheduler binds a pod that fits at once, even if larger pods wait.
    let smaller = with(tight, "/spec/containers/0/resources/requests/cpu", json!("400m"));
    let queue = queue(json!({"class": "latency", "waiting": 9, "sloPriority": 10}));
    assert_eq!(queued(&queue, &smaller, &Config::default()), "0");
    assert_eq!(outcome(&queue, &smaller), "edge: edge_feasible_slo_met");
}

#[test]
fn processing_time_is_stated_observed_or_modelled() {
    let eta = |fleet: Value, pod: Value| {
        with_verdict(&fleet, &pod, &Config::default(), |verdict| {
            let etas = verdict
                .sites
                .iter()
                .map(|site| site.estimate.eta().unwrap().to_string());
            etas.collect::<Vec<_>>().join(" ")
        })
    };
    let observed = with(fleet(0), "/sites/1/observedProcMs", json!({"latency": 7}));
    let fast = with(fleet(0), "/sites/1/speedFactor", json!(2));
    assert_eq!(eta(fleet(0), pod(json!({}))), "270 320");
    assert_eq!(eta(observed.clone(), pod(json!({}))), "270 57");
    assert_eq!(eta(fast.clone(), pod(json!({}))), "270 185");
    assert_eq!(eta(fast, pod(json!({"processingMs": "40"}))), "40 70");
    assert_eq!(eta(observed, pod(json!({"processingMs": "40"}))), "40 90");
    let slow_edge = with(fleet(0), "/sites/0/speedFactor", json!(0.5));
    assert_eq!(eta(slow_edge.clone(), pod(json!({}))), "540 320");
    // A stated processing time is the time at the edge, whatever the edge's speed factor.
    assert_eq!(eta(slow_edge, pod(json!({"processingMs": "40"}))), "40 70");
    let observed = with(
        with(fleet(0), "/sites/1/observedProcMs", json!({"latency": 7})),
        "/sites/1/speedFactor",
        json!(2),
    );
    assert_eq!(eta(observed, pod(json!({}))), "270 57");
    let of_controllers = json!({"shop": {"a": 5}, "x": {"b": 5}});
    let observed = with(
        with(fleet(0), "/sites/1/observedProcMs", json!({"latency": 7})),
        "/sites/1/observedControllerProcMs",
        of_controllers,
    );
    let of = |uid: &str, pod: Value| {
        let owners = json!([{"kind": "Job", "uid": uid, "controller": true}]);
        with(pod, "/metadata/ownerReferences", owners)
    };
    // Observed means of Jobs apply in their own namespace. The controller's mean comes first, the class's last.
    assert_eq!(eta(observed.clone(), of("a", pod(json!({})))), "270 55");
    assert_eq!(eta(observed.clone(), of("b", pod(json!({})))), "270 57");
    assert_eq!(
        eta(observed.clone(), of("a", pod(json!({"processingMs": "40"})))),
        "40 90"
    );
    let of_namespaces = |name: &str| json!({name: {"latency": 6}});
    let of_shop = with(fleet(0), "/sites/1/observedNamespaceProcMs", of_namespaces("shop"));
    assert_eq!(eta(of_shop, pod(json!({}))), "270 56");
    let of_other = with(fleet(0), "/sites/1/observedNamespaceProcMs", of_namespaces("x"));
    assert_eq!(eta(of_other, pod(json!({}))), "270 320");
    let observed = with(observed, "/sites/1/observedNamespaceProcMs", of_namespaces("shop"));
    assert_eq!(eta(observed.clone(), pod(json!({}))), "270 57");
    // The pods ahead belong to any controller.
    let queue = with(observed, "/sites/1/queues", json!([{"class": "latency", "waiting": 1}]));
    let queue = with(queue, "/nodes/1/used", json!({"cpu": "64"}));
    assert_eq!(eta(queue, of("a", pod(json!({})))), "270 62");
    let batch = |pod: Value| with(pod, "/metadata/annotations/slo.example.io~1class", json!("batch"));
    assert_eq!(eta(fleet(0), batch(pod(json!({})))), "1100 1125");
}
