use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::*;
use crate::placement::policy::Policies;

fn seen(name: &str, precedence: i64, selector: &Value) -> Arc<Seen> {
    let spec = json!({"selector": selector, "precedence": precedence, "slo": {"class": "batch"}});
    Arc::new(Seen {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        generation: Some(1),
        policy: Policy::read(&json!({"spec": spec})),
    })
}

/// How selectors were compared before: test by test, each policy with each.
mod quadratic {
    use super::*;

    /// What a selector asks of one label: operator and values.
    type Test = (String, String, Vec<String>);

    /// A value that no label has, on behalf of all that no selector names.
    const UNNAMED: &str = "\0";

    pub(super) fn tests(selector: &Value) -> Vec<Test> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let labels = selector["matchLabels"].as_object().into_iter().flatten();
        let labels = labels.map(|(key, value)| (key.clone(), "In".to_owned(), vec![text(value)]));
        let expressions = selector["matchExpressions"].as_array().into_iter().flatten();
        let expressions = expressions.map(|one| {
            let values = one["values"].as_array().into_iter().flatten().map(text);
            (text(&one["key"]), text(&one["operator"]), values.collect())
        });
        labels.chain(expressions).collect()
    }

    fn passes((_, operator, values): &Test, value: Option<&str>) -> bool {
        let is_named = |value: &str| values.iter().any(|one| one == value);
        match operator.as_str() {
            "In" => value.is_some_and(is_named),
            "NotIn" => !value.is_some_and(is_named),
            "Exists" => value.is_some(),
            _ => value.is_none(),
        }
    }

    pub(super) fn matches(tests: &[Test], label: impl Fn(&str) -> Option<String>) -> bool {
        tests.iter().all(|test| passes(test, label(&test.0).as_deref()))
    }

    fn overlap(one: &[Test], other: &[Test]) -> bool {
        let all = || one.iter().chain(other);
        all().all(|(key, ..)| {
            let tests = all().filter(|(other, ..)| other == key);
            let named = tests.clone().flat_map(|(_, operator, values)| match operator.as_str() {
                "In" => values.as_slice(),
                _ => &[],
            });
            let mut candidates = named.map(|value| Some(value.as_str())).chain([Some(UNNAMED), None]);
            candidates.any(|value| tests.clone().all(|test| passes(test, value)))
        })
    }

    /// Of selectors in order, by name.
    pub(super) fn standings(ordered: &[(String, Vec<Test>)]) -> Vec<(String, Standing)> {
        let names = |at: usize, others: &[(String, Vec<Test>)]| {
            let overlapping = others.iter().filter(|(_, other)| overlap(&ordered[at].1, other));
            overlapping.map(|(name, _)| name.clone()).take(NAMED).collect()
        };
        let standings = ordered.iter().enumerate().map(|(at, (name, _))| {
            let overlaps = PolicyOverlaps {
                overridden_by: names(at, &ordered[..at]),
                overrides: names(at, &ordered[at + 1..]),
            };
            (name.clone(), Standing::InForce(overlaps))
        });
        standings.collect()
    }
}

/// Requirements on few labels with few values, so that they often meet, and often do not.
fn selector() -> impl Strategy<Value = Value> {
    let value = || select(&["u", "v", "w", "x", "y", "z"][..]);
    let key = || select(&["a", "b", "c"][..]);
    let operator = select(&["In", "In", "NotIn", "Exists", "DoesNotExist"][..]);
    let expression = (key(), operator, prop::collection::vec(value(), 1..4));
    let expression = expression.prop_map(|(key, operator, values)| match operator {
        "In" | "NotIn" => json!({"key": key, "operator": operator, "values": values}),
        _ => json!({"key": key, "operator": operator}),
    });
    let labels = prop::collection::btree_map(key(), value(), 0..3);
    (labels, prop::collection::vec(expression, 0..3))
        .prop_map(|(labels, expressions)| json!({"matchLabels": labels, "matchExpressions": expressions}))
}

proptest! {
    #[test]
    fn which_policy_counts_and_overlaps_is_what_comparing_each_with_each_says(
        policies in prop::collection::vec((selector(), -1_i64..2), 0..60),
        labels in prop::collection::btree_map(select(&["a", "b", "c", "d"][..]), select(&["u", "v", "w", "x", "other"][..]), 0..4),
    ) {
        let name = |at: usize| format!("p{at:02}");
        let these = policies.iter().enumerate();
        let these = NamespacePolicies::of(these.map(|(at, (selector, precedence))| seen(&name(at), *precedence, selector)));
        let mut ordered: Vec<_> = policies.iter().enumerate().collect();
        ordered.sort_by_key(|(at, (_, precedence))| (-precedence, *at));
        let ordered: Vec<_> = ordered.into_iter().map(|(at, (selector, _))| (name(at), quadratic::tests(selector))).collect();
        let standings = these.standings().into_iter();
        let standings: Vec<_> = standings.map(|(seen, standing)| (seen.name.clone(), standing)).collect();
        prop_assert_eq!(standings, quadratic::standings(&ordered));

        let label = |key: &str| labels.get(key).map(|value| (*value).to_owned());
        let expected = ordered.iter().find(|(_, tests)| quadratic::matches(tests, label)).map(|(name, _)| name.as_str());
        let selected = these.select(labels.iter().map(|(key, value)| (*key, *value)));
        let selected = these.seen().find(|seen| selected.is_some_and(|policy| seen.policy.as_ref().is_ok_and(|own| std::ptr::eq(own, policy))));
        prop_assert_eq!(selected.map(|seen| seen.name.as_str()), expected);
    }
}

/// How many selectors are compared to tell where each of these policies stands.
fn comparisons(policies: &NamespacePolicies) -> usize {
    let mut comparisons = 0;
    policies.standings_by(|one, other| {
        comparisons += 1;
        one.overlaps(other)
    });
    comparisons
}

/// Three policies for each app, five for some tiers, and five for whatever pods there are.
fn ordinary(count: usize) -> NamespacePolicies {
    let policies = (0..count).map(|at| {
        let selector = match at {
            0..5 => json!({}),
            5..10 => json!({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["web", "db"]}]}),
            _ => json!({"matchLabels": {"app": format!("app-{}", at / 3), "part-of": "shop"}}),
        };
        seen(&format!("p{at:05}"), 0, &selector)
    });
    NamespacePolicies::of(policies)
}

/// No two of them overlap, and no value of a label tells so.
fn hostile(count: usize) -> NamespacePolicies {
    let policies = (0..count).map(|at| {
        let operator = |bit: usize| ["Exists", "DoesNotExist"][at >> bit & 1];
        let expressions = (0..14).map(|bit| json!({"key": format!("k{bit}"), "operator": operator(bit)}));
        seen(
            &format!("p{at:05}"),
            0,
            &json!({"matchExpressions": expressions.collect::<Vec<_>>()}),
        )
    });
    NamespacePolicies::of(policies)
}

#[test]
fn twice_as_many_policies_take_about_twice_the_comparisons() {
    let [few, many] = [500, 1_000].map(|count| comparisons(&ordinary(count)));
    assert!(many < 25 * 1_000, "{many}");
    assert!((few * 3 / 2..few * 5 / 2).contains(&many), "{few}, {many}");
}

#[test]
fn the_first_thousand_count_and_the_others_are_told_so() {
    let most = hostile(MAX_POLICIES);
    assert_eq!(comparisons(&most), MAX_POLICIES * (MAX_POLICIES - 1));
    let more = hostile(10 * MAX_POLICIES);
    assert_eq!((more.len(), comparisons(&more)), (MAX_POLICIES, comparisons(&most)));
    let standings = more.standings();
    let beyond: Vec<_> = standings
        .iter()
        .filter(|(_, standing)| *standing == Standing::Beyond)
        .collect();
    assert_eq!((standings.len(), beyond.len()), (10 * MAX_POLICIES, 9 * MAX_POLICIES));
    assert!(beyond.iter().all(|(seen, _)| *seen.name >= *"p01000"));
    // It would select every pod.
    let last = [seen("a", 1, &json!({})), seen("zz", -1, &json!({}))];
    let with_last = NamespacePolicies::of(more.seen().cloned().chain(last));
    let standings: BTreeMap<_, _> = with_last
        .standings()
        .into_iter()
        .map(|(seen, standing)| (&*seen.name, standing))
        .collect();
    assert!(
        matches!(standings["a"], Standing::InForce(_)),
        "the highest precedence is first"
    );
    assert_eq!(
        (&standings["p00999"], &standings["zz"]),
        (&Standing::Beyond, &Standing::Beyond)
    );
}

#[test]
fn a_namespace_without_policies_is_none() {
    let mut policies = Policies::of([seen("a", 0, &json!({}))]);
    assert_eq!((policies.len(), policies.by_namespace().len()), (1, 1));
    policies.replace("shop".into(), NamespacePolicies::of([]));
    assert!(policies.is_empty() && policies.by_namespace().is_empty());
}
