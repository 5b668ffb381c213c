use std::sync::Arc;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::config::Config;
use crate::model::liqo::{self, ApiServerStatus, Offloading, OffloadingPhase, Offloadings};
use crate::model::node::{NodeId, YOUNG};
use crate::model::remote_room::Bound;
use crate::model::site::SiteDefinition;
use crate::placement::decide::decide;
use crate::placement::room::Room;
use crate::testkit::{self, NOW};
use crate::units::{Bytes, CostPerHour, Millicores, Permille};
use crate::wire::fleet_file::read;
use crate::wire::pod::Pod;

/// Ages in steps of so many microseconds.
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
        }),
    )
}

fn offloadings() -> impl Strategy<Value = Offloadings> {
    let phase = || prop::sample::select(&OffloadingPhase::ALL[..]);
    let stated = option::of((prop::sample::select(&liqo::Strategy::ALL[..]), phase()));
    let clusters = prop::collection::btree_map("far|near".prop_map(Box::from), phase(), 0..3);
    let offloading = (stated, clusters).prop_map(|(stated, clusters)| Offloading { stated, clusters });
    let namespaces = prop::collection::btree_map("shop|infra".prop_map(Box::from), offloading, 0..3);
    (any::<bool>(), namespaces).prop_map(|(is_known, namespaces)| Offloadings { is_known, namespaces })
}

/// Bounds from which on a site is full, sorted.
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

/// Snapshots as watches and probes make them: with what no fleet file of `testkit` has.
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
            }
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
                node.used.cpu = Millicores(node.used.cpu.0.saturating_add(amount));
                node.used.memory = Bytes(node.used.memory.0.saturating_add(amount << 10));
                node.young_until = (scalar % 3 == 0).then(|| NOW.moment.after(YOUNG));
                node.used.scalars = vec![("example.com/gpu".into(), scalar)];
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
        snapshot.has_placeholders = nodes.any(|node| !node.placeholders.is_empty());
        snapshot
    })
}

/// Every field of a snapshot but those that no file holds.
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
    fn what_is_written_reads_as_the_same(snapshot in snapshot(1_000)) {
        let (found, expected) = (shown(written_and_read(&snapshot)), shown(snapshot));
        let differs = found.lines().zip(expected.lines()).find(|(found, expected)| found != expected);
        prop_assert_eq!(differs, None);
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn a_decision_on_the_file_is_that_on_the_snapshot(snapshot in snapshot(7), pod in testkit::pod()) {
        let config = Config::default();
        let text = pod.to_string();
        let pod = Pod::from_json(&text).unwrap();
        let workload = pod.workload("shop".into(), &config.keys);
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
fn what_was_never_seen_is_a_year_old() {
    let file = write(
        &Snapshot {
            kubernetes_as_of: Moment(i64::MIN),
            ..Snapshot::default()
        },
        NOW.moment,
    );
    assert_eq!(file["ageSeconds"], 31_536_000);
}

#[test]
fn ages_are_rounded_up() {
    let snapshot = |age| Snapshot {
        kubernetes_as_of: NOW.moment.before(Micros(age)),
        ..Snapshot::default()
    };
    assert_eq!(write(&snapshot(60_000_001), NOW.moment)["ageSeconds"], 60.001);
    assert_eq!(write(&snapshot(60_000_000), NOW.moment)["ageSeconds"], 60);
}
