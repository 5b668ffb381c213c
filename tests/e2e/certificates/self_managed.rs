//! A certificate that edgeward manages itself, on a real API server. No pod is created undecided while the leaf and the CA are
//! renewed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use edgeward_harness::clients::client;
use edgeward_harness::fixture::ENTRY_OF_PODS;
use edgeward_harness::installation::WEBHOOK;
use edgeward_harness::installed_replicas::{decode, endpoint_slice};
use edgeward_harness::prelude::*;
use http::Request;
use kube::Client;
use tokio::task::JoinHandle;

const CONFIGURATION: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/zz-edgeward";
const SECRET: &str = "edgeward-certificates";

/// Lifetimes of a CA and a certificate. Certificates are renewed every 30 s, the third time at 90 s. The next CA is due at
/// 100 s. If the leader is killed then, its successor takes over and completes its 7.5 s wait in time: that certificate
/// ends at 135 s.
const LIVES: [&str; 2] = ["--ca-life=150s", "--certificate-life=45s"];

/// Two thirds of a CA's life, plus the time for the rotation.
const ROTATION: Duration = Duration::from_secs(240);

const PAUSE: Duration = Duration::from_millis(500);

e2e! { "certificates::self_managed", Nodes, 101, self_managed }
/// Three replicas are called for every pod, always over new connections. The leaf and then the CA are renewed, and the leader
/// is killed meanwhile. No call fails open. edgeward also repairs changes that are made by hand in between.
pub(crate) fn self_managed(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = Nodes::edge_and_cloud(fixture, "64")?;
    let overlay = workspace().join("deploy/overlays/self-managed").display().to_string();
    let args = ["apply", "--dry-run=server", "--validate=strict", "-k", &overlay];
    fixture.kubectl_in(NAMESPACE).run(&args, "")?;
    let home = Home::open(fixture)?;
    let config = nodes.config();

    let start = |name: &str| home.replica(name, &config);
    let mut replicas = vec![start("first")?, start("second")?, start("third")?];
    let ports: Vec<_> = replicas.iter().map(|replica| replica.admission().port()).collect();
    home.lead_to(&ports)?;
    eventually("each entry has a CA", BOUND, || {
        let bundles = home.bundles()?;
        ensure!(
            bundles.len() == 3 && bundles.iter().all(|bundle| cas(bundle) == 1),
            "{bundles:?}"
        );
        Ok(())
    })?;
    let first_ca = home.secret()?["ca.crt"].take();
    let first_leaf = home.secret()?["tls.crt"].take();
    let mut load = Load::start(fixture)?;
    load.goes_on()?;

    eventually("the certificate is renewed, by the same CA", ROTATION, || {
        let secret = home.secret()?;
        ensure!(secret["tls.crt"] != first_leaf && secret["ca.crt"] == first_ca);
        Ok(())
    })?;
    load.goes_on()?;

    eventually("the next CA is made", ROTATION, || {
        ensure!(home.secret()?["next-ca.crt"].is_string());
        Ok(())
    })?;
    let leading = eventually("one leads", BOUND, || {
        let mut leading = replicas.iter();
        leading.position(|replica| replica.leads().is_ok()).context("nobody")
    })?;
    let mut leader = replicas.remove(leading);
    // As a Service does, the registration drops the replica no later than its end.
    let rest: Vec<_> = replicas.iter().map(|replica| replica.admission().port()).collect();
    home.lead_to(&rest)?;
    eventually("it is not called any more", BOUND, || load.calls(fixture, rest.len()))?;
    leader.kill()?;
    drop(leader);
    let last_ca = eventually("another leader goes on to the end", 2 * ROTATION, || {
        let secret = home.secret()?;
        ensure!(
            secret["next-ca.crt"].is_null() && secret["ca.crt"] != first_ca,
            "no new CA signs"
        );
        let ca = decode(&secret["ca.crt"])?;
        for bundle in home.bundles()? {
            ensure!(cas(&bundle) == 1 && bundle.contains(&ca), "{bundle}");
        }
        Ok(ca)
    })?;
    load.goes_on()?;

    let creations = load.end()?;
    let rejected =
        |replica: &Edgeward<'_>| replica.count("edgeward_tls_handshake_failures_total", &[("cause", "rejected")]);
    for replica in &replicas {
        ensure!(rejected(replica)? == 0, "an API server did not trust what it was shown");
        ensure!(replica.count("edgeward_tls_reloads_total", &[("result", "loaded")])? >= 3);
    }
    let failed_open: usize = fixture
        .creations(&fixture.namespace)?
        .iter()
        .map(|creation| creation.failed_open())
        .sum();
    ensure!(failed_open == 0, "{failed_open}");
    println!("self-managed: {creations} pods, 0 failed and 0 undecided");

    home.empty_bundles()?;
    eventually("what was removed is there again", BOUND, || {
        ensure!(home.bundles()?.iter().all(|bundle| bundle.contains(&last_ca)));
        Ok(())
    })?;
    home.spoil()?;
    for replica in &replicas {
        eventually("what cannot be served is refused", BOUND, || {
            let refused = replica.said("the Secret holds no certificate that can be served, the old certificate stays");
            let error = refused.last().context("not refused")?["error"].to_string();
            ensure!(
                error.contains("tls.crt: the certificate file holds no CERTIFICATE block"),
                "{error}"
            );
            Ok(())
        })?;
    }
    eventually("the leader makes another", BOUND, || {
        let certificate = home.secret()?["tls.crt"].take();
        ensure!(certificate != json!(STANDARD.encode("rubbish")));
        Ok(())
    })?;
    let mut load = Load::start(fixture)?;
    load.goes_on()?;
    load.end().map(drop)
}

fn cas(bundle: &str) -> usize {
    bundle.matches("BEGIN CERTIFICATE").count()
}

/// The namespace of the replicas, with the Service and the registration that lead to them.
struct Home<'s, 'run> {
    fixture: &'s Fixture<'run>,
    namespace: String,
}

impl<'s, 'run> Home<'s, 'run> {
    fn open(fixture: &'s Fixture<'run>) -> Result<Self> {
        let namespace = fixture.home()?;
        fixture.allow_self_management(&namespace)?;
        // Nothing routes to a Service here. It leads to this machine, where each replica has a port.
        let service = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "edgeward"},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        });
        fixture.kubectl_in(&namespace).create(&service)?;
        Ok(Self { fixture, namespace })
    }

    fn replica(&self, name: &str, config: &Value) -> Result<Edgeward<'run>> {
        let dir = self.fixture.dir.join(name);
        fs::create_dir_all(dir.join("tls"))?;
        // Only the API server calls the replicas, so this CA does not matter.
        fs::write(dir.join("tls/ca.crt"), Authority::new()?.certificate)?;
        let file = dir.join("config.yaml");
        fs::write(&file, config.to_string())?;
        let mut args = vec![
            format!("--config={}", file.display()),
            format!("--namespace={}", self.namespace),
            "--self-managed".to_owned(),
        ];
        args.extend(LIVES.map(str::to_owned));
        self.fixture.edgeward_of_arguments(self.fixture.program, &dir, args)
    }

    /// Makes API servers call each of these ports for every pod, and makes the Service's EndpointSlices name them.
    fn lead_to(&self, ports: &[u16]) -> Result<()> {
        let kubectl = self.fixture.kubectl_in(&self.namespace);
        let slices: Vec<_> = ports.iter().map(|port| endpoint_slice(*port)).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": slices}).to_string();
        let prune = ["--prune", "-l", "kubernetes.io/service-name=edgeward"];
        let allow = "--prune-allowlist=discovery.k8s.io/v1/EndpointSlice";
        kubectl.run(&[&["apply", "-f", "-", allow], &prune[..]].concat(), &list)?;

        let mut manifest = edgeward_harness::fixture::manifest()?;
        let mut entry = manifest["webhooks"][ENTRY_OF_PODS].clone();
        entry["timeoutSeconds"] = json!(30);
        entry["reinvocationPolicy"] = json!("Never");
        // Without the selector, each replica is also called about a pod that another replica has placed.
        entry["objectSelector"].take();
        let expressions = entry["namespaceSelector"]["matchExpressions"].as_array_mut();
        let ours = [&self.fixture.namespace];
        expressions
            .context("no expressions")?
            .push(json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": ours}));
        let entries = ports.iter().map(|port| {
            let mut entry = entry.clone();
            entry["name"] = json!(format!("replica-{port}.edgeward.io"));
            let service = json!({"namespace": self.namespace, "name": "edgeward", "path": "/mutate", "port": port});
            entry["clientConfig"] = json!({"service": service});
            entry
        });
        manifest["webhooks"] = entries.collect();
        // The manifest has no `caBundle`, so remaining entries keep theirs.
        let args = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
        kubectl.run(&args, &manifest.to_string()).map(drop)
    }

    fn secret(&self) -> Result<Value> {
        let kubectl = self.fixture.kubectl_in(&self.namespace);
        Ok(kubectl.get("secret", SECRET)?["data"].take())
    }

    fn bundles(&self) -> Result<Vec<String>> {
        let configuration = self.fixture.kubectl.get("mutatingwebhookconfiguration", WEBHOOK)?;
        let entries = configuration["webhooks"].as_array().context("no entries")?.iter();
        entries.map(|entry| bundle(&entry["clientConfig"])).collect()
    }

    /// Simulates an operator who applies an old manifest.
    fn empty_bundles(&self) -> Result<()> {
        let entries = self.bundles()?.len();
        let remove = |i| json!({"op": "remove", "path": format!("/webhooks/{i}/clientConfig/caBundle")});
        let patch = Value::from_iter((0..entries).map(remove));
        let kubectl = &self.fixture.kubectl;
        kubectl.patch("mutatingwebhookconfiguration", WEBHOOK, &patch, &[])
    }

    fn spoil(&self) -> Result<()> {
        let patch = json!({"data": {"tls.crt": STANDARD.encode("rubbish")}}).to_string();
        let kubectl = self.fixture.kubectl_in(&self.namespace);
        kubectl.run(&["patch", "secret", SECRET, "-p", &patch], "").map(drop)
    }
}

impl Drop for Home<'_, '_> {
    fn drop(&mut self) {
        let args = ["delete", "mutatingwebhookconfiguration", WEBHOOK, "--ignore-not-found"];
        if let Err(error) = self.fixture.kubectl.run(&args, "") {
            eprintln!("{error:#}");
        }
    }
}

fn bundle(client_config: &Value) -> Result<String> {
    let bundle = client_config["caBundle"].as_str().unwrap_or_default();
    Ok(String::from_utf8(STANDARD.decode(bundle)?)?)
}

/// Creates pods one after another, each over new connections to edgeward.
struct Load {
    run: Arc<Run>,
    task: JoinHandle<Result<()>>,
    runtime: tokio::runtime::Handle,
}

#[derive(Default)]
struct Run {
    ends: AtomicBool,
    created: AtomicUsize,
    last: Mutex<String>,
}

impl Run {
    fn last(&self) -> MutexGuard<'_, String> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Load {
    fn start(fixture: &Fixture<'_>) -> Result<Self> {
        let client = fixture.runtime.block_on(client(fixture))?;
        let run = Arc::<Run>::default();
        let task = create(Arc::clone(&run), client, fixture.namespace.clone());
        Ok(Self {
            run,
            task: fixture.runtime.spawn(task),
            runtime: fixture.runtime.handle().clone(),
        })
    }

    fn created(&self) -> usize {
        self.run.created.load(Ordering::Relaxed)
    }

    fn goes_on(&mut self) -> Result<()> {
        let before = self.created();
        eventually("pods are created", BOUND, || {
            let created = self.created();
            ensure!(created >= before + 5 || self.task.is_finished(), "{created}");
            Ok(())
        })?;
        match self.task.is_finished() {
            true => self.runtime.block_on(&mut self.task)?,
            false => Ok(()),
        }
    }

    /// Fails unless this many replicas were called for the last pod.
    fn calls(&self, fixture: &Fixture<'_>, replicas: usize) -> Result<()> {
        let last = self.run.last().clone();
        let creation = fixture.creation_of(&fixture.namespace, &last)?;
        ensure!(creation.rounds(WEBHOOK).len() == replicas);
        Ok(())
    }

    fn end(self) -> Result<usize> {
        self.run.ends.store(true, Ordering::Relaxed);
        self.runtime.block_on(self.task)??;
        Ok(self.run.created.load(Ordering::Relaxed))
    }
}

async fn create(run: Arc<Run>, client: Client, namespace: String) -> Result<()> {
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    for i in 0.. {
        if run.ends.load(Ordering::Relaxed) {
            break;
        }
        // The API server has one client for each bundle. A changed comment in the bundle makes it connect again.
        comment(&client, i).await?;
        let mut pod = workloads::pod("", workloads::batch());
        pod["metadata"]["generateName"] = json!("pod-");
        let request = Request::post(&path).header("content-type", "application/json");
        let created = client
            .request::<Value>(request.body(pod.to_string().into_bytes())?)
            .await;
        let created = created.with_context(|| format!("pod {i}"))?;
        let decision = &created["metadata"]["annotations"]["scheduling.example.io/decision"];
        ensure!(decision.is_string(), "pod {i} is undecided");
        let name = created["metadata"]["name"].as_str().unwrap_or_default();
        name.clone_into(&mut run.last());
        run.created.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// Puts a new first line before the certificates of each entry. Retries if another writer was faster.
async fn comment(client: &Client, i: usize) -> Result<()> {
    let configuration: Value = client.request(Request::get(CONFIGURATION).body(vec![])?).await?;
    let version = &configuration["metadata"]["resourceVersion"];
    let mut patch = vec![json!({"op": "test", "path": "/metadata/resourceVersion", "value": version})];
    for (entry, found) in configuration["webhooks"].as_array().into_iter().flatten().enumerate() {
        let bundle = bundle(&found["clientConfig"])?;
        let certificates = bundle.find("-----BEGIN").map(|start| &bundle[start..]);
        if let Some(certificates) = certificates {
            let path = format!("/webhooks/{entry}/clientConfig/caBundle");
            let value = STANDARD.encode(format!("# {i}\n{certificates}"));
            patch.push(json!({"op": "replace", "path": path, "value": value}));
        }
    }
    let request = Request::patch(CONFIGURATION).header("content-type", "application/json-patch+json");
    match client
        .request::<Value>(request.body(Value::from(patch).to_string().into_bytes())?)
        .await
    {
        Err(kube::Error::Api(status)) if !matches!(status.code, 409 | 422) => Err(kube::Error::Api(status).into()),
        Err(kube::Error::Api(_)) | Ok(_) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
