//! The manifests match the code.

use edgeward::testkit::PATH;
use edgeward_decision::keys::Keys;
use serde_json::{Value, json};

use crate::program::edgeward;

/// The webhook entries for placed pods, for pods that state an SLO, and for pods in namespaces with policies.
fn entries() -> [Value; 3] {
    let text = include_str!("../../webhook/base/mutatingwebhookconfiguration.yaml");
    let configuration: Value = serde_saphyr::from_str(text).unwrap();
    assert_eq!(configuration["kind"], "MutatingWebhookConfiguration");
    // The API server runs configurations in the order of their names. edgeward goes last, so that it sees the pod as the other
    // webhooks leave it.
    assert_eq!(configuration["metadata"]["name"], "zz-edgeward");
    let webhooks = configuration["webhooks"].as_array().unwrap().clone();
    webhooks.try_into().unwrap()
}

pub(crate) fn webhook() -> Value {
    let [_, webhook, _] = entries();
    webhook
}

#[test]
fn webhook_entries_differ_only_in_matching() {
    // The entry for placed pods comes first. After another entry, it would be called for each pod that this entry places.
    let [mut placed, mut stated, mut by_policy] = entries();
    let keys = Keys::new("example.io");
    // In namespaces with policies, all pods match. A match condition would cost more than the calls that it saves.
    let conditions = stated.as_object_mut().unwrap().remove("matchConditions");
    assert!(conditions.is_some());
    let policies = |operator: &str| Some(json!({"key": keys.policies, "operator": operator, "values": ["true"]}));
    for (entry, name, placed, namespaces) in [
        (&mut placed, "placed.edgeward.io", "Exists", None),
        (&mut stated, "pods.edgeward.io", "DoesNotExist", policies("NotIn")),
        (&mut by_policy, "policies.edgeward.io", "DoesNotExist", policies("In")),
    ] {
        assert_eq!(entry["name"].take(), name);
        let mut expressions = |selector: &str, at: usize| {
            let expressions = entry[selector]["matchExpressions"].as_array_mut().unwrap();
            (at < expressions.len()).then(|| expressions.remove(at))
        };
        assert_eq!(expressions("namespaceSelector", 2), namespaces, "{name}");
        let label = json!({"key": keys.placed, "operator": placed});
        assert_eq!(expressions("objectSelector", 0), Some(label), "{name}");
    }
    assert_eq!(placed, stated);
    assert_eq!(stated, by_policy);
}

#[test]
fn webhook_entry_matches_server_path_and_pod_creates() {
    let webhook = webhook();
    let service = &webhook["clientConfig"]["service"];
    assert_eq!(service["path"], PATH);
    assert_eq!(service["port"], 443);
    assert_eq!(
        webhook["rules"],
        json!([{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
            "scope": "Namespaced",
        }])
    );
    for (field, expected) in [
        ("admissionReviewVersions", json!(["v1"])),
        ("failurePolicy", json!("Ignore")),
        ("timeoutSeconds", json!(1)),
        ("sideEffects", json!("NoneOnDryRun")),
        ("reinvocationPolicy", json!("IfNeeded")),
    ] {
        assert_eq!(webhook[field], expected, "{field}");
    }
}

#[test]
fn serve_defaults_match_webhook_service() {
    let service = webhook()["clientConfig"]["service"].clone();
    let help = edgeward().args(["serve", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for (option, field) in [("--service", "name"), ("--namespace", "namespace")] {
        assert_eq!(service[field], default_of(option, &help), "{option}");
    }
}

/// The default that the help states for an option, in the lines between this option and the next.
pub(crate) fn default_of<'h>(option: &str, help: &'h str) -> &'h str {
    let mut lines = help.lines().map(str::trim);
    lines
        .find(|line| line.split_whitespace().next() == Some(option))
        .unwrap_or_else(|| panic!("no {option} in {help}"));
    lines
        .take_while(|line| !line.starts_with('-'))
        .find_map(|line| line.strip_prefix("[default: ")?.strip_suffix(']'))
        .unwrap_or_else(|| panic!("no default for {option} in {help}"))
}

#[test]
fn webhook_selectors_use_contract_keys() {
    let webhook = webhook();
    let keys = Keys::new("example.io");
    let selector = &webhook["namespaceSelector"]["matchExpressions"];
    assert_eq!(
        selector[0],
        json!({"key": keys.managed, "operator": "In", "values": ["true"]})
    );
    let excluded = edgeward_decision::config::Config::default().excluded_namespaces;
    assert_eq!(
        selector[1],
        json!({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": excluded})
    );

    // Only the opt-out label may exempt a pod. Any other label would let its author bypass edgeward.
    assert_eq!(
        webhook["objectSelector"],
        json!({"matchExpressions": [
            {"key": keys.placed, "operator": "DoesNotExist"},
            {"key": keys.managed, "operator": "NotIn", "values": ["false"]},
        ]})
    );
    let (prefix, managed) = (&keys.slo_prefix, &keys.managed);
    let expected = format!(
        "object.spec.?nodeName.orValue('') == '' && !object.metadata.?ownerReferences.orValue([]).exists(owner, \
         owner.kind == 'DaemonSet' && owner.?controller.orValue(false)) && \
         (object.metadata.?annotations.orValue({{}}).exists(key, key.startsWith('{prefix}')) || \
         object.metadata.?labels.orValue({{}}).exists(key, key == '{managed}' || key.startsWith('{prefix}')))"
    );
    assert_eq!(one_condition(&webhook), expected);
}

/// The expression of an entry's only match condition, on one line.
fn one_condition(entry: &Value) -> String {
    let [condition] = &entry["matchConditions"].as_array().unwrap()[..] else {
        panic!("{entry}")
    };
    let words: Vec<_> = condition["expression"].as_str().unwrap().split_whitespace().collect();
    words.join(" ")
}

fn policy(text: &str) -> [Value; 2] {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    let [policy, binding] = documents.try_into().unwrap();
    assert_eq!(binding["spec"]["policyName"], policy["metadata"]["name"]);
    [policy, binding]
}

#[test]
fn fault_and_hint_policies_match_webhook_scope() {
    let [policy, binding] = policy(include_str!("../../webhook/base/validatingadmissionpolicy.yaml"));
    let [hints, hinting] = self::policy(include_str!("../../webhook/base/validatingadmissionpolicy-hints.yaml"));
    let webhook = webhook();
    // The ValidatingAdmissionPolicies also apply to namespaces with policies. This entry's last expression excludes them.
    let mut namespaces = webhook["namespaceSelector"].clone();
    let left = namespaces["matchExpressions"].as_array_mut().unwrap().pop().unwrap();
    assert_eq!(left["key"], "scheduling.example.io/policies");
    for binding in [&binding, &hinting] {
        assert_eq!(binding["spec"]["matchResources"]["namespaceSelector"], namespaces);
    }
    assert_eq!(binding["spec"]["validationActions"], json!(["Warn", "Audit"]));
    assert_eq!(hinting["spec"]["validationActions"], json!(["Warn"]));

    assert_eq!(policy["spec"]["matchConstraints"], hints["spec"]["matchConstraints"]);
    let named = |object: &Value, list: &str, name: &str| {
        let mut found = object[list].as_array().unwrap().iter();
        let found = found.find(|entry| entry["name"] == name);
        found.unwrap_or_else(|| panic!("{list} has no {name}"))["expression"].clone()
    };
    // edgeward itself warns about pods. A policy would be evaluated for every pod that is created.
    for rule in policy["spec"]["matchConstraints"]["resourceRules"].as_array().unwrap() {
        assert_ne!(rule["resources"], json!(["pods"]));
    }
    let judged = "not-of-a-judged-workload";
    assert_eq!(
        named(&policy["spec"], "matchConditions", judged),
        named(&hints["spec"], "matchConditions", judged)
    );
    for name in ["pod", "annotations", "labels", "policies"] {
        let expected = named(&policy["spec"], "variables", name);
        assert_eq!(named(&hints["spec"], "variables", name), expected, "{name}");
    }
}

/// Server-Side Apply treats some nested objects as one atomic value. Where the API server has filled in a default there, a
/// second applier would get a conflict.
#[test]
fn manifests_state_defaults_of_atomic_fields() {
    let matches = ["matchPolicy", "namespaceSelector", "objectSelector"];
    let states = |value: &Value, fields: &[&str]| {
        for field in fields {
            assert!(!value[field].is_null(), "no {field} in {value:#}");
        }
    };
    let scopes = |rules: &Value| {
        rules
            .as_array()
            .unwrap()
            .iter()
            .for_each(|rule| states(rule, &["scope"]))
    };
    let texts = [
        include_str!("../../webhook/base/mutatingwebhookconfiguration.yaml"),
        include_str!("../../webhook/base/validatingadmissionpolicy.yaml"),
        include_str!("../../webhook/base/validatingadmissionpolicy-hints.yaml"),
        include_str!("../../webhook/strict-sites/validatingadmissionpolicy.yaml"),
        include_str!("../../deploy/base/confinement.yaml"),
        include_str!("../../deploy/base/networkpolicy.yaml"),
        include_str!("../../deploy/base/deployment.yaml"),
    ];
    let mut kinds = std::collections::BTreeMap::<String, usize>::new();
    for object in texts
        .iter()
        .flat_map(|text| serde_saphyr::from_multiple::<Value>(text).unwrap())
    {
        let (kind, spec) = (object["kind"].as_str().unwrap(), &object["spec"]);
        *kinds.entry(kind.to_owned()).or_default() += 1;
        match kind {
            "MutatingWebhookConfiguration" => {
                for entry in object["webhooks"].as_array().unwrap() {
                    states(entry, &matches);
                    states(entry, &["failurePolicy", "timeoutSeconds", "reinvocationPolicy"]);
                    states(&entry["clientConfig"]["service"], &["port"]);
                    scopes(&entry["rules"]);
                }
            }
            "ValidatingAdmissionPolicy" => {
                states(spec, &["failurePolicy"]);
                states(&spec["matchConstraints"], &matches);
                scopes(&spec["matchConstraints"]["resourceRules"]);
            }
            "ValidatingAdmissionPolicyBinding" if spec["matchResources"].is_null() => {}
            "ValidatingAdmissionPolicyBinding" => states(&spec["matchResources"], &matches),
            "NetworkPolicy" => {
                let rules = spec["ingress"].as_array().unwrap().iter();
                let ports = rules.flat_map(|rule| rule["ports"].as_array().unwrap());
                ports.for_each(|port| states(port, &["protocol"]));
            }
            "Deployment" => {
                let variable = &spec["template"]["spec"]["containers"][0]["env"][0];
                states(&variable["valueFrom"]["fieldRef"], &["apiVersion"]);
            }
            other => panic!("{other}"),
        }
    }
    let expected = [
        ("Deployment", 1),
        ("MutatingWebhookConfiguration", 1),
        ("NetworkPolicy", 1),
        ("ValidatingAdmissionPolicy", 5),
        ("ValidatingAdmissionPolicyBinding", 5),
    ];
    assert!(kinds.iter().map(|(kind, count)| (&**kind, *count)).eq(expected));
}
