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

#[test]
fn the_first_hundred_count_and_the_others_are_told_so() {
    let more = (0..10 * MAX_POLICIES).map(|at| {
        let selector = json!({"matchLabels": {"app": format!("app-{at}")}});
        seen(&format!("p{at:05}"), 0, &selector)
    });
    let more = NamespacePolicies::of(more);
    assert_eq!(more.len(), MAX_POLICIES);
    let standings = more.standings();
    let beyond: Vec<_> = standings
        .iter()
        .filter(|(_, standing)| *standing == Standing::Beyond)
        .collect();
    assert_eq!((standings.len(), beyond.len()), (10 * MAX_POLICIES, 9 * MAX_POLICIES));
    assert!(beyond.iter().all(|(seen, _)| *seen.name >= *"p00100"));
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
        (&standings["p00099"], &standings["zz"]),
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
