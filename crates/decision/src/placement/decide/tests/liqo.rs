//! Liqo restricts where the pods of a namespace may run.

use serde_json::{Value, json};

use super::*;
use crate::config::OnNoCapacity;
use crate::model::liqo::{OffloadingPhase, Strategy as Offload};

/// The edge with this much CPU used, and two Liqo clusters, `far` and the nearer `near`.
pub(super) fn clusters(used_millicores: u32) -> Value {
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

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_pod_goes_to_a_site_without_its_namespace(
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
        let workload = testkit::workload(&document, &config.keys);
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
