use std::sync::Arc;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::config::Config;
use crate::model::component::Component;
use crate::model::link::{Link, LinkState};
use crate::model::liqo::{self, ApiServerStatus, Offloading, OffloadingPhase, Offloadings};
use crate::model::remote_room::{Bound, FullFrom};
use crate::model::site::{SiteDefinition, SiteKind};
use crate::model::slo::Class;
use crate::model::snapshot::{Free, ProcessingTime};
use crate::model::traits::Traits;
use crate::placement::decide::decide;
use crate::placement::room::Room;
use crate::testkit;
use crate::testkit::NOW;
use edgeward_kube::node::{Node, YOUNG};
use edgeward_kube::resources::Amounts;
use edgeward_kube::units::{Bytes, CostPerHour, Millicores, Permille};

/// Times in steps of `step` microseconds.
fn moment(step: i64) -> impl Strategy<Value = Moment> {
    (0..90_000_000 / step).prop_map(move |age| Moment(NOW.moment.0 - age * step))
}

fn link(step: i64) -> impl Strategy<Value = Option<Link>> {
    let state = prop::sample::select(&LinkState::ALL[..]);
    let rtt = option::weighted(0.9, (0_u64..200_000).prop_map(Micros));
    let loss = option::weighted(0.9, (0_u32..=1_000).prop_map(Permille));
    let link = (state, rtt, loss, moment(step));
    option::weighted(
        0.9,
        link.prop_map(|(state, rtt, loss, as_of)| Link {
            state,
            rtt,
            loss,
            as_of,
            ..Link::default()
        }),
    )
}

fn offloadings() -> impl Strategy<Value = Offloadings> {
    let phase = || prop::sample::select(&OffloadingPhase::ALL[..]);
    let stated = option::of((prop::sample::select(&liqo::Strategy::ALL[..]), phase()));
    let clusters = prop::collection::btree_map("far|near".prop_map(Box::from), phase(), 0..3);
    let offloading = (stated, clusters).prop_map(|(stated, clusters)| Offloading {
        strategy: stated.map(|(strategy, _)| strategy),
        phase: stated.map_or(OffloadingPhase::Accepted, |(_, phase)| phase),
        clusters,
    });
    let namespaces = prop::collection::btree_map("shop|infra".prop_map(Box::from), offloading, 0..3);
    (any::<bool>(), namespaces).prop_map(|(is_known, namespaces)| Offloadings { is_known, namespaces })
}

/// Bounds from which a site is full, sorted.
fn full() -> impl Strategy<Value = Vec<FullFrom>> {
    let amounts = (0_i64..2_000, 0_i64..3_000_000_000, 0_i64..3, any::<bool>());
    let full = (amounts, 0_u64..9).prop_filter_map("nothing", |((cpu, memory, gpus, slot), pods)| {
        let request = Amounts {
            cpu: Millicores(cpu),
            memory: Bytes(memory),
            scalars: vec![("example.com/gpu".into(), gpus)],
            ..Amounts::default()
        };
        let bound = Arc::new(Bound::of(&request, slot.then_some(1))?);
        Some(FullFrom { bound, pods })
    });
    vec(full, 0..3).prop_map(|mut full| {
        full.sort_by(|one, other| one.bound.cmp(&other.bound));
        full
    })
}

/// Snapshots as watches and probes build them, including fields that no `testkit` fleet file has.
fn snapshot(step: i64) -> impl Strategy<Value = Snapshot> {
    let closed = vec(("shop|infra", "u[1-3]", 1_u64..9), 0..3);
    let odd = vec((0_i64..3_000_000_000, 0_i64..50), 4);
    let site = (link(step), (closed, full()), odd, any::<bool>());
    (testkit::fleet(), vec(site, 4), moment(step), option::of(offloadings())).prop_map(|(file, seen, as_of, liqo)| {
        let mut snapshot = testkit::snapshot(&file);
        snapshot.offloadings = liqo.map(Arc::new);
        snapshot.kubernetes_as_of = as_of;
        let edge_selector = snapshot.sites[0].definition.selector.clone();
        for (site, (link, (closed, full), odd, claimed_twice)) in snapshot.sites.iter_mut().zip(seen) {
            if site.kind() == SiteKind::Cloud {
                site.link = link;
                site.api_server = claimed_twice.then_some(ApiServerStatus::Error);
                site.full = Arc::new(full);
            }
            for (namespace, controller, pods) in closed {
                let (closed, pods_of) = (Arc::make_mut(&mut site.closed), Arc::make_mut(&mut site.pods_of));
                closed.entry(&namespace, &controller).insert_entry(pods);
                pods_of.entry(&namespace, &controller).insert_entry(pods + 1);
                Arc::make_mut(&mut site.owned)
                    .entry(&namespace, &controller)
                    .insert_entry(pods + 3);
                let labelled = Arc::make_mut(&mut site.labelled);
                labelled.entry(&namespace, &controller).insert_entry(pods + 2);
            }
            let component = Component {
                name: "web".into(),
                traits: Some(if claimed_twice {
                    Traits::default()
                } else {
                    Traits::parse("A, B?").unwrap()
                }),
                clients: 1,
                clients_max: claimed_twice.then_some(2),
            };
            site.components = Arc::new(vec![component]);
            let definition = Arc::make_mut(&mut site.definition);
            let [(cost, order), (_, label), ..] = odd[..] else {
                unreachable!()
            };
            definition.cost = (order > 9).then_some(CostPerHour(cost.unsigned_abs()));
            definition.labels = (0..label % 3)
                .map(|i| (format!("l{i}").into(), label.to_string().into()))
                .collect();
            if definition.kind == SiteKind::Cloud {
                definition.order = u32::try_from(order).unwrap();
            }
            let used = |node: &mut Node, (amount, scalar): (i64, i64)| {
                node.charges.used.cpu = Millicores(node.charges.used.cpu.0.saturating_add(amount));
                node.charges.used.memory = Bytes(node.charges.used.memory.0.saturating_add(amount << 10));
                node.state.young_until = (scalar % 3 == 0).then(|| NOW.moment.after(YOUNG));
                node.charges.used.scalars = vec![("example.com/gpu".into(), scalar)];
                let is_free = |(key, _): &(String, String)| node.labels.get(key).is_none();
                if claimed_twice && edge_selector.iter().all(is_free) {
                    let added = edge_selector.iter().map(|(key, value)| (&**key, &**value));
                    let labels = node.labels.iter().chain(added).collect();
                    node.labels = labels;
                }
            };
            let each = |nodes: &mut Vec<Arc<Node>>| {
                let odd = nodes.iter_mut().zip(odd);
                odd.for_each(|(node, odd)| used(Arc::make_mut(node), odd));
            };
            each(Arc::make_mut(&mut site.nodes));
        }
        let mut nodes = snapshot.sites.iter().flat_map(|site| &*site.nodes);
        snapshot.has_placeholders = nodes.any(|node| !node.charges.placeholders.is_empty());
        snapshot
    })
}

/// Every field of a snapshot except those that fleet files do not hold.
fn shown(mut snapshot: Snapshot) -> String {
    snapshot.revision = 0;
    for site in &mut snapshot.sites {
        site.definition = Arc::new(SiteDefinition {
            probes: vec![],
            ..(*site.definition).clone()
        });
        let forget = |node: &mut Arc<Node>| Arc::make_mut(node).id = NodeId(0);
        Arc::make_mut(&mut site.nodes).iter_mut().for_each(forget);
    }
    format!("{snapshot:#?}")
}

fn written_and_read(snapshot: &Snapshot) -> Snapshot {
    let file = write(snapshot, NOW.moment);
    read(&file, &Config::default(), NOW.moment).unwrap_or_else(|faults| panic!("{faults}\n{file:#}"))
}

proptest! {
    #[test]
    fn written_snapshot_reads_back_equal(snapshot in snapshot(1_000)) {
        let (found, expected) = (shown(written_and_read(&snapshot)), shown(snapshot));
        let differs = found.lines().zip(expected.lines()).find(|(found, expected)| found != expected);
        prop_assert_eq!(differs, None);
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn decision_on_fleet_file_equals_decision_on_snapshot(snapshot in snapshot(7), pod in testkit::pod()) {
        let config = Config::default();
        let workload = testkit::workload(&pod, &config.keys);
        let copy = written_and_read(&snapshot);
        let [original, copy] = [&snapshot, &copy].map(|snapshot| {
            let verdict = decide(&workload, &Room::of(snapshot), &config, NOW);
            let site = verdict.site().map(|site| site.name().to_owned());
            let refusals: Vec<_> = verdict.sites.iter().map(|site| {
                let codes = site.refusals.iter().map(|refusal| refusal.code).collect::<Vec<_>>();
                (codes, site.fitting.len(), site.estimate.eta())
            }).collect();
            (verdict.action.as_str(), site, verdict.reason, refusals, verdict.warnings)
        });
        prop_assert_eq!(original, copy);
    }
}

#[test]
fn ages_are_rounded_up_and_a_year_at_most() {
    for (kubernetes_as_of, expected) in [
        (NOW.moment.before(Micros(60_000_001)), json!(60.001)),
        (NOW.moment.before(Micros(60_000_000)), json!(60)),
        (Moment(i64::MIN), json!(31_536_000)),
    ] {
        let snapshot = Snapshot {
            kubernetes_as_of,
            ..Snapshot::default()
        };
        assert_eq!(write(&snapshot, NOW.moment)["ageSeconds"], expected);
    }
}

fn load(document: Value) -> Result<Snapshot, Vec<String>> {
    read(&document, &Config::default(), Moment(100_000_000))
        .map_err(|faults| faults.0.iter().map(ToString::to_string).collect())
}

#[test]
fn nodes_belong_to_the_site_whose_selector_they_carry() {
    let snapshot = load(json!({
        "ageSeconds": 1.5,
        "sites": [
            {"name": "z", "kind": "cloud", "wan": {"rttMs": 25.5, "lossPct": 0.2, "ageSeconds": 2}},
            {"name": "l", "kind": "liqo", "speedFactor": 2, "supports": ["hostPort"], "wan": {"reachable": false}},
            {"name": "here", "kind": "edge", "queues": [{"class": "batch", "waiting": 3}],
             "observedProcMs": {"batch": 7},
             "measuredNamespaceProcMs": {"shop": {"batch": {"mean": 6, "p95": 9.5}}},
             "observedNamespaceProcMs": {"shop": {"batch": 7.5}},
             "observedControllerProcMs": {"shop": {"u": 8.5}},
             "measuredFree": {"cpu": "1500m", "memory": "1Gi"}},
        ],
        "nodes": [
            {"name": "e", "labels": {"node.role/edge": "true"},
             "allocatable": {"cpu": "1500m", "memory": "1Gi", "pods": 10, "example.com/gpu": 1},
             "used": {"cpu": 1, "pods": 2}, "taints": [{"key": "k", "effect": "NoSchedule"}]},
            {"name": "c", "labels": {"node.role/cloud": "true", "node.role/edge": "true"}, "allocatable": {"pods": "5"}, "ready": false},
            {"name": "v", "labels": {"liqo.io/type": "virtual-node"}, "allocatable": {"pods": "5"}},
            {"name": "nobody's", "allocatable": {"pods": "5"}},
        ],
    }))
    .unwrap();
    let names: Vec<_> = snapshot.sites.iter().map(Site::name).collect();
    assert_eq!(names, ["here", "l", "z"]);
    assert_eq!(snapshot.kubernetes_as_of, Moment(98_500_000));
    let [edge, liqo, cloud] = &snapshot.sites[..] else {
        panic!()
    };
    assert_eq!(edge.nodes[0].allocatable.scalar("example.com/gpu"), 1);
    assert_eq!(
        (
            edge.nodes[0].slots,
            edge.nodes[0].charges.pods,
            edge.nodes[0].charges.used.cpu.0
        ),
        (10, 2, 1000)
    );
    let all = |us| ProcessingTime::all(Micros(us));
    let in_shop = ProcessingTime {
        mean: Micros(6_000),
        p95: Micros(9_500),
    };
    assert_eq!(edge.observed[Class::Batch], Some(all(7_000)));
    assert_eq!(edge.observed_in["shop"][Class::Batch], Some(in_shop));
    assert_eq!(edge.job_times.classes["shop"][Class::Batch], Some(all(7_500).into()));
    assert_eq!(edge.job_times.of_jobs.get("shop", "u"), Some(&all(8_500).into()));
    assert_eq!(
        edge.free,
        Free {
            cpu: Some(Millicores(1_500)),
            memory: Some(Bytes(1 << 30))
        }
    );
    assert_eq!(cloud.free, Free::default());
    assert_eq!(liqo.link.unwrap().state, LinkState::Unreachable);
    assert_eq!(liqo.definition.speed, Permille(2_000));
    assert_eq!(liqo.definition.tolerations[0].key, "virtual-node.liqo.io/not-allowed");
    assert_eq!(
        cloud.link.unwrap(),
        Link {
            state: LinkState::Healthy,
            rtt: Some(Micros(25_500)),
            loss: Some(Permille(2)),
            as_of: Moment(98_000_000),
            ..Link::default()
        }
    );
    assert!(!cloud.nodes[0].state.ready);
}

#[test]
fn data_is_written_as_it_was_read() {
    let lists = json!({
        "persistentVolumeClaims": [
            {"namespace": "a", "name": "x", "volumeName": "pv", "storageClassName": "liqo"},
            {"namespace": "a", "name": "y", "phase": "Lost"},
            {"namespace": "b", "name": "x"},
        ],
        "persistentVolumes": [{"name": "pv", "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}, {"key": "k", "operator": "Exists"}]},
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]},
        ]}],
        "storageClasses": [
            {"name": "liqo", "provisioner": "liqo.io/storage", "volumeBindingMode": "WaitForFirstConsumer"},
            {"name": "other", "volumeBindingMode": "Immediate"},
        ],
    });
    let file = |mut lists: Value| {
        lists["sites"] = json!([{"name": "edge", "kind": "edge"}]);
        load(lists)
    };
    let written = write(&file(lists.clone()).unwrap(), Moment(100_000_000));
    for (name, list) in lists.as_object().unwrap() {
        assert_eq!(&written[name], list);
    }
    assert_eq!(file(json!({})).unwrap().volumes, None);
    let nothing = json!({"persistentVolumeClaims": [], "persistentVolumes": [], "storageClasses": []});
    assert_eq!(file(nothing).unwrap().volumes, Some(Arc::default()));
    assert_eq!(
        file(json!({"persistentVolumeClaims": [{"namespace": "a", "name": "x", "phase": "Gone"}]})).unwrap_err(),
        ["persistentVolumeClaims[0].phase: unknown variant `Gone`, expected one of `Pending`, `Bound`, `Lost`"]
    );
}

#[test]
fn component_with_unreadable_traits_is_a_fault() {
    let site =
        json!({"name": "edge", "kind": "edge", "components": [{"name": "web"}, {"name": "db", "traits": "A B"}]});
    assert_eq!(
        load(json!({ "sites": [site] })).unwrap_err(),
        [
            "sites[0].components[1].traits: is not a list of at most 16 traits such as \"SecureRuntime, GreenEnergy?, SoftDistanceLimit=20ms\""
        ]
    );
}
