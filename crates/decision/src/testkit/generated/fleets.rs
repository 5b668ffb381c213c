//! Fleets, as fleet files.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::testkit::generated::{full_object, object, with_members, words};

/// A node with these labels, at most `cores` cores and some of `taints`. Pods of known priorities use a part of its
/// used resources.
fn node(cores: u32, labels: Value, taints: Vec<Value>) -> BoxedStrategy<Value> {
    let grace = option::weighted(0.3, select(&[0, 5, 60][..]));
    let part = (select(&[-5, -5, 0, 7, 1000][..]), 0_u32..5, 0_u32..2, grace);
    let used = (0_u32..3, 0_u32..2, vec(part, 0..4)).prop_map(|(cpu, pods, parts)| {
        let resources = |cpu: u32, pods: u32| json!({"cpu": cpu, "memory": format!("{cpu}Gi"), "pods": pods});
        let total = parts
            .iter()
            .fold((cpu, pods), |(cpu, pods), part| (cpu + part.1, pods + part.2));
        let by_priority = parts
            .iter()
            .map(|&(priority, cpu, pods, _)| json!({"priority": priority, "used": resources(cpu, pods)}));
        let placeholders = parts.iter().filter_map(|&(priority, cpu, pods, grace)| {
            Some(json!({"priority": priority, "graceSeconds": grace?, "used": resources(cpu, pods)}))
        });
        let (by_priority, placeholders) = (by_priority.collect::<Value>(), placeholders.collect::<Value>());
        (resources(total.0, total.1), by_priority, placeholders)
    });
    let state = (prop::bool::weighted(0.9), prop::bool::weighted(0.1));
    (
        (0..=cores, select(&[1, 4, 10, 10][..])),
        used,
        select(taints),
        select(&["a", "b"][..]),
        state,
    )
        .prop_map(
            move |((cpu, slots), (used, by_priority, placeholders), taints, zone, (ready, cordoned))| {
                json!({
                    "labels": with_members(labels.clone(), json!({"zone": zone, "cores": cpu.to_string(), "traits.edgeward.io/A": if zone == "a" { "true" } else { "no" }})),
                    "taints": taints, "ready": ready, "unschedulable": cordoned,
                    "allocatable": {"cpu": cpu, "memory": format!("{}Gi", cpu * 2), "ephemeral-storage": "10Gi",
                                    "pods": slots, "example.com/gpu": 1},
                    "used": used, "usedByPriority": by_priority, "placeholders": placeholders,
                })
            },
        )
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

/// A site with these members and some optional ones.
fn site(members: BoxedStrategy<Value>) -> BoxedStrategy<Value> {
    let queue = (
        select(&["latency", "throughput", "batch"][..]),
        0_u32..8,
        object(vec![
            ("priority", select(&[-5, 0, 5][..]).prop_map(Value::from).boxed()),
            ("sloPriority", select(&[0, 5, 10][..]).prop_map(Value::from).boxed()),
        ]),
    )
        .prop_map(|(class, waiting, ranks)| with_members(json!({"class": class, "waiting": waiting}), ranks));
    let time = || select(&[5, 120, 900][..]).prop_map(Value::from).boxed();
    let observed = || object(vec![("latency", time()), ("throughput", time()), ("batch", time())]);
    let of_namespace = observed().prop_map(|times| json!({"shop": times}));
    let observed_of = time().prop_map(|ms| json!({"shop": {"u": ms}}));
    // Rarely less than the nodes have.
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
        ("runtimeClassName", words(&["kata", "gvisor.of.ours"])),
        ("supports", vec(select(ties), 0..3).prop_map(Value::from).boxed()),
        (
            "traits",
            vec(select(&["A", "B"][..]), 0..3).prop_map(Value::from).boxed(),
        ),
        ("queues", vec(queue, 0..3).prop_map(Value::from).boxed()),
        ("observedProcMs", observed()),
        ("observedNamespaceProcMs", of_namespace.boxed()),
        ("observedControllerProcMs", observed_of.boxed()),
        ("measuredFree", free),
    ]);
    (some, members)
        .prop_map(|(some, members)| with_members(some, members))
        .boxed()
}

fn cloud_site(members: Vec<Value>) -> BoxedStrategy<Value> {
    let own = object(vec![
        (
            "rttThresholdMs",
            select(&[20.5, 200.0][..]).prop_map(Value::from).boxed(),
        ),
        (
            "lossThresholdPct",
            select(&[0.1, 5.0][..]).prop_map(Value::from).boxed(),
        ),
    ]);
    let own = prop_oneof![4 => Just(json!({})), 1 => own];
    let seconds = object(vec![("unreachableSeconds", Just(json!(7)).boxed())]);
    let members = (select(members), own, seconds, full_object(vec![("wan", wan())]));
    let members =
        members.prop_map(|(members, own, seconds, wan)| [own, seconds, wan].into_iter().fold(members, with_members));
    site(members.boxed())
}

/// The edge site, up to three cloud sites, and nodes of all of them and of none.
pub fn fleet() -> BoxedStrategy<Value> {
    // Cloud sites differ by labels of their own, or by one label next to the label that they share.
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
    // Liqo turns `hostNetwork` off, so no site of kind `liqo` supports it.
    let virtual_cluster = cloud_site(vec![json!({"name": "virtual", "kind": "liqo"})]).prop_map(|mut site| {
        if let Some(supports) = site.get_mut("supports").and_then(Value::as_array_mut) {
            supports.retain(|tie| *tie != "hostNetwork");
        }
        site
    });
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

    (sites, nodes, prop::bool::weighted(0.1), profile())
        .prop_map(|(sites, nodes, stale, profile)| {
            let names: Vec<_> = sites.iter().map(|site| site["name"].clone()).collect();
            json!({
                "ageSeconds": if stale { 90 } else { 0 }, "sites": sites, "nodes": nodes,
                "profiles": [of_sites(profile, &names)],
            })
        })
        .boxed()
}

/// Scores of some sites of any fleet.
fn profile() -> BoxedStrategy<Value> {
    let site = || select(&["edge", "cloud", "far", "virtual"][..]);
    let score = select(&[0.0, 0.04, 0.05, 0.3, 1.0][..]);
    let scores = btree_map(site(), (score, prop::bool::weighted(0.1)), 0..4);
    (scores, option::of(site()), select(&["lower", "higher"][..]))
        .prop_map(|(scores, preferred, better)| {
            let entry = |(site, (score, is_stale)): (&&str, &(f64, bool))| {
                json!({"site": site, "score": score, "ageSeconds": if *is_stale { 999 } else { 0 }})
            };
            let scores: Vec<_> = scores.iter().map(entry).collect();
            json!({"name": "greenness", "better": better, "margin": 0.05, "preferred": preferred, "scores": scores})
        })
        .boxed()
}

/// Removes the parts of the profile about sites that are not in `names`.
fn of_sites(mut profile: Value, names: &[Value]) -> Value {
    if !names.contains(&profile["preferred"]) {
        profile["preferred"] = Value::Null;
    }
    if let Some(scores) = profile["scores"].as_array_mut() {
        scores.retain(|score| names.contains(&score["site"]));
    }
    profile
}
