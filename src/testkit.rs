//! Generated pods and fleets for properties, as the documents they arrive as.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::config::Config;
use crate::fleet::{Snapshot, file};
use crate::units::{Moment, Now};

/// The time at which tests decide: midnight, a thousand seconds after the process started.
pub(crate) const NOW: Now = Now {
    moment: Moment(1_000_000_000),
    wall: jiff::Timestamp::constant(1_767_225_600, 0),
};

/// The snapshot that a fleet file stands for.
pub(crate) fn snapshot(fleet: &Value) -> Snapshot {
    file::read(fleet, &Config::default(), NOW.moment).unwrap_or_else(|faults| panic!("{faults}"))
}

/// A strategy that drops absent members, so that every field is sometimes missing.
fn object(members: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    let members: Vec<_> = members
        .into_iter()
        .map(|(name, value)| option::weighted(0.6, value).prop_map(move |value| value.map(|value| (name, value))))
        .collect();
    members
        .prop_map(|members| {
            members
                .into_iter()
                .flatten()
                .map(|(name, value)| (name.to_owned(), value))
                .collect()
        })
        .boxed()
}

fn words(words: &'static [&'static str]) -> BoxedStrategy<Value> {
    select(words).prop_map(Value::from).boxed()
}

/// A field no version of edgeward knows.
fn unknown() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from)
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            btree_map("[a-z~/]{1,4}", inner, 0..3).prop_map(|map| map.into_iter().collect()),
        ]
    })
    .boxed()
}

fn map_of(keys: &'static [&'static str], values: &'static [&'static str]) -> BoxedStrategy<Value> {
    btree_map(select(keys), select(values), 0..4)
        .prop_map(|map| {
            map.into_iter()
                .map(|(key, value)| (key.to_owned(), Value::from(value)))
                .collect()
        })
        .boxed()
}

fn or_null(strategy: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    prop_oneof![9 => strategy, 1 => Just(Value::Null)].boxed()
}

fn annotations() -> BoxedStrategy<Value> {
    let slo = object(vec![
        (
            "slo.example.io/class",
            words(&["latency", "throughput", "batch", "fast"]),
        ),
        (
            "slo.example.io/deadlineMs",
            words(&["1", "200", "300", "1000", "60000", "x"]),
        ),
        ("slo.example.io/latencyTargetMs", words(&["50", "300", "2000", "-1"])),
        ("slo.example.io/priority", words(&["0", "5", "7", "10", "11"])),
        ("slo.example.io/offloadAllowed", words(&["true", "true", "false", "no"])),
        ("slo.example.io/processingMs", words(&["10", "400"])),
    ]);
    let others = map_of(
        &[
            "a/b~c",
            "plain",
            "ünï",
            "scheduling.example.io/decision",
            "scheduling.example.io/wanRttMs",
            "scheduling.example.io/decision-id",
            "scheduling.example.io/explain",
            "scheduling.example.io/other",
        ],
        &["", "edge", "cloud", "quote\"back\\slash\n", "💡"],
    );
    (slo, others)
        .prop_map(|(mut slo, mut others)| {
            let members = others.as_object_mut().map(std::mem::take).unwrap_or_default();
            slo.as_object_mut()
                .into_iter()
                .for_each(|slo| slo.extend(members.clone()));
            slo
        })
        .boxed()
}

fn quantities() -> BoxedStrategy<Value> {
    object(vec![
        (
            "cpu",
            words(&["0", "100m", "0.5", "1500m", "3", "70", "1e1", "250000u"]),
        ),
        (
            "memory",
            words(&["128974848", "129e6", "129M", "123Mi", "1.5Gi", "300Gi", "1500m"]),
        ),
        ("ephemeral-storage", words(&["1Gi", "20Gi"])),
        ("example.com/gpu", words(&["0", "1", "2"])),
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
            prop_oneof![8 => Just(json!([])), 1 => ports.prop_map(Value::from)].boxed(),
        ),
        ("futureField", unknown()),
    ]);
    vec(container, 0..3).prop_map(Value::from).boxed()
}

fn tolerations() -> BoxedStrategy<Value> {
    let toleration = object(vec![
        ("key", words(&["cloud", "k"])),
        ("operator", words(&["Equal", "Exists"])),
        ("value", words(&["cloud", "v"])),
        ("effect", words(&["NoSchedule", "NoExecute"])),
        ("tolerationSeconds", Just(json!(300)).boxed()),
    ]);
    vec(toleration, 0..4).prop_map(Value::from).boxed()
}

fn affinity() -> BoxedStrategy<Value> {
    let requirement = object(vec![
        (
            "key",
            words(&["zone", "disk", "cores", "node.role/edge", "node.role/cloud"]),
        ),
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
    let term = object(vec![(
        "matchExpressions",
        vec(requirement, 0..3).prop_map(Value::from).boxed(),
    )]);
    vec(term, 0..3)
        .prop_map(|terms| {
            let required = json!({ "nodeSelectorTerms": terms });
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})
        })
        .boxed()
}

/// Pods of every shape that the API server could send, and some that it could not.
pub(crate) fn pod() -> BoxedStrategy<Value> {
    let metadata = object(vec![
        ("name", words(&["web", ""])),
        ("annotations", or_null(annotations())),
        (
            "labels",
            or_null(map_of(
                &["app", "scheduling.example.io/managed"],
                &["true", "false", "web"],
            )),
        ),
        ("managedFields", unknown()),
    ]);
    let selectors = map_of(
        &["node.role/edge", "node.role/cloud", "zone", "a/b~c"],
        &["true", "a", "false"],
    );
    let rare = |value: Value, odds: u32| prop_oneof![odds => Just(Value::Null), 1 => Just(value)].boxed();
    let spec = object(vec![
        ("containers", containers()),
        ("initContainers", or_null(containers())),
        ("overhead", or_null(quantities())),
        (
            "resources",
            object(vec![("requests", quantities()), ("limits", quantities())]),
        ),
        (
            "nodeSelector",
            prop_oneof![3 => Just(Value::Null), 1 => Just(json!({})), 2 => selectors].boxed(),
        ),
        ("affinity", prop_oneof![3 => Just(Value::Null), 1 => affinity()].boxed()),
        ("tolerations", or_null(tolerations())),
        ("priority", select(&[-5, 0, 5, 1000][..]).prop_map(Value::from).boxed()),
        ("hostNetwork", rare(json!(true), 9)),
        ("nodeName", rare(json!("n1"), 19)),
        ("schedulingGates", rare(json!([{"name": "example.com/gate"}]), 19)),
        (
            "volumes",
            rare(json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]), 9),
        ),
        ("futureField", unknown()),
    ]);
    (option::weighted(0.95, or_null(metadata)), spec, unknown())
        .prop_map(|(metadata, spec, status)| {
            let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": spec, "status": status});
            if let Some(metadata) = metadata {
                pod["metadata"] = metadata;
            }
            pod
        })
        .boxed()
}

/// An edge site, up to two cloud sites, and nodes of all of them and of none.
pub(crate) fn fleet() -> BoxedStrategy<Value> {
    let taint = || {
        select(vec![
            json!([]),
            json!([]),
            json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]),
        ])
    };
    let node = move |labels: Value, taints: BoxedStrategy<Value>| {
        (
            taints,
            0_u32..5,
            0_u32..5,
            select(&["a", "b"][..]),
            prop::bool::weighted(0.9),
            prop::bool::weighted(0.1),
        )
            .prop_map(move |(taints, cpu, used, zone, ready, cordoned)| {
                let mut labels = labels.clone();
                labels["zone"] = json!(zone);
                json!({
                    "labels": labels, "taints": taints, "ready": ready, "unschedulable": cordoned,
                    "allocatable": {"cpu": cpu * 2, "memory": format!("{}Gi", cpu * 4), "ephemeral-storage": "10Gi",
                                    "pods": 3, "example.com/gpu": 1},
                    "used": {"cpu": used, "pods": used / 2},
                })
            })
            .boxed()
    };
    let edge = vec(node(json!({"node.role/edge": "true"}), taint().boxed()), 0..4);
    let cloud_taint = Just(json!([{"key": "cloud", "value": "cloud", "effect": "NoSchedule"}])).boxed();
    let cloud = vec(node(json!({"node.role/cloud": "true"}), cloud_taint), 0..3);
    let nobody = vec(node(json!({}), taint().boxed()), 0..2);
    let wan = object(vec![
        (
            "rttMs",
            select(&[1, 25, 99, 100, 300][..]).prop_map(Value::from).boxed(),
        ),
        ("lossPct", select(&[0.0, 1.9, 2.0][..]).prop_map(Value::from).boxed()),
        ("ageSeconds", select(&[0, 60, 61][..]).prop_map(Value::from).boxed()),
    ]);
    let queue = (select(&["latency", "throughput", "batch"][..]), 0_u32..20);
    let queue = vec(
        queue.prop_map(|(class, waiting)| json!({"class": class, "waiting": waiting})),
        0..3,
    );
    (edge, cloud, nobody, wan, queue, prop::bool::weighted(0.1))
        .prop_map(|(edge, cloud, nobody, mut wan, queue, stale)| {
            if wan.get("rttMs").is_none() {
                wan["reachable"] = json!(false);
            }
            let nodes = edge.into_iter().chain(cloud).chain(nobody).enumerate().map(|(i, mut node)| {
                node["name"] = json!(format!("n{i}"));
                node
            });
            json!({
                "ageSeconds": if stale { 90 } else { 0 },
                "sites": [{"name": "edge", "kind": "edge", "queues": queue}, {"name": "cloud", "kind": "cloud", "wan": wan}],
                "nodes": nodes.collect::<Vec<_>>(),
            })
        })
        .boxed()
}
