use super::*;

fn on_label(key: &'static str, operator: &'static str, values: &[&'static str]) -> Requirement<'static> {
    let values = values.iter().map(|&v| Cow::Borrowed(v)).collect();
    Requirement::on_label(key.into(), operator.into(), values)
}

fn on_name(operator: &'static str, values: &[&'static str]) -> Requirement<'static> {
    let values = values.iter().map(|&v| Cow::Borrowed(v)).collect();
    Requirement::on_field("metadata.name".into(), operator.into(), values)
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
    for (requirement, expected) in [
        (on_label("zone", "In", &["a", "b"]), true),
        (on_label("zone", "In", &["b"]), false),
        (on_label("absent", "In", &["a"]), false),
        (on_label("zone", "NotIn", &["b"]), true),
        (on_label("zone", "NotIn", &["a"]), false),
        (on_label("absent", "NotIn", &["a"]), true),
        (on_label("zone", "Exists", &[]), true),
        (on_label("absent", "Exists", &[]), false),
        (on_label("zone", "DoesNotExist", &[]), false),
        (on_label("absent", "DoesNotExist", &[]), true),
        (on_label("cores", "Gt", &["7"]), true),
        (on_label("cores", "Gt", &["8"]), false),
        (on_label("cores", "Lt", &["9"]), true),
        (on_label("cores", "Lt", &["8"]), false),
        (on_label("zone", "Gt", &["1"]), false),
        (on_label("absent", "Lt", &["1"]), false),
        (on_label("empty", "In", &[""]), true),
        (on_label("rack.example.com/row", "In", &["r-1"]), true),
    ] {
        assert_eq!(requirement.matches_label(&labels()), expected, "{requirement:?}");
    }
}

#[test]
fn unparsable_requirement_matches_nothing() {
    for requirement in [
        on_label("zone", "In", &[]),
        on_label("absent", "NotIn", &[]),
        on_label("zone", "Exists", &["a"]),
        on_label("absent", "DoesNotExist", &["a"]),
        on_label("cores", "Gt", &["1", "2"]),
        on_label("cores", "Gt", &["x"]),
        // An integer, but not a valid label value. kube-scheduler's parser refuses it.
        on_label("cores", "Gt", &["-1"]),
        on_label("cores", "Gt", &["+1"]),
        on_label("absent", "NotIn", &["not a label value"]),
        on_label("Bad_Prefix/x", "DoesNotExist", &[]),
        on_label("absent", "in", &["a"]),
    ] {
        assert!(!requirement.matches_label(&labels()), "{requirement:?}");
    }
}

#[test]
fn fields_take_exactly_one_value() {
    assert!(on_name("In", &["n1"]).matches_field("n1"));
    assert!(!on_name("In", &["n2"]).matches_field("n1"));
    assert!(on_name("NotIn", &["n2"]).matches_field("n1"));
    assert!(!on_name("NotIn", &["n1"]).matches_field("n1"));
    assert!(!on_name("In", &["n1", "n2"]).matches_field("n1"));
    assert!(!on_name("NotIn", &["n2", "n3"]).matches_field("n1"));
    assert!(!on_name("Exists", &[]).matches_field("n1"));
}

#[test]
fn terms_are_alternatives_and_an_empty_one_matches_nothing() {
    let term = |expressions, fields| Term { expressions, fields };
    let constraints = |terms| NodeConstraints {
        selector: vec![],
        affinity: Some(terms),
        volumes: vec![],
    };
    let wrong = || term(vec![on_label("zone", "In", &["b"])], vec![]);
    let both = || term(vec![on_label("zone", "In", &["a"])], vec![on_name("In", &["n1"])]);

    assert!(constraints(vec![wrong(), both()]).allow("n1", &labels()));
    assert!(!constraints(vec![wrong(), both()]).allow("n2", &labels()));
    assert!(!constraints(vec![Term::default()]).allow("n1", &labels()));
    assert!(!constraints(vec![]).allow("n1", &labels()));
    assert!(NodeConstraints::default().allow("n1", &labels()));
}

fn toleration(
    key: &'static str,
    operator: &'static str,
    value: &'static str,
    effect: &'static str,
    seconds: Option<i64>,
) -> Toleration<'static> {
    Toleration {
        key: key.into(),
        operator: operator.into(),
        value: value.into(),
        effect: effect.into(),
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
