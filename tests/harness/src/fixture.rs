//! A test's environment: an opted-in namespace, a directory, and the means to start edgeward and register webhooks.

mod custom_resources;
mod liqo;

use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Error, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::runtime::Runtime;

use crate::control_plane::{ControlPlane, Restored};
pub use crate::creation::Creation;
use crate::documentation::documented;
use crate::edgeward::Program;
use crate::helm::NoHelm;
use crate::peering::{Peering, Provider};
use crate::prelude::*;
use crate::process::{Paused, on_loopback, tail};
use crate::proxy::Proxy;
use crate::registration::only_in;
pub use crate::registration::{ENTRIES, ENTRY_OF_PODS, Registration};
use crate::rights::{self, Granted, Narrowed};
use crate::scripts::TooBusy;
use crate::test_webhook::{self, TestWebhook};
use crate::webhook_credentials::WebhookCredentials;
pub use custom_resources::DEFINITIONS;

pub const POLICIES: &str = "scheduling.example.io/policies";

pub const MANAGED: &str = "scheduling.example.io/managed";

const SHARED_DOMAIN: &str = "example.io";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Domain {
    /// The default domain, shared with other tests. No edgeward may lead under it, because it would release the gated pods of
    /// all these tests.
    Shared,
    Own,
}

pub struct Fixture<'run> {
    plane: &'run ControlPlane,
    peering: Option<&'run Peering>,
    pub runtime: &'run Runtime,
    pub program: &'run Path,
    pub namespace: String,
    domain: String,
    pub kubectl: Kubectl,
    pub dir: PathBuf,
    audited: u64,
    namespaces: Mutex<Vec<String>>,
    /// Additional rights of edgeward until the test ends, however it ends.
    granted: Mutex<Vec<Granted>>,
}

impl<'run> Fixture<'run> {
    /// Opens a fixture in the peered cluster for the test of this name, under the default domain.
    pub(crate) fn open_peered(
        peering: &'run Peering,
        runtime: &'run Runtime,
        program: &'run Path,
        name: &str,
    ) -> Result<Self> {
        let fixture = Self::open(peering.consumer(), runtime, program, name, Domain::Shared)?;
        Ok(Self {
            peering: Some(peering),
            ..fixture
        })
    }

    pub(crate) fn open(
        plane: &'run ControlPlane,
        runtime: &'run Runtime,
        program: &'run Path,
        name: &str,
        domain: Domain,
    ) -> Result<Self> {
        let namespace = name.rsplit("::").next().unwrap_or(name).replace('_', "-");
        let dir = plane.dir().join(&namespace);
        fs::create_dir(&dir)?;
        let kubectl = plane.kubectl.in_namespace(&namespace);
        let fixture = Self {
            plane,
            peering: None,
            runtime,
            program,
            domain: match domain {
                Domain::Shared => SHARED_DOMAIN.to_owned(),
                Domain::Own => format!("{namespace}.test"),
            },
            namespace,
            kubectl,
            dir,
            audited: plane.audited()?,
            namespaces: Mutex::default(),
            granted: Mutex::default(),
        };
        fixture.create_namespace(&fixture.namespace, json!({fixture.key(MANAGED): "true"}))?;
        Ok(fixture)
    }

    /// A key of the contract, such as `slo.example.io/class`, under the test's domain.
    pub fn key(&self, key: &str) -> String {
        key.replace(SHARED_DOMAIN, &self.domain)
    }

    pub fn in_its_domain(&self, object: Value) -> Value {
        match &*self.domain {
            SHARED_DOMAIN => object,
            // A domain has no character that JSON escapes.
            _ => self.key(&object.to_string()).parse().unwrap_or_default(),
        }
    }

    /// kubectl in another namespace of this test, created with `labels`.
    pub fn another_namespace(&self, suffix: &str, labels: Value) -> Result<(String, Kubectl)> {
        let name = format!("{}-{suffix}", self.namespace);
        self.create_namespace(&name, labels)?;
        let kubectl = self.plane.kubectl.in_namespace(&name);
        Ok((name, kubectl))
    }

    pub(crate) fn create_namespace(&self, name: &str, labels: Value) -> Result<()> {
        let mut namespaces = self.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        namespaces.push(name.to_owned());
        drop(namespaces);
        let mut metadata = json!({"name": name, "labels": labels});
        if self.domain != SHARED_DOMAIN {
            metadata["labels"][rights::DOMAIN] = json!(self.domain);
        }
        let kubectl = self.plane.kubectl.in_namespace(name);
        kubectl.run(
            &["create", "-f", "-"],
            &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}).to_string(),
        )?;
        eventually(
            "the controller manager has made the default service account",
            BOUND,
            || kubectl.run(&["get", "serviceaccount", "default"], ""),
        )
        .map(drop)
    }

    pub fn kubectl_in(&self, namespace: &str) -> Kubectl {
        self.plane.kubectl.in_namespace(namespace)
    }

    fn program(&self) -> Program<'run> {
        Program {
            path: self.program,
            runtime: self.runtime,
        }
    }

    /// Runs edgeward with these arguments and cluster administrator rights.
    pub fn command(&self, args: &[&str]) -> Result<Said> {
        self.command_as(&self.kubeconfig(), args)
    }

    pub fn command_as(&self, kubeconfig: &Path, args: &[&str]) -> Result<Said> {
        let mut command = Command::new(self.program);
        Said::of(
            on_loopback(&mut command)
                .args(args)
                .env("KUBECONFIG", kubeconfig)
                .output()?,
        )
    }

    /// Starts edgeward with this view of the fleet and waits until it is ready.
    pub fn edgeward(&self, fleet: &Value) -> Result<Edgeward<'run>> {
        self.edgeward_with(fleet, &json!({}))
    }

    /// The same with this configuration.
    pub fn edgeward_with(&self, fleet: &Value, config: &Value) -> Result<Edgeward<'run>> {
        Edgeward::start(self.program(), &self.dir, fleet, config)
    }

    /// Starts edgeward with the configuration in this ConfigMap of the test's namespace. Waits until it serves, ready or not.
    /// Without a fleet it uses the live view.
    pub fn edgeward_of_config_map(&self, fleet: Option<&Value>, name: &str) -> Result<Edgeward<'run>> {
        self.plane.rights.grant_in(&self.namespace, &self.kubectl)?;
        let kubeconfig = self.plane.edgeward_kubeconfig();
        let name = format!("{}/{name}", self.namespace);
        Edgeward::start_of_config_map(self.program(), &self.dir, kubeconfig, &name, fleet)
    }

    /// Starts edgeward with the live view of the cluster, and waits until it is ready.
    pub fn live_edgeward(&self, config: &Value) -> Result<Edgeward<'run>> {
        self.start_live(&self.dir, self.plane.edgeward_kubeconfig(), config)
    }

    /// Starts edgeward with the live view and registers it for the pods of the test's namespace.
    pub fn registered_live(&self, config: &Value) -> Result<(Edgeward<'run>, Registration)> {
        let edgeward = self.live_edgeward(config)?;
        let registration = self.register(&edgeward.url, &edgeward.ca)?;
        Ok((edgeward, registration))
    }

    pub fn live_edgeward_as(&self, name: &str, config: &Value) -> Result<Edgeward<'run>> {
        let dir = self.dir.join(name);
        fs::create_dir_all(&dir)?;
        self.start_live(&dir, self.plane.edgeward_kubeconfig(), config)
    }

    pub fn replica(&self, name: &str, config: &Value, authority: &Authority) -> Result<Edgeward<'run>> {
        let dir = self.dir.join(name);
        fs::create_dir_all(&dir)?;
        let kubeconfig = self.plane.edgeward_kubeconfig();
        Edgeward::start_live(self.program(), &dir, kubeconfig, &self.home()?, config, authority)
    }

    pub fn live_edgeward_behind(&self, proxy: &Proxy<'_>, config: &Value) -> Result<Edgeward<'run>> {
        let kubeconfig = self.dir.join("kubeconfig");
        fs::write(&kubeconfig, proxy.kubeconfig().to_string())?;
        self.start_live(&self.dir, kubeconfig, config)
    }

    fn start_live(&self, dir: &Path, kubeconfig: PathBuf, config: &Value) -> Result<Edgeward<'run>> {
        let home = self.home()?;
        Edgeward::start_live(self.program(), dir, kubeconfig, &home, config, &Authority::new()?)
    }

    /// The namespace in which this test's edgewards elect their leader.
    pub fn home(&self) -> Result<String> {
        let name = format!("{}-system", self.namespace);
        let said = self.kubectl.attempt(&["create", "namespace", &name], "")?;
        ensure!(
            said.succeeded || said.stderr.contains("AlreadyExists"),
            "{}",
            said.stderr
        );
        if said.succeeded {
            self.plane.rights.grant_in(&name, &self.kubectl)?;
        }
        Ok(name)
    }

    /// Makes this test's edgewards count `replicas` replicas: an EndpointSlice of their Service has that many addresses.
    pub fn count_replicas(&self, replicas: usize) -> Result<()> {
        let endpoint = |i: usize| json!({"addresses": [format!("192.0.2.{i}")], "conditions": {"ready": true}});
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "edgeward", "labels": {"kubernetes.io/service-name": "edgeward"}},
            "addressType": "IPv4",
            "ports": [],
            "endpoints": (1..=replicas).map(endpoint).collect::<Value>(),
        });
        self.kubectl_in(&self.home()?).apply(&slice).map(drop)
    }

    /// Starts the edgeward program at `path` in this directory, with these arguments, in the cluster of this kubeconfig. Waits
    /// until it is ready. The CA of its certificate is `tls/ca.crt` there.
    pub fn edgeward_of_arguments<'p>(
        &self,
        kubeconfig: PathBuf,
        path: &'p Path,
        dir: &Path,
        args: Vec<String>,
    ) -> Result<Edgeward<'p>>
    where
        'run: 'p,
    {
        let runtime = self.runtime;
        Edgeward::start_of_arguments(Program { path, runtime }, dir, kubeconfig, args)
    }

    /// Lets the edgewards of this namespace manage their certificate, as `certs/self-managed` does, until the test ends.
    pub fn allow_self_management(&self, namespace: &str) -> Result<()> {
        self.allow(
            self.plane
                .rights
                .grant_certificates_in(namespace, &self.plane.kubectl)?,
        );
        Ok(())
    }

    /// Removes edgeward's right to list and watch the object of this name, or all if the name is empty, as in an earlier
    /// version's roles. Refused calls then do not fail the rights proof.
    pub fn takes_away(&self, resource: &str, name: &str) {
        self.plane.rights.take_away(resource, name);
    }

    /// Restricts edgeward's pod updates to namespaces with a RoleBinding, as `deploy/narrow` does, until the returned value is
    /// dropped.
    pub fn narrow_rights(&self) -> Result<Narrowed> {
        self.plane.rights.narrow(&self.plane.kubectl)
    }

    /// Lets edgeward read volumes and claims, as `deploy/data` does, until the test ends.
    pub fn allow_data(&self) -> Result<()> {
        self.allow(self.plane.rights.grant_data(&self.plane.kubectl)?);
        Ok(())
    }

    /// Lets edgeward read PodGroups, as `deploy/groups` does, until the test ends.
    pub fn allow_groups(&self) -> Result<()> {
        self.allow(self.plane.rights.grant_groups(&self.plane.kubectl)?);
        Ok(())
    }

    /// Lets edgeward write and read reports, as `deploy/reports` does, until the test ends.
    pub fn allow_reports(&self) -> Result<()> {
        let rights = &self.plane.rights;
        self.allow(rights.grant_reports_in(&self.home()?, &self.plane.kubectl)?);
        Ok(())
    }

    /// Lets edgeward keep Peer objects and the EndpointSlice of peers, as `deploy/peers` does, until the test ends.
    pub fn allow_peers(&self) -> Result<()> {
        let rights = &self.plane.rights;
        self.allow(rights.grant_peers_in(&self.home()?, &self.plane.kubectl)?);
        Ok(())
    }

    /// Follows the guide: creates the account that may read the report of the cluster behind this kubeconfig, and the Secret with
    /// its kubeconfig in edgeward's namespace.
    pub fn reads_report_of(&self, kubectl: &Kubectl, kubeconfig: &Path) -> Result<()> {
        let of_cluster: Value = serde_json::from_str(&fs::read_to_string(kubeconfig)?)?;
        let server = of_cluster["clusters"][0]["cluster"]["server"].as_str();
        let account = documented("sh", "kubectl apply -k edgeward/deploy/report-reader")?
            .replace("https://near.example.com:6443", server.context("no server")?)
            .replace("edgeward/deploy", &workspace().join("deploy").display().to_string());
        kubectl.shell(&account, kubeconfig, &self.dir)?;
        let secret = documented("sh", "create secret generic edgeward-neighbours")?;
        self.shell(&secret.replace("edgeward-system", &self.home()?)).map(drop)
    }

    /// Starts edgeward in the cluster of this provider, with all rights there.
    pub fn edgeward_at(&self, provider: &Provider, config: &Value) -> Result<Edgeward<'run>> {
        let dir = self.dir.join(provider.id);
        fs::create_dir_all(&dir)?;
        provider.kubectl().run(&["create", "namespace", &self.home()?], "")?;
        self.start_live(&dir, provider.kubeconfig(), config)
    }

    fn allow(&self, granted: Granted) {
        let mut all = self.granted.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(granted);
    }

    /// Removes edgeward's namespace and the rights that the run has granted, as if edgeward had never been installed. No other
    /// edgeward may run.
    pub fn revoke(&self) -> Result<Revoked<'run>> {
        self.plane.rights.revoke(&self.plane.kubectl)?;
        Ok(Revoked(self.plane))
    }

    /// Uses the rights that the manifests have granted to edgeward in the meantime.
    pub fn sign_in(&self) -> Result<()> {
        self.plane.sign_in()
    }

    /// A kubeconfig for a ServiceAccount that the manifests have created in edgeward's namespace.
    pub fn kubeconfig_of(&self, account: &str) -> Result<PathBuf> {
        let file = self.dir.join(format!("{account}.kubeconfig"));
        self.plane.sign_in_as(account, &file)?;
        Ok(file)
    }

    pub fn proxy(&self) -> Result<Proxy<'run>> {
        Proxy::start(self.runtime, &self.plane.edgeward_kubeconfig())
    }

    /// Starts another kube-scheduler with this KubeSchedulerConfiguration.
    pub fn another_scheduler(&self, config: &Value) -> Result<Process> {
        self.plane.another_scheduler(&self.dir, config)
    }

    pub fn back_up(&self) -> Result<()> {
        self.plane.back_up(&self.dir.join("etcd"))
    }

    pub fn restore(&self) -> Result<Restored> {
        self.plane.restore(&self.dir)
    }

    /// The process id of one of the control plane's programs, such as `kube-apiserver`.
    pub fn process_of(&self, program: &str) -> Result<u32> {
        Ok(self.plane.process(program)?.id())
    }

    /// Pauses one of the control plane's programs until the returned value is dropped.
    pub fn pause(&self, program: &str) -> Result<Paused<'run>> {
        self.plane.process(program)?.pause()
    }

    pub fn etcd(&self) -> &str {
        &self.plane.etcd
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.plane.kubeconfig()
    }

    pub fn edgeward_kubeconfig(&self) -> PathBuf {
        self.plane.edgeward_kubeconfig()
    }

    /// Runs a script from the documentation with cluster administrator rights and the program under test as `edgeward`.
    pub fn shell(&self, script: &str) -> Result<String> {
        let folder = self.program.parent().context("a folder")?;
        let script = format!("PATH=\"{}:$PATH\"\n{script}", folder.display());
        self.kubectl.shell(&script, &self.kubeconfig(), &self.dir)
    }

    pub fn webhook_credentials(&self) -> &WebhookCredentials {
        &self.plane.credentials
    }

    /// Starts a webhook inside the test. For each pod it returns the operations of a JSON patch.
    pub fn test_webhook(&self, answer: impl Fn(&Value) -> Vec<Value> + Send + Sync + 'static) -> Result<TestWebhook> {
        TestWebhook::start(self.runtime, answer, Duration::ZERO)
    }

    /// Starts a webhook inside the test that allows every pod after a delay of `takes`.
    pub fn slow_test_webhook(&self, takes: Duration) -> Result<TestWebhook> {
        TestWebhook::start(self.runtime, test_webhook::watches, takes)
    }

    /// Registers a validating webhook for the pods of the test's namespace, and waits until it is called.
    pub fn register_validating(&self, webhook: &TestWebhook) -> Result<Registration> {
        let name = format!("zz-validating-{}", self.namespace);
        let configuration = webhook.validating(&name, &self.namespace);
        let registration = Registration::create(&self.plane.kubectl, &configuration)?;
        let probe = self.in_its_domain(workloads::pod("probe", workloads::latency()));
        eventually("the API server calls the webhook", BOUND, || {
            self.kubectl.dry_run(&probe)?;
            ensure!(!webhook.seen().is_empty(), "it was not called");
            Ok(())
        })?;
        Ok(registration)
    }

    /// Registers a webhook like `webhook/base` for the test's namespace, and waits until it is called. The timeout is the
    /// longest possible, so that a busy machine does not matter.
    pub fn register(&self, url: &str, ca: &str) -> Result<Registration> {
        self.register_as("zz-edgeward", &[&self.namespace], url, ca)
    }

    pub fn register_with_its_timeout(&self, url: &str, ca: &str) -> Result<Registration> {
        self.registered("zz-edgeward", &[&self.namespace], manifest()?, url, ca)
    }

    /// Like [`register`](Self::register), but under another name, which determines the order, and for several namespaces. Pods
    /// in the first one show that the webhook is in force.
    pub fn register_as(&self, prefix: &str, namespaces: &[&str], url: &str, ca: &str) -> Result<Registration> {
        self.registered(prefix, namespaces, with_long_timeout(manifest()?), url, ca)
    }

    /// Adds the namespaces to the manifest's own selector.
    fn registered(
        &self,
        prefix: &str,
        namespaces: &[&str],
        manifest: Value,
        url: &str,
        ca: &str,
    ) -> Result<Registration> {
        let mut manifest = self.in_its_domain(manifest);
        manifest["metadata"]["name"] = json!(format!("{prefix}-{}", self.namespace));
        for webhook in manifest["webhooks"].as_array_mut().into_iter().flatten() {
            webhook["clientConfig"] = json!({"url": url, "caBundle": STANDARD.encode(ca)});
            only_in(webhook, namespaces)?;
        }

        let registration = Registration::create(&self.plane.kubectl, &manifest)?;

        // The API server reads configurations and namespaces through caches of its own.
        let first = namespaces.first().context("no namespace")?;
        let kubectl = self.kubectl_in(first);
        let probe = self.in_its_domain(workloads::pod("probe", workloads::latency()));
        eventually("the API server calls the webhook", BOUND, || {
            kubectl.dry_run(&probe)?;
            let creations = self.creations(first)?;
            let called = creations
                .iter()
                .any(|creation| !creation.rounds(&registration.name).is_empty());
            ensure!(called, "{} dry runs, no call of {}", creations.len(), registration.name);
            Ok(())
        })?;
        Ok(registration)
    }

    /// Registers a manifest under the test's own domain, which no other test's edgeward knows, and opts the test's namespace
    /// in. Does not wait until the webhook is called.
    pub fn register_under(&self, domain: &str, manifest: &Value, url: &str, ca: &str) -> Result<Registration> {
        let mut manifest: Value = manifest.to_string().replace(SHARED_DOMAIN, domain).parse()?;
        manifest["metadata"]["name"] = json!(format!("zz-edgeward-{}", self.namespace));
        for webhook in manifest["webhooks"].as_array_mut().into_iter().flatten() {
            webhook["clientConfig"] = json!({"url": url, "caBundle": STANDARD.encode(ca)});
        }
        let labels = [
            format!("scheduling.{domain}/managed=true"),
            format!("{}={domain}", rights::DOMAIN),
        ];
        let args = [
            "label",
            "namespace",
            &self.namespace,
            &labels[0],
            &labels[1],
            "--overwrite",
        ];
        self.kubectl.run(&args, "")?;
        Registration::create(&self.plane.kubectl, &manifest)
    }

    /// Audit events of the pods created in a namespace since the test began.
    pub fn creations(&self, namespace: &str) -> Result<Vec<Creation>> {
        let pods = self.created(namespace, "pods")?;
        Ok(pods.into_iter().map(Creation).collect())
    }

    /// The policy violation in the audit event of a Deployment's creation, once the event is in the audit log.
    pub fn violation_of(&self, deployment: &str) -> Result<Option<String>> {
        const VIOLATION: &str = "validation.policy.admission.k8s.io/validation_failure";
        eventually(&format!("the audit log has Deployment {deployment}"), BOUND, || {
            let created = self.created(&self.namespace, "deployments")?;
            let creation = created.iter().find(|event| event["objectRef"]["name"] == deployment);
            let violation = creation.context("it has not")?["annotations"][VIOLATION].as_str();
            Ok(violation.map(str::to_owned))
        })
    }

    fn created(&self, namespace: &str, resource: &str) -> Result<Vec<Value>> {
        let mut events = self.plane.creations(namespace, self.audited)?;
        events
            .retain(|event| event["objectRef"]["namespace"] == namespace && event["objectRef"]["resource"] == resource);
        Ok(events)
    }

    pub fn creation_of(&self, namespace: &str, pod: &str) -> Result<Creation> {
        eventually(&format!("the audit log has pod {pod}"), BOUND, || {
            let mut creations = self.creations(namespace)?.into_iter();
            creations
                .find(|creation| creation.pod() == pod && !creation.is_dry_run())
                .context("it has not")
        })
    }

    /// Log lines of the API server for each failed call of the webhook at this address, after which it failed open.
    pub fn failed_open(&self, url: &str) -> Result<Vec<String>> {
        self.plane.failed_open(url)
    }

    /// Fails if a pod was created here with keys of a domain that is not the test's.
    pub(crate) fn kept_to_its_domain(&self) -> Result<()> {
        if self.domain == SHARED_DOMAIN {
            return Ok(());
        }
        for creation in self.creations(&self.namespace)? {
            let created = creation.0["responseObject"].to_string();
            ensure!(!created.contains(&format!("{SHARED_DOMAIN}/")), "{created}");
        }
        Ok(())
    }

    /// Removes the pods of the test's namespaces and their controllers, so that they no longer count or get scheduled.
    pub(crate) fn clear(&self) -> Result<()> {
        const ALL: &str = "daemonsets,deployments,replicasets,jobs,pods";
        let namespaces = self.namespaces.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for namespace in namespaces {
            let kubectl = self.kubectl_in(&namespace);
            let args = ["delete", ALL, "--all", "--grace-period=0", "--force", "--wait=false"];
            kubectl.run(&args, "")?;
            eventually("the test's pods are gone", BOUND, || {
                ensure!(kubectl.list("pods", "")?.is_empty());
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Adds the ends of this test's process logs to an error. An error that is no failure stays unchanged.
    pub(crate) fn with_logs(&self, error: Error) -> Error {
        if error.is::<TooBusy>() || error.is::<NoHelm>() {
            return error;
        }
        anyhow!("{error:#}\n{}", self.tails())
    }

    fn tails(&self) -> String {
        let logs = fs::read_dir(&self.dir)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        let logs = logs.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
        let logs = logs.map(|log| tail(&log)).chain(self.peering.map(Peering::tails));
        logs.collect::<Vec<_>>().join("\n")
    }
}

/// `webhook/base/mutatingwebhookconfiguration.yaml`.
pub fn manifest() -> Result<Value> {
    Ok(serde_saphyr::from_str(include_str!(
        "../../../webhook/base/mutatingwebhookconfiguration.yaml"
    ))?)
}

/// Sets the longest possible timeout in a webhook configuration.
pub fn with_long_timeout(mut configuration: Value) -> Value {
    for webhook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
        webhook["timeoutSeconds"] = json!(30);
    }
    configuration
}

/// A cluster without edgeward. Dropping it gives the edgewards of other tests their rights back.
pub struct Revoked<'run>(&'run ControlPlane);

impl Drop for Revoked<'_> {
    fn drop(&mut self) {
        let again = eventually("edgeward has its rights again", BOUND, || {
            self.0.rights.revoke(&self.0.kubectl).and_then(|()| self.0.grant())
        });
        if let Err(error) = again {
            eprintln!("{error:#}");
        }
    }
}
