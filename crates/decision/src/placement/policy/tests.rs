use std::collections::BTreeMap;

use serde_json::json;

use super::*;

fn seen(namespace: &str, name: &str, spec: &Value) -> Arc<Seen> {
    Arc::new(Seen {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        generation: Some(1),
        policy: Policy::read(&json!({"metadata": {"name": name}, "spec": spec})),
        members: vec![],
    })
}

fn policies(specs: &[(&str, Value)]) -> Policies {
    Policies::of(specs.iter().map(|(name, spec)| seen("shop", name, spec)))
}

/// The SLO keys that the pod inherits.
fn inherited(policies: &Policies, pod: &Value) -> BTreeMap<String, String> {
    let text = pod.to_string();
    let mut pod = Pod::from_json(&text).unwrap();
    policies.apply(&mut pod, "shop", &Keys::new("example.io"));
    let pairs = pod.inherited().iter();
    pairs
        .map(|(key, value)| (key.strip_prefix("slo.example.io/").unwrap().to_owned(), value.clone()))
        .collect()
}

fn strings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

fn labelled(labels: &Value) -> Value {
    json!({"metadata": {"labels": labels}, "spec": {}})
}

#[test]
fn annotations_win_field_by_field() {
    let slo =
        json!({"class": "latency", "deadlineMs": 500, "latencyTargetMs": 100, "priority": 8, "offloadAllowed": false});
    let policies = policies(&[("only", json!({"selector": {}, "slo": slo}))]);
    let all = [
        ("class", "latency"),
        ("deadlineMs", "500"),
        ("latencyTargetMs", "100"),
        ("offloadAllowed", "false"),
        ("priority", "8"),
    ];
    assert_eq!(inherited(&policies, &labelled(&json!({}))), strings(&all));
    assert_eq!(inherited(&policies, &json!({"spec": {}})), strings(&all));
    let pod = json!({"metadata": {"annotations": {"slo.example.io/class": "batch", "slo.example.io/priority": "x"}}, "spec": {}});
    assert_eq!(inherited(&policies, &pod), strings(&[all[1], all[2], all[3]]));
}

#[test]
fn single_policy_applies_by_precedence_then_name() {
    let class = |class: &str| json!({"class": class});
    let policies = policies(&[
        (
            "c",
            json!({"selector": {}, "precedence": -1, "slo": {"class": "batch", "priority": 9}}),
        ),
        (
            "b",
            json!({"selector": {"matchLabels": {"tier": "web"}}, "slo": class("latency")}),
        ),
        (
            "a",
            json!({"selector": {"matchLabels": {"tier": "web", "x": "y"}}, "slo": class("throughput")}),
        ),
        (
            "z",
            json!({"selector": {"matchLabels": {"gold": "yes"}}, "precedence": 5, "slo": class("latency")}),
        ),
    ]);
    let of = |labels: Value| inherited(&policies, &labelled(&labels));
    assert_eq!(of(json!({})), strings(&[("class", "batch"), ("priority", "9")]));
    assert_eq!(of(json!({"tier": "web"})), strings(&[("class", "latency")]));
    assert_eq!(
        of(json!({"tier": "web", "x": "y"})),
        strings(&[("class", "throughput")])
    );
    assert_eq!(
        of(json!({"tier": "web", "x": "y", "gold": "yes"})),
        strings(&[("class", "latency")])
    );
}

#[test]
fn only_first_hundred_policies_of_the_pods_namespace_apply() {
    let policy = |name: &str, precedence: i64| {
        seen(
            "shop",
            name,
            &json!({"selector": {"matchLabels": {"app": name}}, "precedence": precedence, "slo": {"class": "batch"}}),
        )
    };
    let many = (0..10 * MAX_POLICIES).map(|at| policy(&format!("p{at:04}"), 0));
    let other = seen("other", "a", &json!({"selector": {}, "slo": {"class": "latency"}}));
    let policies = Policies::of(many.chain([policy("z", 1), policy("a", -1), other]));
    for (app, applies) in [("p0098", true), ("p0099", false), ("z", true), ("a", false)] {
        let inherited = inherited(&policies, &labelled(&json!({"app": app})));
        assert_eq!(inherited.is_empty(), !applies, "{app}");
    }
    assert_eq!(policies.in_force(), MAX_POLICIES + 1);
    assert_eq!(policies.by_namespace["shop"].beyond().len(), 9 * MAX_POLICIES + 2);
}

#[test]
fn selector_beyond_length_limit_is_refused() {
    let of = |bytes: usize| {
        let values: Vec<_> = (0..bytes - 3)
            .step_by(50)
            .map(|at| "v".repeat((bytes - 3 - at).min(50)))
            .collect();
        let expressions = json!([{"key": "key", "operator": "In", "values": values}]);
        Policy::read(&json!({"spec": {"selector": {"matchExpressions": expressions}, "slo": {"class": "batch"}}}))
    };
    assert!(of(MAX_SELECTOR_BYTES).is_ok());
    assert_eq!(
        of(MAX_SELECTOR_BYTES + 1).unwrap_err().to_string(),
        "spec.selector: names 4097 bytes of labels and values, more than 4096"
    );
}

#[test]
fn policy_sites_join_pod_sites_and_replace_stated_copies() {
    let slo = json!({"class": "batch", "sites": "region=eu"});
    let policies = policies(&[("eu", json!({"selector": {}, "slo": slo}))]);
    let pod = |annotations: Value| json!({"metadata": {"annotations": annotations}, "spec": {}});
    let policy_sites = |pod: &Value| inherited(&policies, pod).remove("policySites");
    assert_eq!(policy_sites(&pod(json!({}))).as_deref(), Some("region=eu"));
    let own = json!({"slo.example.io/sites": "near", "slo.example.io/policySites": "far"});
    assert_eq!(policy_sites(&pod(own.clone())).as_deref(), Some("region=eu"));
    assert_eq!(
        policy_sites(&pod(json!({"slo.example.io/policySites": "region=eu"}))),
        None
    );

    let keys = Keys::new("example.io");
    let text = pod(own).to_string();
    let mut pod = Pod::from_json(&text).unwrap();
    policies.apply(&mut pod, "shop", &keys);
    let workload = pod.workload("shop".into(), &keys);
    assert_eq!(workload.sites().unwrap().to_string(), "near and region in (eu)");
}

#[test]
fn sites_and_traits_of_a_faulty_policy_still_apply() {
    let spec = |more: Value| {
        let mut spec = json!({"selector": {"matchLabels": {"app": "web"}}, "slo": {"class": "fast"}});
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        spec
    };
    let of = |spec: &Value| {
        let policies = Policies::of([seen("shop", "a", spec)]);
        inherited(&policies, &labelled(&json!({"app": "web"})))
    };
    let slo = |sites: Value| spec(json!({"slo": {"class": "fast", "sites": sites}}));
    assert_eq!(of(&slo(json!("region=eu"))), strings(&[("policySites", "region=eu")]));
    let cannot_be_read = strings(&[("policySites", "")]);
    assert_eq!(Demand::parse(&cannot_be_read["policySites"]), None);
    for unreadable in [slo(json!("near far")), slo(json!(5)), slo(json!(["eu"]))] {
        assert_eq!(of(&unreadable), cannot_be_read, "{unreadable}");
    }
    let neither = strings(&[("policySites", ""), ("policyTraits", "")]);
    assert_eq!(of(&spec(json!({"slo": "eu"}))), neither);
    // The policy's traits are as strict as its sites.
    let both = |traits: &str| spec(json!({"slo": {"class": "fast", "sites": "eu", "traits": traits}}));
    assert_eq!(
        of(&both("A, B?")),
        strings(&[("policySites", "eu"), ("policyTraits", "A, B?")])
    );
    assert_eq!(
        of(&both("A B")),
        strings(&[("policySites", "eu"), ("policyTraits", "")])
    );
    // The policy states no SLO, or its selector is invalid.
    let selector = |selector: Value| spec(json!({"selector": selector, "slo": {"class": "fast", "sites": "eu"}}));
    for nothing in [
        spec(json!({})),
        slo(Value::Null),
        spec(json!({"slo": null})),
        selector(json!({"matchLabels": {"app": "we b"}})),
        selector(json!({"matchLabels": {"app": "web"}, "x": 1})),
        selector(Value::Null),
    ] {
        assert_eq!(of(&nothing), strings(&[]), "{nothing}");
    }

    // A policy with an unreadable precedence may rank before or after others, so its pods are refused.
    let mut first = slo(json!("eu"));
    first["precedence"] = json!("high");
    let other = json!({"selector": {}, "precedence": 10, "slo": {"class": "batch"}});
    let policies = Policies::of([seen("shop", "a", &other), seen("shop", "b", &first)]);
    let web = inherited(&policies, &labelled(&json!({"app": "web"})));
    assert_eq!(web, cannot_be_read);
}

#[test]
fn last_version_without_faults_still_applies() {
    let version = |generation: i64, slo: Value| Seen {
        generation: Some(generation),
        ..Seen::clone(&seen("shop", "a", &json!({"selector": {}, "slo": slo})))
    };
    let of = |seen: &Seen| {
        let meanwhile = seen.policy.as_ref().err().and_then(|refused| refused.instead.clone());
        let policies = Policies::of([Arc::new(seen.clone())]);
        (
            inherited(&policies, &labelled(&json!({}))),
            meanwhile.map(|instead| instead.what).unwrap_or_default(),
        )
    };
    let whole = version(3, json!({"class": "batch", "sites": "region=eu"}));
    let counts = strings(&[("class", "batch"), ("policySites", "region=eu")]);
    let faulty = version(4, json!({"class": "fast", "sites": "us"})).after(&whole);
    let last = "generation 3, the last without faults, counts meanwhile".to_owned();
    assert_eq!(of(&faulty), (counts.clone(), last.clone()));
    // The last valid version also counts through several faulty ones.
    let faulty = version(5, json!({"class": "fast"})).after(&faulty);
    assert_eq!(of(&faulty), (counts, last));
    let mended = version(6, json!({"class": "latency"})).after(&faulty);
    assert_eq!(of(&mended), (strings(&[("class", "latency")]), String::new()));

    // A policy that never had a valid version contributes only its own sites, traits and neighbourhood.
    let faulty = version(1, json!({"class": "fast", "sites": "us"}));
    let (sites, nothing) = (strings(&[("policySites", "us")]), strings(&[]));
    assert_eq!(
        of(&faulty),
        (
            sites,
            "of it, its sites, traits and neighbourhood alone count meanwhile".to_owned()
        )
    );
    let faulty = version(2, json!({"class": "fast"})).after(&faulty);
    assert_eq!(of(&faulty), (nothing, String::new()));
}

#[test]
fn neighbourhood_is_named_on_the_pod_and_survives_faults() {
    let of = |spec: &Value| inherited(&policies(&[("web", spec.clone())]), &labelled(&json!({})));
    let mut spec = json!({"selector": {}, "slo": {"class": "batch"}, "neighbourhood": {"max": 2}});
    let expected = strings(&[("class", "batch"), ("neighbourhood", "web")]);
    assert_eq!(of(&spec), expected);
    let own = json!({"metadata": {"annotations": {"slo.example.io/neighbourhood": "mine"}}, "spec": {}});
    assert_eq!(inherited(&policies(&[("web", spec.clone())]), &own), expected);
    let faults = |spec: &Value| match Policy::read(&json!({"spec": spec})) {
        Ok(_) => vec![],
        Err(refused) => refused.faults.0.iter().map(ToString::to_string).collect(),
    };
    spec["neighbourhood"]["rankBy"] = json!("profile");
    assert_eq!(
        faults(&spec),
        ["spec.neighbourhood.rankBy: is profile, and slo.profile is missing"]
    );
    spec["slo"]["profile"] = json!("greenness");
    assert!(faults(&spec).is_empty());
    spec["neighbourhood"]["dwell"] = json!("25h");
    assert_eq!(
        faults(&spec),
        ["spec.neighbourhood.dwell: \"25h\" is not a duration from 0s to 24h, such as 60s or 1m30s"]
    );
    spec["neighbourhood"] = json!({"max": 17});
    assert_eq!(
        faults(&spec),
        ["spec.neighbourhood.max: 17 is not a whole number from 1 to 16"]
    );
    assert_eq!(of(&spec), strings(&[("neighbourhood", "web")]));
}

#[test]
fn neighbourhoods_are_those_of_policies_in_force() {
    let policy = Seen {
        members: vec!["near".into()],
        ..Seen::clone(&seen(
            "shop",
            "web",
            &json!({"selector": {}, "slo": {"class": "batch"}, "neighbourhood": {"max": 1}}),
        ))
    };
    let all = Policies::of([Arc::new(policy)]).neighbourhoods();
    assert_eq!(all.iter().collect::<Vec<_>>(), [("shop", "web", &vec!["near".into()])]);
}
