//! The API server's client certificate for edgeward, set up on both sides as `docs/guide/operate.md` says.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use edgeward_harness::balancer::Balancer;
use edgeward_harness::documentation::documented;
use edgeward_harness::edgeward::view;
use edgeward_harness::fixture::{ENTRIES, Registration};
use edgeward_harness::prelude::*;
use edgeward_harness::webhook_credentials::SERVICE;

use crate::install::{Source, check_out};
use crate::placement::fleet;
use crate::placement::untouched::undecided;

/// edgeward's message about a client that it refuses.
const REFUSED: &str = "a client showed no certificate that --client-ca vouches for";

/// A CA for clients, and a client certificate of it. All such CAs have the same name.
struct Clients {
    dir: PathBuf,
    authority: String,
}

impl Clients {
    fn make(fixture: &Fixture<'_>, name: &str) -> Result<Self> {
        let dir = fixture.dir.join(name);
        fs::create_dir(&dir)?;
        let script = documented("sh", "extendedKeyUsage=clientAuth")?;
        fixture.kubectl.shell(script, &fixture.kubeconfig(), &dir)?;
        let authority = fs::read_to_string(dir.join("clients.crt"))?;
        Ok(Self { dir, authority })
    }
}

e2e! { "certificates::client_without_certificate_is_refused", Nodes, client_without_certificate_is_refused }
/// Without a certificate of the CA in `--client-ca`, neither the API server nor another client gets an answer, and edgeward
/// logs why. With one, every pod is decided. Both sides adopt a new certificate or CA without a restart.
fn client_without_certificate_is_refused(fixture: &Fixture<'_>) -> Result<()> {
    let (ours, next) = (Clients::make(fixture, "ours")?, Clients::make(fixture, "next")?);
    let credentials = fixture.webhook_credentials();
    credentials.set(&ours.dir)?;
    let setup = Setup::open(fixture, &ours)?;

    // The API server's kubeconfig has no certificate for this address.
    setup.is_refused("unnamed", "peer sent no certificates")?;
    setup.call_by_service()?;
    setup.is_let_in("named")?;

    setup.trust(&[&next])?;
    setup.is_refused("of-another", "invalid peer certificate: BadSignature")?;

    // In the order of the documentation.
    setup.trust(&[&ours, &next])?;
    setup.is_let_in("of-the-first")?;
    credentials.set(&next.dir)?;
    setup.trust(&[&next])?;
    setup.is_let_in("of-the-next")
}

struct Setup<'s, 'run> {
    fixture: &'s Fixture<'run>,
    registered: Registration,
    balancer: Balancer<'run>,
    edgeward: Edgeward<'run>,
    /// The file of `--client-ca`.
    client_ca: PathBuf,
}

impl<'s, 'run> Setup<'s, 'run> {
    /// Starts an edgeward that admits these clients, called by its address.
    fn open(fixture: &'s Fixture<'run>, clients: &Clients) -> Result<Self> {
        let (tls, mounted) = (fixture.dir.join("tls"), fixture.dir.join("mounted"));
        fs::create_dir(&tls)?;
        fs::create_dir(&mounted)?;
        let (argument, client_ca) = told(fixture, clients, &mounted)?;
        let authority = Authority::new()?;
        fs::write(tls.join("ca.crt"), &authority.certificate)?;
        let (certificate, key) = authority.server(&[SERVICE])?.write(&tls, "tls")?;
        let edgeward = fixture.edgeward_of_arguments(
            fixture.edgeward_kubeconfig(),
            fixture.program,
            &fixture.dir,
            vec![
                view(&fixture.dir, &fleet::relaxed())?,
                format!("--tls-cert={}", certificate.display()),
                format!("--tls-key={}", key.display()),
                argument,
            ],
        )?;

        let balancer = Balancer::open_on(fixture, fixture.webhook_credentials().listener()?)?;
        balancer.add(&edgeward)?;
        let registered = fixture.register(&balancer.url(), &edgeward.ca)?;
        Ok(Self {
            fixture,
            registered,
            balancer,
            edgeward,
            client_ca,
        })
    }

    fn call_by_service(&self) -> Result<()> {
        let (name, namespace) = SERVICE
            .strip_suffix(".svc")
            .and_then(|service| service.split_once('.'))
            .context(SERVICE)?;
        ensure!(namespace == self.fixture.namespace, "{namespace}");
        // Nothing routes to a Service here.
        self.fixture.kubectl.create(&json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }))?;
        let port = self.balancer.port();
        let service = json!({"namespace": namespace, "name": name, "path": "/mutate", "port": port});
        let client = json!({"service": service, "caBundle": STANDARD.encode(&self.edgeward.ca)});
        let replace =
            |entry| json!({"op": "replace", "path": format!("/webhooks/{entry}/clientConfig"), "value": client});
        let patch = ENTRIES.map(replace).collect::<Value>();
        let kubectl = &self.fixture.kubectl;
        kubectl.patch("mutatingwebhookconfiguration", &self.registered.name, &patch, &[])
    }

    /// Makes edgeward admit only these clients. Existing connections would stay open.
    fn trust(&self, clients: &[&Clients]) -> Result<()> {
        let labels = [("of", "client_ca"), ("result", "loaded")];
        let loaded = || self.edgeward.count("edgeward_tls_reloads_total", &labels);
        let before = loaded()?;
        let new = self.client_ca.with_extension("new");
        fs::write(
            &new,
            clients.iter().map(|clients| &*clients.authority).collect::<String>(),
        )?;
        fs::rename(&new, &self.client_ca)?;
        eventually("edgeward has read it", BOUND, || {
            ensure!(loaded()? == before + 1, "{before}");
            Ok(())
        })?;
        self.fixture.runtime.block_on(self.balancer.connections().cut());
        Ok(())
    }

    /// Fails unless a pod is decided and a client without a certificate gets no answer.
    fn is_let_in(&self, name: &str) -> Result<()> {
        let decision = |pod: &Value| pod["metadata"]["annotations"]["scheduling.example.io/decision"].clone();
        eventually("edgeward answers the API server", BOUND, || {
            ensure!(decision(&self.fixture.kubectl.dry_run(&probe())?) == "edge");
            Ok(())
        })?;
        let refused = self.failures()?;
        let created = self
            .fixture
            .kubectl
            .create(&workloads::pod(name, workloads::latency()))?;
        ensure!(decision(&created) == "edge", "{created:#}");
        ensure!(self.failures()? == refused, "the API server was refused as well");
        self.nobody_else_is()
    }

    /// Fails unless a pod is created undecided for this reason, edgeward logs the reason, and a client without a certificate
    /// gets no answer either.
    fn is_refused(&self, name: &str, reason: &str) -> Result<()> {
        let (refused, reviews) = (self.failures()?, self.edgeward.reviews()?);
        let pod = workloads::pod(name, workloads::latency());
        undecided(&self.fixture.kubectl.create(&pod)?)?;
        ensure!(self.fixture.creation_of(&self.fixture.namespace, name)?.failed_open() == 1);
        // In a namespace with decided pods, every leader would report this pod as undecided.
        let args = ["delete", "pod", name, "--grace-period=0", "--force", "--wait=false"];
        self.fixture.kubectl.run(&args, "")?;
        eventually("it is counted", BOUND, || {
            ensure!(self.failures()? > refused, "{refused}");
            Ok(())
        })?;
        // edgeward logs one such line a second.
        eventually(reason, BOUND, || {
            self.fixture.kubectl.dry_run(&probe())?;
            let said = self.edgeward.said(REFUSED);
            let named = said.iter().any(|line| line["error"] == reason);
            ensure!(named, "{said:?}");
            Ok(())
        })?;
        ensure!(self.edgeward.reviews()? == reviews, "the API server was answered");
        self.nobody_else_is()
    }

    /// A client without a certificate gets an answer on the health port, as kubelet does, and none on the admission port.
    fn nobody_else_is(&self) -> Result<()> {
        let (refused, reviews) = (self.failures()?, self.edgeward.reviews()?);
        let answer = self.edgeward.ask(&self.fixture.namespace, &probe());
        ensure!(answer.is_err(), "{answer:?}");
        eventually("it is counted", BOUND, || {
            ensure!(self.failures()? > refused, "{refused}");
            Ok(())
        })?;
        ensure!(self.edgeward.reviews()? == reviews);
        let (code, said) = self.edgeward.readiness()?;
        ensure!(code == 200, "{code}: {said}");
        Ok(())
    }

    fn failures(&self) -> Result<u64> {
        let labels = [("cause", "client")];
        self.edgeward.count("edgeward_tls_handshake_failures_total", &labels)
    }
}

fn probe() -> Value {
    workloads::pod("probe", workloads::latency())
}

/// The argument and the file that `mine` gives edgeward. The API server has accepted the Deployment. The file of the ConfigMap
/// is mounted here.
fn told(fixture: &Fixture<'_>, clients: &Clients, mounted: &Path) -> Result<(String, PathBuf)> {
    check_out(fixture, Source::CertManager)?;
    let mine = fixture.dir.join("mine");
    fs::create_dir(&mine)?;
    fs::copy(clients.dir.join("clients.crt"), mine.join("clients.crt"))?;
    let render = |overlay: &str| -> Result<[Value; 2]> {
        let mut kustomization: Value = serde_saphyr::from_str(documented("yaml", "configMapGenerator:")?)?;
        kustomization["resources"] = json!([format!("../edgeward/deploy/overlays/{overlay}")]);
        fs::write(mine.join("kustomization.yaml"), kustomization.to_string())?;
        let objects = fixture.kubectl.render(&mine)?;
        let object = |kind: &str, name: &str| {
            let mut objects = objects.iter();
            let object = objects.find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
            object.cloned().context(name.to_owned())
        };
        let deployment = object("Deployment", "edgeward")?;
        let args = ["create", "--dry-run=server", "--validate=strict", "-f", "-"];
        fixture.kubectl_in(NAMESPACE).run(&args, &deployment.to_string())?;
        Ok([deployment, object("ConfigMap", "edgeward-clients")?])
    };
    render("cert-manager")?;
    // The self-managed Deployment mounts no other volume.
    let [deployment, map] = render("self-managed")?;
    for (file, content) in map["data"].as_object().into_iter().flatten() {
        fs::write(mounted.join(file), content.as_str().context("no text")?)?;
    }
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    ensure!(
        pod["volumes"][0]["configMap"]["name"] == map["metadata"]["name"],
        "{pod}"
    );
    let there = container["volumeMounts"][0]["mountPath"].as_str().context("no path")?;
    let argument = container["args"].as_array().and_then(|args| args.last()?.as_str());
    let argument = argument
        .context("no argument")?
        .replace(there, &mounted.display().to_string());
    let file = argument
        .strip_prefix("--client-ca=")
        .context("another argument")?
        .into();
    Ok((argument, file))
}
