//! Installation by kustomize and removal, as `docs/guide/install.md` and `operate.md` say. A pod is decided in between, and
//! nothing is left at the end.

pub(crate) mod chart;
mod guide;
pub(crate) mod one_node;
pub(crate) mod quick_start;
pub(crate) mod upgrade;

use edgeward_harness::cert_manager::CertManager;
use edgeward_harness::documentation::{documented, documented_under};
use edgeward_harness::fixture::{DEFINITIONS, Revoked};
use edgeward_harness::folder::copy;
use edgeward_harness::installation::{Installation, Replica, WEBHOOK};
use edgeward_harness::installed_replicas::endpoint_slice;
use edgeward_harness::prelude::*;

use crate::confined;

/// The certificate sources that the folders and the chart offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    CertManager,
    SelfManaged,
    Files,
}

impl Source {
    /// The name of the overlay and of the chart's value.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::CertManager => "cert-manager",
            Self::SelfManaged => "self-managed",
            Self::Files => "files",
        }
    }

    fn needs(self, fixture: &Fixture<'_>) -> Result<Option<CertManager>> {
        (self == Self::CertManager)
            .then(|| CertManager::start(fixture))
            .transpose()
    }
}

e2e! { "install::with_cert_manager", Cluster, with_cert_manager }
/// With a certificate from cert-manager and the default keys.
fn with_cert_manager(fixture: &Fixture<'_>) -> Result<()> {
    install_and_uninstall(fixture, Source::CertManager, "example.io")
}

e2e! { "install::with_self_managed", Cluster, with_self_managed }
/// With a certificate that edgeward manages itself, and another domain. The domain must reach the program, the webhook's
/// conditions and the policies.
fn with_self_managed(fixture: &Fixture<'_>) -> Result<()> {
    install_and_uninstall(fixture, Source::SelfManaged, "acme.dev")
}

e2e! { "install::with_files", Cluster, with_files }
/// With a certificate in files.
pub(crate) fn with_files(fixture: &Fixture<'_>) -> Result<()> {
    install_and_uninstall(fixture, Source::Files, "example.io")
}

fn install_and_uninstall(fixture: &Fixture<'_>, source: Source, domain: &str) -> Result<()> {
    let ground = Ground::clear(fixture, source, domain)?;

    let installation = prepare(fixture, &ground.nodes, source, domain)?;
    apply(&installation)?;
    is_restricted(&installation)?;
    let replica = decides_and_gates(&installation)?;
    if source == Source::Files {
        guide::questions(fixture)?;
    }
    uninstall(&installation, replica)?;
    ensure!(gates(fixture, "gated")? == Value::Null, "{}", gates(fixture, "gated")?);
    is_as_it_was(fixture, &ground.before)
}

/// A cluster without edgeward, with room for one of two pods.
pub(crate) struct Ground<'run> {
    /// The cluster's [`objects`] before the installation.
    pub(crate) before: BTreeMap<String, Value>,
    _revoked: Revoked<'run>,
    pub(crate) nodes: Nodes<'run>,
    _needed: Option<CertManager>,
}

impl<'run> Ground<'run> {
    /// Prepares what this source needs, and a namespace that opts in under this domain.
    pub(crate) fn clear(fixture: &Fixture<'run>, source: Source, domain: &str) -> Result<Self> {
        let needed = source.needs(fixture)?;
        let (nodes, _) = Nodes::without_wan(fixture)?;
        let label = format!("scheduling.{domain}/managed=true");
        let args = ["label", "namespace", &fixture.namespace, &label, "--overwrite"];
        fixture.kubectl.run(&args, "")?;
        fixture.remove_custom_resources()?;
        let revoked = fixture.revoke()?;
        Ok(Self {
            before: objects(&fixture.kubectl)?,
            _revoked: revoked,
            nodes,
            _needed: needed,
        })
    }
}

pub(crate) fn gates(fixture: &Fixture<'_>, pod: &str) -> Result<Value> {
    Ok(fixture.kubectl.get("pod", pod)?["spec"]["schedulingGates"].take())
}

/// Waits until the cluster's [`objects`] equal `before`.
pub(crate) fn is_as_it_was(fixture: &Fixture<'_>, before: &BTreeMap<String, Value>) -> Result<()> {
    eventually("the cluster is as it was", BOUND, || {
        let after = objects(&fixture.kubectl)?;
        let differ = |(key, object): &(&String, &Value)| before.get(*key) != Some(object);
        let more: Vec<_> = after.iter().filter(differ).collect();
        let less: Vec<_> = before.keys().filter(|key| !after.contains_key(*key)).collect();
        ensure!(more.is_empty() && less.is_empty(), "left: {more:#?}, lost: {less:?}");
        Ok(())
    })
}

fn prepare<'s, 'run>(
    fixture: &'s Fixture<'run>,
    nodes: &Nodes<'_>,
    source: Source,
    domain: &'s str,
) -> Result<Installation<'s, 'run>> {
    check_out(fixture, source)?;
    let objects = render_mine(fixture, nodes, source, domain, |_| {})?;
    Ok(Installation {
        fixture,
        domain,
        objects,
    })
}

/// Writes `mine` as documented, with the test's sites and with the changes of `change`. Returns its objects.
pub(crate) fn render_mine(
    fixture: &Fixture<'_>,
    nodes: &Nodes<'_>,
    source: Source,
    domain: &str,
    change: impl FnOnce(&mut Value),
) -> Result<Vec<Value>> {
    let mine = fixture.dir.join("mine");
    fs::create_dir_all(&mine)?;
    let mut kustomization: Value = serde_saphyr::from_str(documented("yaml", "kind: Kustomization")?)?;
    ensure!(
        kustomization["resources"] == json!(["../edgeward/deploy/overlays/cert-manager"]),
        "{kustomization}"
    );
    kustomization["resources"] = json!([format!("../edgeward/deploy/overlays/{}", source.name())]);
    // The test's sites replace the documented cloud endpoint.
    let config = json!({"domain": "example.io", "sites": nodes.config()["sites"]});
    let data = json!({"config.yaml": config.to_string()});
    let metadata = json!({"name": "edgeward-config", "namespace": NAMESPACE});
    let patch = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
    kustomization["patches"] = json!([{"patch": patch.to_string()}]);
    change(&mut kustomization);
    fs::write(mine.join("kustomization.yaml"), kustomization.to_string())?;

    let rendered = fixture
        .kubectl
        .run(&["kustomize", &mine.display().to_string()], "")?
        .stdout;
    Ok(serde_saphyr::from_multiple(&rendered.replace("example.io", domain))?)
}

/// One pod is decided. The next is gated, because there is no room for it anywhere. Returns the edgeward that decides, which
/// has the Deployment's arguments.
pub(crate) fn decides_and_gates<'run>(installation: &Installation<'_, 'run>) -> Result<Replica<'run>> {
    let (fixture, domain) = (installation.fixture, installation.domain);
    fixture.sign_in()?;
    let replica = installation.replica(&fixture.dir.join("replica"), &[])?;
    let port = replica.edgeward.admission().port();
    installation.lead_to(port)?;
    name_endpoint(installation, port)?;
    installation.set_long_timeout()?;

    let decision = |name: &str| -> Result<Value> {
        let mut pod = fixture.kubectl.get("pod", name)?;
        Ok(pod["metadata"]["annotations"][format!("scheduling.{domain}/decision")].take())
    };
    let pod = |name: &str, millicores: u32| {
        let slo = json!({format!("slo.{domain}/class"): "batch"});
        workloads::pod_of(name, slo, &format!("{millicores}m"))
    };
    let probe = pod("probe", 100);
    eventually("the API server calls the webhook", BOUND, || {
        let answered = fixture.kubectl.dry_run(&probe)?["metadata"]["annotations"].take();
        let site = &answered[format!("scheduling.{domain}/site")];
        ensure!(site == "edge", "{answered}");
        Ok(())
    })?;
    fixture.kubectl.create(&pod("decided", 700))?;
    ensure!(decision("decided")? == "edge", "{}", decision("decided")?);
    fixture.kubectl.create(&pod("gated", 700))?;
    let gate = json!([{"name": format!("scheduling.{domain}/awaiting-capacity")}]);
    ensure!(gates(fixture, "gated")? == gate, "{}", gates(fixture, "gated")?);
    confined::is_confined(fixture, "gated", domain)?;
    // The policies' messages name this domain too.
    let wrong = json!({format!("slo.{domain}/class"): "quick"});
    let said = fixture.kubectl.run(
        &["create", "--dry-run=server", "-f", "-"],
        &workloads::deployment("wrong", 1, wrong).to_string(),
    )?;
    let warning = format!("slo.{domain}/class: \"quick\" is not latency, throughput or batch");
    ensure!(said.warnings().iter().any(|said| said.ends_with(&warning)), "{said:?}");
    Ok(replica)
}

/// The API server knows every field and accepts every object, first in a dry run and then for good. Applying again replaces no
/// pod.
fn apply(installation: &Installation<'_, '_>) -> Result<()> {
    let script = documented("sh", "kubectl apply -k mine")?;
    let (command, rollout) = script.split_once('\n').context("one line applies, and one waits")?;
    let command = match installation.domain {
        "example.io" => command,
        _ => documented("sh", "kubectl kustomize mine | sed")?,
    };
    let command = command.replace("acme.dev", installation.domain);
    // A dry run in the namespace needs the namespace to exist.
    installation.fixture.kubectl.apply(installation.object("Namespace")?)?;
    let tried = command.replace("kubectl apply", "kubectl apply --dry-run=server --validate=strict");
    ensure!(tried != command, "{command}");
    installation.fixture.shell(&tried)?;
    installation.fixture.shell(&command)?;
    installation.fixture.shell(rollout)?;
    installation.fixture.shell(&command)?;
    let deployment = installation
        .fixture
        .kubectl_in(NAMESPACE)
        .get("deployment", "edgeward")?;
    ensure!(deployment["metadata"]["generation"] == 1, "{deployment:#}");
    upgrade(installation, rollout)?;
    installation.fixture.kubectl.wait_until_established(&DEFINITIONS)
}

/// Upgrades image and configuration as documented. The pods are replaced and nothing else is, above all not the domain. The old
/// ConfigMap stays, and restoring its content uses it again. The documented command deletes unused ConfigMaps.
fn upgrade(installation: &Installation<'_, '_>, rollout: &str) -> Result<()> {
    let file = installation.fixture.dir.join("mine/kustomization.yaml");
    let mut kustomization: Value = serde_json::from_str(&fs::read_to_string(&file)?)?;
    kustomization["images"][0]["newTag"] = json!("NEXT");
    let unchanged = kustomization["patches"][0]["patch"].clone();
    let mut patch: Value = serde_json::from_str(unchanged.as_str().context("a patch")?)?;
    patch["data"]["enableOffload"] = json!("false");
    kustomization["patches"][0]["patch"] = json!(patch.to_string());
    fs::write(&file, kustomization.to_string())?;
    let kubectl = installation.fixture.kubectl_in(NAMESPACE);
    let old_name = config_map(&kubectl)?;
    let old = kubectl.get("configmap", &old_name)?;
    let kept = || -> Result<Vec<Value>> {
        let fields = [
            ("mutatingwebhookconfiguration", "zz-edgeward", "webhooks"),
            ("validatingadmissionpolicy", "edgeward-slo", "spec"),
            ("validatingadmissionpolicybinding", "edgeward-slo", "spec"),
            ("configmap", &old_name, "data"),
        ];
        let read = fields.map(|(kind, name, field)| Ok(kubectl.get(kind, name)?[field].take()));
        read.into_iter().collect()
    };
    let before = kept()?;
    let words = match installation.domain {
        "example.io" => "kubectl apply -k mine",
        _ => "kubectl kustomize mine | sed",
    };
    let command = documented_under("## Upgrade", "sh", words)?.replace("acme.dev", installation.domain);
    installation.fixture.shell(&command)?;
    installation.fixture.shell(rollout)?;
    let container = kubectl.get("deployment", "edgeward")?["spec"]["template"]["spec"]["containers"][0].take();
    ensure!(container["image"] == "IMAGE:NEXT", "{container}");
    let after = kept()?;
    ensure!(before == after, "{before:?}\nand then\n{after:?}");
    let new = kubectl.get("configmap", &config_map(&kubectl)?)?;
    ensure!(
        new["data"]["enableOffload"] == "false" && old["data"]["enableOffload"] == "true",
        "{old:#}, {new:#}"
    );
    let component = "app.kubernetes.io/component=configuration";
    ensure!(kubectl.list("configmaps", component)?.len() == 2);
    kustomization["patches"][0]["patch"] = unchanged;
    fs::write(&file, kustomization.to_string())?;
    installation.fixture.shell(&command)?;
    installation.fixture.shell(rollout)?;
    installation
        .fixture
        .shell(documented_under("## Upgrade", "sh", "delete configmap --selector")?)?;
    let left = kubectl.list("configmaps", component)?;
    ensure!(
        left.len() == 1 && left[0]["metadata"]["uid"] == old["metadata"]["uid"],
        "{left:#?}"
    );
    Ok(())
}

/// The name of the ConfigMap that the Deployment uses.
pub(crate) fn config_map(kubectl: &Kubectl) -> Result<String> {
    let deployment = kubectl.get("deployment", "edgeward")?;
    let name = deployment["spec"]["template"]["spec"]["containers"][0]["args"][2].as_str();
    Ok(name.context("--config-map")?.to_owned())
}

/// The namespace enforces the Pod Security Standard `restricted`, and the Deployment's pods are still created.
pub(crate) fn is_restricted(installation: &Installation<'_, '_>) -> Result<()> {
    let kubectl = installation.fixture.kubectl_in(NAMESPACE);
    let args = ["create", "--dry-run=server", "-f", "-"];
    let refused = kubectl.attempt(&args, &workloads::pod("lax", json!({})).to_string())?;
    ensure!(
        refused.stderr.contains("violates PodSecurity \"restricted:latest\""),
        "{refused:?}"
    );
    // Tries the template as a pod, because a Deployment would only get a warning.
    let deployment = installation.object("Deployment")?;
    let template = &deployment["spec"]["template"];
    let mut metadata = template["metadata"].clone();
    metadata["name"] = json!("template");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]});
    let said = kubectl.run(&args, &pod.to_string())?;
    ensure!(said.warnings().is_empty(), "{said:?}");
    let mut pods = kubectl.list("pods", "app.kubernetes.io/name=edgeward")?;
    // Pods from before an upgrade may still exist.
    pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    ensure!(pods.len() == 2, "{}", pods.len());
    Ok(())
}

/// Makes the EndpointSlices of the Service name only this replica. The Service's change of type has left slices for the
/// Deployment's pods, which run nowhere.
fn name_endpoint(installation: &Installation<'_, '_>, port: u16) -> Result<()> {
    let kubectl = installation.fixture.kubectl_in(NAMESPACE);
    let label = "--selector=kubernetes.io/service-name=edgeward";
    kubectl.run(&["delete", "endpointslices", label], "")?;
    kubectl.create(&endpoint_slice(port)).map(drop)
}

/// Uninstalls edgeward. The replica runs until the Deployment is deleted with everything that belongs to it. A gate of another
/// domain that was set by hand does not disturb this.
fn uninstall(installation: &Installation<'_, '_>, replica: Replica<'_>) -> Result<()> {
    let script = documented("sh", "kubectl delete -k mine")?;
    let (release, delete) = script.split_once('\n').context("first our gates, then the rest")?;
    let args = release.strip_prefix("edgeward ").context(release)?;
    let mut stranger = workloads::pod("stranger", json!({}));
    stranger["spec"]["schedulingGates"] = json!([{"name": "scheduling.elsewhere.example/awaiting-capacity"}]);
    installation.fixture.kubectl.create(&stranger)?;
    let args: Vec<_> = args.split(' ').collect();
    let released = installation.fixture.command(&args)?;
    let expected = format!(
        "{} deleted\n{}/gated released\n",
        WEBHOOK, installation.fixture.namespace
    );
    ensure!(
        released.succeeded && released.stdout.contains(&expected),
        "{released:?}"
    );
    drop(replica);
    if installation.domain == "example.io" {
        guide::additions(installation.fixture)?;
    }
    installation.fixture.shell(delete)?;
    definitions_are_kept_until_they_are_deleted(installation.fixture)
}

/// Custom resource definitions and their objects stay until the documented last command deletes them.
pub(crate) fn definitions_are_kept_until_they_are_deleted(fixture: &Fixture<'_>) -> Result<()> {
    for name in DEFINITIONS {
        fixture.kubectl.run(&["get", name], "")?;
    }
    fixture
        .shell(documented("sh", "delete crd sites.edgeward.io")?)
        .map(drop)
}

/// Puts a checkout into the test's directory. For certificates in files, creates them as docs/guide/install.md says.
pub(crate) fn check_out(fixture: &Fixture<'_>, source: Source) -> Result<()> {
    check_out_of(workspace(), fixture, source)
}

pub(crate) fn check_out_of(version: &Path, fixture: &Fixture<'_>, source: Source) -> Result<()> {
    let ours = fixture.dir.join("edgeward");
    for folder in ["deploy", "webhook", "certs"] {
        copy(&version.join(folder), &ours.join(folder))?;
    }
    if source == Source::Files {
        fixture.shell(documented("sh", "openssl")?)?;
    }
    Ok(())
}

/// Every object of the cluster, without objects that change by themselves: Events, report times, and pods of other
/// tests, which end with their nodes.
fn objects(kubectl: &Kubectl) -> Result<BTreeMap<String, Value>> {
    let kinds = kubectl
        .run(&["api-resources", "--verbs=list", "-o", "name"], "")?
        .stdout;
    let kinds: Vec<_> = kinds
        .lines()
        .filter(|kind| !kind.starts_with("events") && *kind != "componentstatuses")
        .collect();
    let said = kubectl.run(&["get", &kinds.join(","), "-A", "-o", "json"], "")?.stdout;
    let mut list: Value = serde_json::from_str(&said)?;
    let objects = list["items"].as_array_mut().context("no items")?;
    objects.retain(|object| {
        let namespace = object["metadata"]["namespace"].as_str();
        match object["kind"].as_str() {
            Some("Pod") => namespace == Some(NAMESPACE),
            Some("Lease") => namespace != Some("kube-node-lease"),
            _ => true,
        }
    });
    let objects = objects.iter_mut().map(|object| {
        if let Some(object) = object.as_object_mut() {
            object.remove("status");
        }
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.retain(|key, _| !["resourceVersion", "managedFields"].contains(&key.as_str()));
        }
        if object["kind"] == "Lease" {
            object["spec"].take();
        }
        let of = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let key = format!("{} {}/{}", object["kind"], of("namespace"), of("name"));
        (key, object.take())
    });
    Ok(objects.collect())
}
