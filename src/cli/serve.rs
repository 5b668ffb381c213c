//! `edgeward serve`: the webhook itself.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgGroup, Args};

use crate::inspect::installation::SELF_MANAGED;
use crate::instruments::logs::{self, LogFormat};
use crate::instruments::metrics::Metrics;
use crate::serve::{self, CertificateSource, ConfigurationSource, DEFAULT_SHUTDOWN_DELAY, Webhook};
use crate::sources::namespaced_name::NamespacedName;
use crate::tls::rotation::Lives;
use crate::tls::{Service, Source};

/// Run the admission webhook.
///
/// Takes AdmissionReviews at POST /mutate over TLS, and answers /livez, /readyz and /metrics in plain HTTP on a port of
/// its own. SIGTERM drains: not ready at once, serving on for the shutdown delay, then exit 0. Log level:
/// EDGEWARD_LOG (default info).
#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Fleet file (docs/reference/fleet-file.md) instead of the live cluster; read again when it changes. Without, the cluster of
    /// the current context of the kubeconfig is watched, or that of the pod this runs in where there is none.
    #[arg(long, value_name = "FILE")]
    fleet: Option<PathBuf>,

    /// Configuration (docs/reference/settings.md): a file, or a directory with the keys of a ConfigMap; read again when it
    /// changes. Defaults without.
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,

    /// Configuration from this ConfigMap, watched through the API of the cluster. Not ready until it is good. NAMESPACE
    /// is our own by default.
    #[arg(long, value_name = "[NAMESPACE/]NAME", conflicts_with = "config", value_parser = super::namespaced_name)]
    config_map: Option<String>,

    /// Address for admission reviews. Port 0 picks one.
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:8443", value_parser = address)]
    listen: SocketAddr,

    /// Address for health and metrics. Port 0 picks one.
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:8080", value_parser = address)]
    health_listen: SocketAddr,

    #[command(flatten)]
    certificate: Certificate,

    /// Name of our Service: in a certificate that we make, and its EndpointSlices tell how many replicas decide.
    #[arg(long, default_value = "edgeward")]
    service: String,

    /// Our own namespace: in a certificate that we make, and never mutated.
    #[arg(long, env = "POD_NAMESPACE", default_value = "edgeward-system")]
    namespace: String,

    /// Seconds to go on serving after SIGTERM, until every API server has heard that we are leaving.
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_SHUTDOWN_DELAY.as_secs())]
    shutdown_delay: u64,

    /// One JSON object per line, or text for a terminal.
    #[arg(long, value_enum, default_value_t = LogFormat::Json)]
    log_format: LogFormat,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "not an IP address and a port, such as 0.0.0.0:8443 or [::]:8443".to_owned())
}

impl Serve {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let metrics = Arc::new(Metrics::new());
        let _logs = logs::init_logging(self.log_format, "info", &metrics)?;
        let runtime = serve::tokio_runtime()?;
        let ended = runtime.block_on(self.serve(metrics));
        runtime.shutdown_background();
        ended
    }

    async fn serve(self, metrics: Arc<Metrics>) -> anyhow::Result<()> {
        let service = Service {
            name: self.service,
            namespace: self.namespace,
        };
        let (certificate, client_ca) = self.certificate.read(&service)?;
        let configuration = match (self.config, &self.config_map) {
            (Some(path), _) => ConfigurationSource::Files(path),
            (None, Some(name)) => ConfigurationSource::ConfigMap(NamespacedName::parse(name, &service.namespace)),
            (None, None) => ConfigurationSource::Defaults,
        };
        let webhook = Webhook {
            listen: self.listen,
            health_listen: self.health_listen,
            service,
            fleet: self.fleet,
            configuration,
            certificate,
            client_ca,
            shutdown_delay: Duration::from_secs(self.shutdown_delay),
        };
        webhook.run(metrics).await
    }
}

/// One of three ways to have a certificate.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("certificate").required(true).args(["tls_cert", "self_managed", "self_signed"])))]
struct Certificate {
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
    /// must be told to (docs/guide/operate.md).
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,
}

impl Certificate {
    /// Where the certificate for this Service comes from, and the file of who may connect.
    ///
    /// # Errors
    /// Every fault of the lives, by its option.
    fn read(self, service: &Service) -> anyhow::Result<(CertificateSource, Option<PathBuf>)> {
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
