//! Generated pods and fleets for properties, as the documents they arrive as.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::config::Config;
use crate::decide::decide;
use crate::fleet::{SiteKind, Snapshot, file};
use crate::patch::{Stamp, patch};
use crate::pod::Pod;
use crate::room::Room;
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
    members_with(0.6, members)
}

/// The same for fields without which little happens: they are missing seldom.
fn full_object(members: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    members_with(0.95, members)
}

fn members_with(share: f64, members: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    let members: Vec<_> = members
        .into_iter()
        .map(|(name, value)| option::weighted(share, value).prop_map(move |value| value.map(|value| (name, value))))
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

/// `object` with the members of `more`, which win.
fn with_members(mut object: Value, more: Value) -> Value {
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    object
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
    prop_oneof![19 => strategy, 1 => Just(Value::Null)].boxed()
}

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
    ]);
    let faults = select(vec![
        json!({"slo.example.io/class": "fast"}),
        json!({"slo.example.io/deadlineMs": "x"}),
        json!({"slo.example.io/latencyTargetMs": "-1"}),
        json!({"slo.example.io/priority": "11"}),
        json!({"slo.example.io/offloadAllowed": "no"}),
        json!({"slo.example.io/classes": "batch"}),
    ]);
    let faults = prop_oneof![9 => Just(json!({})), 1 => faults];
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
    (class, slo, faults, others)
        .prop_map(|(class, slo, faults, others)| {
            let slo = with_members(with_members(class, slo), faults);
            with_members(slo, others)
        })
        .boxed()
}

/// Annotations and spec of a pod that seems to have been here before: now or long ago, with all of the placement that
/// it speaks of or with a part.
fn claim() -> BoxedStrategy<(Value, Value)> {
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
    vec(toleration, 0..4).prop_map(Value::from).boxed()
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

/// Pods of every shape that the API server could send, and some that it could not.
pub(crate) fn pod() -> BoxedStrategy<Value> {
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
        ("hostNetwork", rare(json!(true), 19)),
        ("nodeName", rare(json!("n1"), 59)),
        ("schedulingGates", rare(json!([{"name": "example.com/gate"}]), 59)),
        (
            "volumes",
            rare(json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]), 9),
        ),
        ("futureField", unknown()),
    ]);
    let claim = option::weighted(0.1, claim());
    let status = or_null(object(vec![("phase", words(&["Pending"])), ("futureField", unknown())]));
    (option::weighted(0.97, or_null(metadata)), spec, status, claim)
        .prop_map(|(metadata, mut spec, status, claim)| {
            let mut metadata = metadata;
            if let (Some(metadata @ Value::Object(_)), Some((annotations, placement))) = (&mut metadata, claim) {
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

/// A node with these labels and at most this many cores; `taints` are those it may have. What pods of a known priority use is part of what is used.
fn node(cores: u32, labels: Value, taints: Vec<Value>) -> BoxedStrategy<Value> {
    let part = (select(&[-5, -5, 0, 7, 1000][..]), 0_u32..5, 0_u32..2);
    let used = (0_u32..3, 0_u32..2, vec(part, 0..4)).prop_map(|(cpu, pods, parts)| {
        let resources = |cpu: u32, pods: u32| json!({"cpu": cpu, "memory": format!("{cpu}Gi"), "pods": pods});
        let total = parts
            .iter()
            .fold((cpu, pods), |(cpu, pods), part| (cpu + part.1, pods + part.2));
        let parts = parts
            .iter()
            .map(|&(priority, cpu, pods)| json!({"priority": priority, "used": resources(cpu, pods)}));
        (resources(total.0, total.1), parts.collect::<Value>())
    });
    let state = (prop::bool::weighted(0.9), prop::bool::weighted(0.1));
    (
        (0..=cores, select(&[1, 4, 10, 10][..])),
        used,
        select(taints),
        select(&["a", "b"][..]),
        state,
    )
        .prop_map(move |((cpu, slots), (used, parts), taints, zone, (ready, cordoned))| {
            json!({
                "labels": with_members(labels.clone(), json!({"zone": zone, "cores": cpu.to_string()})),
                "taints": taints, "ready": ready, "unschedulable": cordoned,
                "allocatable": {"cpu": cpu, "memory": format!("{}Gi", cpu * 2), "ephemeral-storage": "10Gi",
                                "pods": slots, "example.com/gpu": 1},
                "used": used, "usedByPriority": parts,
            })
        })
        .boxed()
}

fn wan() -> BoxedStrategy<Value> {
    let measured = full_object(vec![
        (
            "rttMs",
            select(&[1, 5, 10, 25, 25, 50, 99, 300][..])
                .prop_map(Value::from)
                .boxed(),
        ),
        (
            "lossPct",
            select(&[0.0, 0.0, 0.1, 0.1, 1.0, 1.9, 2.0][..])
                .prop_map(Value::from)
                .boxed(),
        ),
        (
            "ageSeconds",
            select(&[0, 0, 0, 5, 5, 60, 61][..]).prop_map(Value::from).boxed(),
        ),
    ]);
    let health = option::weighted(0.2, select(&["healthy", "degraded", "unreachable"][..]));
    (measured, health)
        .prop_map(|(mut wan, health)| {
            if wan.get("rttMs").is_none() {
                wan["reachable"] = json!(false);
            } else if let Some(health) = health {
                wan["health"] = json!(health);
            }
            wan
        })
        .boxed()
}

/// A site with these members, and with some of those that any site may have.
fn site(members: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    let queue = (
        select(&["latency", "throughput", "batch"][..]),
        0_u32..8,
        0_u32..3,
        object(vec![
            ("priority", select(&[-5, 0, 5][..]).prop_map(Value::from).boxed()),
            ("sloPriority", select(&[0, 5, 10][..]).prop_map(Value::from).boxed()),
        ]),
    )
        .prop_map(|(class, waiting, others, ranks)| {
            with_members(
                json!({"class": class, "waiting": waiting, "pending": waiting + others}),
                ranks,
            )
        });
    let time = || select(&[5, 120, 900][..]).prop_map(Value::from).boxed();
    let observed = object(vec![("latency", time()), ("throughput", time()), ("batch", time())]);
    let observed_of = time().prop_map(|ms| json!([{"namespace": "shop", "controller": "u", "ms": ms}]));
    // Seldom less than the nodes have.
    let free = object(vec![
        ("cpu", select(&[1, 4, 30, 90][..]).prop_map(Value::from).boxed()),
        ("memory", words(&["1Gi", "16Gi", "200Gi"])),
    ]);
    let free = prop_oneof![4 => Just(Value::Null), 1 => free].boxed();
    let ties = &["hostPort", "hostNetwork", "persistentVolumeClaim"][..];
    let some = object(vec![
        (
            "speedFactor",
            select(&[0.25, 1.0, 2.0, 8.0][..]).prop_map(Value::from).boxed(),
        ),
        ("supports", vec(select(ties), 0..3).prop_map(Value::from).boxed()),
        ("queues", vec(queue, 0..3).prop_map(Value::from).boxed()),
        ("observedProcMs", observed),
        ("observedControllerProcMs", observed_of.boxed()),
        ("measuredFree", free),
    ]);
    (some, members)
        .prop_map(|(some, members)| with_members(some, members))
        .boxed()
}

fn cloud_site(members: Vec<Value>) -> BoxedStrategy<Value> {
    let members = (select(members), full_object(vec![("wan", wan())]));
    site(members.prop_map(|(members, wan)| with_members(members, wan)).boxed())
}

/// The edge site, up to three cloud sites, and nodes of all of them and of none.
pub(crate) fn fleet() -> BoxedStrategy<Value> {
    // Cloud sites are told from each other by labels of their own, or by one beside the label that they share.
    prop_oneof![fleet_whose_clouds(false), fleet_whose_clouds(true)].boxed()
}

fn fleet_whose_clouds(share_a_label: bool) -> BoxedStrategy<Value> {
    let taint = |key: &str, value: &str| json!([{"key": key, "value": value, "effect": "NoSchedule"}]);
    let edge = site(
        select(vec![
            json!({"name": "edge", "kind": "edge"}),
            json!({"name": "edge", "kind": "edge"}),
            json!({"name": "edge", "kind": "edge", "nodeSelector": {"site": "edge"}}),
        ])
        .boxed(),
    );
    let mut selectors = [json!({"node.role/cloud": "true"}), json!({"site": "far"})];
    if share_a_label {
        selectors = ["cloud", "far"].map(|site| json!({"node.role/cloud": "true", "site": site}));
    }
    let [selects_cloud, selects_far] = selectors;
    let cloud = cloud_site(vec![
        json!({"name": "cloud", "kind": "cloud", "nodeSelector": selects_cloud}),
    ]);
    let far = [
        json!([]),
        json!([{"key": "far", "operator": "Exists"}]),
        json!([{"key": "far", "value": "far", "effect": "NoSchedule"}]),
    ];
    let far = far.map(
        |tolerations| json!({"name": "far", "kind": "cloud", "nodeSelector": selects_far, "tolerations": tolerations}),
    );
    let far = cloud_site(far.into());
    let virtual_cluster = cloud_site(vec![json!({"name": "virtual", "kind": "liqo"})]);
    let sites = (
        edge,
        option::weighted(0.8, cloud),
        option::weighted(0.5, far),
        option::weighted(0.4, virtual_cluster),
    )
        .prop_map(|(edge, cloud, far, virtual_cluster)| {
            let clouds = [cloud, far, virtual_cluster].into_iter().flatten();
            [edge].into_iter().chain(clouds).collect::<Vec<_>>()
        });

    let hard = taint("k", "v");
    let in_cloud = |labels: Value| with_members(json!({"tier": "cloud"}), labels);
    let edge_labels = json!({"node.role/edge": "true", "site": "edge"});
    let cloud_labels = in_cloud(json!({"node.role/cloud": "true", "site": "cloud"}));
    let virtual_labels = in_cloud(json!({"liqo.io/type": "virtual-node", "site": "virtual"}));
    let virtual_taint = json!([{"key": "virtual-node.liqo.io/not-allowed", "value": "true", "effect": "NoExecute"}]);
    // Now and then a site without nodes; mostly a small edge and a large cloud.
    let nodes = |cores: u32, labels: Value, taints: Vec<Value>| {
        let node = node(cores, labels, taints);
        prop_oneof![1 => vec(node.clone(), 0..1), 11 => vec(node, 1..4)]
    };
    let nodes = (
        nodes(
            6,
            edge_labels,
            vec![json!([]), json!([]), json!([]), json!([]), hard.clone()],
        ),
        nodes(30, cloud_labels, vec![taint("cloud", "cloud")]),
        nodes(30, in_cloud(selects_far), vec![taint("far", "far"), json!([])]),
        nodes(30, virtual_labels, vec![virtual_taint]),
        vec(node(6, json!({}), vec![json!([]), hard]), 0..2),
    )
        .prop_map(|(edge, cloud, far, virtual_nodes, nobodys)| {
            let nodes = [edge, cloud, far, virtual_nodes, nobodys]
                .into_iter()
                .flatten()
                .enumerate();
            let named = nodes.map(|(i, node)| with_members(node, json!({"name": format!("n{i}")})));
            named.collect::<Vec<_>>()
        });

    (sites, nodes, prop::bool::weighted(0.1))
        .prop_map(
            |(sites, nodes, stale)| json!({"ageSeconds": if stale { 90 } else { 0 }, "sites": sites, "nodes": nodes}),
        )
        .boxed()
}

/// Properties of what never happens hold for every code: the generated cases have to reach what they speak of.
#[test]
fn the_cases_are_not_vacuous() {
    const CASES: u32 = 2_000;
    let config = Config::default();
    let mut runner = TestRunner::deterministic();
    let cases = (fleet(), pod());
    let mut counts = BTreeMap::<&str, u32>::new();
    for _ in 0..CASES {
        let (fleet, pod) = cases.new_tree(&mut runner).unwrap().current();
        let snapshot = snapshot(&fleet);
        let text = pod.to_string();
        let pod = Pod::from_json(&text).unwrap();
        let workload = pod.workload("shop".into(), &config.keys);
        let verdict = decide(&workload, &Room::of(&snapshot), &config, NOW);

        let clouds = verdict.sites.iter().filter(|site| site.site.kind() == SiteKind::Cloud);
        let edge_allowed = verdict
            .sites
            .iter()
            .any(|site| site.site.kind() == SiteKind::Edge && site.allowed);
        let several = !edge_allowed && clouds.clone().filter(|site| site.allowed).count() > 1;
        let full = verdict.site().is_some() && verdict.sites[0].allowed && !verdict.sites[0].fits();
        let stamp = Stamp {
            at: NOW.wall,
            id: "id".into(),
        };
        for (what, holds) in [
            ("several clouds to choose from", clouds.count() > 1),
            ("several clouds left by the pod", several),
            ("a full edge", full),
            ("a patch", !patch(&pod, &verdict, &config, &stamp).is_empty()),
        ] {
            *counts.entry(what).or_default() += u32::from(holds);
        }
        *counts.entry(verdict.action.as_str()).or_default() += 1;
        *counts.entry(verdict.reason.as_str()).or_default() += 1;
    }
    // About half of what they are.
    for (what, least) in [
        ("edge", 400),
        ("cloud", 90),
        ("edge_feasible_slo_met", 90),
        ("edge_pinned_by_pod", 20),
        ("cloud_pinned_by_pod", 45),
        ("cloud_edge_no_capacity", 20),
        ("cloud_edge_deadline_missed", 3),
        ("cloud_best_effort", 15),
        ("edge_not_offloadable", 5),
        ("edge_wan_degraded", 25),
        ("passthrough_reinvocation", 25),
        ("several clouds to choose from", 400),
        ("several clouds left by the pod", 40),
        ("a full edge", 100),
        ("a patch", 500),
    ] {
        let found = counts.get(what).copied().unwrap_or(0);
        assert!(
            found >= least,
            "{what}: {found} of {CASES}, fewer than {least}: {counts:#?}"
        );
    }
}
