mod interleavings;

use serde_json::json;

use super::*;
use crate::keys::Keys;
use crate::testkit;
use crate::testkit::{NOW, cpu};
use edgeward_kube::units::Millicores;

const TTL: Micros = Micros::from_secs(3);

impl Ledger {
    /// Number of unconfirmed reservations that count only for their own namespace.
    fn beyond_half(&self) -> usize {
        self.unconfirmed().filter(|entry| entry.is_beyond_half).count()
    }
}

fn reservation(id: u128) -> Reservation {
    testkit::reservation(id, 7, 100)
}

#[test]
fn forgotten_release_frees_only_unconfirmed_reservation() {
    let mut ledger = Ledger::new(Micros::from_secs(3_600));
    let release = Reservation {
        releases: Some("gated".into()),
        ..reservation(1)
    };
    assert!(ledger.reserve(release.clone(), NOW.moment, |_| true));
    ledger.forget_release("another");
    assert_eq!((ledger.open(), ledger.releases("gated")), (1, true));
    ledger.forget_release("gated");
    assert_eq!((ledger.open(), ledger.releases("gated"), ledger.freed()), (0, false, 1));
    assert_eq!(ledger.next_expiry(), None);
    // A confirmed reservation belongs to its pod.
    assert!(ledger.reserve(release, NOW.moment, |_| true));
    assert!(ledger.confirm(DecisionId(1), "shop", "edge", 7).is_some());
    ledger.forget_release("gated");
    assert_eq!(ledger.charges(NodeId(7), 6, "shop").count(), 1);
}

/// [`NOW`] plus this time.
fn after(time: Micros) -> Moment {
    NOW.moment.after(time)
}

/// Millicores and pod slots taken from node 7, as its own namespace sees them at `revision`.
fn taken(ledger: &Ledger, revision: u64) -> (i64, u32) {
    taken_from(ledger, revision, "shop")
}

/// Millicores and pod slots taken from a site, as a review in this namespace sees them.
fn reserved(ledger: &Ledger, site: &str, revision: u64, namespace: &str) -> (i64, u32) {
    sum(ledger.reserved(site, revision, namespace))
}

fn taken_from(ledger: &Ledger, revision: u64, namespace: &str) -> (i64, u32) {
    sum(ledger.charges(NodeId(7), revision, namespace))
}

fn sum<'l>(charges: impl Iterator<Item = Charge<'l>>) -> (i64, u32) {
    charges.fold((0, 0), |(cpu, slots), (reservation, times)| {
        (cpu + reservation.amount.cpu.0 * i64::from(times), slots + times)
    })
}

#[test]
fn decision_id_parses_only_in_its_printed_form() {
    let id = DecisionId(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
    let text = "01234567-89ab-cdef-0011-223344556677";
    assert_eq!(id.to_string(), text);
    assert_eq!(DecisionId::parse(text), Some(id));
    for other in [
        "",
        "x",
        "0123456789abcdef0011223344556677",
        "01234567-89AB-cdef-0011-223344556677",
        "+1234567-89ab-cdef-0011-223344556677",
        "01234567-89ab-cdef-0011-2233445566770",
        "012345678-9ab-cdef-0011-223344556677",
    ] {
        assert_eq!(DecisionId::parse(other), None, "{other}");
    }
}

#[test]
fn second_review_keeps_the_reservation_and_its_expiry() {
    let mut ledger = Ledger::new(TTL);
    ledger.reserve(reservation(1), NOW.moment, |_| true);
    assert_eq!(ledger.forget(DecisionId(1), "other"), None);
    assert_eq!(ledger.forget(DecisionId(2), "shop"), None);
    assert!(!ledger.reserve(testkit::reservation(1, 7, 200), NOW.moment, |_| true));
    assert_eq!(taken(&ledger, 0), (100, 1));
    assert_eq!(ledger.forget(DecisionId(1), "shop"), Some(NOW.moment));
    assert_eq!((taken(&ledger, 0), ledger.open()), ((0, 0), 0));
    assert!(ledger.reserve(reservation(1), NOW.moment, |_| true));
    assert_eq!(ledger.expire(after(TTL)), 1);
    assert_eq!(ledger, {
        let mut expired = Ledger::new(TTL);
        (expired.freed, expired.expired) = (2, 1);
        expired
    });
}

#[test]
fn confirmed_id_may_be_reserved_again() {
    let mut ledger = Ledger::new(TTL);
    for revision in [1, 2] {
        assert!(ledger.reserve(reservation(1), NOW.moment, |_| true));
        assert_eq!(ledger.confirm(DecisionId(1), "shop", "edge", revision), Some(NodeId(7)));
    }
    ledger.published(1);
    assert_eq!(taken(&ledger, 1), (100, 1));
    ledger.published(2);
    assert_eq!((taken(&ledger, 1), ledger.nodes.len()), ((0, 0), 0));
}

#[test]
fn changed_ttl_applies_to_open_reservations() {
    let mut ledger = Ledger::new(TTL);
    assert!(ledger.reserve(reservation(1), NOW.moment, |_| true));
    ledger.set_ttl(Micros(2 * TTL.0));
    assert_eq!(ledger.expire(after(TTL)), 0);
    assert_eq!(ledger.expire(after(Micros(2 * TTL.0))), 1);
    ledger.set_ttl(Micros(0));
    assert!(!ledger.reserve(reservation(2), NOW.moment, |_| true));
}

/// Reserves millicores for a pod of this namespace, with an allowed share of 500 m.
fn reserve(ledger: &mut Ledger, id: u128, namespace: &str, millicores: i64) {
    let reservation = Reservation {
        namespace: namespace.into(),
        controller: Some(format!("uid-{id}").into()),
        amount: cpu(millicores),
        ..reservation(id)
    };
    assert!(ledger.reserve(reservation, NOW.moment, |kept| kept.amounts.cpu.0 <= 500));
}

/// The amount taken, as pods of each namespace see it.
fn found(ledger: &Ledger) -> [i64; 2] {
    ["shop", "bank"].map(|namespace| taken_from(ledger, 0, namespace).0)
}

#[test]
fn reservation_beyond_share_counts_only_in_its_namespace() {
    let mut ledger = Ledger::new(TTL);
    reserve(&mut ledger, 1, "shop", 300);
    reserve(&mut ledger, 2, "shop", 300);
    // Reservations beyond the share do not use it up.
    reserve(&mut ledger, 3, "shop", 200);
    reserve(&mut ledger, 4, "shop", 100);
    assert_eq!(found(&ledger), [900, 500]);
    assert_eq!((ledger.open(), ledger.beyond_half()), (4, 2));
    assert_eq!(reserved(&ledger, "edge", 0, "shop").1, 4);
    assert_eq!(reserved(&ledger, "edge", 0, "bank").1, 2);
    // Each namespace has its own share.
    reserve(&mut ledger, 5, "bank", 500);
    assert_eq!(found(&ledger), [1_400, 1_000]);

    // Forgetting a reservation within the share makes room for the next one.
    assert!(ledger.forget(DecisionId(1), "shop").is_some());
    assert_eq!(found(&ledger), [1_100, 700]);
    reserve(&mut ledger, 6, "shop", 300);
    assert_eq!(found(&ledger), [1_400, 1_000]);
    assert_eq!(ledger.expire(after(TTL)), 5);
    assert_eq!((found(&ledger), ledger.beyond_half()), ([0, 0], 0));
    reserve(&mut ledger, 7, "shop", 500);
    assert_eq!(found(&ledger), [500, 500]);
}

#[test]
fn share_is_counted_per_site() {
    let mut ledger = Ledger::new(TTL);
    reserve(&mut ledger, 1, "shop", 500);
    let elsewhere = Reservation {
        site: "cloud".into(),
        ..reservation(2)
    };
    ledger.reserve(elsewhere, NOW.moment, |kept| {
        assert_eq!((kept.amounts.cpu, kept.pods), (Millicores(100), 1));
        true
    });
    assert_eq!(ledger.beyond_half(), 0);
}

#[test]
fn confirmed_reservation_counts_for_all_namespaces() {
    let mut ledger = Ledger::new(TTL);
    reserve(&mut ledger, 1, "shop", 600);
    assert_eq!(found(&ledger), [600, 0]);
    assert!(ledger.confirm(DecisionId(1), "shop", "edge", 1).is_some());
    assert_eq!((found(&ledger), ledger.beyond_half()), ([600, 600], 0));
    // A confirmed reservation no longer uses the share. A release never does.
    let release = Reservation {
        releases: Some("gated".into()),
        amount: cpu(700),
        ..reservation(2)
    };
    assert!(ledger.reserve(release, NOW.moment, |_| false));
    reserve(&mut ledger, 3, "shop", 500);
    assert_eq!((found(&ledger), ledger.beyond_half()), ([1_800, 1_800], 0));
}

#[test]
fn ledger_memory_is_bounded_for_hostile_reservations() {
    let mut ledger = Ledger::new(TTL);
    for id in 0..5_000_u32 {
        let now = after(Micros::from_millis(u64::from(id)));
        let invented = Reservation {
            namespace: format!("shop-{id}").into(),
            controller: Some(format!("uid-{id}").into()),
            ..reservation(id.into())
        };
        ledger.reserve(invented, now, |_| true);
        ledger.expire(now.after(TTL));
        assert!(ledger.entries().count() <= 3_000);
    }
    let owner = json!({"kind": "Job", "uid": "u".repeat(82), "controller": true});
    let pod = json!({"metadata": {"ownerReferences": [owner]}, "spec": {}});
    let workload = testkit::workload(&pod, &Keys::new("example.io"));
    assert_eq!(
        Reservation::new(DecisionId(1), &workload, "edge", NodeId(7)).controller,
        None
    );
    let mut endless = reservation(1);
    endless.amount.scalars = (0..9).map(|i| (format!("example.com/{i}").into(), 0)).collect();
    ledger.reserve(endless, NOW.moment, |_| true);
    assert!(
        ledger
            .charges(NodeId(7), 0, "shop")
            .all(|(reservation, _)| reservation.amount.scalars.is_empty())
    );
}

#[test]
fn freed_grows_when_a_reservation_counts_fewer_times() {
    let mut ledger = Ledger::new(TTL);
    ledger.set_replicas(3);
    ledger.set_replicas(1);
    assert_eq!(ledger.freed(), 0, "nothing was reserved");
    ledger.set_replicas(3);
    for id in [1, 2] {
        assert!(ledger.reserve(reservation(id), NOW.moment, |_| true));
    }
    let steps: [&dyn Fn(&mut Ledger); 4] = [
        &|ledger| ledger.set_replicas(2),
        &|ledger| assert!(ledger.confirm(DecisionId(1), "shop", "edge", 1).is_some()),
        &|ledger| ledger.set_replicas(1),
        &|ledger| assert!(ledger.forget(DecisionId(2), "shop").is_some()),
    ];
    for (freed, step) in (1..).zip(steps) {
        let before = taken(&ledger, 0).0;
        step(&mut ledger);
        assert!(taken(&ledger, 0).0 < before);
        assert_eq!(ledger.freed(), freed);
    }
    assert!(ledger.reserve(reservation(3), NOW.moment, |_| true));
    ledger.set_replicas(2);
    ledger.set_replicas(2);
    ledger.confirm(DecisionId(3), "shop", "edge", 1);
    assert_eq!(ledger.freed(), 5, "not what counts more often, or as often");
}
