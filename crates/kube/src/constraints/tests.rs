use serde_json::{Value, json};

use super::*;

fn requirement(key: &str, operator: &str, values: &[&str]) -> Requirement {
    Requirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: values.iter().map(ToString::to_string).collect(),
    }
}

/// Whether a node with these labels and the name `n1` is selected by one term.
fn selects(expressions: Vec<Requirement>, fields: Vec<Requirement>) -> bool {
    let node_selector_terms = vec![Term { expressions, fields }];
    let terms = NodeSelector { node_selector_terms }.terms();
    terms.iter().any(|term| term.matches("n1", &labels()))
}

fn labels() -> Labels {
    [
        ("zone", "a"),
        ("cores", "8"),
        ("empty", ""),
        ("rack.example.com/row", "r-1"),
    ]
    .into_iter()
    .collect()
}

#[test]
fn operators_match_as_in_kube_scheduler() {
    for (stated, expected) in [
        (requirement("zone", "In", &["a", "b"]), true),
        (requirement("zone", "In", &["b"]), false),
        (requirement("absent", "In", &["a"]), false),
        (requirement("zone", "NotIn", &["b"]), true),
        (requirement("zone", "NotIn", &["a"]), false),
        (requirement("absent", "NotIn", &["a"]), true),
        (requirement("zone", "Exists", &[]), true),
        (requirement("absent", "Exists", &[]), false),
        (requirement("zone", "DoesNotExist", &[]), false),
        (requirement("absent", "DoesNotExist", &[]), true),
        (requirement("cores", "Gt", &["7"]), true),
        (requirement("cores", "Gt", &["8"]), false),
        (requirement("cores", "Lt", &["9"]), true),
        (requirement("cores", "Lt", &["8"]), false),
        (requirement("zone", "Gt", &["1"]), false),
        (requirement("absent", "Lt", &["1"]), false),
        (requirement("empty", "In", &[""]), true),
        (requirement("rack.example.com/row", "In", &["r-1"]), true),
    ] {
        assert_eq!(selects(vec![stated.clone()], vec![]), expected, "{stated:?}");
    }
}

#[test]
fn unparsable_requirement_matches_nothing() {
    for stated in [
        requirement("zone", "In", &[]),
        requirement("absent", "NotIn", &[]),
        requirement("zone", "Exists", &["a"]),
        requirement("absent", "DoesNotExist", &["a"]),
        requirement("cores", "Gt", &["1", "2"]),
        requirement("cores", "Gt", &["x"]),
        // An integer, but not a valid label value. kube-scheduler's parser refuses it.
        requirement("cores", "Gt", &["-1"]),
        requirement("cores", "Gt", &["+1"]),
        requirement("absent", "NotIn", &["not a label value"]),
        requirement("Bad_Prefix/x", "DoesNotExist", &[]),
        requirement("absent", "in", &["a"]),
    ] {
        assert!(!selects(vec![stated.clone()], vec![]), "{stated:?}");
    }
}

#[test]
fn fields_take_exactly_one_value() {
    let is_named = |operator, values: &[&str]| selects(vec![], vec![requirement("metadata.name", operator, values)]);
    assert!(is_named("In", &["n1"]));
    assert!(!is_named("In", &["n2"]));
    assert!(is_named("NotIn", &["n2"]));
    assert!(!is_named("NotIn", &["n1"]));
    assert!(!is_named("In", &["n1", "n2"]));
    assert!(!is_named("NotIn", &["n2", "n3"]));
    assert!(!is_named("Exists", &[]));
}

#[test]
fn terms_are_alternatives_and_an_empty_one_matches_nothing() {
    let zone = |zone| json!({"key": "zone", "operator": "In", "values": [zone]});
    let name = json!({"key": "metadata.name", "operator": "In", "values": ["n1"]});
    let wrong = json!({"matchExpressions": [zone("b")], "matchFields": null});
    let both = json!({"matchExpressions": [zone("a")], "matchFields": [name]});
    let allows = |terms: Value, node: &str| {
        let selector: NodeSelector = serde_json::from_value(json!({"nodeSelectorTerms": terms})).unwrap();
        let constraints = NodeConstraints {
            affinity: Some(selector.terms()),
            ..NodeConstraints::default()
        };
        constraints.allow(node, &labels())
    };
    assert!(allows(json!([wrong, both]), "n1"));
    assert!(!allows(json!([wrong, both]), "n2"));
    assert!(!allows(json!([{}]), "n1"));
    assert!(!allows(json!([]), "n1"));
    assert!(NodeConstraints::default().allow("n1", &labels()));
}

fn toleration(key: &str, operator: &str, value: &str, effect: &str, seconds: Option<i64>) -> Toleration {
    Toleration {
        key: key.to_owned(),
        operator: operator.to_owned(),
        value: value.to_owned(),
        effect: effect.to_owned(),
        seconds,
    }
}

#[test]
fn tolerations_match_taints_as_the_api_defines() {
    let taint = Taint {
        key: "cloud".into(),
        value: "cloud".into(),
        effect: "NoSchedule".into(),
    };
    for (toleration, expected) in [
        (toleration("cloud", "Equal", "cloud", "NoSchedule", None), true),
        (toleration("cloud", "", "cloud", "", None), true),
        (toleration("cloud", "Exists", "", "", None), true),
        (toleration("", "Exists", "", "", None), true),
        (toleration("cloud", "Equal", "other", "", None), false),
        (toleration("cloud", "Exists", "", "NoExecute", None), false),
        (toleration("other", "Exists", "", "", None), false),
        (toleration("", "Exists", "", "NoExecute", None), false),
    ] {
        assert_eq!(toleration.tolerates(&taint), expected, "{toleration:?}");
    }
}

/// These operators are alpha in Kubernetes and off by default. kube-scheduler then tolerates nothing by them either.
#[test]
fn comparison_operators_tolerate_nothing() {
    let three = Taint {
        key: "level".into(),
        value: "3".into(),
        effect: "NoSchedule".into(),
    };
    let below_five = toleration("level", "Lt", "5", "", None);
    assert!(!below_five.tolerates(&three));
    assert!(!toleration("level", "Gt", "1", "", None).tolerates(&three));
    assert!(!below_five.covers(&toleration("level", "Equal", "3", "NoSchedule", None)));
}

#[test]
fn broader_toleration_without_time_limit_covers_narrower_one() {
    let ours = toleration("liqo", "Equal", "true", "NoExecute", None);
    assert!(toleration("liqo", "", "true", "", None).covers(&ours));
    assert!(toleration("", "Exists", "", "", None).covers(&ours));
    assert!(toleration("liqo", "Exists", "", "NoExecute", None).covers(&ours));
    assert!(!toleration("liqo", "Equal", "true", "NoExecute", Some(300)).covers(&ours));
    assert!(!toleration("liqo", "Equal", "true", "NoSchedule", None).covers(&ours));
    assert!(!toleration("liqo", "Equal", "false", "", None).covers(&ours));
    assert!(!ours.covers(&toleration("liqo", "Exists", "", "NoExecute", None)));
}
