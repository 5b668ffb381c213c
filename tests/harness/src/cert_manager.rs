//! Certificates from the real cert-manager: its controllers issue edgeward's certificate, and its CA injector fills in
//! `caBundle`.

use jiff::Timestamp;

use crate::checkout::xtask;
use crate::installation::WEBHOOK;
use crate::installed_replicas::decode;
use crate::prelude::*;
use crate::registration::ENTRIES;
use crate::wait::TIMEOUT;

/// The names of the Certificates in `certs/cert-manager`.
pub const CA: &str = "edgeward-ca";
pub const LEAF: &str = "edgeward";

/// A running cert-manager. Dropping it ends the program and removes its definitions with all their objects.
pub struct CertManager {
    process: Process,
    kubectl: Kubectl,
    definitions: PathBuf,
}

impl CertManager {
    /// Installs its definitions and starts it. The cluster must have none yet.
    pub fn start(fixture: &Fixture<'_>) -> Result<Self> {
        Self::start_for(fixture.kubectl_in(NAMESPACE), &fixture.kubeconfig(), &fixture.dir)
    }

    /// Starts it for this cluster, with its log in `logs`.
    pub fn start_for(kubectl: Kubectl, kubeconfig: &Path, logs: &Path) -> Result<Self> {
        let dir = xtask("cert-manager")?;
        let dir = dir.context("there is no Go to build cert-manager with and EDGEWARD_CERT_MANAGER is not set")?;
        let definitions = dir.join("crds");
        let folder = definitions.display().to_string();
        kubectl.run(&["apply", "--server-side", "-f", &folder], "")?;
        kubectl.wait_until_established(&["-f", &folder])?;
        let args = [format!("--kubeconfig={}", kubeconfig.display())];
        let program = dir.join("cert-manager");
        Ok(Self {
            process: Process::start("cert-manager", &program, &args, logs)?,
            kubectl,
            definitions,
        })
    }

    /// Renews a Certificate as `cmctl renew` does, and waits until it is issued.
    pub fn renew(&self, certificate: &str) -> Result<()> {
        let revision = self.revision(certificate)?;
        let condition = json!({
            "type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "for a test",
            "lastTransitionTime": Timestamp::from_second(Timestamp::now().as_second())?.to_string(),
        });
        let patch = json!([{"op": "add", "path": "/status/conditions/-", "value": condition}]);
        // The condition is already set while the certificate is being issued.
        eventually("it can be asked for", BOUND, || {
            self.kubectl
                .patch("certificate", certificate, &patch, &["--subresource=status"])
        })?;
        self.is_renewed(certificate, revision)
    }

    /// Sets the Certificate from which cainjector fills in `caBundle`. With `None`, cainjector leaves `caBundle` unchanged.
    pub fn inject(&self, certificate: Option<&str>) -> Result<()> {
        let annotation = match certificate {
            Some(certificate) => format!("cert-manager.io/inject-ca-from={NAMESPACE}/{certificate}"),
            None => "cert-manager.io/inject-ca-from-".to_owned(),
        };
        let args = ["annotate", "mutatingwebhookconfiguration", WEBHOOK, &annotation];
        self.kubectl.run(&args, "").map(drop)
    }

    /// The current CA, in PEM.
    pub fn authority(&self) -> Result<String> {
        let secret = self.kubectl.get("secret", CA)?;
        decode(&secret["data"]["tls.crt"])
    }

    fn is_renewed(&self, certificate: &str, revision: u64) -> Result<()> {
        eventually(&format!("{certificate} is issued again"), 2 * BOUND, || {
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
        let args = ["delete", "--ignore-not-found", TIMEOUT, "-f", &folder];
        if let Err(error) = ended.and_then(|()| self.kubectl.run(&args, "").map(drop)) {
            eprintln!("{error:#}");
        }
    }
}

/// Fails unless `edgeward check` finds that a CA in the bundle signed the served certificate.
pub fn all_is_well(fixture: &Fixture<'_>) -> Result<()> {
    eventually("edgeward check finds it good", BOUND, || {
        let said = fixture.command(&["check"])?;
        let about: Vec<_> = said
            .stdout
            .lines()
            .filter(|line| line.contains(" certificate "))
            .collect();
        let is_good = |line: &&str| line.starts_with("ok") && line.contains(" of an authority in caBundle");
        // One line for each webhook entry.
        ensure!(
            about.len() == ENTRIES.len() && about.iter().all(is_good),
            "{}{}",
            said.stdout,
            said.stderr
        );
        Ok(())
    })
}
