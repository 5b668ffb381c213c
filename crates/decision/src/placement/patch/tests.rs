use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::config::Explain;
use crate::model::snapshot::Snapshot;
use crate::placement::decide::decide;
use crate::placement::policy::{Policies, Policy, Seen};
use crate::placement::room::Room;
use crate::testkit;
use crate::testkit::NOW;

fn stamp() -> Stamp {
    Stamp {
        at: NOW.wall,
        id: "id-1".into(),
    }
}

fn operations(fleet: &Value, pod: &Value, config: &Config) -> Vec<PatchOperation> {
    operations_under(&Policies::default(), fleet, pod, config)
}

fn operations_under(policies: &Policies, fleet: &Value, pod: &Value, config: &Config) -> Vec<PatchOperation> {
    operations_on(&testkit::snapshot(fleet), policies, pod, config)
}

fn operations_on(snapshot: &Snapshot, policies: &Policies, pod: &Value, config: &Config) -> Vec<PatchOperation> {
    let text = pod.to_string();
    let mut pod = Pod::from_json(&text).unwrap();
    policies.apply(&mut pod, "shop", &config.keys);
    let workload = pod.workload("shop".into(), &config.keys);
    let verdict = decide(&workload, &Room::of(snapshot), config, NOW);
    patch(&pod, &verdict, config, &stamp())
}

fn apply(pod: &Value, operations: &[PatchOperation]) -> Value {
    let mut patched = pod.clone();
    json_patch::patch(&mut patched, operations).unwrap();
    patched
}

fn fleet() -> Value {
    json!({
        "sites": [{"name": "edge", "kind": "edge"}, {"name": "cloud", "kind": "cloud", "wan": {"rttMs": 12.5, "lossPct": 0}}],
        "nodes": [
            {"name": "e", "labels": {"node.role/edge": "true"}, "allocatable": {"pods": 0}},
            {"name": "c", "labels": {"node.role/cloud": "true"}, "allocatable": {"pods": 9},
             "taints": [{"key": "cloud", "value": "cloud", "effect": "NoSchedule"}]},
        ],
    })
}

fn to_the_cloud(metadata: Value, spec: Value) -> Value {
    let mut metadata = metadata;
    metadata["annotations"]["slo.example.io/class"] = json!("batch");
    json!({"metadata": metadata, "spec": spec})
}

#[test]
fn patch_creates_missing_parent_objects() {
    let pod = to_the_cloud(json!({}), json!({}));
    let config = Config {
        explain: Explain::Off,
        ..Config::default()
    };
    let patched = apply(&pod, &operations(&fleet(), &pod, &config));
    assert_eq!(
        patched,
        json!({
            "metadata": {"labels": {"scheduling.example.io/placed": "true"}, "annotations": {
                "slo.example.io/class": "batch",
                "scheduling.example.io/decision": "cloud",
                "scheduling.example.io/site": "cloud",
                "scheduling.example.io/reason": "cloud_edge_no_capacity",
                "scheduling.example.io/timestamp": "2026-01-01T00:00:00Z",
                "scheduling.example.io/wanRttMs": "12.5",
                "scheduling.example.io/decision-id": "id-1",
                "controller.kubernetes.io/pod-deletion-cost": "-100",
            }},
            "spec": {
                "nodeSelector": {"node.role/cloud": "true"},
                "tolerations": [{"key": "cloud", "operator": "Equal", "value": "cloud", "effect": "NoSchedule"}],
            },
        })
    );
}

#[test]
fn edge_pod_avoids_foreign_nodes_with_the_edge_selector() {
    let is_in = |key: &str, values: &[&str]| json!({"key": key, "operator": "In", "values": values});
    let excluded = json!({"key": "metadata.name", "operator": "NotIn", "values": ["v"]});
    let required = |terms: Value| json!({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}});
    let mut fleet = fleet();
    fleet["nodes"][0]["allocatable"] = json!({"pods": 9});
    let mut snapshot = testkit::snapshot(&fleet);
    let mut patched = |affinity: &Value, is_foreign: bool| {
        snapshot.sites[0].foreign = if is_foreign { vec!["v".into()] } else { vec![] };
        let pod = to_the_cloud(json!({}), json!({"affinity": affinity}));
        let operations = operations_on(&snapshot, &Policies::default(), &pod, &Config::default());
        let pod = apply(&pod, &operations);
        assert_eq!(pod["spec"]["nodeSelector"], json!({"node.role/edge": "true"}));
        pod["spec"]["affinity"].clone()
    };
    let alone = required(json!([{"matchFields": [excluded]}]));
    let preferred = json!({"nodeAffinity": {"preferred": [1]}, "podAffinity": {"unknown": 1.5}});
    let mut with_preferred = preferred.clone();
    with_preferred["nodeAffinity"][REQUIRED] = alone["nodeAffinity"][REQUIRED].clone();
    let own = is_in("kubernetes.io/os", &["linux"]);
    let linux = is_in("node.role/edge", &["true"]);
    let named = is_in("metadata.name", &["e"]);
    for (affinity, expected) in [
        (Value::Null, alone.clone()),
        (preferred, with_preferred),
        (json!({"nodeAffinity": {REQUIRED: null}}), alone.clone()),
        (
            required(
                json!([{"matchExpressions": [own]}, {"matchFields": [named], "new": 1}, {}, {"matchExpressions": [linux]}]),
            ),
            required(json!([
                {"matchExpressions": [own], "matchFields": [excluded]},
                {"matchFields": [named, excluded], "new": 1},
                {},
                {"matchExpressions": [linux], "matchFields": [excluded]},
            ])),
        ),
        (alone.clone(), alone),
    ] {
        assert_eq!(patched(&affinity, true), expected, "{affinity}");
        assert_eq!(patched(&affinity, false), affinity);
    }
}

#[test]
fn placed_label_is_added_beside_existing_labels() {
    const PLACED: &str = "scheduling.example.io/placed";
    let labels = |labels: Value| {
        let pod = to_the_cloud(json!({ "labels": labels }), json!({}));
        apply(&pod, &operations(&fleet(), &pod, &Config::default()))["metadata"]["labels"].take()
    };
    for nothing in [json!(null), json!({})] {
        assert_eq!(labels(nothing), json!({PLACED: "true"}));
    }
    assert_eq!(labels(json!({"app": "a"})), json!({"app": "a", PLACED: "true"}));
    // The pod's controller may select by this label. If edgeward changed it, the controller would create pods without end.
    assert_eq!(labels(json!({PLACED: "no"})), json!({PLACED: "no"}));

    // A gated pod gets the label only when it is released.
    let gated = to_the_cloud(json!({}), json!({"schedulingGates": [{"name": "other"}]}));
    let gated = apply(&gated, &operations(&fleet(), &gated, &Config::default()));
    assert!(
        gated["spec"]["schedulingGates"].is_array() && gated["metadata"]["labels"].is_null(),
        "{gated}"
    );
}

#[test]
fn lost_node_is_tolerated_for_the_seconds_of_its_site() {
    let mut fleet = fleet();
    fleet["sites"][1]["unreachableSeconds"] = json!(15);
    // The edge is full, but possible.
    fleet["nodes"][0]["allocatable"] = json!({"pods": 1});
    fleet["nodes"][0]["used"] = json!({"pods": 1});
    let lost = |seconds: i64| {
        let toleration =
            |key| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
        LOST.map(toleration)
    };
    let of = |kind: &str| json!({"ownerReferences": [{"kind": kind, "uid": "u", "controller": true}]});
    let added = |metadata: Value, spec: Value| {
        let before = spec["tolerations"].as_array().cloned().unwrap_or_default();
        let pod = to_the_cloud(metadata, spec);
        let patched = apply(&pod, &operations(&fleet, &pod, &Config::default()));
        // Of the tolerations that match a taint, the first counts.
        let after = patched["spec"]["tolerations"].as_array().unwrap().iter();
        let first = after.take_while(|first| !before.contains(first) && first["key"] != "cloud");
        first.cloned().collect::<Vec<_>>()
    };
    let tolerates = |tolerations: &[Value]| json!({ "tolerations": tolerations });
    let by_default = || tolerates(&lost(300));
    let [not_ready, unreachable] = lost(15);
    assert_eq!(added(of("ReplicaSet"), by_default()), [unreachable, not_ready]);
    // A pod of a StatefulSet keeps its identity, and a bare pod has no successor.
    for metadata in [of("StatefulSet"), json!({})] {
        assert_eq!(added(metadata, by_default()), [] as [Value; 0]);
    }
    let own = json!({"operator": "Exists"});
    let [not_ready, unreachable] = lost(300);
    let [_, patient] = lost(600);
    let tolerations = [
        vec![],
        vec![own.clone()],
        vec![not_ready.clone(), unreachable, own],
        vec![not_ready, patient],
    ];
    for own in tolerations {
        assert_eq!(added(of("ReplicaSet"), tolerates(&own)), [] as [Value; 0], "{own:?}");
    }
    let mut only_cloud = by_default();
    only_cloud["nodeSelector"] = json!({"node.role/cloud": "true"});
    let mut with_data = by_default();
    with_data["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    for spec in [only_cloud, with_data] {
        assert_eq!(added(of("ReplicaSet"), spec.clone()), [] as [Value; 0], "{spec}");
    }
}

/// Without those in front that shorten the time on a lost node. The generated sites state 7 s for both.
fn after_shorter(tolerations: Vec<Value>) -> Vec<Value> {
    let ours = tolerations
        .iter()
        .take_while(|ours| ours["tolerationSeconds"] == 7)
        .count();
    assert!([0, LOST.len()].contains(&ours), "{tolerations:?}");
    tolerations.into_iter().skip(ours).collect()
}

#[test]
fn stale_edgeward_annotations_go_and_user_annotations_stay() {
    let unmeasured = json!({
        "sites": [{"name": "edge", "kind": "edge"}],
        "nodes": [{"name": "e", "labels": {"node.role/edge": "true"}, "allocatable": {"pods": 9}}],
    });
    let pod = to_the_cloud(
        json!({"annotations": {"scheduling.example.io/wanRttMs": "7", "scheduling.example.io/site": "moon", "mine": "x"}}),
        json!({}),
    );
    let patched = apply(&pod, &operations(&unmeasured, &pod, &Config::default()));
    let annotations = patched["metadata"]["annotations"].as_object().unwrap();
    assert!(!annotations.contains_key("scheduling.example.io/wanRttMs"));
    assert_eq!(annotations["scheduling.example.io/site"], "edge");
    assert_eq!(annotations["mine"], "x");
}

#[test]
fn annotations_stay_within_the_api_server_limit() {
    let with_bytes = |bytes: usize| to_the_cloud(json!({"annotations": {"filler": "x".repeat(bytes)}}), json!({}));
    let annotations = |pod: &Value| {
        let patched = apply(pod, &operations(&fleet(), pod, &Config::default()));
        assert_eq!(patched["spec"]["nodeSelector"]["node.role/cloud"], "true");
        patched["metadata"]["annotations"].as_object().unwrap().clone()
    };
    let total = |map: &Map<String, Value>| {
        map.iter()
            .map(|(k, v)| k.len() + v.as_str().unwrap().len())
            .sum::<usize>()
    };
    let full = total(&annotations(&with_bytes(0)));
    let all = annotations(&with_bytes(ANNOTATIONS_LIMIT - full));
    assert_eq!((total(&all), all.len()), (ANNOTATIONS_LIMIT, 10));
    let unexplained = annotations(&with_bytes(ANNOTATIONS_LIMIT - full + 1));
    assert!(unexplained.len() == 9 && !unexplained.contains_key("scheduling.example.io/explain"));
    let own = annotations(&with_bytes(ANNOTATIONS_LIMIT - 100));
    assert_eq!(own.len(), 2);
}

/// A policy for every pod.
fn policy(slo: &Value) -> Policies {
    Policies::of([Arc::new(Seen {
        namespace: "shop".to_owned(),
        name: "all".to_owned(),
        generation: None,
        policy: Policy::read(&json!({"spec": {"selector": {}, "slo": slo}})),
        members: vec![],
    })])
}

fn slo_of_a_policy() -> impl Strategy<Value = Value> {
    let class = prop::sample::select(&["latency", "throughput", "batch"][..]);
    let (deadline, priority) = (prop::option::of(1..100_000), prop::option::of(0..=10));
    (class, deadline, priority, prop::option::of(any::<bool>())).prop_map(|(class, deadline, priority, offload)| {
        json!({"class": class, "deadlineMs": deadline, "priority": priority, "offloadAllowed": offload})
    })
}

/// Metadata by which an author may try to redirect a pod: edgeward's keys, and keys that look like them.
fn attempts() -> impl Strategy<Value = Value> {
    let keys = prop::sample::select(
        &[
            "slo.example.io/class",
            "slo.example.io/deadlineMs",
            "slo.example.io/latencyTargetMs",
            "slo.example.io/priority",
            "slo.example.io/offloadAllowed",
            "slo.example.io/processingMs",
            "slo.example.io/site",
            "scheduling.example.io/decision",
            "scheduling.example.io/site",
            "scheduling.example.io/reason",
            "scheduling.example.io/timestamp",
            "scheduling.example.io/decision-id",
            "scheduling.example.io/wanRttMs",
            "scheduling.example.io/explain",
            "scheduling.example.io/managed",
            "scheduling.example.io/nodeSelector",
            "scheduling.example.io/tolerations",
            "node.role/cloud",
            "liqo.io/type",
        ][..],
    );
    let words = prop::sample::select(
        &[
            "edge",
            "cloud",
            "far",
            "virtual",
            "moon",
            "batch",
            "latency",
            "true",
            "false",
            "0",
            "1",
            "10",
            "60000",
            "2026-01-01T00:00:00Z",
            "virtual-node",
            "kubernetes.io/hostname=n0",
            "{\"kubernetes.io/hostname\":\"n0\"}",
            "[{\"operator\":\"Exists\"}]",
            "/spec/nodeSelector",
        ][..],
    );
    let values = prop_oneof![9 => words.prop_map(str::to_owned), 1 => ".{0,12}"];
    prop::collection::btree_map(keys, values, 0..12).prop_map(|said| {
        said.into_iter()
            .map(|(key, value)| (key.to_owned(), Value::from(value)))
            .collect()
    })
}

/// The pod without the fields that a placement may change.
fn rest(pod: &Value) -> Value {
    let mut pod = pod.clone();
    if let Some(spec) = pod["spec"].as_object_mut() {
        spec.remove("nodeSelector");
        spec.remove("tolerations");
        if let Some(gates) = spec.get_mut("schedulingGates").and_then(Value::as_array_mut) {
            gates.retain(|gate| gate["name"] != "scheduling.example.io/awaiting-capacity");
        }
        let is_empty = |gates: &Value| gates.is_null() || gates.as_array().is_some_and(Vec::is_empty);
        if spec.get("schedulingGates").is_some_and(is_empty) {
            spec.remove("schedulingGates");
        }
        spec.remove("runtimeClassName");
    }
    // A parent object that the patch had to create is no change of the user's fields.
    if pod["metadata"].is_null() {
        pod["metadata"] = json!({});
    }
    if pod["metadata"]["annotations"].is_null() {
        pod["metadata"]["annotations"] = json!({});
    }
    let config = Config::default();
    if pod["metadata"]["labels"].is_null() {
        pod["metadata"]["labels"] = json!({});
    }
    pod["metadata"]["labels"]
        .as_object_mut()
        .unwrap()
        .remove(&config.keys.placed);
    let annotations = pod["metadata"]["annotations"].as_object_mut().unwrap();
    annotations.retain(|key, value| {
        let is_cost = key == DELETION_COST && *value == "-100";
        !is_cost && !config.keys.written().contains(&key.as_str())
    });
    pod
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn every_patch_applies_and_touches_nothing_else(
        fleet in testkit::fleet(),
        pod in testkit::pod(),
        slo in prop::option::of(slo_of_a_policy()),
        explain in prop::sample::select(vec![Explain::Off, Explain::Short, Explain::Full]),
    ) {
        let config = Config { explain, ..Config::default() };
        let policies = slo.as_ref().map(policy).unwrap_or_default();
        let operations = operations_under(&policies, &fleet, &pod, &config);
        let patched = apply(&pod, &operations);

        // A placed pod carries the SLO keys of its policy that it does not state itself.
        let mut expected = pod.clone();
        if !operations.is_empty() {
            for (name, value) in slo.iter().flat_map(|slo| slo.as_object().unwrap()).filter(|(_, value)| !value.is_null()) {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let stated = &mut expected["metadata"]["annotations"][format!("slo.example.io/{name}")];
                *stated = if stated.is_null() { text.into() } else { stated.take() };
            }
        }
        prop_assert_eq!(rest(&patched), rest(&expected));

        let label = |pod: &Value| pod["metadata"]["labels"]["scheduling.example.io/placed"].as_str().map(str::to_owned);
        let is_placed = patched["metadata"]["annotations"]["scheduling.example.io/site"].is_string() && !operations.is_empty();
        prop_assert_eq!(label(&patched), label(&pod).or_else(|| is_placed.then(|| "true".to_owned())));

        // The user's selector and tolerations are still there in order, without duplicates.
        let selector = |pod: &Value| pod["spec"]["nodeSelector"].as_object().cloned().unwrap_or_default();
        let (before, after) = (selector(&pod), selector(&patched));
        prop_assert!(before.iter().all(|(key, value)| after.get(key) == Some(value)));
        // The RuntimeClass is the user's, or else the site's.
        let classes = [&pod, &patched].map(|pod| pod["spec"]["runtimeClassName"].as_str().filter(|class| !class.is_empty()));
        match classes {
            [Some(before), after] => prop_assert_eq!(after, Some(before)),
            [None, Some(after)] => {
                let site = &patched["metadata"]["annotations"]["scheduling.example.io/site"];
                let sites = fleet["sites"].as_array().unwrap().iter();
                let of_site = sites.filter(|found| found["name"] == *site).map(|site| site["runtimeClassName"].as_str());
                prop_assert_eq!(of_site.collect::<Vec<_>>(), [Some(after)]);
            }
            [None, None] => {}
        }
        let tolerations = |pod: &Value| pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
        let (before, after) = (tolerations(&pod), after_shorter(tolerations(&patched)));
        prop_assert_eq!(&after[..before.len()], &before[..]);
        prop_assert!(after[before.len()..].iter().all(|added| !before.contains(added)));
    }

    /// Whatever a pod's author writes, the pod gains either nothing or the placement of one site that an operator defined.
    #[test]
    fn no_annotation_or_label_gains_placement_outside_the_sites(
        fleet in testkit::fleet(),
        pod in testkit::pod(),
        annotations in attempts(),
        labels in attempts(),
        slo in prop::option::of(slo_of_a_policy()),
        enable_offload: bool,
    ) {
        let config = Config { enable_offload, ..Config::default() };
        let mut pod = pod;
        for (field, said) in [("annotations", annotations), ("labels", labels)] {
            if !pod["metadata"].is_object() {
                pod["metadata"] = json!({});
            }
            let place = &mut pod["metadata"][field];
            if !place.is_object() {
                *place = json!({});
            }
            place.as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
        }
        let policies = slo.as_ref().map(policy).unwrap_or_default();
        let snapshot = testkit::snapshot(&fleet);
        let patched = apply(&pod, &operations_on(&snapshot, &policies, &pod, &config));

        let selector = |pod: &Value| pod["spec"]["nodeSelector"].as_object().cloned().unwrap_or_default();
        let tolerations = |pod: &Value| pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
        let class = |pod: &Value| pod["spec"]["runtimeClassName"].as_str().unwrap_or_default().to_owned();
        let (own, all) = (selector(&pod), selector(&patched));
        // Other tests check trait selectors against the pod's required traits.
        let is_trait = |key: &str, value: &Value| key.starts_with("traits.edgeward.io/") && *value == "true";
        let gained = all.iter().filter(|(key, value)| !own.contains_key(*key) && !is_trait(key, value));
        let gained: Map<_, _> = gained.map(|(k, v)| (k.clone(), v.clone())).collect();
        let tolerated = after_shorter(tolerations(&patched)).split_off(tolerations(&pod).len());
        let given = Some(class(&patched)).filter(|given| *given != class(&pod));

        let is_of = |site: &Site| {
            let missing = site.definition.selector.iter().filter(|(key, _)| !own.contains_key(key));
            let missing: Map<_, _> = missing.map(|(key, value)| (key.clone(), value.as_str().into())).collect();
            let has_whole_selector = site.definition.selector.iter().all(|(key, value)| all.get(key) == Some(&value.as_str().into()));
            // Compares field by field, because a toleration without its effect would tolerate more.
            let is_of_site = |added: &Value| {
                let said = ["key", "operator", "value", "effect"].map(|field| added[field].as_str().unwrap_or_default());
                site.definition.tolerations.iter().any(|of_site| said == [&*of_site.key, &*of_site.operator, &*of_site.value, &*of_site.effect])
            };
            gained == missing
                && has_whole_selector
                && tolerated.iter().all(is_of_site)
                && given.iter().all(|given| site.definition.runtime_class.as_deref() == Some(given))
        };
        let is_nothing = gained.is_empty() && tolerated.is_empty() && given.is_none();
        let sites: Vec<_> = snapshot.sites.iter().filter(|site| is_of(site)).collect();
        prop_assert!(is_nothing || !sites.is_empty(), "{gained:?} {tolerated:?} {given:?}");

        // With offloading off, only a pod whose own spec excludes the edge goes to a cloud.
        let is_pinned = pod["spec"]["nodeSelector"].is_object() || pod["spec"]["affinity"].is_object();
        if !enable_offload && !is_pinned && !is_nothing {
            prop_assert!(sites.iter().any(|site| site.kind() == SiteKind::Edge), "{gained:?} {tolerated:?} {given:?}");
        }
    }

    #[test]
    fn patched_pod_needs_no_patch(fleet in testkit::fleet(), pod in testkit::pod()) {
        let config = Config::default();
        let snapshot = testkit::snapshot(&fleet);
        let text = pod.to_string();
        let parsed = Pod::from_json(&text).unwrap();
        let workload = parsed.workload("shop".into(), &config.keys);
        let verdict = decide(&workload, &Room::of(&snapshot), &config, NOW);
        let patched = apply(&pod, &patch(&parsed, &verdict, &config, &stamp())).to_string();
        let again = Pod::from_json(&patched).unwrap();
        prop_assert_eq!(patch(&again, &verdict, &config, &stamp()), vec![]);

        // The second round of admission must recognise the placement.
        if verdict.reason.is_gate() {
            let workload = again.workload("shop".into(), &config.keys);
            let second = decide(&workload, &Room::of(&snapshot), &config, NOW);
            prop_assert!(second.reason.is_gate());
            prop_assert_eq!(patch(&again, &second, &config, &stamp()), vec![]);
        }
        if verdict.site().is_some() {
            let workload = again.workload("shop".into(), &config.keys);
            let second = decide(&workload, &Room::of(&snapshot), &config, NOW);
            prop_assert_eq!(second.reason, crate::placement::verdict::Reason::Reinvocation);
        }
    }
}
