//! Where the serving certificate is from, and who may connect.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use edgeward_core::certificates::Lives;

use crate::inspect::installation::SELF_MANAGED;
use crate::serve::CertificateSource;
use crate::tls::{Service, Source};

/// One of three ways to have a certificate.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("certificate").required(true).args(["tls_cert", "self_managed", "self_signed"])))]
pub(super) struct Certificate {
    /// Serving certificate, PEM, chain allowed; read again when it changes.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// Its private key, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Keep a CA and a certificate of our own in this Secret of our namespace (without a name, edgeward-certificates), and
    /// the CA in the caBundle of --webhook; the leader renews both. Not ready until there is a certificate.
    #[arg(
        long,
        value_name = "SECRET",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = SELF_MANAGED,
        conflicts_with_all = ["tls_key", "fleet"]
    )]
    self_managed: Option<String>,

    /// The MutatingWebhookConfiguration that calls us.
    #[arg(long, value_name = "NAME", default_value = "zz-edgeward", requires = "self_managed")]
    webhook: String,

    /// How long a CA of our own lives, at least three times as long as a certificate. The next one is made when two thirds
    /// are over.
    #[arg(long, value_name = "DURATION", default_value = "87600h", requires = "self_managed")]
    ca_life: String,

    /// How long a certificate of it lives, 15s to 9528h; renewed when two thirds are over.
    #[arg(long, value_name = "DURATION", default_value = "2160h", requires = "self_managed")]
    certificate_life: String,

    /// Make a certificate of our own, and write the CA to DIR/ca.crt for a MutatingWebhookConfiguration. For trying out:
    /// it changes with every start.
    #[arg(long, value_name = "DIR", conflicts_with = "tls_key")]
    self_signed: Option<PathBuf>,

    /// Let only clients connect that show a certificate of a CA in this file, PEM; read again when it changes. API servers
    /// must be told to (docs/operations.md).
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,
}

impl Certificate {
    /// Where the certificate for this Service comes from, and the file of who may connect.
    ///
    /// # Errors
    /// Every fault of the lives, by its option.
    pub(super) fn read(self, service: &Service) -> anyhow::Result<(CertificateSource, Option<PathBuf>)> {
        let lives = Lives::read(&self.ca_life, &self.certificate_life);
        let lives = lives.map_err(|faults| anyhow::anyhow!(faults.join("; ")))?;
        let source = match (self.tls_cert.zip(self.tls_key), self.self_managed) {
            (Some((cert, key)), _) => CertificateSource::Given(Source::Files { cert, key }),
            (None, Some(secret)) => CertificateSource::SelfManaged {
                secret,
                webhook: self.webhook,
                lives,
            },
            (None, None) => CertificateSource::Given(Source::SelfSigned {
                directory: self.self_signed,
                service: service.clone(),
            }),
        };
        Ok((source, self.client_ca))
    }
}
