//! Where Liqo lets the pods of a namespace run.

use serde_json::{Value, json};

use super::*;
use crate::config::OnNoCapacity;
use crate::model::liqo::{OffloadingPhase, Strategy as Offload};

/// The edge with so much taken, and two clusters of Liqo, `far` and `near`, of which `near` is nearer.
fn clusters(used_millicores: u32) -> Value {
    let site = |name: &str, rtt: u32| {
        json!({
            "name": name, "kind": "liqo", "wan": {"rttMs": rtt, "lossPct": 0},
            "nodeSelector": {"liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": name},
        })
    };
    let node = |name: &str| {
        json!({
            "name": name, "labels": {"liqo.io/type": "virtual-node", "liqo.io/remote-cluster-id": name},
            "taints": [{"key": "virtual-node.liqo.io/not-allowed", "value": "true", "effect": "NoExecute"}],
            "allocatable": {"cpu": 64, "memory": "256Gi", "pods": 500},
        })
    };
    json!({
        "sites": [{"name": "edge", "kind": "edge"}, site("far", 80), site("near", 20)],
        "nodes": [fleet(used_millicores)["nodes"][0], node("far"), node("near")],
    })
}

fn offloaded(fleet: Value, strategy: Offload, phase: OffloadingPhase, clusters: Value) -> Value {
    let shop = json!({"strategy": strategy.as_str(), "phase": phase.as_str(), "clusters": clusters});
    with(fleet, "/liqo", json!({"namespaces": {"shop": shop}}))
}

fn gated() -> Config {
    Config::default()
}

/// The phase by which each cloud is refused.
fn phases(fleet: &Value) -> Vec<Option<String>> {
    with_verdict(fleet, &pod(json!({})), &ungated(), |verdict| {
        let clouds = verdict.sites.iter().skip(1);
        let phase = |site: &Assessment<'_>| {
            let mut refusals = site.refusals.iter();
            let refusal = refusals.find(|refusal| refusal.numbers.contains_key("phase"))?;
            Some(refusal.numbers["phase"].as_str().unwrap().to_owned())
        };
        clouds.map(phase).collect()
    })
}

#[test]
fn a_pod_goes_only_to_clusters_to_which_its_namespace_is_offloaded() {
    use OffloadingPhase::{Accepted, InProgress, NoClusterSelected, SomeFailed, Terminating};
    let full = clusters(4000);
    // Without Liqo, as ever.
    assert_eq!(outcome(&full, &pod(json!({}))), "near: cloud_edge_no_capacity");
    assert_eq!(phases(&full), [None, None]);
    for (phase, mapped, expected, refused) in [
        (
            Accepted,
            json!({"far": "Accepted", "near": "Accepted"}),
            "near: cloud_edge_no_capacity",
            [None, None],
        ),
        (
            Accepted,
            json!({"far": "Accepted"}),
            "far: cloud_edge_no_capacity",
            [None, Some("NotSelected")],
        ),
        (
            SomeFailed,
            json!({"far": "Accepted", "near": "CreationLoopBackOff"}),
            "far: cloud_edge_no_capacity",
            [None, Some("CreationLoopBackOff")],
        ),
        (
            InProgress,
            json!({"far": "InProgress"}),
            "edge: edge_not_offloadable",
            [Some("InProgress"); 2],
        ),
        (
            NoClusterSelected,
            json!({}),
            "edge: edge_not_offloadable",
            [Some("NoClusterSelected"); 2],
        ),
        (
            Terminating,
            json!({"far": "Accepted", "near": "Accepted"}),
            "edge: edge_not_offloadable",
            [Some("Terminating"); 2],
        ),
    ] {
        for strategy in [Offload::Local, Offload::LocalAndRemote] {
            let fleet = offloaded(full.clone(), strategy, phase, mapped.clone());
            assert_eq!(outcome(&fleet, &pod(json!({}))), expected, "{phase:?} {mapped}");
            assert_eq!(phases(&fleet), refused.map(|phase| phase.map(str::to_owned)));
            let roomy = offloaded(clusters(0), strategy, phase, mapped.clone());
            assert_eq!(outcome(&roomy, &pod(json!({}))), "edge: edge_no_slo_target");
        }
    }
    let none = with(full.clone(), "/liqo", json!({}));
    assert_eq!(outcome(&none, &pod(json!({}))), "edge: edge_not_offloadable");
    assert_eq!(phases(&none), [Some("None".to_owned()), Some("None".to_owned())]);
    let unknown = with(full, "/liqo", json!({"known": false}));
    assert_eq!(outcome(&unknown, &pod(json!({}))), "edge: edge_not_offloadable");
    assert_eq!(
        phases(&unknown),
        [Some("Unknown".to_owned()), Some("Unknown".to_owned())]
    );
}

#[test]
fn a_site_of_several_clusters_takes_what_is_offloaded_to_all_of_them() {
    let mut all = clusters(4000);
    all["sites"] = json!([
        {"name": "edge", "kind": "edge"},
        {"name": "all", "kind": "liqo", "wan": {"rttMs": 20, "lossPct": 0}},
    ]);
    let of = |mapped: Value| {
        let fleet = offloaded(all.clone(), Offload::Local, OffloadingPhase::Accepted, mapped);
        outcome(&fleet, &pod(json!({})))
    };
    assert_eq!(of(json!({"far": "Accepted"})), "edge: edge_not_offloadable");
    let both = json!({"far": "Accepted", "near": "Accepted"});
    assert_eq!(of(both), "all: cloud_edge_no_capacity");
}

#[test]
fn a_pod_waits_for_a_namespace_that_is_being_offloaded_and_for_no_other() {
    use OffloadingPhase::{InProgress, NoClusterSelected};
    let of = |phase, config: &Config| {
        let fleet = offloaded(clusters(4000), Offload::Local, phase, json!({}));
        outcome_with(&fleet, &pod(json!({})), config)
    };
    assert_eq!(of(InProgress, &gated()), "held_no_capacity");
    assert_eq!(of(NoClusterSelected, &gated()), "edge: edge_not_offloadable");
    // One that only a cloud could hold is kept for it, and never sent where it could not run.
    let large = with(pod(json!({})), "/spec/containers/0/resources/requests/cpu", json!("8"));
    let of = |phase, config: &Config| {
        let fleet = offloaded(clusters(0), Offload::Local, phase, json!({}));
        (
            outcome_with(&fleet, &large, config),
            with_verdict(&fleet, &large, config, |verdict| verdict.warnings.clone()),
        )
    };
    let (outcome, warnings) = of(InProgress, &gated());
    assert_eq!(outcome, "held_site_away");
    assert!(warnings[0].contains("far (offloading_in_progress)"));
    assert_eq!(of(NoClusterSelected, &gated()).0, "edge: edge_too_large");
}

#[test]
fn under_strategy_remote_the_edge_is_no_candidate() {
    use OffloadingPhase::{Accepted, InProgress, NoClusterSelected};
    let remote = |fleet, phase, mapped| offloaded(fleet, Offload::Remote, phase, mapped);
    let far = || json!({"far": "Accepted"});
    let room = remote(clusters(0), Accepted, far());
    assert_eq!(outcome(&room, &pod(json!({}))), "far: cloud_pinned_by_pod");
    // None is good, as for others that are pinned to clouds.
    let down = with(room.clone(), "/sites/1/wan", json!({"reachable": false}));
    assert_eq!(outcome(&down, &pod(json!({}))), "far: cloud_pinned_by_pod");
    let by_hand = with(
        room.clone(),
        "/sites/-",
        json!({"name": "cloud", "kind": "cloud", "wan": {"rttMs": 1, "lossPct": 0}}),
    );
    let by_hand = with(by_hand, "/nodes/-", fleet(0)["nodes"][1].clone());
    assert_eq!(outcome(&by_hand, &pod(json!({}))), "far: cloud_pinned_by_pod");

    let soon = remote(clusters(0), InProgress, json!({}));
    assert_eq!(outcome_with(&soon, &pod(json!({})), &gated()), "held_site_away");
    let never = remote(clusters(0), NoClusterSelected, json!({}));
    assert_eq!(
        outcome_with(&never, &pod(json!({})), &gated()),
        "passthrough_no_site_matches"
    );
    assert!(warnings(&never, &pod(json!({})))[0].contains("near (namespace_not_offloaded)"));
    // Liqo's webhook leaves them alone by then.
    let ending = remote(clusters(0), OffloadingPhase::Terminating, far());
    assert_eq!(outcome(&ending, &pod(json!({}))), "edge: edge_no_slo_target");
    let edge = with_verdict(&room, &pod(json!({})), &ungated(), |verdict| {
        verdict.sites[0].refusals.clone()
    });
    assert_eq!(
        (edge[0].code, &edge[0].numbers["strategy"]),
        (RefusalCode::NamespaceNotOffloaded, &json!("Remote"))
    );
}

#[test]
fn a_pod_that_may_not_leave_the_edge_is_at_fault_where_it_must() {
    let room = offloaded(
        clusters(0),
        Offload::Remote,
        OffloadingPhase::Accepted,
        json!({"far": "Accepted"}),
    );
    let stays = pod(json!({"offloadAllowed": "false"}));
    let fault = "slo.example.io/offloadAllowed: \"false\" is not \"true\", which Liqo's strategy Remote of this namespace takes";
    assert_eq!(outcome(&room, &stays), "passthrough_no_site_matches");
    assert_eq!(warnings(&room, &stays)[0], fault);
    let strict = Config {
        invalid_slo: InvalidSlo::Deny,
        ..ungated()
    };
    let denied = with_verdict(&room, &stays, &strict, |verdict| {
        (
            verdict.reason,
            verdict.faults.iter().map(ToString::to_string).collect::<Vec<_>>(),
        )
    });
    assert_eq!(denied, (Reason::DeniedInvalidSlo, vec![fault.to_owned()]));
    assert_eq!(outcome_with(&clusters(0), &stays, &strict), "edge: edge_no_slo_target");
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_pod_is_sent_where_its_namespace_is_not(
        used in 0_u32..5_000,
        cpu in 1_u32..80_000,
        slo in testkit::pod(),
        strategy in proptest::sample::select(&Offload::ALL[..]),
        stated in proptest::sample::select(&OffloadingPhase::ALL[..]),
        mapped in proptest::collection::vec(proptest::option::of(proptest::sample::select(&OffloadingPhase::ALL[..])), 2),
        reachable in proptest::collection::vec(proptest::prelude::any::<bool>(), 2),
        ready in proptest::prelude::any::<bool>(),
        known in proptest::prelude::any::<bool>(),
        waited in proptest::option::of(0_u64..600),
        holds in proptest::prelude::any::<bool>(),
    ) {
        let mut fleet = clusters(used);
        let mut clusters = json!({});
        for (at, name) in ["far", "near"].into_iter().enumerate() {
            if let Some(phase) = mapped[at] {
                clusters[name] = json!(phase.as_str());
            }
            if !reachable[at] {
                fleet["sites"][at + 1]["wan"] = json!({"reachable": false});
            }
            fleet["nodes"][at + 1]["ready"] = json!(ready);
        }
        let mut fleet = offloaded(fleet, strategy, stated, clusters);
        fleet["liqo"]["known"] = json!(known);
        let snapshot = testkit::snapshot(&fleet);
        let config = Config {
            gating: Gating {
                on_no_capacity: if holds { OnNoCapacity::Hold } else { OnNoCapacity::Edge },
                ..Gating::default()
            },
            ..Config::default()
        };
        let mut document = slo;
        document["spec"]["containers"] = json!([{"resources": {"requests": {"cpu": format!("{cpu}m")}}}]);
        let text = document.to_string();
        let pod = Pod::from_json(&text).unwrap();
        let workload = pod.workload("shop".into(), &config.keys);
        let workload = Workload { gated_for: waited.map(Micros::from_secs), ..workload };
        let verdict = decide(&workload, &Room::of(&snapshot), &config, NOW);
        if let Some(site) = verdict.site() {
            let phase = snapshot.offloading("shop", site);
            proptest::prop_assert!(phase.is_none_or(|phase| phase == OffloadingPhase::Accepted || phase.is_passing()), "{:?}", phase);
            let must_leave = known && strategy == Offload::Remote && stated != OffloadingPhase::Terminating;
            proptest::prop_assert!(!(must_leave && site.kind() == SiteKind::Edge));
        }
    }
}

#[test]
fn a_site_of_all_virtual_nodes_is_none_that_a_pod_can_ask_for() {
    // The cluster `near` is gone, and its site has the virtual nodes that are left.
    let all = json!([
        clusters(4000)["sites"][0],
        {"name": "near", "kind": "liqo", "labels": {"region": "eu"}, "wan": {"rttMs": 20, "lossPct": 0}},
    ]);
    let left = with(clusters(4000), "/sites", all);
    let left = offloaded(
        left,
        Offload::Local,
        OffloadingPhase::Accepted,
        json!({"far": "Accepted", "near": "Accepted"}),
    );
    assert_eq!(outcome(&left, &pod(json!({}))), "near: cloud_edge_no_capacity");
    for sites in ["near", "region=eu"] {
        assert_eq!(
            outcome_with(&left, &pod(json!({"sites": sites})), &gated()),
            "held_site_away"
        );
    }
}

#[test]
fn at_its_limit_a_pod_goes_to_none_of_its_sites_where_its_namespace_is_not() {
    let nowhere = offloaded(
        clusters(4000),
        Offload::Local,
        OffloadingPhase::NoClusterSelected,
        json!({}),
    );
    let pod = pod(json!({"sites": "far"}));
    let text = pod.to_string();
    let pod = Pod::from_json(&text).unwrap();
    let config = gated();
    let mut workload = pod.workload("shop".into(), &config.keys);
    workload.gated_for = Some(Micros::from_secs(600));
    workload.gates = vec![(*config.keys.gate).into()];
    let snapshot = testkit::snapshot(&nowhere);
    let verdict = decide(&workload, &Room::of(&snapshot), &config, NOW);
    assert!(matches!(verdict.action, Action::Gate), "{:?}", verdict.reason);
}
