//! Pods.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::testkit::generated::{full_object, map_of, object, or_null, unknown, with_members, words};

fn annotations() -> BoxedStrategy<Value> {
    let class = full_object(vec![(
        "slo.example.io/class",
        words(&["latency", "throughput", "batch"]),
    )]);
    let slo = object(vec![
        (
            "slo.example.io/deadlineMs",
            words(&["1", "200", "300", "1000", "60000"]),
        ),
        ("slo.example.io/latencyTargetMs", words(&["50", "300", "2000"])),
        ("slo.example.io/priority", words(&["0", "5", "7", "10"])),
        (
            "slo.example.io/offloadAllowed",
            words(&["true", "true", "true", "true", "true", "true", "false"]),
        ),
        ("slo.example.io/processingMs", words(&["10", "400"])),
        ("slo.example.io/profile", words(&["greenness", "of-nobody"])),
    ]);
    let traits = words(&["A", "A, B", "B?", "A, SoftDistanceLimit=50ms", "C"]);
    let traits = full_object(vec![("slo.example.io/traits", traits)]);
    let traits = prop_oneof![5 => Just(json!({})), 1 => traits];
    let faults = select(vec![
        json!({"slo.example.io/class": "fast"}),
        json!({"slo.example.io/deadlineMs": "x"}),
        json!({"slo.example.io/latencyTargetMs": "-1"}),
        json!({"slo.example.io/priority": "11"}),
        json!({"slo.example.io/offloadAllowed": "no"}),
        json!({"slo.example.io/profile": "Green"}),
        json!({"slo.example.io/traits": "A B"}),
        json!({"slo.example.io/classes": "batch"}),
    ]);
    let faults = prop_oneof![9 => Just(json!({})), 1 => faults];
    let others = map_of(
        &[
            "a/b~c",
            "plain",
            "ünï",
            "controller.kubernetes.io/pod-deletion-cost",
            "scheduling.example.io/decision",
            "scheduling.example.io/wanRttMs",
            "scheduling.example.io/decision-id",
            "scheduling.example.io/explain",
            "scheduling.example.io/other",
        ],
        &["", "edge", "cloud", "quote\"back\\slash\n", "💡"],
    );
    (class, slo, traits, faults, others)
        .prop_map(|(class, slo, traits, faults, others)| {
            let slo = with_members(with_members(with_members(class, slo), traits), faults);
            with_members(slo, others)
        })
        .boxed()
}

/// Annotations and spec of a pod that seems to have been here before: now or long ago, with all of the placement that
/// it speaks of or with a part.
fn stated() -> BoxedStrategy<(Value, Value)> {
    let places = select(vec![
        ("edge", json!({"node.role/edge": "true"})),
        ("cloud", json!({"node.role/cloud": "true"})),
        ("far", json!({"node.role/cloud": "true", "site": "far"})),
        ("virtual", json!({"liqo.io/type": "virtual-node"})),
    ]);
    let at = select(vec![
        "2026-01-01T00:00:00Z",
        "2025-12-31T23:59:45Z",
        "2025-12-31T00:00:00Z",
    ]);
    let decision = prop_oneof![9 => Just(None), 1 => select(&["edge", "cloud"][..]).prop_map(Some)];
    (places, at, decision, prop::bool::weighted(0.9))
        .prop_map(|((site, selector), at, decision, tolerates)| {
            let kind = if site == "edge" { "edge" } else { "cloud" };
            let annotations = json!({
                "scheduling.example.io/decision": decision.unwrap_or(kind),
                "scheduling.example.io/site": site,
                "scheduling.example.io/timestamp": at,
                "scheduling.example.io/decision-id": "an-id",
            });
            let mut spec = json!({"nodeSelector": selector});
            if tolerates {
                spec["tolerations"] = json!([{"operator": "Exists"}]);
            }
            (annotations, spec)
        })
        .boxed()
}

fn quantities() -> BoxedStrategy<Value> {
    object(vec![
        (
            "cpu",
            words(&["0", "100m", "0.5", "250000u", "1", "1500m", "2", "3", "4", "1e1", "70"]),
        ),
        (
            "memory",
            words(&["128974848", "129e6", "129M", "123Mi", "1.5Gi", "2Gi", "1500m", "300Gi"]),
        ),
        ("ephemeral-storage", words(&["0", "1Gi", "1Gi", "1Gi", "20Gi"])),
        ("example.com/gpu", words(&["0", "0", "0", "1", "2"])),
    ])
}

fn containers() -> BoxedStrategy<Value> {
    let resources = object(vec![
        ("requests", or_null(quantities())),
        ("limits", or_null(quantities())),
    ]);
    let ports = vec(
        object(vec![
            ("containerPort", Just(json!(80)).boxed()),
            ("hostPort", Just(json!(8080)).boxed()),
        ]),
        0..2,
    );
    let container = object(vec![
        ("name", words(&["a", "b"])),
        ("resources", resources),
        ("restartPolicy", words(&["Always", "OnFailure"])),
        (
            "ports",
            prop_oneof![15 => Just(json!([])), 1 => ports.prop_map(Value::from)].boxed(),
        ),
        ("futureField", unknown()),
    ]);
    vec(container, 0..3).prop_map(Value::from).boxed()
}

fn tolerations() -> BoxedStrategy<Value> {
    let toleration = object(vec![
        ("key", words(&["cloud", "k", "far"])),
        ("operator", words(&["Equal", "Exists"])),
        ("value", words(&["cloud", "v", "far"])),
        ("effect", words(&["NoSchedule", "NoExecute"])),
        ("tolerationSeconds", Just(json!(300)).boxed()),
    ]);
    // What the placement of a site adds: the pod has it already.
    let of_site = select(vec![
        json!({"key": "cloud", "operator": "Equal", "value": "cloud", "effect": "NoSchedule"}),
        json!({"key": "far", "operator": "Equal", "value": "far", "effect": "NoSchedule"}),
        json!({"key": "far", "operator": "Exists"}),
        json!({"key": "virtual-node.liqo.io/not-allowed", "operator": "Equal", "value": "true", "effect": "NoExecute"}),
    ]);
    let toleration = prop_oneof![5 => toleration, 1 => of_site];
    // What DefaultTolerationSeconds adds.
    let by_default = ["not-ready", "unreachable"].map(|taint| {
        json!({"key": format!("node.kubernetes.io/{taint}"), "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    });
    let by_default = Just(json!(by_default));
    prop_oneof![2 => vec(toleration, 0..4).prop_map(Value::from), 1 => by_default].boxed()
}

/// Node affinity, mostly of a form that kube-scheduler takes.
fn affinity() -> BoxedStrategy<Value> {
    let any_requirement = object(vec![
        ("key", words(&["zone", "disk", "cores", "tier", "site"])),
        (
            "operator",
            words(&["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
        ),
        (
            "values",
            vec(select(&["a", "ssd", "4", "true"][..]), 0..3)
                .prop_map(Value::from)
                .boxed(),
        ),
    ]);
    let requirement = select(vec![
        json!({"key": "zone", "operator": "In", "values": ["a"]}),
        json!({"key": "tier", "operator": "In", "values": ["cloud"]}),
        json!({"key": "tier", "operator": "Exists"}),
        json!({"key": "tier", "operator": "DoesNotExist"}),
        json!({"key": "cores", "operator": "Gt", "values": ["2"]}),
        json!({"key": "site", "operator": "In", "values": ["cloud", "far"]}),
        json!({"key": "site", "operator": "NotIn", "values": ["far"]}),
        json!({"key": "node.role/edge", "operator": "Exists"}),
    ]);
    let field = full_object(vec![
        ("key", Just(json!("metadata.name")).boxed()),
        ("operator", words(&["In", "NotIn"])),
        (
            "values",
            vec(select(&["n0", "n1", "n3", "n5"][..]), 1..2)
                .prop_map(Value::from)
                .boxed(),
        ),
    ]);
    let requirement = prop_oneof![6 => requirement.boxed(), 1 => any_requirement];
    let list = |requirements: BoxedStrategy<Vec<Value>>| requirements.prop_map(Value::from).boxed();
    let term = prop_oneof![
        4 => full_object(vec![("matchExpressions", list(vec(requirement.clone(), 0..3).boxed()))]),
        1 => full_object(vec![("matchFields", list(vec(field.clone(), 0..2).boxed()))]),
        1 => full_object(vec![
            ("matchExpressions", list(vec(requirement, 1..2).boxed())),
            ("matchFields", list(vec(field, 1..2).boxed())),
        ]),
    ];
    vec(term, 0..3)
        .prop_map(|terms| {
            let required = json!({ "nodeSelectorTerms": terms });
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})
        })
        .boxed()
}

/// Pods that exist, each of whose parts has a few members or very many.
pub fn huge_pod() -> BoxedStrategy<Value> {
    let count = || prop_oneof![3 => 0_usize..3, 2 => 3_usize..40, 1 => 40_usize..3_000];
    let length = || prop_oneof![2 => 1_usize..40, 1 => 40_usize..254, 1 => Just(60_000_usize)];
    let counts = (
        count(),
        count(),
        count(),
        count(),
        count(),
        count(),
        count(),
        0_usize..7,
    );
    let lengths = (length(), length(), length(), length(), length());
    let kinds = (pod(), option::of(Just("n1")), any::<bool>(), any::<bool>());
    (kinds, counts, lengths)
        .prop_map(|((pod, node, is_gated, is_refused), counts, lengths)| {
            let (selector, terms, values, tolerations, resources, gates, unknown, faults) = counts;
            let (controller, scheduler, id, reason, explain) = lengths;
            let text = |length: usize| "x".repeat(length);
            let some = |count: usize, of: &dyn Fn(usize) -> Value| (0..count).map(of).collect::<Vec<_>>();
            let map = |count: usize, of: &dyn Fn(usize) -> (String, Value)| Value::Object((0..count).map(of).collect());
            let term = |i: usize| {
                let values = some(values.min(30_000 / terms.max(1)), &|i| json!(format!("value-{i}")));
                json!({"matchExpressions": [{"key": format!("key-{i}"), "operator": "In", "values": values}]})
            };
            let toleration = |i: usize| json!({"key": format!("taint-{i}"), "operator": "Exists", "effect": "NoSchedule"});
            let mut gates = some(gates, &|i| json!({"name": format!("example.com/gate-{i}")}));
            if is_gated {
                gates.push(json!({"name": "scheduling.example.io/awaiting-capacity"}));
            }
            let mut annotations = map(unknown, &|i| (format!("slo.example.io/unknown-{i}"), json!(text(i % 60))));
            for key in ["class", "deadlineMs", "latencyTargetMs", "priority", "offloadAllowed", "processingMs"].iter().take(faults) {
                annotations[format!("slo.example.io/{key}")] = json!(text(40_000));
            }
            for (key, value) in [("decision-id", text(id)), ("reason", text(reason)), ("explain", text(explain)), ("site", text(id))] {
                annotations[format!("scheduling.example.io/{key}")] = json!(value);
            }
            let mut pod = pod;
            let metadata = json!({
                "uid": "b2cba453-496d-4735-8d8b-e213408543e6", "name": text(scheduler.min(253)), "namespace": "shop",
                "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z",
                "ownerReferences": [{"controller": true, "uid": text(controller), "kind": text(controller), "name": text(controller)}],
                "annotations": with_members(json!({"slo.example.io/class": "batch"}), annotations),
            });
            pod["metadata"] = with_members(or_object(&pod["metadata"]), metadata);
            let spec = json!({
                "nodeName": node.filter(|_| gates.is_empty()), "schedulerName": text(scheduler.min(253)),
                "nodeSelector": map(selector, &|i| (format!("label-{i}"), json!("value"))), "schedulingGates": gates,
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": some(terms, &term)}}},
                "tolerations": some(tolerations, &toleration),
            });
            pod["spec"] = with_members(or_object(&pod["spec"]), spec);
            let requests = map(resources, &|i| (format!("example.com/resource-{i}"), json!("1")));
            pod["spec"]["containers"] = json!([{"resources": {"requests": with_members(json!({"cpu": "100m"}), requests)}}]);
            if is_refused {
                let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"});
                pod["status"] = json!({"phase": "Pending", "conditions": [condition]});
            }
            pod
        })
        .boxed()
}

fn or_object(value: &Value) -> Value {
    if value.is_object() { value.clone() } else { json!({}) }
}

/// Pods of every shape that the API server could send, and some that it could not.
pub fn pod() -> BoxedStrategy<Value> {
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": true});
    let metadata = full_object(vec![
        ("name", words(&["web", ""])),
        ("annotations", or_null(annotations())),
        (
            "labels",
            or_null(map_of(
                &[
                    "app",
                    "a/b~c",
                    "tier",
                    "version",
                    "ünï",
                    "scheduling.example.io/managed",
                ],
                &["true", "true", "true", "web", "false"],
            )),
        ),
        (
            "ownerReferences",
            prop_oneof![2 => Just(Value::Null), 1 => Just(json!([owner]))].boxed(),
        ),
        ("managedFields", unknown()),
    ]);
    let selectors = select(vec![
        json!({}),
        json!({"node.role/edge": "true"}),
        json!({"node.role/cloud": "true"}),
        json!({"tier": "cloud"}),
        json!({"tier": "cloud", "zone": "a"}),
        json!({"site": "far"}),
        json!({"zone": "a"}),
    ]);
    let any_selectors = map_of(
        &["node.role/edge", "node.role/cloud", "zone", "a/b~c"],
        &["true", "a", "false"],
    );
    let rare = |value: Value, odds: u32| prop_oneof![odds => Just(Value::Null), 1 => Just(value)].boxed();
    let spec = object(vec![
        ("containers", containers()),
        ("initContainers", or_null(containers())),
        ("overhead", rare(json!({"cpu": "250m", "memory": "120Mi"}), 9)),
        (
            "resources",
            prop_oneof![
                4 => Just(json!({})),
                1 => object(vec![("requests", quantities()), ("limits", quantities())]),
            ]
            .boxed(),
        ),
        (
            "nodeSelector",
            prop_oneof![4 => Just(Value::Null), 2 => selectors, 1 => any_selectors].boxed(),
        ),
        ("affinity", prop_oneof![3 => Just(Value::Null), 1 => affinity()].boxed()),
        ("tolerations", or_null(tolerations())),
        ("priority", select(&[-5, 0, 5, 1000][..]).prop_map(Value::from).boxed()),
        ("preemptionPolicy", words(&["PreemptLowerPriority", "Never"])),
        (
            "runtimeClassName",
            prop_oneof![4 => Just(Value::Null), 1 => words(&["", "kata", "own"])].boxed(),
        ),
        ("hostNetwork", rare(json!(true), 19)),
        ("nodeName", rare(json!("n1"), 59)),
        ("schedulingGates", rare(json!([{"name": "example.com/gate"}]), 59)),
        (
            "volumes",
            rare(json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]), 9),
        ),
        ("futureField", unknown()),
    ]);
    let stated = option::weighted(0.1, stated());
    let status = or_null(object(vec![("phase", words(&["Pending"])), ("futureField", unknown())]));
    (option::weighted(0.97, or_null(metadata)), spec, status, stated)
        .prop_map(|(metadata, mut spec, status, stated)| {
            let mut metadata = metadata;
            if let (Some(metadata @ Value::Object(_)), Some((annotations, placement))) = (&mut metadata, stated) {
                let own = metadata["annotations"].take();
                let own = if own.is_object() { own } else { json!({}) };
                metadata["annotations"] = with_members(own, annotations);
                spec = with_members(spec, placement);
            }
            let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": spec, "status": status});
            if let Some(metadata) = metadata {
                pod["metadata"] = metadata;
            }
            pod
        })
        .boxed()
}
