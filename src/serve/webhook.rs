//! What `edgeward serve` runs: the configuration, the view that reviews read, the certificate, and the [`Server`](super::Server)
//! with all their tasks.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use edgeward_core::config::Config;
use tokio::sync::watch;

use crate::admission::review::Reviewer;
use crate::controllers::certificates::Certificates;
use crate::controllers::events;
use crate::controllers::lease::Leadership;
use crate::instruments::logs::LogLimit;
use crate::instruments::metrics::Metrics;
use crate::platform::clock::Clock;
use crate::serve::live::{self, View};
use crate::serve::{Readiness, ServeOptions, Task};
use crate::sources;
use crate::sources::configuration::{self, Configuration, Versions};
use crate::sources::namespaced_name::NamespacedName;
use crate::sources::{Cluster, FleetFile, secret, webhook_configuration};
use crate::tls::rotation::Lives;
use crate::tls::{Service, Source};

/// The webhook as it is to run.
pub struct Webhook {
    /// Where reviews are taken, over TLS. Port 0 picks one.
    pub listen: SocketAddr,
    /// Where health and metrics are, in plain HTTP. Port 0 picks one.
    pub health_listen: SocketAddr,
    /// Our own Service. Pods of its namespace are never mutated.
    pub service: Service,
    /// This fleet file instead of the live cluster.
    pub fleet: Option<PathBuf>,
    /// The configuration.
    pub configuration: ConfigurationSource,
    /// The serving certificate.
    pub certificate: CertificateSource,
    /// PEM file with the authorities of which clients must have a certificate.
    pub client_ca: Option<PathBuf>,
    /// How long to go on serving after being asked to stop.
    pub shutdown_delay: Duration,
}

/// Where the configuration comes from.
pub enum ConfigurationSource {
    /// The defaults, for ever.
    Defaults,
    /// A file, or a directory with the keys of a ConfigMap.
    Files(PathBuf),
    /// A ConfigMap, watched. Not ready until it is good.
    ConfigMap(NamespacedName),
}

/// Where the serving certificate comes from.
pub enum CertificateSource {
    /// Files, or made at every start: nothing else has to keep it there.
    Given(Source),
    /// A Secret of our namespace, which the leader keeps up to date; needs a live cluster.
    SelfManaged {
        /// Its name.
        secret: String,
        /// Name of the MutatingWebhookConfiguration that calls us.
        webhook: String,
        /// How long certificates live.
        lives: Lives,
    },
}

impl Webhook {
    /// Serves until SIGTERM or SIGINT; see [`serve`](super::serve()).
    ///
    /// # Errors
    /// Something that it starts with cannot be had, or a task ended by itself.
    pub async fn run(self, metrics: Arc<Metrics>) -> anyhow::Result<()> {
        let (clock, readiness) = (Clock::start(), Readiness::default());
        let (config, versions, configuration_tasks) = self.configuration(clock, &metrics, &readiness).await?;
        let view = match self.fleet {
            Some(path) => view_of_fleet_file(path, &config, clock).await?,
            None => live::view(&versions, &config, self.service.clone(), clock, &metrics, &readiness).await?,
        };
        metrics.follow(Arc::clone(&view.shared));
        let (tls, certificate_tasks) = self.certificate.open(self.service, view.cluster, clock, &metrics)?;
        let reviewer = Reviewer {
            config: view.config,
            policies: view.policies,
            shared: view.shared,
            metrics: Arc::clone(&metrics),
            clock,
            log_limit: LogLimit::new(clock),
        };
        let tasks = [view.tasks, configuration_tasks, certificate_tasks];
        super::serve(ServeOptions {
            listen: self.listen,
            health_listen: self.health_listen,
            tls,
            client_ca: self.client_ca,
            answer: Arc::new(reviewer),
            metrics,
            readiness,
            clock,
            shutdown_delay: self.shutdown_delay,
            tasks: tasks.into_iter().flatten().collect(),
        })
        .await
    }

    /// The configuration in use, its versions, and what brings the next one.
    async fn configuration(
        &self,
        clock: Clock,
        metrics: &Arc<Metrics>,
        readiness: &Readiness,
    ) -> anyhow::Result<(Arc<ArcSwap<Config>>, Versions, Vec<Task>)> {
        let configuration = Configuration::new(self.service.namespace.clone(), Arc::clone(metrics));
        let configuration = match self.fleet {
            // Nobody would release a pod.
            Some(_) => configuration.without_gating(),
            None => configuration,
        };
        let config = configuration.current();
        let (versions, tasks) = match &self.configuration {
            ConfigurationSource::Defaults => (configuration.versions(), vec![]),
            ConfigurationSource::Files(path) => {
                let files = configuration::Files::open(path.clone(), configuration).await?;
                let versions = files.versions();
                (versions, vec![Task::endless("configuration files", files.follow())])
            }
            ConfigurationSource::ConfigMap(name) => {
                let client = sources::client().await?;
                let (refusals, refused) = watch::channel(None);
                let map = configuration::ConfigMap::new(name.clone(), client.clone(), configuration, refusals);
                let versions = map.versions();
                let required = readiness.require("configuration");
                let mut first = versions.clone();
                let follow = async move {
                    let met = async {
                        first.next().await;
                        required.met();
                    };
                    tokio::join!(map.follow(), met);
                };
                let tasks = vec![
                    Task::endless("ConfigMap", follow),
                    Task::endless("Events", events::follow(refused, client, clock)),
                ];
                (versions, tasks)
            }
        };
        Ok((config, versions, tasks))
    }
}

impl CertificateSource {
    /// Where the server has the certificate from, and what keeps it there.
    fn open(
        self,
        service: Service,
        cluster: Option<(Cluster, Leadership)>,
        clock: Clock,
        metrics: &Arc<Metrics>,
    ) -> anyhow::Result<(Source, Vec<Task>)> {
        let (secret, webhook, lives) = match self {
            Self::Given(source) => return Ok((source, vec![])),
            Self::SelfManaged { secret, webhook, lives } => (secret, webhook, lives),
        };
        let (cluster, leadership) = cluster.context("a Secret of a live cluster")?;
        let (client, namespace) = (cluster.client(), service.namespace.clone());
        let (secret_sender, contents) = watch::channel(None);
        let (webhook_sender, webhook_changed) = watch::channel(());
        let certificates = Certificates {
            client: client.clone(),
            service: service.clone(),
            secret: secret.clone(),
            webhook: webhook.clone(),
            lives,
            clock,
        };
        let tasks = vec![
            Task::endless(
                "Secret",
                secret::follow(client.clone(), namespace, secret, secret_sender, Arc::clone(metrics)),
            ),
            Task::endless(
                "webhook configuration",
                webhook_configuration::follow(client, webhook, webhook_sender, Arc::clone(metrics)),
            ),
            Task::endless(
                "certificates",
                certificates.run(leadership, contents.clone(), webhook_changed),
            ),
        ];
        let settle = lives.settle();
        let source = Source::Secret {
            contents,
            service,
            settle,
        };
        Ok((source, tasks))
    }
}

async fn view_of_fleet_file(path: PathBuf, config: &Arc<ArcSwap<Config>>, clock: Clock) -> anyhow::Result<View> {
    let file = FleetFile::open(path, Arc::clone(config), clock).await?;
    Ok(View {
        config: Arc::clone(config),
        shared: file.shared(),
        policies: Arc::default(),
        cluster: None,
        tasks: vec![Task::endless("fleet file", file.follow())],
    })
}
