//! Helm and kustomize install the same objects.

use std::process::Command;

use edgeward::testkit::read_settings;
use edgeward_decision::config::Config;
use edgeward_harness::chart;
use edgeward_harness::documentation::documented;
use edgeward_harness::folder::copy;
use edgeward_harness::prelude::*;

use crate::Tools;
use crate::rendered::{NAMESPACE, Objects, least, objects};

/// Stands for three PEM files. Rendering does not parse them.
const PEM: [(&str, &str); 3] = [
    ("ca", "-----BEGIN CERTIFICATE-----\nca\n"),
    ("certificate", "-----BEGIN CERTIFICATE-----\nleaf\n"),
    ("key", "-----BEGIN PRIVATE KEY-----\nkey\n"),
];

const SOURCES: [&str; 3] = ["cert-manager", "self-managed", "files"];

/// The smallest values for this certificate source.
fn of_source(source: &str) -> Value {
    let mut values = least();
    values["certificates"]["source"] = json!(source);
    if source == "files" {
        let files = PEM.iter().map(|(name, text)| ((*name).to_owned(), json!(text)));
        values["certificates"]["files"] = files.collect();
    }
    values
}

impl Tools {
    /// Objects that kustomize builds from these folders of a checkout, with the image and domain of a test.
    fn kustomized(&self, resources: &[&str], components: &[&str], domain: &str) -> Result<Objects> {
        self.customized(&json!({}), resources, components, domain)
    }

    /// Objects that kustomize builds from these folders with `more` in the operator's own kustomization.
    fn customized(&self, more: &Value, resources: &[&str], components: &[&str], domain: &str) -> Result<Objects> {
        let dir = tempfile::tempdir_in(&self.dir)?;
        let (ours, mine) = (dir.path().join("edgeward"), dir.path().join("mine"));
        for folder in ["deploy", "webhook", "certs"] {
            copy(&workspace().join(folder), &ours.join(folder))?;
        }
        for ((_, text), file) in PEM.iter().zip(["ca.crt", "tls.crt", "tls.key"]) {
            fs::write(ours.join("certs/files").join(file), text)?;
        }
        fs::create_dir(&mine)?;
        let ours =
            |folders: &[&str]| -> Vec<_> { folders.iter().map(|folder| format!("../edgeward/{folder}")).collect() };
        let version = env!("CARGO_PKG_VERSION");
        let image = json!({"name": "edgeward", "newName": "registry.example/edgeward", "newTag": version});
        let mut kustomization = more.clone();
        kustomization["resources"] = json!(ours(resources));
        kustomization["components"] = json!(ours(components));
        kustomization["images"] = json!([image]);
        fs::write(mine.join("kustomization.yaml"), kustomization.to_string())?;
        let output = Command::new(&self.kubectl).arg("kustomize").arg(mine).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        objects(&String::from_utf8(output.stdout)?.replace("example.io", domain))
    }

    /// Objects that Helm renders from the chart. Hooks, Helm's own labels and the `keep` annotation are removed.
    fn charted(&self, values: &Value) -> Result<Objects> {
        let mut objects = objects(&self.template(values)?)?;
        objects.retain(|_, object| object["metadata"]["annotations"].get("helm.sh/hook").is_none());
        for object in objects.values_mut() {
            let metadata = object["metadata"].as_object_mut().context("metadata")?;
            // Objects with `keep` have no other annotation.
            if metadata.get("annotations") == Some(&json!({"helm.sh/resource-policy": "keep"})) {
                metadata.remove("annotations");
            }
            let labels = object["metadata"]["labels"].as_object_mut().context("labels")?;
            for label in [
                "app.kubernetes.io/instance",
                "app.kubernetes.io/version",
                "app.kubernetes.io/managed-by",
                "helm.sh/chart",
            ] {
                labels.remove(label).with_context(|| label.to_owned())?;
            }
        }
        Ok(objects)
    }

    fn config(&self, map: &Value) -> Result<Config> {
        let file = tempfile::NamedTempFile::with_suffix_in(".yaml", &self.dir)?;
        fs::write(&file, map.to_string())?;
        read_settings(file.path())
    }
}

/// The first YAML block of docs/guide that contains these words.
fn shown(words: &str) -> Result<Value> {
    Ok(serde_saphyr::from_str(documented("yaml", words)?)?)
}

/// Removes the configuration's ConfigMap and returns its content. Its generated name is also removed from the objects that
/// refer to it.
fn take_configuration(objects: &mut Objects) -> Result<Value> {
    let prefix = format!("ConfigMap {NAMESPACE}/edgeward-config-");
    let keys: Vec<_> = objects.keys().filter(|key| key.starts_with(&prefix)).cloned().collect();
    let [key] = &*keys else { bail!("{keys:?}") };
    let mut map = objects.remove(key).context("a configuration")?;
    let name = map["metadata"]["name"].take();
    let deployment = objects.get_mut(&format!("Deployment {NAMESPACE}/edgeward"));
    let args = &mut deployment.context("a Deployment")?["spec"]["template"]["spec"]["containers"][0]["args"];
    ensure!(args[1] == "--config-map" && args[2] == name, "{args}, and not {name}");
    args[2] = Value::Null;
    Ok(map)
}

/// Fails unless both install the same objects. The chart leaves the namespace to Helm. The configurations are not compared.
fn ensure_same_installation(mut by_helm: Objects, mut by_kustomize: Objects) -> Result<()> {
    take_configuration(&mut by_helm)?;
    take_configuration(&mut by_kustomize)?;
    let namespace = by_kustomize.remove(&format!("Namespace /{NAMESPACE}"));
    namespace.context("kustomize makes no namespace")?;
    ensure_same(&by_helm, &by_kustomize)
}

fn ensure_same(by_helm: &Objects, by_kustomize: &Objects) -> Result<()> {
    let keys = |objects: &Objects| objects.keys().cloned().collect::<Vec<_>>();
    ensure!(
        keys(by_helm) == keys(by_kustomize),
        "{:#?}\nand not\n{:#?}",
        keys(by_helm),
        keys(by_kustomize)
    );
    for (key, object) in by_helm {
        let expected = &by_kustomize[key];
        ensure!(object == expected, "{key}: {object:#}\nand not\n{expected:#}");
    }
    Ok(())
}

/// The chart leaves the namespace to Helm, and its ConfigMap holds only values that differ from the program's defaults.
pub(crate) fn chart_renders_same_objects_as_kustomize(tools: &Tools) -> Result<()> {
    for domain in ["example.io", "acme.dev"] {
        for source in SOURCES {
            let mut values = of_source(source);
            values["domain"] = json!(domain);
            let mut by_helm = tools.charted(&values)?;
            let mut by_kustomize = tools.kustomized(&[&format!("deploy/overlays/{source}")], &[], domain)?;

            let namespace = by_kustomize.remove(&format!("Namespace /{NAMESPACE}"));
            ensure!(namespace.is_some(), "kustomize makes no namespace");
            let mut taken = [
                take_configuration(&mut by_helm)?,
                take_configuration(&mut by_kustomize)?,
            ];
            ensure!(tools.config(&taken[0])? == tools.config(&taken[1])?, "{taken:?}");
            ensure!(tools.config(&taken[0])?.keys.domain == domain);
            for map in &mut taken {
                map["data"].take();
            }
            ensure!(taken[0] == taken[1], "{taken:?}");
            ensure_same(&by_helm, &by_kustomize)?;
        }
    }
    Ok(())
}

/// Each optional kustomize folder corresponds to a value of the chart. It leaves the rest of the overlay alone, above all
/// `caBundle` or the annotation that fills it in.
pub(crate) fn kustomize_folders_match_chart_values(tools: &Tools) -> Result<()> {
    for source in SOURCES {
        let plain = tools.charted(&of_source(source))?;
        let mut values = of_source(source);
        values["validation"] = json!({"deny": true, "strictSites": true});
        values["data"]["enabled"] = json!(true);
        values["podGroups"]["enabled"] = json!(true);
        values["reports"]["enabled"] = json!(true);
        values["config"]["liqo"]["enabled"] = json!("auto");
        values["config"]["moves"]["enabled"] = json!(true);
        let by_helm = tools.charted(&values)?;
        let overlay = format!("deploy/overlays/{source}");
        let folders = [
            &*overlay,
            "deploy/data",
            "deploy/groups",
            "deploy/liqo",
            "deploy/moves",
            "deploy/reports",
            "webhook/strict-sites",
        ];
        let mut by_kustomize = tools.kustomized(&folders, &["webhook/deny"], "example.io")?;
        let changed = by_helm.iter().filter(|(key, object)| plain.get(*key) != Some(*object));
        // The nineteen changes: the configuration with its new name and the Deployment that mounts it; the policy's binding; two
        // policies with their bindings; five ClusterRoles and a Role with their bindings.
        ensure!(changed.count() == 19, "{source}");
        // These folders set no label. The chart labels all objects.
        for object in by_kustomize.values_mut() {
            let own = [
                "edgeward-data",
                "edgeward-groups",
                "edgeward-liqo",
                "edgeward-moves",
                "edgeward-reports",
                "edgeward-confine-evictions",
            ];
            if own.iter().any(|name| object["metadata"]["name"] == *name) {
                object["metadata"]["labels"] = json!({"app.kubernetes.io/name": "edgeward"});
            }
        }
        ensure_same_installation(by_helm, by_kustomize)?;
    }
    Ok(())
}

/// The one-node and unreachable-pods installations are a component in kustomize and a value in the chart. Tries each with every
/// certificate source, and both together.
pub(crate) fn kustomize_components_match_chart_values(tools: &Tools) -> Result<()> {
    let changed = |plain: &Objects, objects: &Objects| -> Vec<String> {
        let is_other = |key: &&String| plain.get(*key) != objects.get(*key);
        let keys: BTreeSet<_> = plain.keys().chain(objects.keys()).filter(is_other).collect();
        keys.into_iter().map(|key| key.replace(NAMESPACE, "")).collect()
    };
    let one_node = ("oneNode", "deploy/one-node");
    let host_network = ("hostNetwork", "deploy/host-network");
    for source in SOURCES {
        let overlay = format!("deploy/overlays/{source}");
        let plain = tools.charted(&of_source(source))?;
        for (components, differ) in [
            (
                &[one_node][..],
                &["Deployment /edgeward", "PodDisruptionBudget /edgeward"][..],
            ),
            (&[host_network], &["Deployment /edgeward", "NetworkPolicy /edgeward"]),
            (
                &[one_node, host_network],
                &[
                    "Deployment /edgeward",
                    "NetworkPolicy /edgeward",
                    "PodDisruptionBudget /edgeward",
                ],
            ),
        ] {
            let mut values = of_source(source);
            for (value, _) in components {
                values[value] = json!(true);
            }
            let folders: Vec<_> = components.iter().map(|(_, folder)| *folder).collect();
            let by_helm = tools.charted(&values)?;
            ensure!(changed(&plain, &by_helm) == differ, "{:?}", changed(&plain, &by_helm));
            let by_kustomize = tools.kustomized(&[&overlay], &folders, "example.io")?;
            let namespace = &by_kustomize[&format!("Namespace /{NAMESPACE}")];
            let enforced = &namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"];
            let is_lax = components.contains(&host_network);
            ensure!(*enforced == if is_lax { "privileged" } else { "restricted" });
            ensure_same_installation(by_helm, by_kustomize)?;
        }
    }
    Ok(())
}

/// What peers and Karmada need is a component in kustomize and a value in the chart.
pub(crate) fn components_match_chart_values(tools: &Tools) -> Result<()> {
    let components = [("peers", "/edgeward-peers"), ("karmada", "/edgeward-estimator")];
    for (source, (component, names)) in SOURCES
        .into_iter()
        .flat_map(|source| components.map(|each| (source, each)))
    {
        let mut values = of_source(source);
        values[component]["enabled"] = json!(true);
        let by_helm = tools.charted(&values)?;
        let overlay = format!("deploy/overlays/{source}");
        let folder = format!("deploy/{component}");
        let mut by_kustomize = tools.kustomized(&[&overlay], &[&folder], "example.io")?;
        for (key, object) in &mut by_kustomize {
            if key.ends_with(names) {
                object["metadata"]["labels"] = json!({"app.kubernetes.io/name": "edgeward"});
            }
        }
        ensure_same_installation(by_helm, by_kustomize)?;
    }
    Ok(())
}

/// The chart's port values and the documented kustomize patch change the same things: listen address, probes and the Service's
/// target.
pub(crate) fn custom_ports_match_kustomize_patch(tools: &Tools) -> Result<()> {
    let patches = shown("--listen=")?;
    let more = json!({"patches": patches["patches"]});
    let mut by_kustomize = tools.customized(
        &more,
        &["deploy/overlays/cert-manager"],
        &["deploy/host-network"],
        "example.io",
    )?;
    let mut values = least();
    values["hostNetwork"] = json!(true);
    values["ports"] = shown("hostNetwork: true\nports:")?["ports"].clone();
    let mut by_helm = tools.charted(&values)?;
    take_configuration(&mut by_helm)?;
    take_configuration(&mut by_kustomize)?;
    let key = format!("Deployment {NAMESPACE}/edgeward");
    let (helm, kustomize) = (&by_helm[&key], &by_kustomize[&key]);
    ensure!(helm == kustomize, "{helm:#}\nand not\n{kustomize:#}");
    let args = helm["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
    ensure!(args.contains("--health-listen=0.0.0.0:"), "{args}");
    Ok(())
}

/// The chart exempts the configuration's excluded namespaces from the strict-sites policy. With kustomize, the documented patch
/// does.
pub(crate) fn excluded_namespaces_pass_strict_sites(tools: &Tools) -> Result<()> {
    let mut values = least();
    values["validation"] = json!({"strictSites": true});
    values["config"]["excludedNamespaces"] = json!(["monitoring", "kube-system"]);
    let patches = shown("edgeward-strict-sites")?;
    let more = json!({"patches": patches["patches"]});
    let by_kustomize = tools.customized(&more, &["webhook/strict-sites"], &[], "example.io")?;
    let by_helm = tools.charted(&values)?;
    let key = "ValidatingAdmissionPolicyBinding /edgeward-strict-sites";
    let binding = &by_helm[key];
    ensure!(*binding == by_kustomize[key], "{binding:#}");
    let excluded = &binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"][1]["values"];
    ensure!(*excluded == json!(["kube-system", NAMESPACE, "monitoring"]));
    Ok(())
}

/// Without the policies, and with rights to the pods of one namespace, both leave out the same objects. The chart also renders
/// the RoleBindings, which the operator writes when using kustomize.
pub(crate) fn reduced_rights_match_kustomize_components(tools: &Tools) -> Result<()> {
    let mut values = least();
    values["confinement"]["enabled"] = json!(false);
    values["rights"]["namespaces"] = json!(["shop"]);
    let mut by_helm = tools.charted(&values)?;
    let by_kustomize = tools.kustomized(
        &["deploy/overlays/cert-manager"],
        &["deploy/unconfined", "deploy/narrow"],
        "example.io",
    )?;
    let role = "edgeward-pods";
    let binding = by_helm.remove(&format!("RoleBinding shop/{role}")).context(role)?;
    let expected = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role});
    let subjects = json!([{"kind": "ServiceAccount", "name": "edgeward", "namespace": NAMESPACE}]);
    ensure!(
        binding["roleRef"] == expected && binding["subjects"] == subjects,
        "{binding:#}"
    );
    ensure!(by_helm.contains_key(&format!("ClusterRole /{role}")));
    ensure!(!by_helm.contains_key(&format!("ClusterRoleBinding /{role}")));
    ensure!(!by_helm.keys().any(|key| key.contains("/edgeward-confine-")));
    ensure_same_installation(by_helm, by_kustomize)
}

/// Each documented monitoring switch adds one object of `deploy/monitoring` and changes nothing else.
pub(crate) fn monitoring_switches_match_kustomize(tools: &Tools) -> Result<()> {
    let labels = shown("- pairs:")?;
    let mut by_kustomize = tools.customized(&labels, &["deploy/monitoring"], &[], "example.io")?;
    // The kustomization labels all objects. The dashboard needs no label.
    let dashboard = by_kustomize.get_mut(&format!("ConfigMap {NAMESPACE}/edgeward-dashboard"));
    let labels = dashboard.context("a dashboard")?["metadata"]["labels"].as_object_mut();
    labels.context("labels")?.remove("release").context("for all objects")?;

    let plain = tools.charted(&least())?;
    let monitoring = &shown("serviceMonitor:")?["monitoring"];
    let mut by_helm = Objects::new();
    for (switch, kind) in [
        ("serviceMonitor", "ServiceMonitor"),
        ("prometheusRule", "PrometheusRule"),
        ("dashboard", "ConfigMap"),
    ] {
        let mut values = least();
        values["monitoring"][switch] = monitoring[switch].clone();
        let mut objects = tools.charted(&values)?;
        objects.retain(|key, object| plain.get(key) != Some(object));
        let kinds: Vec<_> = objects.values().map(|object| &object["kind"]).collect();
        ensure!(kinds == [kind], "{switch}: {kinds:?}");
        by_helm.extend(objects);
    }
    ensure_same(&by_helm, &by_kustomize)
}

/// A value of the chart and the documented patch narrow the ingress in the same way. It stays open to edgeward's own replicas
/// where they check each other's certificate.
pub(crate) fn narrowed_ingress_matches_kustomize_patch(tools: &Tools) -> Result<()> {
    let patches = shown("/spec/ingress/0/from")?;
    let patch = patches["patches"][0]["patch"].as_str().context("a patch")?;
    let patch: Value = serde_saphyr::from_str(patch)?;
    for source in SOURCES {
        let mut values = of_source(source);
        values["networkPolicy"]["admissionFrom"] = patch[0]["value"].clone();
        let overlay = format!("deploy/overlays/{source}");
        let by_kustomize = tools.customized(&json!({"patches": patches["patches"]}), &[&overlay], &[], "example.io")?;
        let key = format!("NetworkPolicy {NAMESPACE}/edgeward");
        let policy = &by_kustomize[&key];
        ensure!(tools.charted(&values)?[&key] == *policy, "{policy:#}");
        let own = json!({"from": [{"podSelector": policy["spec"]["podSelector"]}], "ports": [{"port": "webhook", "protocol": "TCP"}]});
        let rules = policy["spec"]["ingress"].as_array().context("rules")?;
        ensure!(
            rules.contains(&own) == (source == "self-managed"),
            "{source}: {policy:#}"
        );
    }
    Ok(())
}

/// Installed in another namespace, the objects no longer name the default one: in the webhook's target, RBAC, excluded pods,
/// certificate name and scrape target.
pub(crate) fn custom_namespace_replaces_default(tools: &Tools) -> Result<()> {
    let mut values = least();
    for switch in ["serviceMonitor", "prometheusRule", "dashboard"] {
        values["monitoring"][switch]["enabled"] = json!(true);
    }
    let text = tools.template_of(&chart::folder(), "placement", &values)?;
    ensure!(!text.contains(NAMESPACE), "{text}");
    ensure!(
        text.contains("edgeward.placement.svc") && text.contains("placement/edgeward-ca"),
        "{text}"
    );
    let objects = objects(&text)?;
    let leaf = &objects["Certificate placement/edgeward"]["spec"]["dnsNames"];
    ensure!(*leaf == json!(["edgeward.placement.svc"]), "{leaf}");
    for watching in [
        "ServiceMonitor placement/edgeward",
        "PrometheusRule placement/edgeward",
        "ConfigMap placement/edgeward-dashboard",
    ] {
        ensure!(objects.contains_key(watching), "{watching}");
    }
    // A ServiceMonitor looks for Services in its own namespace, where it finds one.
    let monitor = &objects["ServiceMonitor placement/edgeward"]["spec"];
    let wanted = monitor["selector"]["matchLabels"].as_object().context("labels")?;
    let found = objects.iter().filter(|(key, object)| {
        let labels = &object["metadata"]["labels"];
        key.starts_with("Service placement/") && wanted.iter().all(|(label, value)| labels[label] == *value)
    });
    ensure!(
        found.count() == 1 && monitor["namespaceSelector"].is_null(),
        "{monitor:#}"
    );
    Ok(())
}
