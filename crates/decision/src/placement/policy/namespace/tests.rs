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
fn only_first_hundred_policies_of_a_namespace_are_in_force() {
    let more = (0..10 * MAX_POLICIES).map(|at| {
        let selector = json!({"matchLabels": {"app": format!("app-{at}")}});
        seen(&format!("p{at:05}"), 0, &selector)
    });
    let more = NamespacePolicies::of(more);
    assert_eq!(more.in_force.len(), MAX_POLICIES);
    assert_eq!(
        (more.seen().count(), more.beyond().len()),
        (10 * MAX_POLICIES, 9 * MAX_POLICIES)
    );
    assert!(more.beyond().iter().all(|seen| *seen.name >= *"p00100"));
    // This policy would select every pod.
    let last = [seen("a", 1, &json!({})), seen("zz", -1, &json!({}))];
    let with_last = NamespacePolicies::of(more.seen().cloned().chain(last));
    let is_beyond = |name: &str| with_last.beyond().iter().any(|seen| seen.name == name);
    let beyond = ["a", "p00099", "zz"].map(is_beyond);
    assert_eq!(beyond, [false, true, true], "the highest precedence is first");
}

#[test]
fn namespace_without_policies_is_removed() {
    let mut policies = Policies::of([seen("a", 0, &json!({}))]);
    assert_eq!((policies.in_force(), policies.by_namespace().len()), (1, 1));
    policies.replace("shop".into(), NamespacePolicies::of([]));
    assert!(policies.by_namespace().is_empty());
}
