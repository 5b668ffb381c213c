//! The manifests that run edgeward match each other and the program.

use edgeward::testkit::{DEFAULT_SHUTDOWN_DELAY, DRAIN_LIMIT, read_settings};
use edgeward_decision::config::Config;
use edgeward_decision::keys::Keys;
use edgeward_harness::edgeward::IMAGE_ENVIRONMENT;
use edgeward_harness::prelude::*;

use crate::manifests::{default_of, webhook};
use crate::program::edgeward;

fn path(file: &str) -> PathBuf {
    workspace().join(file)
}

fn objects(file: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&fs::read_to_string(path(file)).unwrap()).unwrap()
}

pub(crate) fn object(file: &str) -> Value {
    let [object] = objects(file).try_into().unwrap();
    object
}

fn pod() -> Value {
    object("deploy/base/deployment.yaml")["spec"]["template"]["spec"].take()
}

#[test]
fn base_config_map_states_all_defaults() {
    let generator = &object("deploy/base/kustomization.yaml")["configMapGenerator"][0];
    assert_eq!(generator["files"], json!(["config.yaml"]));
    let document = fs::read_to_string(path("deploy/base/config.yaml")).unwrap();
    let literals = generator["literals"].as_array().unwrap().iter();
    let flat: BTreeMap<_, _> = literals
        .map(|pair| pair.as_str().unwrap().split_once('=').unwrap())
        .collect();
    let map = tempfile::tempdir().unwrap();
    for (key, value) in flat.clone().into_iter().chain([("config.yaml", &*document)]) {
        fs::write(map.path().join(key), value).unwrap();
    }
    assert_eq!(read_settings(map.path()).unwrap(), Config::default());
    let spelled: Value = serde_saphyr::from_str(&document).unwrap();
    let spelled: BTreeSet<_> = spelled.as_object().unwrap().keys().map(String::as_str).collect();
    for setting in Config::schema()["properties"].as_object().unwrap().keys() {
        // Without a value, these features are off.
        let has_default = !["prometheus", "ocm", "karmada", "report", "peers"].contains(&&**setting);
        let is_spelled = spelled.contains(&**setting) || flat.contains_key(&**setting);
        assert_eq!(is_spelled, has_default, "{setting}");
    }
}

#[test]
fn service_ports_and_grace_period_match_program() {
    let (pod, service) = (pod(), object("deploy/base/service.yaml"));
    let called = &webhook()["clientConfig"]["service"];
    assert_eq!(service["metadata"]["name"], called["name"]);
    assert_eq!(service["metadata"]["namespace"], called["namespace"]);
    assert_eq!(service["spec"]["ports"][0]["port"], called["port"]);
    assert_eq!(
        object("deploy/base/namespace.yaml")["metadata"]["name"],
        called["namespace"]
    );

    let help = edgeward().args(["serve", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let container = &pod["containers"][0];
    for (i, (option, name)) in [("--listen", "webhook"), ("--health-listen", "health")]
        .iter()
        .enumerate()
    {
        let (_, port) = default_of(option, &help).rsplit_once(':').unwrap();
        let port: u16 = port.parse().unwrap();
        assert_eq!(container["ports"][i], json!({"name": name, "containerPort": port}));
        assert_eq!(service["spec"]["ports"][i]["targetPort"], *name);
    }
    for (probe, path) in [
        ("startupProbe", "/livez"),
        ("livenessProbe", "/livez"),
        ("readinessProbe", "/readyz"),
    ] {
        assert_eq!(container[probe]["httpGet"], json!({"path": path, "port": "health"}));
    }
    let namespace = json!({"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}});
    assert_eq!(container["env"], json!([namespace]));

    let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
    assert!(grace > (DEFAULT_SHUTDOWN_DELAY + DRAIN_LIMIT).as_secs());
}

#[test]
fn all_selectors_match_pod_labels() {
    let deployment = object("deploy/base/deployment.yaml");
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    let selector = |file: &str, field: &str| object(&format!("deploy/base/{file}.yaml"))["spec"][field].take();
    assert_eq!(deployment["spec"]["selector"]["matchLabels"], *labels);
    assert_eq!(selector("service", "selector"), *labels);
    assert_eq!(selector("poddisruptionbudget", "selector")["matchLabels"], *labels);
    assert_eq!(selector("networkpolicy", "podSelector")["matchLabels"], *labels);
    for constraint in pod()["topologySpreadConstraints"].as_array().unwrap() {
        assert_eq!(constraint["labelSelector"]["matchLabels"], *labels);
    }
}

#[test]
fn certificate_secret_matches_pod_and_webhook() {
    let pod = pod();
    let secret = &pod["volumes"][0]["secret"]["secretName"];
    let mount = pod["containers"][0]["volumeMounts"][0]["mountPath"].as_str().unwrap();
    let args = pod["containers"][0]["args"].to_string();
    for file in ["tls.crt", "tls.key"] {
        assert!(args.contains(&format!("{mount}/{file}\"")), "{args}");
    }

    let service = webhook()["clientConfig"]["service"].clone();
    let text = |field: &str| service[field].as_str().unwrap().to_owned();
    let [ca, leaf]: [Value; 2] = objects("certs/cert-manager/certificates.yaml").try_into().unwrap();
    let [signs_ca, signs_leaf]: [Value; 2] = objects("certs/cert-manager/issuers.yaml").try_into().unwrap();
    assert_eq!(leaf["spec"]["secretName"], *secret);
    let name = format!("{}.{}.svc", text("name"), text("namespace"));
    assert_eq!(leaf["spec"]["dnsNames"], json!([name]));
    assert_eq!(ca["spec"]["issuerRef"]["name"], signs_ca["metadata"]["name"]);
    assert_eq!(leaf["spec"]["issuerRef"]["name"], signs_leaf["metadata"]["name"]);
    assert_eq!(signs_leaf["spec"]["ca"]["secretName"], ca["spec"]["secretName"]);
    let overlay = object("webhook/overlays/cert-manager/kustomization.yaml");
    let patch: Value = serde_saphyr::from_str(overlay["patches"][0]["patch"].as_str().unwrap()).unwrap();
    let from = format!("{}/{}", text("namespace"), ca["metadata"]["name"].as_str().unwrap());
    assert_eq!(patch["metadata"]["annotations"]["cert-manager.io/inject-ca-from"], from);

    let files = object("certs/files/kustomization.yaml");
    assert_eq!(files["secretGenerator"][0]["name"], *secret);
    assert_eq!(files["secretGenerator"][0]["namespace"], service["namespace"]);
}

#[test]
fn role_bindings_name_pod_service_account() {
    let granted = ["deploy/base/rbac.yaml", "deploy/base/rbac-pods.yaml"]
        .map(objects)
        .concat();
    let subject = json!([{"kind": "ServiceAccount", "name": "edgeward", "namespace": "edgeward-system"}]);
    for binding in granted.iter().filter(|object| object.get("subjects").is_some()) {
        assert_eq!(binding["subjects"], subject);
        let role = binding["kind"].as_str().unwrap().trim_end_matches("Binding");
        assert_eq!(binding["roleRef"]["kind"], role);
    }
    assert_eq!(pod()["serviceAccountName"], "edgeward");
}

/// The policies match edgeward's identity and name the keys that the program writes.
#[test]
fn confinement_policies_allow_only_contract_keys() {
    let (objects, keys) = (objects("deploy/base/confinement.yaml"), Keys::new("example.io"));
    let account = "system:serviceaccount:edgeward-system:edgeward";
    let text = |object: &Value| object["spec"].to_string();
    for pair in objects.chunks(2) {
        let [policy, binding] = pair else {
            panic!("a policy and its binding")
        };
        assert_eq!(binding["spec"]["policyName"], policy["metadata"]["name"]);
        assert_eq!(binding["spec"]["validationActions"], json!(["Deny", "Audit"]));
        assert_eq!(binding["spec"].as_object().unwrap().len(), 2, "of every namespace");
        assert_eq!(policy["spec"]["failurePolicy"], "Fail");
        let conditions = policy["spec"]["matchConditions"].as_array().unwrap();
        let first = conditions[0]["expression"].as_str().unwrap();
        assert!(first.starts_with("request.userInfo.username ") && first.contains(&format!("'{account}'")));
    }
    let pods = &objects[0];
    for key in keys.written().into_iter().chain([&*keys.gate]) {
        assert!(text(pods).contains(&format!("'{key}'")), "{key}");
    }
    let named = text(pods).matches("'scheduling.example.io/").count();
    assert_eq!(named, keys.written().len() + 2, "the gate twice, and nothing else");
}

#[test]
fn self_managed_rights_match_program_defaults() {
    let granted = objects("certs/self-managed/rbac.yaml");
    // The resource names that RBAC rules are limited to.
    let named = |kind: &str| -> BTreeSet<String> {
        let role = granted.iter().find(|object| object["kind"] == kind).unwrap();
        let rules = role["rules"].as_array().unwrap().iter();
        let names = rules.flat_map(|rule| rule["resourceNames"].as_array().into_iter().flatten());
        names.map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    let help = edgeward().args(["serve", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let words: Vec<_> = help.split_whitespace().collect();
    assert!(
        words.join(" ").contains("(default name: edgeward-certificates)"),
        "{help}"
    );
    assert_eq!(named("Role"), BTreeSet::from(["edgeward-certificates".to_owned()]));
    assert_eq!(
        named("ClusterRole"),
        BTreeSet::from([default_of("--webhook", &help).to_owned()])
    );

    // The overlay removes only entries that the Deployment has.
    let overlay = object("deploy/overlays/self-managed/kustomization.yaml");
    let patch: Value = serde_saphyr::from_str(overlay["patches"][0]["patch"].as_str().unwrap()).unwrap();
    let deployment = object("deploy/base/deployment.yaml");
    for operation in patch.as_array().unwrap() {
        let found = deployment.pointer(operation["path"].as_str().unwrap());
        assert!(found.is_some(), "{operation}");
        if operation["op"] == "test" {
            assert_eq!(found, Some(&operation["value"]));
        }
    }
}

#[test]
fn image_matches_toolchain_and_pod_user() {
    let dockerfile = fs::read_to_string(path("Dockerfile")).unwrap();
    let word = |instruction: &str| {
        let mut lines = dockerfile.lines();
        lines.find_map(|line| line.strip_prefix(instruction)).unwrap()
    };
    let toolchain = fs::read_to_string(path("rust-toolchain.toml")).unwrap();
    let version = word("ENV RUSTUP_TOOLCHAIN=");
    assert!(toolchain.contains(&format!("channel = \"{version}\"\n")));
    let base = word("FROM rust:");
    assert!(base.starts_with(&format!("{version}-alpine")), "{base}");
    for base in dockerfile.lines().filter_map(|line| line.strip_prefix("FROM ")) {
        let is_pinned = base.starts_with("scratch") || base.starts_with("empty") || base.contains("@sha256:");
        assert!(is_pinned, "{base} may change");
    }
    let user = &pod()["securityContext"];
    assert_eq!(word("USER "), format!("{}:{}", user["runAsUser"], user["runAsGroup"]));
    let environment = IMAGE_ENVIRONMENT.map(|(name, value)| format!("{name}={value}"));
    assert!(dockerfile.contains(&format!("\nENV {}\n", environment.join(" "))));
    let sysctl = json!([{
        "name": "net.ipv4.ping_group_range",
        "value": format!("{0} {0}", user["runAsGroup"]),
    }]);
    assert_eq!(user["sysctls"], sysctl);
}
