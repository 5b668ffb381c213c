use edgeward_decision::config::Config;

use super::super::finding::Level;
use super::*;

/// The webhook for placed pods, at this position.
fn of_placed(position: usize) -> Webhook {
    Webhook::changed(OF_PLACED, position, |_| {})
}

fn registered(ours: &[Webhook]) -> Facts {
    Facts {
        ours: Some(ours.to_vec()),
        ..Facts::example()
    }
}

#[test]
fn faulty_webhook_registration_is_reported_with_fixes() {
    let levels = |webhooks: &[Webhook]| -> Vec<_> {
        let findings = registration(&registered(webhooks)).into_iter();
        findings.map(|found| found.level).collect()
    };
    assert_eq!(levels(&[]), [Level::Fault]);
    assert_eq!(levels(&[of_placed(0)]), [Level::Fault]);
    let good = [of_placed(0), Webhook::example()];
    assert_eq!(levels(&good), [Level::Ok, Level::Ok]);
    assert_eq!(levels(&good[1..]), [Level::Ok, Level::Warning]);
    let other = Webhook::changed("pods.edgeward.io", 1, |entry| entry.rules = None);
    assert_eq!(levels(std::slice::from_ref(&other)), [Level::Fault, Level::Warning]);
    let found = registration(&registered(&[other])).into_iter();
    let fixes: Vec<_> = found.map(|found| found.fix.unwrap()).collect();
    // The fix sets the rules of one webhook, and leaves the rest of a registration that a user has changed.
    let add = "kubectl patch mutatingwebhookconfiguration zz-edgeward --type=json -p '[{\"op\": \"add\", \"path\": \"/webhooks/1/";
    assert!(
        fixes[0].starts_with(&format!("{add}rules\", \"value\": [")),
        "{}",
        fixes[0]
    );
}

#[test]
fn webhook_calls_that_all_failed_are_a_warning() {
    let found = |made, failed| {
        let facts = Facts {
            calls: Some(Calls { made, failed }),
            ..Facts::example()
        };
        calls(&facts).pop().unwrap()
    };
    let never = found(0, 0);
    assert_eq!(never.level, Level::Ok);
    assert!(never.text.contains(" 0 answered"), "{}", never.text);
    let some = found(12, 6);
    assert_eq!(
        (some.level, &*some.text),
        (Level::Ok, "the API server's calls: 6 answered since it started, 6 not")
    );
    let none = found(5, 5);
    assert_eq!(none.level, Level::Warning);
    let fix = none.fix.unwrap();
    assert!(fix.contains("docs/guide/install.md#managed-control-planes"), "{fix}");
    assert!(include_str!("../../../../docs/guide/install.md").contains("\n## Managed control planes\n"));
}

#[test]
fn missing_registration_is_applied_under_its_domain() {
    // The command by which docs/guide/install.md restores it.
    let folder = "   # the folder that edgeward was installed from; with Helm, `helm upgrade`";
    for (domain, apply) in [
        ("example.io", "kubectl apply -k mine"),
        (
            "acme.dev",
            r"kubectl kustomize mine | sed 's/example\.io/acme.dev/g' | kubectl apply -f -",
        ),
    ] {
        assert!(
            include_str!("../../../../docs/guide/install.md").contains(apply),
            "{apply}"
        );
        let mut facts = registered(&[]);
        facts.found.config.keys = Keys::new(domain);
        let findings = registration(&facts);
        assert_eq!(findings[0].fix, Some(format!("{apply}{folder}")));
    }
}

/// Facts with these namespaces and their labels.
fn of_namespaces(config: &Config, namespaces: &BTreeMap<String, Labels>) -> Facts {
    let mut facts = Facts {
        namespaces: super::super::testkit::namespaces(namespaces.clone()),
        ..Facts::example()
    };
    facts.found.config = config.clone();
    facts
}

#[test]
fn opted_in_namespace_not_selected_by_webhook_is_a_fault() {
    let config = Config::default();
    let labels = |value: &str| Labels::from([("scheduling.example.io/managed".to_owned(), value.to_owned())]);
    let all = |names: &[(&str, &str)]| -> BTreeMap<String, Labels> {
        let names = names.iter();
        names.map(|(name, value)| ((*name).to_owned(), labels(value))).collect()
    };
    let brief = |config: &Config, found: &BTreeMap<String, Labels>| -> Vec<_> {
        let findings = namespaces(&of_namespaces(config, found)).into_iter();
        findings.map(|found| (found.level, found.text)).collect()
    };
    let found = brief(
        &config,
        &all(&[("shop", "true"), ("kube-system", "true"), ("other", "false")]),
    );
    assert_eq!(found[0].0, Level::Warning);
    assert_eq!(found[1], (Level::Ok, "1 opted in: shop".into()));
    assert_eq!(brief(&config, &all(&[("shop", "false")]))[0].0, Level::Warning);
    // Only the webhook for placed pods selects the namespace, so its pods do not reach edgeward.
    let elsewhere = Webhook::changed("pods.edgeward.io", 1, |entry| {
        let theirs = serde_json::json!({"matchLabels": {"team": "theirs"}});
        entry.namespace_selector = serde_json::from_value(theirs).unwrap();
    });
    let facts = Facts {
        ours: Some(vec![of_placed(0), elsewhere]),
        ..of_namespaces(&config, &all(&[("shop", "true")]))
    };
    assert_eq!(namespaces(&facts)[0].level, Level::Fault);
    // The manifest was not changed to the domain.
    let acme = Config {
        keys: edgeward_decision::keys::Keys::new("acme.dev"),
        ..config
    };
    let labels = Labels::from([("scheduling.acme.dev/managed".to_owned(), "true".to_owned())]);
    let shop = BTreeMap::from([("shop".to_owned(), labels)]);
    let found = brief(&acme, &shop);
    let expected = "shop is labelled scheduling.acme.dev/managed=true, but no webhook of zz-edgeward selects it";
    assert_eq!(found, [(Level::Fault, expected.to_owned())]);
    let fix = |namespaces_found: &BTreeMap<String, Labels>, config: &Config| {
        let mut findings = namespaces(&of_namespaces(config, namespaces_found));
        findings.pop().unwrap().fix.unwrap()
    };
    let edit = "kubectl edit mutatingwebhookconfiguration zz-edgeward   # its namespaceSelectors leave";
    assert_eq!(
        fix(&shop, &acme),
        format!("{edit} shop out, and it is of the domain example.io")
    );
    // The domain is right, but the selector excludes the namespace.
    let excluded = Config {
        excluded_namespaces: vec![],
        ..Config::default()
    };
    let found = fix(&all(&[("kube-system", "true")]), &excluded);
    assert_eq!(found, format!("{edit} kube-system out"));
}

#[test]
fn site_tolerations_that_a_whitelist_lacks_are_named() {
    let key = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";
    let found = |whitelist: &str| {
        let annotations = [(key.to_owned(), whitelist.to_owned())].into();
        let shop = ObjectMeta {
            annotations: Some(annotations),
            ..ObjectMeta::default()
        };
        let mut facts = of_namespaces(&Config::default(), &BTreeMap::new());
        let labels = Labels::from([("scheduling.example.io/managed".to_owned(), "true".to_owned())]);
        let shop = ObjectMeta {
            labels: Some(labels),
            ..shop
        };
        facts.namespaces = Some(BTreeMap::from([("shop".to_owned(), shop)]));
        let findings = namespaces(&facts).into_iter();
        let mut warnings: Vec<_> = findings.filter(|found| found.level == Level::Warning).collect();
        assert!(warnings.len() <= 1, "{warnings:?}");
        warnings.pop()
    };
    let lacking = found(
        r#"[{"key": "gpu", "operator": "Exists"}, {"key": "cloud", "operator": "Exists", "effect": "NoExecute"}]"#,
    );
    let lacking = lacking.unwrap();
    assert_eq!(
        lacking.text,
        "shop: scheduler.alpha.kubernetes.io/tolerationsWhitelist lacks \
         {\"key\":\"cloud\",\"operator\":\"Equal\",\"value\":\"cloud\",\"effect\":\"NoSchedule\"} of site cloud: \
         with PodTolerationRestriction, pods placed there are refused"
    );
    assert_eq!(
        lacking.fix.unwrap(),
        "kubectl edit namespace shop   # add it to that annotation"
    );
    // Whitelists that allow the toleration, allow everything, or are not a list.
    for whitelist in [
        r#"[{"key": "cloud", "operator": "Exists"}]"#,
        r#"[{"key": "cloud", "operator": "Equal", "value": "cloud", "effect": "NoSchedule", "tolerationSeconds": null}]"#,
        r#"[{"operator": "Exists"}]"#,
        "[]",
        "none",
    ] {
        assert_eq!(found(whitelist), None, "{whitelist}");
    }
}
