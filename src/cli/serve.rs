//! `edgeward serve`: the webhook itself.

mod certificate;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use clap::Args;
use edgeward_core::config::Config;
use tokio::sync::watch;

use self::certificate::Certificate;
use crate::admission::review::Reviewer;
use crate::controllers::events;
use crate::instruments::logs::{self, LogFormat};
use crate::instruments::metrics::Metrics;
use crate::instruments::recording::Recording;
use crate::instruments::traces::Spans;
use crate::platform::clock::Clock;
use crate::serve;
use crate::serve::live::View;
use crate::serve::{DEFAULT_SHUTDOWN_DELAY, Debug, Readiness, ServeOptions, Task, live};
use crate::sources;
use crate::sources::configuration::{ConfigMapName, Configuration, Versions};
use crate::sources::{FleetFile, Service, configuration};
use crate::tls;

/// Run the admission webhook.
///
/// Takes AdmissionReviews at POST /mutate over TLS, and answers /livez, /readyz and /metrics in plain HTTP on a port of
/// its own. SIGTERM drains: not ready at once, serving on for the shutdown delay, then exit 0. Log level:
/// EDGEWARD_LOG (default info).
#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Fleet file (docs/fleet-file.md) instead of the live cluster; read again when it changes. Without, the cluster of
    /// the current context of the kubeconfig is watched, or that of the pod this runs in where there is none.
    #[arg(long, value_name = "FILE")]
    fleet: Option<PathBuf>,

    /// Configuration (docs/configuration.md): a file, or a directory with the keys of a ConfigMap; read again when it
    /// changes. Defaults without.
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,

    /// Configuration from this ConfigMap, watched through the API of the cluster. Not ready until it is good. NAMESPACE
    /// is our own by default.
    #[arg(long, value_name = "[NAMESPACE/]NAME", conflicts_with = "config", value_parser = super::config_map)]
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

    /// Show what decisions read at /debug/view (a fleet file), /debug/ledger and /debug/plan, beside the metrics: names of
    /// nodes, namespaces and pods, for whoever reaches that port.
    #[arg(long)]
    debug_endpoints: bool,

    /// Write to this file what the engine is asked, for tests.
    #[arg(long, value_name = "FILE", hide = true, conflicts_with = "fleet")]
    record: Option<PathBuf>,

    /// Send a span for each request to this OpenTelemetry collector: OTLP over HTTP, in JSON, such as
    /// http://otel-collector:4318/v1/traces. The API server's traceparent says which ones.
    #[arg(long, value_name = "URL", env = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")]
    traces: Option<String>,

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
        let _logs = logs::init_logging(self.log_format, "info", Arc::clone(&metrics))?;
        let runtime = serve::tokio_runtime()?;
        let ended = runtime.block_on(self.serve(metrics));
        runtime.shutdown_background();
        ended
    }

    async fn serve(self, metrics: Arc<Metrics>) -> anyhow::Result<()> {
        let lives = self.certificate.lives()?;
        let (clock, readiness) = (Clock::start(), Readiness::default());
        let (config, versions, configuration_tasks) = self.configuration(clock, &metrics, &readiness).await?;
        let recording = self.record.as_deref().map(Recording::create).transpose()?;
        let recording = recording.map(Arc::new);
        let view = match self.fleet {
            Some(path) => view_of_fleet_file(path, &config, clock, &metrics).await?,
            None => {
                let (namespace, name) = (self.namespace.clone(), self.service.clone());
                let (service, recording) = (Service { namespace, name }, recording.clone());
                live::view(&versions, &config, service, clock, &metrics, &readiness, recording).await?
            }
        };
        metrics.follow(Arc::clone(&view.shared));
        let debug = self.debug_endpoints.then(|| Debug {
            shared: Arc::clone(&view.shared),
            plans: view.plans,
            clock,
        });
        let (spans, exporter) = match self.traces.filter(|url| !url.is_empty()) {
            Some(url) => {
                let (spans, exporter) = Spans::new(&url, clock, Arc::clone(&metrics)).context("--traces")?;
                (Some(spans), Some(Task::graceful("traces", exporter.run())))
            }
            None => (None, None),
        };
        let reviewer = Reviewer {
            config: view.config,
            policies: view.policies,
            shared: view.shared,
            metrics: Arc::clone(&metrics),
            clock,
            recording,
        };
        let client_ca = self.certificate.client_ca.clone();
        let service = tls::Service {
            name: self.service,
            namespace: self.namespace,
        };
        let (tls, certificate_tasks) = self.certificate.source(service, lives, view.cluster, clock, &metrics);
        let tasks = [view.tasks, configuration_tasks, certificate_tasks];
        serve::serve(ServeOptions {
            listen: self.listen,
            health_listen: self.health_listen,
            tls,
            client_ca,
            answer: Arc::new(reviewer),
            metrics,
            readiness,
            clock,
            debug,
            spans,
            shutdown_delay: Duration::from_secs(self.shutdown_delay),
            tasks: tasks.into_iter().flatten().chain(exporter).collect(),
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
        let configuration = Configuration::new(self.namespace.clone(), Arc::clone(metrics));
        let configuration = match self.fleet {
            // Nobody would release a pod.
            Some(_) => configuration.without_holding(),
            None => configuration,
        };
        let config = configuration.current();
        let (versions, tasks) = match (&self.config, &self.config_map) {
            (Some(path), _) => {
                let files = configuration::Files::open(path.clone(), configuration).await?;
                let versions = files.versions();
                (versions, vec![Task::endless("configuration files", files.follow())])
            }
            (None, Some(name)) => {
                let name = ConfigMapName::parse(name, &self.namespace);
                configuration_from_config_map(name, configuration, clock, readiness).await?
            }
            (None, None) => (configuration.versions(), vec![]),
        };
        Ok((config, versions, tasks))
    }
}

async fn configuration_from_config_map(
    name: ConfigMapName,
    configuration: Configuration,
    clock: Clock,
    readiness: &Readiness,
) -> anyhow::Result<(Versions, Vec<Task>)> {
    let client = sources::client().await?;
    let (refusals, refused) = watch::channel(None);
    let map = configuration::ConfigMap::new(name, client.clone(), configuration, refusals);
    let versions = map.versions();
    let required = readiness.require("configuration");
    let mut first = versions.clone();
    let tasks = vec![
        Task::endless("ConfigMap", async move {
            let met = async {
                first.next().await;
                required.met();
            };
            tokio::join!(map.follow(), met);
        }),
        Task::endless("Events", events::follow(refused, client, clock)),
    ];
    Ok((versions, tasks))
}

async fn view_of_fleet_file(
    path: PathBuf,
    config: &Arc<ArcSwap<Config>>,
    clock: Clock,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<View> {
    let file = FleetFile::open(path, Arc::clone(config), clock, Arc::clone(metrics)).await?;
    Ok(View {
        config: Arc::clone(config),
        shared: file.shared(),
        policies: Arc::default(),
        cluster: None,
        // Nobody is held.
        plans: watch::channel(Arc::default()).1,
        tasks: vec![Task::endless("fleet file", file.follow())],
    })
}
