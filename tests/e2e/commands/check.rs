//! `edgeward check` finds no fault in a healthy installation. It names each fault in a broken one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use edgeward_harness::fixture::{ENTRY_OF_PODS, manifest};
use edgeward_harness::prelude::*;

use crate::leader::allow_user;

/// A domain of its own. Namespaces of other tests did not opt in to it.
const DOMAIN: &str = "check.example";

const LABEL: &str = "scheduling.check.example/managed";

const MAP: &str = "edgeward-config";

struct Installation<'s, 'run> {
    fixture: &'s Fixture<'run>,
    home: String,
    kubectl: Kubectl,
    webhook: String,
}

impl Installation<'_, '_> {
    fn check(&self) -> Result<Said> {
        let map = format!("--config-map={}/{MAP}", self.home);
        let webhook = format!("--webhook={}", self.webhook);
        let user = format!("--as={}", self.user());
        self.fixture.command(&["check", &map, &webhook, &user])
    }

    fn user(&self) -> &str {
        &self.fixture.namespace
    }

    fn is_healthy(&self) -> Result<()> {
        eventually("nothing is wrong", BOUND, || {
            let said = self.check()?;
            ensure!(said.succeeded, "{}{}", said.stdout, said.stderr);
            ensure!(said.stdout.ends_with("\nfaults: 0, warnings: 0\n"), "{}", said.stdout);
            Ok(())
        })
    }

    /// Waits until a line of this level has these words and there is no other fault. Returns the fixes.
    fn finds(&self, level: &str, words: &str) -> Result<Vec<String>> {
        eventually(&format!("{level}: {words}"), BOUND, || {
            let said = self.check()?;
            let lines: Vec<_> = said.stdout.lines().collect();
            let at = lines
                .iter()
                .position(|line| line.starts_with(level) && line.contains(words));
            ensure!(at.is_some(), "{}{}", said.stdout, said.stderr);
            ensure!(said.succeeded == (level != "FAULT"), "{}", said.stdout);
            let fixes = lines.iter().filter_map(|line| line.trim_start().strip_prefix("fix: "));
            Ok(fixes.map(str::to_owned).collect())
        })
    }

    /// Runs the fixes as printed, with `blank` replaced by a person's input.
    fn fix(&self, fixes: &[String], blank: &str, filled: &str) -> Result<()> {
        ensure!(!fixes.is_empty(), "no fix");
        for fix in fixes {
            let script = format!("cd {}; {}", self.fixture.dir.display(), fix.replace(blank, filled));
            self.kubectl
                .shell(&script, &self.fixture.kubeconfig(), &self.fixture.dir)?;
        }
        self.is_healthy()
    }

    fn patch(&self, kind: &str, name: &str, patch: &Value) -> Result<()> {
        self.kubectl.patch(kind, name, patch, &[])
    }
}

/// Creates the role from docs/guide/operate.md for reading the ConfigMap.
fn allow_map(kubectl: &Kubectl, user: &str) -> Result<()> {
    let map = format!("--resource-name={MAP}");
    kubectl.run(
        &[
            "create",
            "role",
            "config",
            "--verb=list,watch",
            "--resource=configmaps",
            &map,
        ],
        "",
    )?;
    let user = format!("--user={user}");
    kubectl
        .run(&["create", "rolebinding", "config", "--role=config", &user], "")
        .map(drop)
}

e2e! { "check::each_fault_is_found_and_repaired", Cluster, each_fault_is_found_and_repaired }
/// Breaks one thing at a time. Runs the printed fix where it is a command for this test's objects.
fn each_fault_is_found_and_repaired(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::new(fixture)?;
    let edge = nodes.edge_node("edge-0", "1")?;
    let cloud = nodes.cloud_node("cloud-0")?;
    let mut config = nodes.config();
    config["domain"] = json!(DOMAIN);
    let mut edgeward = fixture.live_edgeward(&config)?;
    let home = fixture.home()?;
    let installation = Installation {
        fixture,
        kubectl: fixture.kubectl_in(&home),
        webhook: format!("zz-edgeward-{}", fixture.namespace),
        home,
    };
    let map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": MAP},
        "data": {"config.yaml": config.to_string()},
    });
    installation.kubectl.create(&map)?;
    allow_user(fixture, installation.user())?;
    allow_map(&installation.kubectl, installation.user())?;
    let registered = fixture.register_under(DOMAIN, &manifest()?, &edgeward.url, &edgeward.ca)?;
    installation.is_healthy()?;

    // Break a verb. The fix applies the manifests again, which this test has under other names.
    let verbs = |verbs: &Value| json!([{"op": "replace", "path": "/rules/0/verbs", "value": verbs}]);
    let role = fixture.kubectl.get("clusterrole", &fixture.namespace)?;
    installation.patch("clusterrole", &fixture.namespace, &verbs(&json!(["list"])))?;
    installation.finds("FAULT", &format!("{} may not watch pods: ", installation.user()))?;
    installation.patch("clusterrole", &fixture.namespace, &verbs(&role["rules"][0]["verbs"]))?;
    installation.is_healthy()?;
    what_may_not_be_reviewed(&installation)?;
    nobody_is_installed(&installation)?;

    // Break the CA bundle.
    let webhook = &installation.webhook;
    let bundle = |pem: &str| json!([{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": STANDARD.encode(pem)}]);
    let foreign = Authority::new()?;
    let of_nobody = "it is signed by no authority in caBundle";
    installation.patch("mutatingwebhookconfiguration", webhook, &bundle(&foreign.certificate))?;
    installation.finds("FAULT", of_nobody)?;
    installation.patch("mutatingwebhookconfiguration", webhook, &bundle(&edgeward.ca))?;
    installation.is_healthy()?;

    // Break the registration and its target.
    drop(registered);
    installation.finds("FAULT", &format!("there is no MutatingWebhookConfiguration {webhook}"))?;
    let registered = fixture.register_under(DOMAIN, &manifest()?, &edgeward.url, &edgeward.ca)?;
    installation.is_healthy()?;
    let service = json!({"namespace": installation.home, "name": "edgeward", "path": "/mutate"});
    let client = json!({"service": service, "caBundle": STANDARD.encode(&edgeward.ca)});
    let replace = |value: &Value| json!([{"op": "replace", "path": "/webhooks/0/clientConfig", "value": value}]);
    installation.patch("mutatingwebhookconfiguration", webhook, &replace(&client))?;
    installation.finds(
        "FAULT",
        &format!("calls the Service {}/edgeward, which does not exist", installation.home),
    )?;
    let client = json!({"url": edgeward.url, "caBundle": STANDARD.encode(&edgeward.ca)});
    installation.patch("mutatingwebhookconfiguration", webhook, &replace(&client))?;
    installation.is_healthy()?;

    // Break the domain in one place only.
    let before = fixture.kubectl.get("mutatingwebhookconfiguration", webhook)?["webhooks"].take();
    let of_pods = |field: &str| format!("/webhooks/{ENTRY_OF_PODS}/{field}");
    let changed = json!([
        {"op": "replace", "path": of_pods("namespaceSelector/matchExpressions/0/key"), "value": "scheduling.old.example/managed"},
        {"op": "replace", "path": of_pods("matchConditions/0/expression"),
         "value": "object.metadata.?labels[?'scheduling.old.example/managed'].orValue('') != 'false'"},
    ]);
    installation.patch("mutatingwebhookconfiguration", webhook, &changed)?;
    let fixes = installation.finds("FAULT", &format!("but no webhook of {webhook} selects it"))?;
    ensure!(
        fixes.iter().any(|fix| fix.ends_with("it is of the domain old.example")),
        "{fixes:?}"
    );
    let restored = json!([{"op": "replace", "path": "/webhooks", "value": before}]);
    installation.patch("mutatingwebhookconfiguration", webhook, &restored)?;
    installation.is_healthy()?;

    // Break node labels.
    fixture
        .kubectl
        .run(&["label", "namespace", &fixture.namespace, &format!("{LABEL}-")], "")?;
    let fixes = installation.finds("warning", &format!("none is labelled {LABEL}=true"))?;
    installation.fix(&fixes, "NAMESPACE", &fixture.namespace)?;
    let label = nodes.edge_label();
    let (key, _) = label.split_once('=').context("a label")?;
    fixture.kubectl.run(&["label", "node", &edge, &format!("{key}-")], "")?;
    let fixes = installation.finds("FAULT", &format!("site edge: no node carries {label}"))?;
    installation.fix(&fixes, "NODE", &edge)?;
    fixture.kubectl.run(&["cordon", &edge], "")?;
    let fixes = installation.finds("warning", &format!("no node is Ready and not cordoned: {edge}"))?;
    installation.fix(&fixes, "", "")?;

    // Add a taint that the site does not tolerate.
    let kubectl = |args: &[&str]| fixture.kubectl.run(args, "");
    kubectl(&["taint", "node", &cloud, "provider=me:NoSchedule"])?;
    installation.finds(
        "warning",
        "site cloud: it does not tolerate its nodes' taint provider=me:NoSchedule: ",
    )?;
    kubectl(&["taint", "node", &cloud, "provider-"])?;
    installation.is_healthy()?;

    // Break the configuration. Every fault in it is named.
    let broken = json!([
        {"op": "add", "path": "/data/lossThresholdPct", "value": "many"},
        {"op": "add", "path": "/data/enableOffload", "value": "perhaps"},
    ]);
    installation.patch("configmap", MAP, &broken)?;
    for fault in ["lossThresholdPct: \"many\"", "enableOffload: \"perhaps\""] {
        installation.finds("FAULT", fault)?;
    }
    installation.kubectl.run(&["replace", "-f", "-"], &map.to_string())?;
    installation.is_healthy()?;

    custom_resources(&installation)?;

    // What cannot be checked from here is not reported as good.
    nodes.wan.close();
    installation.finds("warning", "site cloud: unreachable, ")?;
    nodes.wan.reopen()?;
    edgeward.kill()?;
    nobody_leads(&installation)?;
    let report = installation.check()?.stdout;
    ensure!(report.contains("cannot be looked at from here"), "{report}");
    drop(registered);
    Ok(())
}

/// If nothing is installed, this is one fault. The missing rights are not listed one by one.
fn nobody_is_installed(installation: &Installation<'_, '_>) -> Result<()> {
    let map = format!("--config-map={}/{MAP}", installation.home);
    let said = installation.fixture.command(&["check", &map])?;
    let rights: Vec<_> = said.stdout.lines().filter(|line| line.contains(" rights ")).collect();
    let account = format!("there is no ServiceAccount {}/edgeward. ", installation.home);
    ensure!(
        matches!(rights[..], [only] if only.starts_with("FAULT") && only.contains(&account)),
        "{}",
        said.stdout
    );
    // Rights through a group only.
    let somebody = [
        "check",
        &map,
        "--as=somebody",
        "--as-group=others",
        "--as-group=system:masters",
    ];
    let said = installation.fixture.command(&somebody)?;
    ensure!(
        said.stdout.contains("somebody has every right that edgeward needs"),
        "{}",
        said.stdout
    );
    Ok(())
}

/// `check` detects by the Lease that there is no leader, and names the pods that stay gated.
fn nobody_leads(installation: &Installation<'_, '_>) -> Result<()> {
    let home = &installation.home;
    let since = format!("no replica leads by the Lease {home}/edgeward, since 20");
    installation.finds("FAULT", &since)?;
    let mut pod = workloads::pod("gated", json!({"slo.check.example/class": "latency"}));
    pod["metadata"]["annotations"]["scheduling.check.example/reason"] = json!("held_no_capacity");
    pod["metadata"]["annotations"]["scheduling.check.example/timestamp"] = json!("2026-01-01T00:00:00Z");
    pod["spec"]["schedulingGates"] = json!([{"name": "scheduling.check.example/awaiting-capacity"}]);
    installation.fixture.kubectl.create(&pod)?;
    let gated = format!(
        "pod {}/gated is gated beyond its limit, ",
        installation.fixture.namespace
    );
    let fixes = installation.finds("FAULT", &gated)?;
    let look = format!("kubectl -n {home} get deployments,pods ");
    let fixes = fixes
        .iter()
        .filter(|fix| fix.starts_with(&look) && fix.contains("release --all --domain=check.example"));
    ensure!(fixes.count() == 2, "two fixes that start a replica");
    let gone = ["delete", "pod", "gated", "--grace-period=0", "--force"];
    installation.fixture.kubectl.run(&gone, "").map(drop)
}

/// A user who may not review other identities' rights gets no findings about them, and is not told to grant them.
fn what_may_not_be_reviewed(installation: &Installation<'_, '_>) -> Result<()> {
    let fixture = installation.fixture;
    fixture.kubectl.run(&["create", "serviceaccount", "nobody"], "")?;
    let token = fixture.kubectl.run(&["create", "token", "nobody"], "")?.stdout;
    let mut config: Value = serde_json::from_str(&fs::read_to_string(fixture.edgeward_kubeconfig())?)?;
    config["users"][0]["user"] = json!({"token": token.trim_end()});
    let kubeconfig = fixture.dir.join("nobody");
    fs::write(&kubeconfig, config.to_string())?;
    let map = format!("--config-map={}/{MAP}", installation.home);
    let said = fixture.command_as(&kubeconfig, &["check", &map, "-o", "json"])?;
    let report: Value = serde_json::from_str(&said.stdout)?;
    let findings = report["findings"].as_array().context("findings")?;
    let rights: Vec<_> = findings.iter().filter(|found| found["area"] == "rights").collect();
    let [only] = &*rights else {
        anyhow::bail!("{report:#}");
    };
    let fix = only["fix"].as_str().context("a fix")?;
    ensure!(
        only["level"] == "warning" && fix.contains("--as=system:serviceaccount:"),
        "{only:#}"
    );
    Ok(())
}

/// Policies that no namespace asks for, and Sites that cannot be in use.
fn custom_resources(installation: &Installation<'_, '_>) -> Result<()> {
    let fixture = installation.fixture;
    fixture.install_custom_resources()?;
    installation.is_healthy()?;
    let object = |kind: &str, name: &str, spec: Value| json!({"apiVersion": "edgeward.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let policy = object("SloPolicy", "all", json!({"selector": {}, "slo": {"class": "batch"}}));
    fixture.kubectl.create(&policy)?;
    let words = format!("namespace {} has 1 SloPolicies and not both labels", fixture.namespace);
    let fixes = installation.finds("warning", &words)?;
    installation.fix(&fixes, "", "")?;
    for name in ["one", "two"] {
        fixture.kubectl.create(&object(
            "Site",
            name,
            json!({"kind": "edge", "nodeSelector": {"site": name}}),
        ))?;
    }
    installation.finds("FAULT", "no Site is in use: ")?;
    fixture.kubectl.run(&["delete", "sites.edgeward.io", "--all"], "")?;
    installation.is_healthy()?;
    fixture.remove_custom_resources()?;
    installation.is_healthy()
}
