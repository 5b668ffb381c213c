//! `edgeward serve`: assembles the configuration, the view for reviews, the certificate, and the
//! [`Server`](super::Server) with their tasks.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use axum::Router;
use clap::{ArgGroup, Args};
use edgeward_decision::config::Config;
use kube::Client;
use tokio::sync::watch;

use crate::admission::Route;
use crate::admission::extender;
use crate::admission::review::Reviewer;
use crate::config::{self, Configuration, Versions};
use crate::controllers::Context;
use crate::controllers::certificates::Certificates;
use crate::controllers::peers;
use crate::cost_map;
use crate::fleet_file::FleetFile;
use crate::inspect::installation::SELF_MANAGED;
use crate::instruments::logs::{self, LogFormat, LogLimit};
use crate::instruments::metrics::Metrics;
use crate::karmada::estimator;
use crate::platform::clock::Clock;
use crate::serve::live::{self, View};
use crate::serve::{DEFAULT_SHUTDOWN_DELAY, Readiness, ServeOptions, Task, tokio_runtime};
use crate::tls::rotation::Lives;
use crate::tls::{Service, Source, stored};
use crate::watch::kubeconfig::client_config;
use crate::watch::namespaced_name::NamespacedName;

/// Run the admission webhook.
///
/// Serves AdmissionReviews at POST /mutate over TLS, and /livez, /readyz and /metrics over plain HTTP on a second
/// port. After SIGTERM the server turns unready at once, keeps serving for the shutdown delay, and exits with 0. Log
/// level: EDGEWARD_LOG (default info).
#[derive(Debug, Args)]
pub struct Webhook {
    /// Fleet file (docs/reference/fleet-file.md) instead of the live cluster; read again when it changes. Without it,
    /// edgeward watches the cluster of the current kubeconfig context, or else the cluster of its own pod.
    #[arg(long, value_name = "FILE")]
    fleet: Option<PathBuf>,

    /// Configuration (docs/reference/settings.md): a file, or a directory with the keys of a ConfigMap; read again
    /// when it changes. Without it, the defaults apply.
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,

    /// ConfigMap with the configuration, watched through the API server. edgeward is not ready until the
    /// configuration is valid. NAMESPACE defaults to edgeward's own.
    #[arg(long, value_name = "[NAMESPACE/]NAME", conflicts_with = "config", value_parser = crate::cli::namespaced_name)]
    config_map: Option<String>,

    /// Address for admission reviews. Port 0 picks one.
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:8443", value_parser = crate::serve::address)]
    listen: SocketAddr,

    /// Address for health and metrics. Port 0 picks one.
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:8080", value_parser = crate::serve::address)]
    health_listen: SocketAddr,

    /// Serve the cost map as ALTO (RFC 7285) under `/alto/` of the health port.
    #[arg(long)]
    alto: bool,

    #[command(flatten)]
    certificate: Certificate,

    /// Accept only clients with a certificate from a CA in this PEM file; read again when it changes. API servers
    /// must be configured to present one (docs/guide/operate.md).
    #[arg(long, value_name = "FILE")]
    client_ca: Option<PathBuf>,

    #[command(flatten)]
    peers: peers::Options,

    #[command(flatten)]
    estimator: estimator::EstimatorOptions,

    /// Name of edgeward's Service. Generated certificates are issued for it, and its EndpointSlices give the number
    /// of replicas.
    #[arg(long, default_value = "edgeward")]
    service: String,

    /// edgeward's own namespace. Generated certificates are issued for it, and its pods are never mutated.
    #[arg(long, env = "POD_NAMESPACE", default_value = "edgeward-system")]
    namespace: String,

    /// Seconds to keep serving after SIGTERM, until every API server knows that this replica is leaving.
    #[arg(long, value_name = "SECONDS", default_value_t = DEFAULT_SHUTDOWN_DELAY.as_secs())]
    shutdown_delay: u64,

    /// Log format.
    #[arg(long, value_enum, default_value_t = LogFormat::Json)]
    log_format: LogFormat,
}

/// The three sources of a serving certificate.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("certificate").required(true).args(["tls_cert", "self_managed", "self_signed"])))]
struct Certificate {
    /// Serving certificate in PEM, chain allowed; read again when it changes.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// Private key of the serving certificate in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Keep a CA and a serving certificate in this Secret of edgeward's namespace (default name:
    /// edgeward-certificates), and the CA in the caBundle of --webhook. The leader renews both. edgeward is not ready
    /// until there is a certificate.
    #[arg(
        long,
        value_name = "SECRET",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = SELF_MANAGED,
        conflicts_with_all = ["tls_key", "fleet"]
    )]
    self_managed: Option<String>,

    /// The MutatingWebhookConfiguration that calls edgeward.
    #[arg(long, value_name = "NAME", default_value = "zz-edgeward", requires = "self_managed")]
    webhook: String,

    /// Lifetime of the self-managed CA, at least three times that of a certificate. The next CA is created after two
    /// thirds of it.
    #[arg(long, value_name = "DURATION", default_value = "87600h", requires = "self_managed")]
    ca_life: String,

    /// Lifetime of a self-managed certificate, 15s to 9528h; renewed after two thirds of it.
    #[arg(long, value_name = "DURATION", default_value = "2160h", requires = "self_managed")]
    certificate_life: String,

    /// Create a certificate, and write its CA to DIR/ca.crt for a MutatingWebhookConfiguration. For trials only: it
    /// changes with every start.
    #[arg(long, value_name = "DIR", conflicts_with = "tls_key")]
    self_signed: Option<PathBuf>,
}

impl Webhook {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let metrics = Arc::new(Metrics::new());
        let _logs = logs::init_logging(self.log_format, "info", &metrics)?;
        let runtime = tokio_runtime()?;
        let ended = runtime.block_on(self.serve(metrics));
        runtime.shutdown_background();
        ended
    }

    /// Serves until SIGTERM or SIGINT; see [`serve`](super::serve()).
    ///
    /// # Errors
    /// The server cannot start, or a task ended by itself.
    async fn serve(self, metrics: Arc<Metrics>) -> anyhow::Result<()> {
        let lives = Lives::read(&self.certificate.ca_life, &self.certificate.certificate_life)?;
        let (clock, readiness) = (Clock::start(), Readiness::default());
        let (config, versions, configuration_tasks) = self.configuration(clock, &metrics, &readiness).await?;
        let service = Service {
            name: self.service,
            namespace: self.namespace,
        };
        let view = match self.fleet {
            Some(path) => view_of_fleet_file(path, &config, clock).await?,
            None => {
                let ports = (self.peers, self.estimator);
                live::view(&versions, &config, service.clone(), clock, &metrics, &readiness, ports).await?
            }
        };
        metrics.follow(Arc::clone(&view.shared), clock);
        let certificate = self.certificate.open(service, lives, view.controllers);
        let (tls, certificate_tasks) = certificate?;
        let alto = || cost_map::alto::routes(Arc::clone(&view.shared), Arc::clone(&view.config), clock);
        let pages = if self.alto { alto() } else { Router::new() };
        let reviewer = Arc::new(Reviewer {
            config: view.config,
            policies: view.policies,
            shared: view.shared,
            metrics: Arc::clone(&metrics),
            clock,
            log_limit: LogLimit::new(clock),
        });
        let mut routes = vec![Route::of_reviews(Arc::<Reviewer>::clone(&reviewer))];
        routes.extend(extender::routes(&reviewer));
        let tasks = [view.tasks, configuration_tasks, certificate_tasks];
        super::serve(ServeOptions {
            listen: self.listen,
            health_listen: self.health_listen,
            tls,
            client_ca: self.client_ca,
            routes,
            pages,
            metrics,
            readiness,
            clock,
            shutdown_delay: Duration::from_secs(self.shutdown_delay),
            tasks: tasks.into_iter().flatten().collect(),
        })
        .await
    }

    /// The current configuration, its versions, and the tasks that load new ones.
    async fn configuration(
        &self,
        clock: Clock,
        metrics: &Arc<Metrics>,
        readiness: &Readiness,
    ) -> anyhow::Result<(Arc<ArcSwap<Config>>, Versions, Vec<Task>)> {
        // With a fleet file there is no executor to release gated pods.
        let may_gate = self.fleet.is_none();
        let configuration = Configuration::new(self.namespace.clone(), may_gate, Arc::clone(metrics));
        let (config, versions) = (
            Arc::clone(&configuration.current),
            Versions::of(&configuration.versions),
        );
        let tasks = match (&self.config, &self.config_map) {
            (None, None) => {
                let only = Some(configuration.current.load_full());
                configuration.versions.send_replace(only);
                vec![]
            }
            (Some(path), _) => {
                let files = config::Files::open(path.clone(), configuration).await?;
                vec![Task::endless("configuration files", files.follow())]
            }
            (None, Some(name)) => {
                let name = NamespacedName::parse(name, &self.namespace);
                let client = Client::try_from(client_config(None)?.0)?;
                let map = config::ConfigMap::new(name, client, configuration, clock);
                let required = readiness.require("configuration");
                let mut first = versions.clone();
                let follow = async move {
                    let met = async {
                        first.next().await;
                        required.met();
                    };
                    tokio::join!(map.follow(), met);
                };
                vec![Task::endless("ConfigMap", follow)]
            }
        };
        Ok((config, versions, tasks))
    }
}

impl Certificate {
    /// The source of the server's certificate, and the tasks that maintain it.
    fn open(self, service: Service, lives: Lives, controllers: Option<Context>) -> anyhow::Result<(Source, Vec<Task>)> {
        let Some(secret) = self.self_managed else {
            let source = match self.tls_cert.zip(self.tls_key) {
                Some((cert, key)) => Source::Files { cert, key },
                None => Source::SelfSigned {
                    directory: self.self_signed,
                    service,
                },
            };
            return Ok((source, vec![]));
        };
        let context = controllers.context("a Secret of a live cluster")?;
        let (client, metrics) = (context.client.clone(), Arc::clone(&context.metrics));
        let namespace = service.namespace.clone();
        let (secret_sender, contents) = watch::channel(None);
        let certificates = Certificates {
            context,
            service: service.clone(),
            secret: secret.clone(),
            webhook: self.webhook,
            lives,
        };
        let tasks = vec![
            Task::endless(
                "Secret",
                stored::follow(client, namespace, secret, secret_sender, metrics),
            ),
            Task::endless("certificates", certificates.run(contents.clone())),
        ];
        Ok((Source::Secret { contents, service }, tasks))
    }
}

async fn view_of_fleet_file(path: PathBuf, config: &Arc<ArcSwap<Config>>, clock: Clock) -> anyhow::Result<View> {
    let file = FleetFile::open(path, Arc::clone(config), clock).await?;
    Ok(View {
        config: Arc::clone(config),
        shared: Arc::clone(&file.shared),
        policies: Arc::default(),
        controllers: None,
        tasks: vec![Task::endless("fleet file", file.follow())],
    })
}
