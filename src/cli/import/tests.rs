use serde_json::json;

use super::*;
use edgeward_decision::keys::Keys;

fn imported(convert: Convert, document: &Value, fix: bool) -> (Vec<Value>, String) {
    let (mut findings, mut parts) = (Findings::new(fix), Parts::default());
    assert_eq!(convert(&items(vec![document.clone()]), &mut parts, &mut findings), 1);
    let manifests = parts.manifests(&Keys::new("example.io"), &mut findings);
    (manifests, findings.text())
}

fn annotation(manifest: &Value, name: &str) -> Value {
    manifest["spec"]["template"]["metadata"]["annotations"][name].clone()
}

/// An Application with a channel from `a` to `b`, which has these fields.
fn application(channel: &Value) -> Value {
    let pod = json!({"spec": {"containers": [{"name": "c"}]}});
    let mut channel = channel.clone();
    channel["otherWorkload"] = json!({"basename": "b"});
    json!({
        "apiVersion": "qos-scheduler.siemens.com/v1alpha1",
        "kind": "Application",
        "metadata": {"name": "app"},
        "spec": {"workloads": [
            {"basename": "a", "template": pod, "channels": [channel]},
            {"basename": "b", "template": pod},
        ]},
    })
}

#[test]
fn delay_becomes_the_annotation_near() {
    for (class, delay, stated, fixed) in [
        ("ASSURED", "10e-3", "app-b=10ms", "app-b=20ms"),
        ("BESTEFFORT", "10m", "app-b=10ms?", "app-b=20ms?"),
        // Rounded down, which is stricter.
        ("ASSURED", "2500u", "app-b=2ms", "app-b=5ms"),
        ("ASSURED", "3", "app-b=3000ms", "app-b=6000ms"),
    ] {
        let application = application(&json!({"serviceClass": class, "maxDelay": delay}));
        for (fix, near) in [(false, stated), (true, fixed)] {
            let (manifests, findings) = imported(codeco::convert, &application, fix);
            assert_eq!(annotation(&manifests[0], "slo.example.io/near"), near, "{findings}");
            assert_eq!(annotation(&manifests[1], "slo.example.io/near"), Value::Null);
        }
    }
}

#[test]
fn unusable_channel_value_is_left_out_and_reported() {
    for (field, value, fault) in [
        (
            "maxDelay",
            json!("10ms"),
            "\"10ms\" is not a number of seconds, such as 10e-3",
        ),
        (
            "maxDelay",
            json!("-1"),
            "\"-1\" is not a number of seconds, such as 10e-3",
        ),
        (
            "maxDelay",
            json!("100e-6"),
            "\"100e-6\" is not from 1 ms to a year, as near is",
        ),
        (
            "maxDelay",
            json!("1e18"),
            "\"1e18\" is not from 1 ms to a year, as near is",
        ),
        ("maxDelay", json!({"ms": 1}), "an object is not a text"),
        (
            "bandwidth",
            json!("5"),
            "\"5\" is not a bandwidth in bits per second from 1k to 1P, such as 50M",
        ),
        (
            "bandwidth",
            json!("5Mbit"),
            "\"5Mbit\" is not a bandwidth in bits per second from 1k to 1P, such as 50M",
        ),
        ("serviceClass", json!("GOLD"), "\"GOLD\" is not ASSURED or BESTEFFORT"),
        (
            "sendInterval",
            json!("10"),
            "\"10\" is in seconds, and above the longest, 10e-3",
        ),
        ("latency", json!("10ms"), "\"10ms\" is an unknown field"),
    ] {
        let (manifests, findings) = imported(codeco::convert, &application(&json!({field: value})), true);
        let line = format!("Application app: spec.workloads[0].channels[0].{field}: {fault}\n");
        assert!(findings.contains(&line), "{line}{findings}");
        let annotations = &manifests[0]["spec"]["template"]["metadata"]["annotations"];
        assert_eq!(annotations.as_object().unwrap().len(), 3, "{annotations}");
    }
}

#[test]
fn template_keeps_labels_and_annotations() {
    let mut application = application(&json!({}));
    let template = &mut application["spec"]["workloads"][0]["template"];
    template["metadata"] = json!({"labels": {"app": "a", "app.kubernetes.io/component": "b"}, "annotations": {"note": "c", "slo.example.io/group": "d"}});
    let (manifests, findings) = imported(codeco::convert, &application, false);
    let metadata = &manifests[0]["spec"]["template"]["metadata"];
    assert_eq!(
        metadata["labels"],
        json!({"app": "a", "app.kubernetes.io/component": "app-a"})
    );
    assert_eq!(annotation(&manifests[0], "note"), "c");
    assert!(findings.contains("\"b\" has no equal in edgeward"), "{findings}");
    let replaced = "its annotation slo.example.io/group is replaced";
    assert!(findings.contains(replaced), "{findings}");
    application["spec"]["workloads"][0]["template"]["metadata"] = json!({"labels": "a", "annotations": []});
    let (manifests, findings) = imported(codeco::convert, &application, false);
    assert_eq!(manifests.len(), 2);
    assert!(
        findings.contains("metadata.labels: \"a\" is not an object"),
        "{findings}"
    );
}

#[test]
fn traffic_is_added_at_both_ends() {
    let mut application = application(&json!({"bandwidth": "800k", "sendInterval": "10e-3"}));
    let another = json!({"otherWorkload": {"basename": "b", "applicationName": "app"}, "bandwidth": "5M"});
    application["spec"]["workloads"][0]["channels"]
        .as_array_mut()
        .unwrap()
        .push(another);
    let (manifests, _) = imported(codeco::convert, &application, false);
    let traffic =
        |manifest| ["egress", "ingress"].map(|way| annotation(manifest, &format!("kubernetes.io/{way}-bandwidth")));
    assert_eq!(traffic(&manifests[0]), [json!("5800000"), Value::Null]);
    assert_eq!(traffic(&manifests[1]), [Value::Null, json!("5800000")]);
}

/// An AppGroup whose workload `w0` depends on as many others, each with a name of this length.
fn app_group(others: usize, length: usize) -> Value {
    let workload = |i: usize| {
        let selector = format!("w{i:0>length$}", length = length - 1);
        json!({"kind": "Deployment", "name": selector, "selector": selector})
    };
    let dependency = |i| json!({"workload": workload(i), "maxNetworkCost": 10});
    let mut workloads: Vec<_> = (0..=others).map(|i| json!({"workload": workload(i)})).collect();
    workloads[0]["dependencies"] = (1..=others).map(dependency).collect();
    json!({
        "apiVersion": "appgroup.diktyo.x-k8s.io/v1alpha1",
        "kind": "AppGroup",
        "metadata": {"name": "group"},
        "spec": {"numMembers": others, "topologySortingAlgorithm": "KahnSort", "workloads": workloads},
    })
}

#[test]
fn near_beyond_its_bounds_is_left_out() {
    for (others, length, is_written) in [(16, 8, true), (17, 8, false), (16, 63, false)] {
        let (manifests, findings) = imported(appgroup::convert, &app_group(others, length), true);
        let near = annotation(&manifests[0], "slo.example.io/near");
        assert_eq!(!near.is_null(), is_written, "{findings}");
        let fault = "at most 16 components in 512 bytes";
        assert_eq!(findings.contains(fault), !is_written, "{findings}");
    }
}

#[test]
fn cost_limits_the_distance_only_on_request() {
    let mut group = app_group(1, 2);
    for (cost, near) in [
        (json!(80), json!("w1=80ms")),
        (json!(0), json!("w1=site")),
        (Value::Null, Value::Null),
    ] {
        group["spec"]["workloads"][0]["dependencies"][0]["maxNetworkCost"] = cost;
        let near_of = |fix| annotation(&imported(appgroup::convert, &group, fix).0[0], "slo.example.io/near");
        assert_eq!((near_of(false), near_of(true)), (Value::Null, near));
    }
}

#[test]
fn invalid_name_becomes_a_label_only_on_request() {
    let mut group = app_group(1, 2);
    group["metadata"]["name"] = json!("My.Shop");
    let (manifests, findings) = imported(appgroup::convert, &group, false);
    assert_eq!((manifests.len(), findings.lines().count()), (0, 1), "{findings}");
    let (manifests, findings) = imported(appgroup::convert, &group, true);
    assert_eq!(annotation(&manifests[0], "slo.example.io/group"), "my-shop");
    let expected = "AppGroup My.Shop: metadata.name: \"My.Shop\" is not a DNS label: --fix writes my-shop (fixed)\n";
    assert!(findings.starts_with(expected), "{findings}");
    group["metadata"]["name"] = json!("…");
    assert_eq!(imported(appgroup::convert, &group, true).0.len(), 0);
}
