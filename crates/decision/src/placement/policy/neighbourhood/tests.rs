use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::testkit;
use crate::testkit::NOW;

const DWELL: Micros = Micros(100);

fn rule(max: usize) -> Neighbourhood {
    Neighbourhood {
        max,
        rank_by: RankBy::Rtt,
        dwell: DWELL,
    }
}

fn names(list: &[&str]) -> Vec<Box<str>> {
    list.iter().map(|name| (*name).into()).collect()
}

fn of(ranks: BTreeMap<&str, Option<i64>>, margin: Option<i64>) -> Candidates<'_> {
    Candidates { ranks, margin }
}

/// The members after each of these steps: a time, and the ranks of the candidates.
fn after(max: usize, steps: &[(i64, &[(&str, i64)])]) -> Vec<String> {
    after_by(None, max, steps)
}

fn after_by(margin: Option<i64>, max: usize, steps: &[(i64, &[(&str, i64)])]) -> Vec<String> {
    let (mut members, mut since) = (vec![], None);
    let step = |(at, ranks): &(i64, &[(&str, i64)])| {
        let ranks = ranks.iter().map(|(name, rank)| (*name, Some(*rank))).collect();
        let next = rule(max).next(&members, &of(ranks, margin), &mut since, Moment(*at));
        if next != members {
            since = None;
        }
        members = next;
        members.join(",")
    };
    steps.iter().map(step).collect()
}

#[test]
fn free_places_are_filled_at_once_by_rank_then_name() {
    assert_eq!(after(2, &[(0, &[("c", 9), ("b", 5), ("a", 9)])]), ["a,b"]);
    assert_eq!(after(2, &[(0, &[("a", 9)]), (1, &[("a", 9), ("b", 20)])]), ["a", "a,b"]);
    assert_eq!(after(2, &[(0, &[])]), [""]);
}

#[test]
fn lost_member_is_replaced_at_once() {
    let (all, without_a): (&[_], &[_]) = (&[("a", 5), ("b", 9)], &[("b", 9)]);
    assert_eq!(after(1, &[(0, all), (1, without_a)]), ["a", "b"]);
}

#[test]
fn better_cloud_enters_after_dwell_only_by_a_tenth() {
    let (before, better): (&[_], &[_]) = (&[("a", 100), ("b", 200)], &[("a", 100), ("b", 90)]);
    assert_eq!(
        after(1, &[(0, before), (10, better), (109, better), (110, better)]),
        ["a", "a", "a", "b"]
    );
    let slightly: &[_] = &[("a", 100), ("b", 91)];
    assert_eq!(
        after(1, &[(0, before), (10, slightly), (500, slightly)]),
        ["a", "a", "a"]
    );
    // A break starts the dwell time again.
    let broken = [(0, before), (10, better), (50, slightly), (60, better), (115, better)];
    assert_eq!(after(1, &broken).last().unwrap(), "a");
    // Scores are compared by the margin of the profile.
    let negative: &[_] = &[("a", -100), ("b", -105)];
    let steps = [(0, &[("a", -100)][..]), (10, negative), (110, negative)];
    assert_eq!(after_by(Some(5), 1, &steps), ["a", "a", "b"]);
    assert_eq!(after_by(Some(6), 1, &steps), ["a", "a", "a"]);
}

#[test]
fn member_stays_while_no_candidate_takes_its_place() {
    let (both, other, none): (&[_], &[_], &[_]) = (&[("a", 5), ("b", 9)], &[("c", 9)], &[]);
    assert_eq!(
        after(2, &[(0, both), (1, none), (2, other), (3, both)]),
        ["a,b", "a,b", "a,c", "a,b"]
    );
}

#[test]
fn worst_member_goes_when_max_becomes_lower() {
    let candidates = [("a", Some(3)), ("b", Some(1)), ("c", None)].into();
    let candidates = of(candidates, None);
    let members = rule(1).next(&names(&["a", "b", "c"]), &candidates, &mut None, Moment(0));
    assert_eq!(members, names(&["b"]));
}

/// The candidates of a policy with this spec.
fn candidates(sites: &Value, spec: &Value) -> Vec<(String, Option<i64>)> {
    let nodes: Vec<_> = ["near", "far"].map(|site| {
        json!({"name": format!("of-{site}"), "labels": {"site": site}, "allocatable": {"cpu": "4", "memory": "8Gi", "pods": 10}})
    }).into();
    let mut snapshot = testkit::snapshot(&json!({"sites": sites, "nodes": nodes}));
    for site in &mut snapshot.sites {
        let is_healthy = site
            .link
            .is_some_and(|link| link.state == crate::model::link::LinkState::Healthy);
        site.away_since = (site.kind() == SiteKind::Cloud && !is_healthy).then_some(Moment(0));
    }
    let policy = Policy::read(&json!({"metadata": {"name": "web"}, "spec": spec})).unwrap();
    let found = policy.candidates(&snapshot, "shop", Micros::from_secs(60), NOW.moment);
    let ranks = found.ranks.into_iter();
    ranks.map(|(name, rank)| (name.to_owned(), rank)).collect()
}

fn sites() -> Value {
    let cloud = |name: &str, rtt: u64, cost: u64| {
        json!({"name": name, "kind": "cloud", "nodeSelector": {"site": name}, "labels": {"region": name}, "costPerHour": cost,
            "wan": {"rttMs": rtt, "lossPct": 0}})
    };
    json!([{"name": "edge", "kind": "edge"}, cloud("near", 12, 7), cloud("far", 60, 2)])
}

fn spec(neighbourhood: &Value) -> Value {
    json!({"selector": {}, "slo": {"class": "batch"}, "neighbourhood": neighbourhood})
}

#[test]
fn candidates_are_usable_clouds_with_their_rank() {
    let ranked = |rank_by: &str| candidates(&sites(), &spec(&json!({"max": 2, "rankBy": rank_by})));
    let both = |far: i64, near: i64| vec![("far".to_owned(), Some(far)), ("near".to_owned(), Some(near))];
    assert_eq!(ranked("rtt"), both(60_000, 12_000));
    let costs = ranked("cost");
    assert!(costs[0].1 < costs[1].1, "{costs:?}");
    let mut down = sites();
    down[1]["wan"] = json!({"reachable": false});
    let left = candidates(&down, &spec(&json!({"max": 2})));
    assert_eq!(left, [("far".to_owned(), Some(60_000))]);
    let mut old = sites();
    old[1]["wan"]["ageSeconds"] = json!(61);
    assert_eq!(candidates(&old, &spec(&json!({"max": 2}))), left);
    let mut abroad = spec(&json!({"max": 2}));
    abroad["slo"]["sites"] = json!("region!=near");
    assert_eq!(candidates(&sites(), &abroad), left);
    let mut traits = spec(&json!({"max": 2}));
    traits["slo"]["traits"] = json!("Secure");
    assert_eq!(candidates(&sites(), &traits), []);
    let mut secure = sites();
    secure[2]["traits"] = json!(["Secure"]);
    assert_eq!(candidates(&secure, &traits), left);
}

proptest! {
    #[test]
    fn members_are_candidates_and_fill_the_neighbourhood(
        max in 1_usize..5,
        members in prop::collection::btree_set(0_u8..8, 0..6),
        ranks in prop::collection::btree_map(0_u8..8, prop::option::of(any::<i64>()), 0..8),
        since in prop::option::of(0_i64..200),
    ) {
        let text: Vec<_> = (0..8).map(|name| name.to_string()).collect();
        let ranks = ranks.iter().map(|(name, rank)| (&*text[usize::from(*name)], *rank));
        let candidates = of(ranks.collect(), None);
        let members: Vec<Box<str>> = members.iter().map(|name| name.to_string().into()).collect();
        let next = rule(max).next(&members, &candidates, &mut since.map(Moment), Moment(200));
        let is_known = |name: &str| candidates.ranks.contains_key(name);
        prop_assert!(next.iter().all(|name| is_known(name) || members.contains(name)));
        prop_assert_eq!(next.iter().filter(|name| is_known(name)).count(), max.min(candidates.ranks.len()));
        prop_assert!(next.len() <= max);
        prop_assert!(next.is_sorted());
    }
}
