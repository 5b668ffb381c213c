//! Certificates of the real cert-manager: its controllers issue what edgeward serves, and its CA injector fills in
//! `caBundle`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use edgeward::observe::installation::{Bundle, Chain, shown};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::certificates::finds;
use crate::creations::Creations;
use crate::fleet_command::command;
use crate::install::Installation;
use crate::kubectl::Kubectl;
use crate::mount::Mount;
use crate::patience::{BOUND, eventually};
use crate::process::Process;
use crate::program::xtask;
use crate::relay::Relay;
use crate::rights::NAMESPACE;
use crate::scene::Scene;

/// The names of the Certificates in `certs/cert-manager`.
pub(crate) const CA: &str = "edgeward-ca";
pub(crate) const LEAF: &str = "edgeward";

/// What the API server asks for.
const NAME: &str = "edgeward.edgeward-system.svc";

/// How often the leaf is renewed by itself.
const PERIOD: Duration = Duration::from_secs(10);

/// How often CA and leaf are renewed by hand.
const ROUNDS: usize = 3;

/// A running cert-manager. Dropping it ends the program, and removes its definitions with all that is of them.
pub(crate) struct CertManager {
    process: Process,
    kubectl: Kubectl,
    definitions: PathBuf,
}

impl CertManager {
    pub(crate) fn start(scene: &Scene<'_>) -> Result<Self> {
        let dir = xtask("cert-manager")?;
        let dir = dir.context("there is no Go to build cert-manager with and EDGEWARD_CERT_MANAGER is not set")?;
        let definitions = dir.join("crds");
        let kubectl = scene.kubectl_in(NAMESPACE);
        let folder = definitions.display().to_string();
        kubectl.run(&["apply", "--server-side", "-f", &folder], "")?;
        let args = ["wait", "--for=condition=Established", "--timeout=45s", "-f", &folder];
        kubectl.run(&args, "")?;
        let args = [format!("--kubeconfig={}", scene.kubeconfig().display())];
        let program = dir.join("cert-manager");
        Ok(Self {
            process: Process::start("cert-manager", &program, &args, &scene.dir)?,
            kubectl,
            definitions,
        })
    }

    /// Has a Certificate issued anew, as `cmctl renew` does, and waits until it is.
    pub(crate) fn renew(&self, certificate: &str) -> Result<()> {
        let revision = self.revision(certificate)?;
        let condition = json!({
            "type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "for a trial",
            "lastTransitionTime": Timestamp::from_second(Timestamp::now().as_second())?.to_string(),
        });
        let patch = json!([{"op": "add", "path": "/status/conditions/-", "value": condition}]).to_string();
        let args = [
            "patch",
            "certificate",
            certificate,
            "--subresource=status",
            "--type=json",
        ];
        // While it is being issued already, the condition is there.
        eventually("it can be asked for", BOUND, || {
            self.kubectl.run(&[&args[..], &["-p", &patch]].concat(), "")
        })?;
        self.is_renewed(certificate, revision)
    }

    /// Renews the CA, waits until `caBundle` of both entries has the new one, and returns that, PEM.
    pub(crate) fn renew_authority(&self) -> Result<String> {
        self.renew(CA)?;
        let new = self.authority()?;
        eventually("caBundle has the new CA", BOUND, || {
            let bundle = ca_bundle(&self.kubectl)?;
            ensure!(bundle.contains(new.trim()), "{bundle}");
            Ok(())
        })?;
        Ok(new)
    }

    /// The CA of the moment, PEM.
    fn authority(&self) -> Result<String> {
        let secret = self.kubectl.get("secret", CA)?;
        decode(&secret["data"]["tls.crt"])
    }

    /// Waits until a Certificate was issued once more than so often.
    fn is_renewed(&self, certificate: &str, revision: u64) -> Result<()> {
        eventually(&format!("{certificate} is issued anew"), 2 * BOUND, || {
            let now = self.revision(certificate)?;
            ensure!(now > revision, "revision {now}");
            Ok(())
        })
    }

    fn revision(&self, certificate: &str) -> Result<u64> {
        let found = self.kubectl.get("certificate", certificate)?;
        found["status"]["revision"]
            .as_u64()
            .with_context(|| found["status"].to_string())
    }
}

impl Drop for CertManager {
    fn drop(&mut self) {
        let ended = self.process.kill();
        let folder = self.definitions.display().to_string();
        let args = ["delete", "--ignore-not-found", "--timeout=45s", "-f", &folder];
        if let Err(error) = ended.and_then(|()| self.kubectl.run(&args, "").map(drop)) {
            eprintln!("{error:#}");
        }
    }
}

/// Installed with cert-manager, edgeward decides every pod while its leaf is renewed by time, its CA by hand, and its leaf by the
/// new CA. Each pod is created over a connection of its own, so that the certificate of the moment counts. Where `caBundle` stays
/// behind, none is decided, and `edgeward check` says why.
pub(crate) fn renewals(scene: &Scene<'_>) -> Result<()> {
    let _revoked = scene.revoke()?;
    let cert_manager = CertManager::start(scene)?;
    let mut objects = scene
        .kubectl
        .render(concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/overlays/cert-manager"))?;
    objects.retain(|object| object["kind"] != "CustomResourceDefinition");
    let named = |object: &Value| object["kind"] == "Certificate" && object["metadata"]["name"] == LEAF;
    let leaf = objects.iter_mut().find(|object| named(object)).context("no leaf")?;
    // Longer than the machine may be busy with other things.
    let life = Duration::from_secs(300);
    leaf["spec"]["duration"] = json!(format!("{}s", life.as_secs()));
    leaf["spec"]["renewBefore"] = json!(format!("{}s", (life - PERIOD).as_secs()));

    let started = Instant::now();
    let installation = Installation::apply_objects(scene, objects)?;
    let _mount = Mount::open(scene, NAMESPACE, "edgeward-tls", &scene.dir.join("tls"))?;
    println!(
        "cert-manager: the first certificate {:.1?} after apply",
        started.elapsed()
    );
    let edgeward = scene.edgeward_of_arguments(installation.arguments()?)?;
    let relay = Relay::start(scene.runtime, edgeward.admission())?;
    installation.lead_to(relay.address.port())?;
    let served = || -> Result<Chain> {
        let address = edgeward.admission().to_string();
        let chain = scene.runtime.block_on(shown(&address, NAME));
        chain.map_err(|words| anyhow::anyhow!("{words}"))
    };
    let is_trusted_by = |pem: &str| -> Result<bool> {
        let bundle = Bundle::read(pem.as_bytes(), Timestamp::now());
        let bundle = bundle.map_err(|words| anyhow::anyhow!("caBundle {words}"))?;
        Ok(bundle.vouches(&served()?, NAME).is_ok())
    };
    eventually("caBundle is filled in", BOUND, || {
        ensure!(is_trusted_by(&ca_bundle(&scene.kubectl)?)?, "it is for others");
        Ok(())
    })?;
    let creations = Creations::begin(scene, &relay)?;
    all_is_well(scene)?;

    let loaded = || edgeward.count("edgeward_tls_reloads_total", &[("result", "loaded")]);
    let ((), tally) = creations.during(|| {
        for _ in 0..2 {
            let (before, chain) = (loaded()?, served()?);
            cert_manager.is_renewed(LEAF, cert_manager.revision(LEAF)?)?;
            eventually("the new leaf is served", BOUND, || {
                ensure!(loaded()? > before && served()? != chain, "the old one is");
                Ok(())
            })?;
        }
        Ok(())
    })?;
    println!("cert-manager: the leaf renewed twice by time: {tally}");
    tally.is_perfect()?;

    // Renewed by hand alone from here on.
    let patch = json!({"spec": {"renewBefore": "60s"}}).to_string();
    let args = ["patch", "certificate", LEAF, "--type=merge", "-p", &patch];
    scene.kubectl_in(NAMESPACE).run(&args, "")?;
    cert_manager.renew(LEAF)?;

    for round in 1..=ROUNDS {
        let old = cert_manager.authority()?;
        let renewed = Instant::now();
        let (new, tally) = creations.during(|| cert_manager.renew_authority())?;
        println!(
            "cert-manager: {round}: the CA renewed, {:.1?}: {tally}",
            renewed.elapsed()
        );
        tally.is_perfect()?;
        // The leaf is of the old one still.
        ensure!(
            old != new && is_trusted_by(&ca_bundle(&scene.kubectl)?)? && is_trusted_by(&old)? && !is_trusted_by(&new)?
        );
        all_is_well(scene)?;

        let renewed = Instant::now();
        let ((), tally) = creations.during(|| {
            cert_manager.renew(LEAF)?;
            eventually("the leaf of the new CA is served", BOUND, || {
                ensure!(is_trusted_by(&new)?, "the old one is");
                Ok(())
            })
        })?;
        println!(
            "cert-manager: {round}: the leaf renewed by it, {:.1?}: {tally}",
            renewed.elapsed()
        );
        tally.is_perfect()?;
    }
    all_is_well(scene)?;

    // As while cainjector is away.
    let annotate = |annotation: &str| {
        let args = ["annotate", "mutatingwebhookconfiguration", "zz-edgeward", annotation];
        scene.kubectl.run(&args, "").map(drop)
    };
    annotate("cert-manager.io/inject-ca-from-")?;
    let ((), tally) = creations.during(|| {
        cert_manager.renew(CA)?;
        cert_manager.renew(LEAF)?;
        let words = "its certificate is of none of the authorities in caBundle";
        finds(scene, "FAULT", words).map(drop)
    })?;
    println!("cert-manager: both renewed, and nobody fills in caBundle: {tally}");
    ensure!(
        tally.undecided > 0,
        "the API server goes by another bundle than that of the webhook"
    );
    annotate(&format!("cert-manager.io/inject-ca-from={NAMESPACE}/{CA}"))?;
    all_is_well(scene)?;
    eventually("pods are decided again", BOUND, || {
        let ((), tally) = creations.during(|| Ok(()))?;
        tally.is_perfect()
    })
}

/// What both entries of the webhook configuration have, PEM.
fn ca_bundle(kubectl: &Kubectl) -> Result<String> {
    let configuration = kubectl.get("mutatingwebhookconfiguration", "zz-edgeward")?;
    let [first, second] = [0, 1].map(|entry: usize| &configuration["webhooks"][entry]["clientConfig"]["caBundle"]);
    ensure!(first == second, "{first} is not {second}");
    decode(first)
}

fn decode(text: &Value) -> Result<String> {
    let text = text.as_str().context("nothing is there")?;
    Ok(String::from_utf8(STANDARD.decode(text)?)?)
}

/// `edgeward check` finds what is served and what is in the Secret to be of an authority in the bundle.
fn all_is_well(scene: &Scene<'_>) -> Result<()> {
    eventually("edgeward check finds both good", BOUND, || {
        let said = command(&scene.kubeconfig(), &["check"])?;
        let about: Vec<_> = said
            .stdout
            .lines()
            .filter(|line| line.contains(" certificate "))
            .collect();
        let is_good = |line: &&str| line.starts_with("ok") && line.contains(" of an authority in caBundle");
        // For each of the two entries.
        ensure!(
            about.len() == 4 && about.iter().all(is_good),
            "{}{}",
            said.stdout,
            said.stderr
        );
        Ok(())
    })
}
