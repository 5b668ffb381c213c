mod interleavings;

use jiff::SignedDuration;

use super::*;
use crate::testkit::NOW;
use crate::units::Millicores;

const TTL: Micros = Micros::from_secs(3);

fn cpu(millicores: i64) -> Amounts {
    Amounts {
        cpu: Millicores(millicores),
        ..Amounts::default()
    }
}

fn reservation(id: u128, controller: Option<&str>) -> Reservation {
    Reservation {
        id: DecisionId(id),
        owner: Owner::new("shop", controller),
        site: "edge".into(),
        node: NodeId(7),
        amount: cpu(100),
        priority: 0,
        releases: None,
    }
}

#[test]
fn a_release_ends_with_its_pod_or_by_another() {
    let mut ledger = Ledger::new(Micros::from_secs(3_600));
    let release = Reservation {
        releases: Some("held".into()),
        ..reservation(1, None)
    };
    assert!(ledger.reserve(release.clone(), NOW.moment));
    ledger.forget_release("another");
    assert_eq!((ledger.open(), ledger.releases("held")), (1, true));
    ledger.forget_release("held");
    assert_eq!((ledger.open(), ledger.releases("held"), ledger.freed()), (0, false, 1));
    assert_eq!(ledger.next_expiry(), None);
    // One that is confirmed is the pod's own.
    assert!(ledger.reserve(release, NOW.moment));
    assert!(ledger.confirm(DecisionId(1), "shop", "edge", 7).is_some());
    ledger.forget_release("held");
    assert_eq!(ledger.charges(NodeId(7), 6).count(), 1);
}

/// So long after [`NOW`].
fn after(time: Micros) -> Now {
    Now {
        moment: Moment(NOW.moment.0 + i64::try_from(time.0).unwrap()),
        wall: NOW.wall + SignedDuration::from_micros(i64::try_from(time.0).unwrap()),
    }
}

/// Millicores and pod slots taken from node 7, as seen at `revision`.
fn taken(ledger: &Ledger, revision: u64) -> (i64, u32) {
    let charges = ledger.charges(NodeId(7), revision);
    charges.fold((0, 0), |(cpu, slots), charge| {
        (
            cpu + charge.amount.cpu.0 * i64::from(charge.times),
            slots + charge.times,
        )
    })
}

#[test]
fn an_id_is_read_as_it_is_written_and_in_no_other_form() {
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
fn what_is_not_confirmed_counts_once_per_replica_and_a_confirmed_one_once() {
    let mut ledger = Ledger::new(TTL);
    ledger.set_replicas(3);
    assert!(ledger.reserve(reservation(1, None), NOW.moment));
    assert_eq!(taken(&ledger, 4), (300, 3));
    assert_eq!(ledger.assumed("edge", 4).pods, 3);
    assert_eq!(ledger.assumed("cloud", 4).pods, 0);
    assert_eq!(ledger.confirm(DecisionId(1), "shop", "edge", 5), Some(NodeId(7)));
    assert_eq!((taken(&ledger, 4), ledger.open()), ((100, 1), 0));
    // The new snapshot may be read before the ledger hears of it.
    assert_eq!(taken(&ledger, 5), (0, 0));
    ledger.published(4);
    assert_eq!(taken(&ledger, 4), (100, 1));
    ledger.published(5);
    assert_eq!(ledger, {
        Ledger {
            replicas: 3,
            freed: 1,
            ..Ledger::new(TTL)
        }
    });
}

#[test]
fn only_the_first_pod_of_its_namespace_and_site_confirms() {
    let mut ledger = Ledger::new(TTL);
    ledger.reserve(reservation(1, None), NOW.moment);
    assert_eq!(ledger.confirm(DecisionId(2), "shop", "edge", 1), None);
    assert_eq!(ledger.confirm(DecisionId(1), "other", "edge", 1), None);
    assert_eq!(ledger.confirm(DecisionId(1), "shop", "cloud", 1), None);
    assert_eq!(ledger.confirm(DecisionId(1), "shop", "edge", 1), Some(NodeId(7)));
    assert_eq!(ledger.confirm(DecisionId(1), "shop", "edge", 2), None);
    ledger.published(1);
    assert_eq!(taken(&ledger, 0), (0, 0));
}

#[test]
fn a_pod_under_review_again_has_its_room_reserved_again_and_for_no_longer() {
    let mut ledger = Ledger::new(TTL);
    ledger.reserve(reservation(1, None), NOW.moment);
    assert_eq!(ledger.forget(DecisionId(1), "other"), None);
    assert_eq!(ledger.forget(DecisionId(2), "shop"), None);
    assert!(!ledger.reserve(reservation(1, Some("somebody else")), NOW.moment));
    assert_eq!(taken(&ledger, 0), (100, 1));
    assert_eq!(ledger.forget(DecisionId(1), "shop"), Some(NOW.moment));
    assert_eq!((taken(&ledger, 0), ledger.open()), ((0, 0), 0));
    assert!(ledger.reserve(reservation(1, None), NOW.moment));
    assert_eq!(ledger.expire(after(TTL)), 1);
    assert_eq!(ledger, {
        let mut expired = Ledger::new(TTL);
        expired.record_expiry(Owner::new("shop", None), after(TTL).wall);
        (expired.freed, expired.expired) = (2, 1);
        expired
    });
}

#[test]
fn a_shorter_time_blames_nobody() {
    let mut ledger = Ledger::new(TTL);
    (1..4).for_each(|id| assert!(ledger.reserve(reservation(id, Some("rs")), NOW.moment)));
    ledger.set_ttl(Micros(0));
    assert_eq!((ledger.expire(NOW), ledger.suspended()), (3, 0));
}

#[test]
fn what_expires_is_gone_and_a_late_pod_confirms_nothing() {
    let mut ledger = Ledger::new(TTL);
    ledger.reserve(reservation(1, None), NOW.moment);
    ledger.reserve(reservation(2, None), NOW.moment);
    ledger.confirm(DecisionId(2), "shop", "edge", 9);
    assert_eq!(ledger.expire(after(Micros(TTL.0 - 1))), 0);
    assert_eq!(ledger.expire(after(TTL)), 1);
    // A confirmed one waits for its snapshot, however long that takes.
    assert_eq!(taken(&ledger, 8), (100, 1));
    assert_eq!(ledger.confirm(DecisionId(1), "shop", "edge", 9), None);
}

#[test]
fn an_id_that_was_confirmed_may_be_reserved_again() {
    let mut ledger = Ledger::new(TTL);
    for revision in [1, 2] {
        assert!(ledger.reserve(reservation(1, None), NOW.moment));
        assert_eq!(ledger.confirm(DecisionId(1), "shop", "edge", revision), Some(NodeId(7)));
    }
    ledger.published(1);
    assert_eq!(taken(&ledger, 1), (100, 1));
    ledger.published(2);
    assert_eq!((taken(&ledger, 1), ledger.nodes.len()), ((0, 0), 0));
}

#[test]
fn another_time_holds_for_what_is_open_too() {
    let mut ledger = Ledger::new(TTL);
    assert!(ledger.reserve(reservation(1, None), NOW.moment));
    ledger.set_ttl(Micros(2 * TTL.0));
    assert_eq!(ledger.expire(after(TTL)), 0);
    assert_eq!(ledger.expire(after(Micros(2 * TTL.0))), 1);
    ledger.set_ttl(Micros(0));
    assert!(!ledger.reserve(reservation(2, None), NOW.moment));
}

#[test]
fn a_ledger_without_time_reserves_nothing() {
    let mut ledger = Ledger::default();
    assert!(!ledger.reserve(reservation(1, None), NOW.moment));
    assert_eq!(ledger, Ledger::default());
}

#[test]
fn three_in_a_row_that_come_to_nothing_suspend_their_owner_alone() {
    let mut ledger = Ledger::new(TTL);
    let fail = |ledger: &mut Ledger, id| {
        assert!(ledger.reserve(reservation(id, Some("rs")), NOW.moment), "{id}");
    };
    fail(&mut ledger, 1);
    fail(&mut ledger, 2);
    ledger.expire(after(TTL));
    // One that comes true in between.
    fail(&mut ledger, 3);
    ledger.confirm(DecisionId(3), "shop", "edge", 1);
    (4..7).for_each(|id| fail(&mut ledger, id));
    ledger.expire(after(TTL));
    assert!(!ledger.reserve(reservation(7, Some("rs")), NOW.moment));
    assert_eq!(ledger.suspended(), 1);
    assert!(ledger.reserve(reservation(8, Some("other")), NOW.moment));
    assert!(ledger.reserve(reservation(9, None), NOW.moment));

    // Its older pods change nothing, nor do those of others.
    let expired = after(TTL).wall;
    let later = expired + SignedDuration::from_secs(1);
    ledger.seen("shop", Some("rs"), expired);
    ledger.seen("shop", Some("other"), later);
    ledger.seen("other", Some("rs"), later);
    assert_eq!(ledger.suspended(), 1);
    ledger.seen("shop", Some("rs"), later);
    assert_eq!(ledger.suspended(), 0);
    assert!(ledger.reserve(reservation(10, Some("rs")), NOW.moment));
}

#[test]
fn an_owner_whose_pods_could_not_be_seen_is_not_blamed() {
    let mut ledger = Ledger::new(TTL);
    let reserve = |ledger: &mut Ledger, first, at: Now| {
        (first..first + 3).for_each(|id| assert!(ledger.reserve(reservation(id, Some("rs")), at.moment), "{id}"));
    };
    reserve(&mut ledger, 1, NOW);
    ledger.set_watched_since(None);
    assert_eq!((ledger.expire(after(TTL)), ledger.suspended()), (3, 0));
    reserve(&mut ledger, 4, after(TTL));
    let again = after(Micros(TTL.0 + 1));
    ledger.set_watched_since(Some(again.moment));
    assert_eq!((ledger.expire(after(Micros(2 * TTL.0))), ledger.suspended()), (3, 0));
    reserve(&mut ledger, 7, again);
    assert_eq!((ledger.expire(after(Micros(3 * TTL.0))), ledger.suspended()), (3, 1));
}

#[test]
fn what_others_write_takes_a_bounded_memory() {
    let mut ledger = Ledger::new(TTL);
    for id in 0..5_000_u32 {
        let now = after(Micros::from_millis(u64::from(id)));
        ledger.reserve(reservation(id.into(), Some(&format!("uid-{id}"))), now.moment);
        ledger.expire(Now {
            moment: Moment(now.moment.0 + i64::try_from(TTL.0).unwrap()),
            ..now
        });
        assert!(ledger.expiries.len() <= MAX_OWNERS);
    }
    assert!(ledger.expiries.contains_key(&Owner::new("shop", Some("uid-4999"))));
    assert_eq!(Owner::new("shop", Some(&"u".repeat(65))), Owner::new("shop", None));
    let mut endless = reservation(1, None);
    endless.amount.scalars = (0..9).map(|i| (format!("example.com/{i}").into(), 0)).collect();
    ledger.reserve(endless, NOW.moment);
    assert!(
        ledger
            .charges(NodeId(7), 0)
            .all(|charge| charge.amount.scalars.is_empty())
    );
}

#[test]
fn what_counts_fewer_times_is_room_that_became_free() {
    let mut ledger = Ledger::new(TTL);
    ledger.set_replicas(3);
    ledger.set_replicas(1);
    assert_eq!(ledger.freed(), 0, "nothing was reserved");
    ledger.set_replicas(3);
    for id in [1, 2] {
        assert!(ledger.reserve(reservation(id, None), NOW.moment));
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
    assert!(ledger.reserve(reservation(3, None), NOW.moment));
    ledger.set_replicas(2);
    ledger.set_replicas(2);
    ledger.confirm(DecisionId(3), "shop", "edge", 1);
    assert_eq!(ledger.freed(), 5, "not what counts more often, or as often");
}
