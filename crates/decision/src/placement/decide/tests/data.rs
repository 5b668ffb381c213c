//! Pods whose volume claims restrict where they may run.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use edgeward_kube::ties::Leftover;

/// A volume on the nodes whose label has this value.
fn volume(name: &str, label: &str, value: &str) -> Value {
    let requirement = json!({"key": label, "operator": "In", "values": [value]});
    json!({"name": name, "nodeSelectorTerms": [{"matchExpressions": [requirement]}]})
}

/// A claim in namespace `shop`, bound to the volume of this name, or unbound.
fn claim(name: &str, volume: &str, class: &str) -> Value {
    let mut claim = json!({"namespace": "shop", "name": name, "storageClassName": class});
    if !volume.is_empty() {
        claim["volumeName"] = json!(volume);
    }
    claim
}

/// A claim whose volume is being provisioned on this node.
fn selected(name: &str, class: &str, node: &str) -> Value {
    with(claim(name, "", class), "/selectedNode", json!(node))
}

/// A fleet with an edge of two nodes, a cloud that declares the class `far`, and a Liqo cloud.
///
/// Bound claims: `here` (on the node `e1`), `there` (in the cloud), `liqo` (in the Liqo cloud), and `lost` and `shared`
/// (without affinity). Unbound claims: `new-CLASS` for each class. Claims being provisioned: `begun-PLACE`.
pub(super) fn fleet() -> Value {
    let node = |name: &str, labels: Value, cpu: u32| json!({"name": name, "labels": labels, "allocatable": {"cpu": cpu, "memory": "8Gi", "pods": 110}});
    let wan = json!({"rttMs": 25, "lossPct": 0});
    let class = |name: &str, provisioner: &str, mode: &str| json!({"name": name, "provisioner": provisioner, "volumeBindingMode": mode});
    let waits = "WaitForFirstConsumer";
    json!({
        "sites": [
            {"name": "edge", "kind": "edge"},
            {"name": "cloud", "kind": "cloud", "tolerations": [], "storageClasses": ["far"], "wan": wan},
            {"name": "liqo", "kind": "liqo", "wan": wan},
        ],
        "nodes": [
            node("e1", json!({"node.role/edge": "true", "host": "e1", "zone": "home"}), 4),
            node("e2", json!({"node.role/edge": "true", "host": "e2", "zone": "home"}), 4),
            node("c1", json!({"node.role/cloud": "true", "host": "c1", "zone": "away"}), 4),
            node("l1", json!({"liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": "x", "zone": "away"}), 4),
        ],
        "persistentVolumeClaims": [
            claim("here", "pv-here", "local"),
            claim("there", "pv-there", "far"),
            claim("remote", "pv-remote", "liqo"),
            claim("at-home", "pv-at-home", "liqo"),
            claim("zonal", "pv-zonal", "local"),
            claim("shared", "pv-shared", "nfs"),
            claim("unknown", "pv-unknown", "nfs"),
            {"namespace": "shop", "name": "lost", "volumeName": "pv-there", "phase": "Lost"},
            claim("new-local", "", "local"),
            claim("new-far", "", "far"),
            claim("new-liqo", "", "liqo"),
            claim("new-other-liqo", "", "other-liqo"),
            claim("new-eager", "", "eager"),
            claim("new-nothing", "", "nothing"),
            selected("begun-here", "local", "e1"),
            selected("begun-far", "far", "c1"),
            selected("begun-eager", "eager", "c1"),
            {"namespace": "bank", "name": "of-others", "volumeName": "pv-there"},
        ],
        "persistentVolumes": [
            volume("pv-here", "host", "e1"),
            volume("pv-there", "host", "c1"),
            volume("pv-remote", "liqo.io/remote-cluster-id", "x"),
            {"name": "pv-at-home", "nodeSelectorTerms":
                [{"matchExpressions": [{"key": "liqo.io/type", "operator": "DoesNotExist"},
                                       {"key": "host", "operator": "In", "values": ["e1"]}]}]},
            volume("pv-zonal", "zone", "away"),
            {"name": "pv-shared"},
        ],
        "storageClasses": [
            class("local", "kubernetes.io/no-provisioner", waits),
            class("far", "kubernetes.io/no-provisioner", waits),
            class("liqo", "liqo.io/storage", waits),
            class("other-liqo", "liqo.io/storage", waits),
            class("eager", "far.example.com", "Immediate"),
        ],
    })
}

/// The volumes of these claims.
pub(super) fn volumes(claims: &str) -> Value {
    let claims = claims.split(',');
    claims
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
        .collect()
}

/// A pod with these claims. If the edge is full, only the cloud meets its deadline.
fn with_claims(claims: &[&str]) -> Value {
    with(
        pod(json!({"deadlineMs": "400"})),
        "/spec/volumes",
        volumes(&claims.join(",")),
    )
}

/// The fleet without room on the edge nodes.
pub(super) fn full_edge() -> Value {
    let mut fleet = fleet();
    for node in 0..2 {
        fleet["nodes"][node]["used"] = json!({"cpu": 4, "pods": 4});
    }
    fleet
}

#[test]
fn arriving_pod_with_stale_volumes_offloads_only_bound_claims() {
    let mut snapshot = testkit::snapshot(&full_edge());
    let volumes = snapshot.volumes.as_mut().map(std::sync::Arc::make_mut);
    volumes.unwrap().is_stale = true;
    let config = Config::default();
    for (claim, arriving, gated) in [
        ("there", Reason::CloudPinnedByPod, Reason::CloudPinnedByPod),
        ("new-far", Reason::EdgeNotOffloadable, Reason::CloudEdgeNoCapacity),
    ] {
        let mut workload = testkit::workload(&with_claims(&[claim]), &config.keys);
        let room = Room::of(&snapshot);
        assert_eq!(decide(&workload, &room, &config, NOW).reason, arriving, "{claim}");
        workload.gated_for = Some(Micros(0));
        assert_eq!(decide(&workload, &room, &config, NOW).reason, gated, "{claim}");
    }
}

#[test]
fn gated_pod_waits_until_its_volumes_are_known() {
    let mut snapshot = testkit::snapshot(&fleet());
    let volumes = snapshot.volumes.take();
    let config = Config::default();
    let mut workload = testkit::workload(&with_claims(&["there"]), &config.keys);
    workload.gated_for = Some(Micros::from_secs(3_600));
    for (is_awaited, reason) in [(true, Reason::HeldSiteAway), (false, Reason::EdgeNotOffloadable)] {
        snapshot.awaits_volumes = is_awaited;
        assert_eq!(decide(&workload, &Room::of(&snapshot), &config, NOW).reason, reason);
    }
    (snapshot.volumes, snapshot.awaits_volumes) = (volumes, false);
    let reason = decide(&workload, &Room::of(&snapshot), &config, NOW).reason;
    assert_eq!(reason, Reason::CloudPinnedByPod);
}

#[test]
fn only_nodes_with_the_volume_have_room_for_the_pod() {
    let mut fleet = fleet();
    fleet["nodes"][0]["used"] = json!({"cpu": 4, "pods": 4});
    with_verdict(&fleet, &with_claims(&["here"]), &Config::default(), |verdict| {
        assert_eq!(verdict.reason, Reason::EdgePinnedByPod);
        assert!(verdict.sites[0].is_refused(RefusalCode::NoRoom));
        assert_eq!(verdict.node, None);
    });
    with_verdict(&fleet, &with_claims(&["there"]), &Config::default(), |verdict| {
        let refusals = &verdict.sites[0].refusals;
        assert_eq!(refusals[0].code, RefusalCode::DataElsewhere);
        assert_eq!(refusals[0].numbers["claim"], "there");
    });
}

#[test]
fn fields_that_liqo_drops_are_warned_about() {
    let liqo = json!({"nodeSelector": {"liqo.io/type": "virtual-node"}});
    let mut pod = pod(json!({"deadlineMs": "400"}));
    pod["spec"]["nodeSelector"] = liqo["nodeSelector"].clone();
    let config = Config::default();
    let of = |spec: Value| {
        let mut pod = pod.clone();
        let fields = pod["spec"].as_object_mut().unwrap();
        fields.extend(spec.as_object().unwrap().clone());
        with_verdict(&fleet(), &pod, &config, |verdict| verdict.warnings.clone())
    };
    let token = |name: &str| json!({"name": name, "projected": {"sources": [{"configMap": {}}, {"serviceAccountToken": {"path": "t"}}]}});
    let defaulted = json!({"schedulerName": "default-scheduler", "serviceAccountName": "default", "priority": 5,
        "volumes": [token("kube-api-access-x7k2p")]});
    assert_eq!(of(defaulted), Vec::<String>::new());
    let all = json!({"schedulerName": "mine", "automountServiceAccountToken": true,
        "affinity": {"podAffinity": {}, "podAntiAffinity": {}}});
    let fields: Vec<_> = Leftover::ALL.map(Leftover::as_str).into();
    assert_eq!(of(all), [format!("Liqo does not take along: {}", fields.join(", "))]);
    assert_eq!(
        of(json!({"volumes": [token("vault")]})),
        ["Liqo does not take along: serviceAccountToken"]
    );
    // Moving the pod to another cloud takes its claims along.
    let elsewhere = json!({"nodeSelector": {"node.role/cloud": "true"}, "schedulerName": "mine"});
    assert_eq!(of(elsewhere), Vec::<String>::new());
}

/// Volumes on nodes with the labels of generated fleets, some with claims, and claim names for the pod.
fn data() -> impl Strategy<Value = (Value, Vec<&'static str>)> {
    let names = ["a", "b", "c"];
    let labels = prop::sample::select(vec![
        ("node.role/edge", "true"),
        ("node.role/cloud", "true"),
        ("site", "far"),
        ("site", "edge"),
        ("liqo.io/type", "virtual-node"),
        ("site", "nowhere"),
    ]);
    let classes = prop::sample::select(vec!["liqo", "local"]);
    let claim = (prop::option::weighted(0.7, labels), classes);
    let asked = prop::sample::subsequence(names.to_vec(), 1..=2);
    (prop::collection::vec(claim, 3), asked).prop_map(move |(claims, asked)| {
        let (mut volumes, mut list) = (vec![], vec![]);
        for (name, (place, class)) in names.into_iter().zip(claims) {
            volumes.extend(place.map(|(label, value)| volume(name, label, value)));
            list.push(claim_of(name, place.is_some(), class));
        }
        let classes =
            json!([{"name": "liqo", "provisioner": "liqo.io/storage", "volumeBindingMode": "WaitForFirstConsumer"}]);
        (
            json!({"persistentVolumeClaims": list, "persistentVolumes": volumes, "storageClasses": classes}),
            asked,
        )
    })
}

fn claim_of(name: &str, is_bound: bool, class: &str) -> Value {
    claim(name, if is_bound { name } else { "" }, class)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn pod_is_never_placed_out_of_reach_of_its_volumes(
        fleet in testkit::fleet(),
        pod in testkit::pod(),
        (data, asked) in data(),
        gated in prop::option::of(0_u64..600),
    ) {
        let mut fleet = fleet;
        fleet.as_object_mut().unwrap().extend(data.as_object().unwrap().clone());
        let mut pod = pod;
        let volumes = asked.iter().map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}));
        pod["spec"]["volumes"] = volumes.collect();
        let snapshot = testkit::snapshot(&fleet);
        let config = Config::default();
        let mut workload = testkit::workload(&pod, &config.keys);
        workload.gated_for = gated.map(Micros::from_secs);
        let verdict = decide(&workload, &Room::of(&snapshot), &config, NOW);
        let known = snapshot.volumes.as_deref().unwrap();
        if let Some(site) = verdict.site() {
            let affinities: Vec<_> = asked.iter().filter_map(|claim| known.volumes.get(*claim)).collect();
            let matches = |node: &Node| {
                let is_at = |terms: &&std::sync::Arc<Vec<edgeward_kube::constraints::Term>>| {
                    terms.iter().any(|term| term.matches(&node.name, &node.labels))
                };
                affinities.iter().all(is_at)
            };
            prop_assert!(affinities.is_empty() || site.nodes().any(matches), "{:?}", verdict.reason);
            let node = verdict.node.and_then(|id| site.nodes().find(|node| node.id == id));
            prop_assert!(node.is_none_or(matches));
        }
    }
}
