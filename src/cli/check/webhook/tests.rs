use edgeward_decision::config::Config;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhook;

use super::super::finding::Level;
use super::*;

/// The webhook for placed pods.
fn of_placed() -> Webhook {
    Webhook::changed(OF_PLACED, |_| {})
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
    assert_eq!(levels(&[of_placed()]), [Level::Fault]);
    let good = [of_placed(), Webhook::example()];
    assert_eq!(levels(&good), [Level::Ok, Level::Ok]);
    assert_eq!(levels(&good[1..]), [Level::Ok, Level::Warning]);
    let other = |change: fn(&mut MutatingWebhook)| Webhook::changed("pods.edgeward.io", change);
    assert_eq!(
        levels(&[other(|entry| entry.rules = None)]),
        [Level::Fault, Level::Warning]
    );
    let waits = other(|entry| entry.timeout_seconds = Some(10));
    let fails = other(|entry| entry.failure_policy = Some("Fail".into()));
    for other in [waits, fails] {
        let found = registration(&registered(&[other, of_placed()]));
        assert_eq!(found[0].level, Level::Warning);
        assert!(found[0].fix.as_ref().unwrap().starts_with("kubectl apply -k mine"));
    }
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
        namespaces: Some(namespaces.clone()),
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
    let elsewhere = Webhook::changed("pods.edgeward.io", |entry| {
        let theirs = serde_json::json!({"matchLabels": {"team": "theirs"}});
        entry.namespace_selector = serde_json::from_value(theirs).unwrap();
    });
    let facts = Facts {
        ours: Some(vec![of_placed(), elsewhere]),
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
