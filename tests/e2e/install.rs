//! Installed by kustomize as `docs/operations.md` says, and uninstalled: a pod is decided in between, and nothing is left.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::cert_manager::CertManager;
use crate::edgeward::Edgeward;
use crate::fleet_command::command;
use crate::folder::copy;
use crate::installed::{SECRET, endpoint_slice};
use crate::kubectl::Kubectl;
use crate::mount::Mount;
use crate::patience::{BOUND, TIMEOUT, eventually};
use crate::pki::Authority;
use crate::rights::NAMESPACE;
use crate::scene::{Revoked, Scene};
use crate::stage::Stage;
use crate::workloads;

/// Name of the webhook configuration.
pub(crate) const WEBHOOK: &str = "zz-edgeward";

/// Where the certificate comes from, of what the folders and the chart offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    CertManager,
    SelfManaged,
    Files,
}

impl Source {
    /// As the overlays and the chart's value call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::CertManager => "cert-manager",
            Self::SelfManaged => "self-managed",
            Self::Files => "files",
        }
    }

    /// What must be in the cluster before.
    fn needs(self, scene: &Scene<'_>) -> Result<Option<CertManager>> {
        (self == Self::CertManager)
            .then(|| CertManager::start(scene))
            .transpose()
    }
}

/// With a certificate of cert-manager, and the keys of the contract as they are.
pub(crate) fn with_cert_manager(scene: &Scene<'_>) -> Result<()> {
    install_and_uninstall(scene, Source::CertManager, "example.io")
}

/// With one that edgeward keeps itself.
pub(crate) fn with_self_managed(scene: &Scene<'_>) -> Result<()> {
    install_and_uninstall(scene, Source::SelfManaged, "example.io")
}

/// With one in files.
pub(crate) fn with_files(scene: &Scene<'_>) -> Result<()> {
    install_and_uninstall(scene, Source::Files, "example.io")
}

/// The same under another domain, which reaches the binary, the webhook's conditions and the policies alike.
pub(crate) fn under_another_domain(scene: &Scene<'_>) -> Result<()> {
    install_and_uninstall(scene, Source::Files, "acme.dev")
}

fn install_and_uninstall(scene: &Scene<'_>, source: Source, domain: &str) -> Result<()> {
    let ground = Ground::clear(scene, source, domain)?;

    let installation = Installation::prepare(scene, &ground.stage, source, domain)?;
    installation.apply()?;
    installation.is_restricted()?;
    let replica = installation.decides_and_holds()?;
    installation.uninstall(replica)?;
    ensure!(gates(scene, "held")? == Value::Null, "{}", gates(scene, "held")?);
    is_as_it_was(scene, &ground.before)
}

/// A cluster without edgeward, where there is room for one pod of two.
pub(crate) struct Ground<'run> {
    /// Its [`objects`].
    pub(crate) before: BTreeMap<String, Value>,
    _revoked: Revoked<'run>,
    pub(crate) stage: Stage<'run>,
    _needed: Option<CertManager>,
}

impl<'run> Ground<'run> {
    /// With what this source needs, in a namespace that opts in under this domain.
    pub(crate) fn clear(scene: &Scene<'run>, source: Source, domain: &str) -> Result<Self> {
        let needed = source.needs(scene)?;
        let stage = Stage::new(scene)?;
        stage.edge_node("edge-0", "1")?;
        stage.cloud_node("cloud-0")?;
        stage.wan.close();
        let label = format!("scheduling.{domain}/managed=true");
        let args = ["label", "namespace", &scene.namespace, &label, "--overwrite"];
        scene.kubectl.run(&args, "")?;
        scene.remove_custom_resources()?;
        let revoked = scene.revoke()?;
        Ok(Self {
            before: objects(&scene.kubectl)?,
            _revoked: revoked,
            stage,
            _needed: needed,
        })
    }
}

/// The scheduling gates of a pod.
pub(crate) fn gates(scene: &Scene<'_>, pod: &str) -> Result<Value> {
    Ok(scene.kubectl.get("pod", pod)?["spec"]["schedulingGates"].take())
}

/// Waits until the cluster has these [`objects`] again, and no other.
pub(crate) fn is_as_it_was(scene: &Scene<'_>, before: &BTreeMap<String, Value>) -> Result<()> {
    eventually("the cluster is as it was", BOUND, || {
        let after = objects(&scene.kubectl)?;
        let differ = |(key, object): &(&String, &Value)| before.get(*key) != Some(object);
        let more: Vec<_> = after.iter().filter(differ).collect();
        let less: Vec<_> = before.keys().filter(|key| !after.contains_key(*key)).collect();
        ensure!(more.is_empty() && less.is_empty(), "left: {more:#?}, lost: {less:?}");
        Ok(())
    })
}

/// A process of this machine in the place of one of the Deployment's pods.
pub(crate) struct Replica<'run> {
    pub(crate) edgeward: Edgeward<'run>,
    /// The Secret that the pod would mount.
    pub(crate) mount: Option<Mount>,
}

/// edgeward, installed from a checkout in the directory of a trial.
pub(crate) struct Installation<'s, 'run> {
    pub(crate) scene: &'s Scene<'run>,
    pub(crate) domain: &'s str,
    /// What is installed.
    pub(crate) objects: Vec<Value>,
}

impl<'s, 'run> Installation<'s, 'run> {
    fn prepare(scene: &'s Scene<'run>, stage: &Stage<'_>, source: Source, domain: &'s str) -> Result<Self> {
        check_out(scene, source)?;
        let mine = scene.dir.join("mine");
        fs::create_dir(&mine)?;
        let mut kustomization: Value = serde_saphyr::from_str(documented("yaml", "kind: Kustomization")?)?;
        ensure!(
            kustomization["resources"] == json!(["../edgeward/deploy/overlays/cert-manager"]),
            "{kustomization}"
        );
        kustomization["resources"] = json!([format!("../edgeward/deploy/overlays/{}", source.name())]);
        // The sites of the trial, instead of the endpoint of a cloud.
        let config = json!({"domain": "example.io", "sites": stage.config()["sites"]});
        let data = json!({"config.yaml": config.to_string()});
        let metadata = json!({"name": "edgeward-config", "namespace": NAMESPACE});
        let patch = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data});
        kustomization["patches"] = json!([{"patch": patch.to_string()}]);
        fs::write(mine.join("kustomization.yaml"), kustomization.to_string())?;

        let rendered = scene
            .kubectl
            .run(&["kustomize", &mine.display().to_string()], "")?
            .stdout;
        let objects = serde_saphyr::from_multiple(&rendered.replace("example.io", domain))?;
        Ok(Self { scene, domain, objects })
    }

    /// Objects that are rendered already, with edgeward's rights among them.
    pub(crate) fn apply_objects(scene: &'s Scene<'run>, objects: Vec<Value>) -> Result<Self> {
        let installation = Self {
            scene,
            domain: "example.io",
            objects,
        };
        let kubectl = scene.kubectl_in(NAMESPACE);
        kubectl.run(&["apply", "-f", "-"], &installation.list())?;
        scene.sign_in()?;
        Ok(installation)
    }

    fn list(&self) -> String {
        json!({"apiVersion": "v1", "kind": "List", "items": self.objects}).to_string()
    }

    /// One is decided, and the next is held, for there is no room for it anywhere: by the edgeward that this returns, with
    /// the arguments of the Deployment.
    pub(crate) fn decides_and_holds(&self) -> Result<Replica<'run>> {
        let (scene, domain) = (self.scene, self.domain);
        scene.sign_in()?;
        let replica = self.replica(&scene.dir.join("replica"), &[])?;
        let port = replica.edgeward.admission().port();
        self.lead_to(port)?;
        self.name_endpoint(port)?;
        self.be_patient()?;

        let decision = |name: &str| -> Result<Value> {
            let mut pod = scene.kubectl.get("pod", name)?;
            Ok(pod["metadata"]["annotations"][format!("scheduling.{domain}/decision")].take())
        };
        let pod = |name: &str, millicores: u32| {
            let slo = json!({format!("slo.{domain}/class"): "batch"});
            let mut pod = workloads::pod(name, slo);
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(format!("{millicores}m"));
            pod
        };
        let probe = pod("probe", 100);
        eventually("the API server calls the webhook", BOUND, || {
            let answered = scene.kubectl.dry_run(&probe)?["metadata"]["annotations"].take();
            let site = &answered[format!("scheduling.{domain}/site")];
            ensure!(site == "edge", "{answered}");
            Ok(())
        })?;
        scene.kubectl.create(&pod("decided", 700))?;
        ensure!(decision("decided")? == "edge", "{}", decision("decided")?);
        scene.kubectl.create(&pod("held", 700))?;
        let gate = json!([{"name": format!("scheduling.{domain}/awaiting-capacity")}]);
        ensure!(gates(scene, "held")? == gate, "{}", gates(scene, "held")?);
        // The policies speak of this domain as well.
        let wrong = json!({format!("slo.{domain}/class"): "quick"});
        let said = scene.kubectl.run(
            &["create", "--dry-run=server", "-f", "-"],
            &workloads::deployment("wrong", 1, wrong).to_string(),
        )?;
        let warning = format!("slo.{domain}/class: \"quick\" is not latency, throughput or batch");
        ensure!(said.warnings().iter().any(|said| said.ends_with(&warning)), "{said:?}");
        Ok(replica)
    }

    /// The object of this kind, of which there is one.
    pub(crate) fn object(&self, kind: &str) -> Result<&Value> {
        let mut objects = self.objects.iter();
        objects.find(|object| object["kind"] == kind).context(kind.to_owned())
    }

    /// The API server knows every field, and takes every object: tried first, then for good. Doing it again replaces no
    /// pod.
    fn apply(&self) -> Result<()> {
        let script = documented("sh", "kubectl apply -k mine")?;
        let (command, rollout) = script.split_once('\n').context("one line applies, and one waits")?;
        let command = match self.domain {
            "example.io" => command,
            _ => documented("sh", "kubectl kustomize mine | sed")?,
        };
        let command = command.replace("acme.dev", self.domain);
        // Its namespace must be there for anything to be tried in it.
        self.scene.kubectl.apply(self.object("Namespace")?)?;
        let tried = command.replace("kubectl apply", "kubectl apply --dry-run=server --validate=strict");
        ensure!(tried != command, "{command}");
        self.scene.shell(&tried)?;
        self.scene.shell(&command)?;
        self.scene.shell(rollout)?;
        self.scene.shell(&command)?;
        let deployment = self.scene.kubectl_in(NAMESPACE).get("deployment", "edgeward")?;
        ensure!(deployment["metadata"]["generation"] == 1, "{deployment:#}");
        self.upgrade(rollout)?;
        let names = ["crd/sites.edgeward.io", "crd/slopolicies.edgeward.io"];
        let args = ["wait", "--for=condition=Established", TIMEOUT];
        self.scene.kubectl.run(&[&args[..], &names[..]].concat(), "").map(drop)
    }

    /// To another image, by the lines about that: the pods are replaced, and nothing else is, the domain above all.
    fn upgrade(&self, rollout: &str) -> Result<()> {
        let file = self.scene.dir.join("mine/kustomization.yaml");
        let mut kustomization: Value = serde_json::from_str(&fs::read_to_string(&file)?)?;
        kustomization["images"][0]["newTag"] = json!("NEXT");
        fs::write(&file, kustomization.to_string())?;
        let kubectl = self.scene.kubectl_in(NAMESPACE);
        let kept = || -> Result<Vec<Value>> {
            let fields = [
                ("mutatingwebhookconfiguration", "zz-edgeward", "webhooks"),
                ("validatingadmissionpolicy", "edgeward-slo", "spec"),
                ("validatingadmissionpolicybinding", "edgeward-slo", "spec"),
                ("configmap", "edgeward-config", "data"),
            ];
            let read = fields.map(|(kind, name, field)| Ok(kubectl.get(kind, name)?[field].take()));
            read.into_iter().collect()
        };
        let before = kept()?;
        let words = match self.domain {
            "example.io" => "kubectl apply -k mine",
            _ => "kubectl kustomize mine | sed",
        };
        let command = documented_under("## Upgrading", "sh", words)?;
        self.scene.shell(&command.replace("acme.dev", self.domain))?;
        self.scene.shell(rollout)?;
        let container = kubectl.get("deployment", "edgeward")?["spec"]["template"]["spec"]["containers"][0].take();
        ensure!(container["image"] == "IMAGE:NEXT", "{container}");
        let after = kept()?;
        ensure!(before == after, "{before:?}\nand then\n{after:?}");
        Ok(())
    }

    /// The namespace enforces the Pod Security Standard `restricted`, and the pods of the Deployment are there all the same.
    pub(crate) fn is_restricted(&self) -> Result<()> {
        let kubectl = self.scene.kubectl_in(NAMESPACE);
        let args = ["create", "--dry-run=server", "-f", "-"];
        let refused = kubectl.attempt(&args, &workloads::pod("lax", json!({})).to_string())?;
        ensure!(
            refused.stderr.contains("violates PodSecurity \"restricted:latest\""),
            "{refused:?}"
        );
        // The template by itself: of a Deployment, only a warning would be said.
        let deployment = self.object("Deployment")?;
        let template = &deployment["spec"]["template"];
        let mut metadata = template["metadata"].clone();
        metadata["name"] = json!("template");
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]});
        let said = kubectl.run(&args, &pod.to_string())?;
        ensure!(said.warnings().is_empty(), "{said:?}");
        let mut pods = kubectl.list("pods", "app.kubernetes.io/name=edgeward")?;
        // Those from before an upgrade may still be there.
        pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        ensure!(pods.len() == 2, "{}", pods.len());
        Ok(())
    }

    /// One in this directory, with the arguments of the Deployment's container, the Secret that it mounts, and more arguments.
    pub(crate) fn replica(&self, dir: &Path, more: &[&str]) -> Result<Replica<'run>> {
        let container = &self.object("Deployment")?["spec"]["template"]["spec"]["containers"][0];
        let tls = dir.join("tls");
        fs::create_dir(dir)?;
        let path = container["volumeMounts"][0]["mountPath"].as_str();
        let mount = match path {
            Some(_) => Some(Mount::open(self.scene, NAMESPACE, SECRET, &tls)?),
            None => {
                fs::create_dir(&tls)?;
                // Nobody asks it past the API server.
                fs::write(tls.join("ca.crt"), Authority::new()?.certificate)?;
                None
            }
        };
        let here = |arg: &str| match path {
            Some(path) => arg.replace(path, &tls.display().to_string()),
            None => arg.to_owned(),
        };
        let args = container["args"].as_array().context("arguments")?.iter();
        let mut args = args.map(|arg| arg.as_str().map(here));
        ensure!(args.next().flatten().as_deref() == Some("serve"), "{container}");
        let args = args.chain(more.iter().map(|arg| Some(arg.to_string())));
        let args: Result<_> = args.map(|arg| arg.context("an argument is no string")).collect();
        let edgeward = self.scene.edgeward_of_arguments(dir, args?)?;
        Ok(Replica { edgeward, mount })
    }

    /// Has the EndpointSlices of the Service name this replica and no other. The Service that it was has left those of the
    /// Deployment's pods, which run nowhere.
    fn name_endpoint(&self, port: u16) -> Result<()> {
        let kubectl = self.scene.kubectl_in(NAMESPACE);
        let label = "--selector=kubernetes.io/service-name=edgeward";
        kubectl.run(&["delete", "endpointslices", label], "")?;
        kubectl.create(&endpoint_slice(port)).map(drop)
    }

    /// No kubelet runs the pods here, and nothing routes to a Service. So the Service leads to a port of this machine; the
    /// API server still asks for the certificate of the Service, of the CA that the manifests have brought it.
    pub(crate) fn lead_to(&self, port: u16) -> Result<()> {
        let spec = json!({"type": "ExternalName", "externalName": "localhost", "clusterIP": null, "clusterIPs": null});
        let patch = json!({"spec": spec}).to_string();
        let kubectl = self.scene.kubectl_in(NAMESPACE);
        kubectl.run(&["patch", "service", "edgeward", "--type=merge", "-p", &patch], "")?;
        let replace = |entry| {
            let path = format!("/webhooks/{entry}/clientConfig/service/port");
            json!({"op": "replace", "path": path, "value": port})
        };
        self.patch_webhook(json!([replace(0), replace(1)]))
    }

    /// Changes the webhook configuration, which has two entries.
    pub(crate) fn patch_webhook(&self, patch: Value) -> Result<()> {
        let args = ["patch", "mutatingwebhookconfiguration", WEBHOOK, "--type=json", "-p"];
        let kubectl = &self.scene.kubectl;
        kubectl.run(&[&args[..], &[&patch.to_string()]].concat(), "").map(drop)
    }

    /// The API server waits as long as it can, however busy the machine is.
    pub(crate) fn be_patient(&self) -> Result<()> {
        let replace =
            |entry| json!({"op": "replace", "path": format!("/webhooks/{entry}/timeoutSeconds"), "value": 30});
        self.patch_webhook(json!([replace(0), replace(1)]))
    }

    /// The replica runs until the Deployment goes, with all that is of it.
    fn uninstall(&self, replica: Replica<'run>) -> Result<()> {
        let script = documented("sh", "kubectl delete -k mine")?;
        let (release, delete) = script.split_once('\n').context("first our gates, then the rest")?;
        let args = release.strip_prefix("edgeward ").context(release)?;
        let domain = format!("--domain={}", self.domain);
        let args: Vec<_> = args.split(' ').chain([&*domain]).collect();
        let released = command(&self.scene.kubeconfig(), &args)?;
        let expected = format!("{} deleted\n{}/held released\n", WEBHOOK, self.scene.namespace);
        ensure!(
            released.succeeded && released.stdout.contains(&expected),
            "{released:?}"
        );
        drop(replica);
        self.scene.shell(delete).map(drop)
    }
}

impl Drop for Installation<'_, '_> {
    /// What a trial has left that failed.
    fn drop(&mut self) {
        let args = ["delete", "--ignore-not-found", TIMEOUT, "-f", "-"];
        if let Err(error) = self.scene.kubectl_in(NAMESPACE).run(&args, &self.list()) {
            eprintln!("{error:#}");
        }
    }
}

/// Puts a checkout in the trial's directory, with the certificate by the lines of docs/operations.md if it is to be in files.
pub(crate) fn check_out(scene: &Scene<'_>, source: Source) -> Result<()> {
    let ours = scene.dir.join("edgeward");
    for folder in ["deploy", "webhook", "certs"] {
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &ours.join(folder))?;
    }
    if source == Source::Files {
        scene.shell(documented("sh", "openssl")?)?;
    }
    Ok(())
}

/// The first block of docs/operations.md that has these words.
pub(crate) fn documented(language: &str, words: &str) -> Result<&'static str> {
    documented_under("", language, words)
}

/// The same from a heading on.
fn documented_under(heading: &str, language: &str, words: &str) -> Result<&'static str> {
    let page = include_str!("../../docs/operations.md");
    let page = page.find(heading).map_or("", |start| &page[start..]);
    let mut blocks = page.split("\n```").filter_map(|block| {
        let (first, block) = block.split_once('\n')?;
        (first == language).then_some(block)
    });
    let block = blocks.find(|block| block.contains(words));
    block.with_context(|| format!("docs/operations.md does not show {words:?}"))
}

/// Every object of the cluster, but for what changes by itself: Events, who reported when, and pods of other trials, which
/// end with the nodes they were on.
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
