//! Answers Karmada's scheduler over gRPC with mutual TLS: how many pods fit at the edge now. Every replica answers.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{future, io};

use arc_swap::ArcSwap;
use axum::Router;
use axum::extract::Request;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use clap::Args;
use edgeward_cluster::engine::SharedState;
use edgeward_decision::config::Config;
use edgeward_decision::model::snapshot::Site;
use edgeward_decision::placement::packing;
use edgeward_decision::pod::Pod;
use edgeward_karmada::{Pods, Question, Status};
use edgeward_kube::excerpt::excerpt;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::admission::{self, Connections, ESTIMATOR, Open};
use crate::config::Versions;
use crate::instruments::logs::{LogLimit, news};
use crate::instruments::metrics::Metrics;
use crate::platform::blocking::blocking;
use crate::platform::clock::Clock;
use crate::platform::files::{Content, Contents, Watch};
use crate::tls;

/// Pause after a failure, and timeout of a handshake.
const PAUSE: Duration = Duration::from_secs(10);

/// The most kinds of pods in a call.
const MAX_KINDS: usize = 100;

/// The most bytes of an error of a manifest that is told.
const SHOWN_ERROR: usize = 200;

/// Where Karmada's scheduler is answered, and with which certificate.
#[derive(Debug, Clone, Args)]
pub struct EstimatorOptions {
    /// Directory with tls.crt, tls.key and ca.crt for the setting `karmada.estimator`; read again when they change. Karmada's
    /// scheduler must show a certificate from a CA in ca.crt.
    #[arg(long, value_name = "DIR", default_value = "/etc/edgeward/estimator")]
    pub estimator_certificate: PathBuf,

    /// Address for Karmada's scheduler; open only with the setting `karmada.estimator`.
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:10352", value_parser = crate::serve::address)]
    pub estimator_listen: SocketAddr,
}

/// Answers Karmada's scheduler.
pub struct Estimator {
    /// Current configuration.
    pub config: Arc<ArcSwap<Config>>,
    /// Snapshot and ledger of the engine.
    pub shared: Arc<SharedState>,
    /// The process's clock.
    pub clock: Clock,
    /// The process's metrics.
    pub metrics: Arc<Metrics>,
    /// Where calls are answered.
    pub options: EstimatorOptions,
}

impl Estimator {
    /// Answers once the view of the cluster is complete, while the configuration enables it. Never returns.
    pub async fn run(self, viewing: impl Future<Output = ()>, mut versions: Versions) {
        viewing.await;
        let answering = Arc::new(Answering {
            limit: LogLimit::new(self.clock),
            turn: Arc::new(Semaphore::new(1)),
            estimator: self,
        });
        let mut config = versions.next().await;
        loop {
            let work = async {
                if is_enabled(&config) {
                    answering.serve().await;
                }
            };
            let same = |one: &Config, other: &Config| is_enabled(one) == is_enabled(other);
            config = versions.until_other(&config, same, work).await;
        }
    }

    /// How many sets of these pods fit at the edge.
    fn count(&self, question: &Question) -> Result<u32, Status> {
        let (config, now, snapshot) = (self.config.load(), self.clock.now(), self.shared.snapshot());
        if snapshot.is_stale(config.telemetry_ttl, now.moment) {
            return Err(Status::unavailable("the view of the cluster is stale"));
        }
        let edge = snapshot.edge().map_or("", Site::name);
        let asked = &question.cluster;
        if asked != edge {
            return Err(Status::failed_precondition(format!(
                "cluster {} is not the edge {edge:?}",
                excerpt(format_args!("{asked:?}"), SHOWN_ERROR)
            )));
        }
        let kinds = question.coming.len() + question.set.len();
        if kinds > MAX_KINDS {
            return Err(Status::invalid_argument(format!(
                "{kinds} kinds of pods, not at most {MAX_KINDS}"
            )));
        }
        let read = |pods: &[Pods]| {
            pods.iter()
                .map(|pods| read(pods, &config))
                .collect::<Result<Vec<_>, _>>()
        };
        let (coming, set) = (read(&question.coming)?, read(&question.set)?);
        // As Karmada's own estimator answers.
        if question.set.iter().all(|pods| pods.count == 0) {
            return Ok(i32::MAX as u32);
        }
        let sets = self.shared.sets_at_edge(&coming, &set, &config, now);
        sets.ok_or_else(|| Status::resource_exhausted("the pods take too many comparisons with nodes"))
    }
}

fn is_enabled(config: &Config) -> bool {
    config.karmada.as_ref().is_some_and(|karmada| karmada.estimator.enabled)
}

fn read(pods: &Pods, config: &Config) -> Result<packing::Pods<'static>, Status> {
    let text = pods.manifest.to_string();
    let pod = Pod::from_json(&text)
        .map_err(|error| Status::invalid_argument(format!("requirements: {}", excerpt(error, SHOWN_ERROR))))?;
    let namespace = pod.namespace().unwrap_or_default().to_owned();
    Ok((pod.workload(namespace.into(), &config.keys).into_owned(), pods.count))
}

/// The estimator while it may be asked.
struct Answering {
    estimator: Estimator,
    /// One permit, because a call with many pods occupies a processor.
    turn: Arc<Semaphore>,
    limit: LogLimit,
}

impl Answering {
    /// Serves for ever. A failure is logged if it differs from the last one.
    async fn serve(self: &Arc<Self>) {
        let mut last = String::new();
        loop {
            let error = match self.open().await {
                Ok((files, contents, tls, listener)) => {
                    last.clear();
                    tokio::select! {
                        error = self.follow(files, contents, tls.clone()) => error,
                        never = self.listen(listener, tls.clone()) => never,
                    }
                }
                Err(error) => error,
            };
            if let Some(error) = news(&error, &mut last) {
                tracing::warn!(error, "Karmada's scheduler is not answered; it is tried again");
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn open(&self) -> anyhow::Result<(Watch, Contents, RustlsConfig, TcpListener)> {
        let options = &self.estimator.options;
        let paths = ["tls.crt", "tls.key", "ca.crt"].map(|name| options.estimator_certificate.join(name));
        let (files, contents) = Watch::open(paths.to_vec()).await?;
        let tls = tls::of_estimator(&contents, self.estimator.clock.wall())?;
        let listener = crate::serve::bind(options.estimator_listen, "listener for Karmada")?.0;
        tracing::info!(listen = %options.estimator_listen, "answering Karmada's scheduler");
        Ok((files, contents, RustlsConfig::from_config(tls), listener))
    }

    async fn listen(self: &Arc<Self>, listener: TcpListener, tls: RustlsConfig) -> ! {
        let connections = Open(Connections::new(ESTIMATOR, Arc::clone(&self.estimator.metrics)));
        let answering = Arc::clone(self);
        let router = Router::new().fallback(move |call: Request| async move {
            let count = |question| Arc::clone(&answering).count(question);
            edgeward_karmada::answer(call, count).await
        });
        let handshake = RustlsAcceptor::new(tls).handshake_timeout(PAUSE);
        let failed = |error: &io::Error| tracing::debug!(%error, "a connection to the port for Karmada is closed");
        admission::serve(listener, connections.0.clone(), handshake, failed, router).await;
        future::pending().await
    }

    /// Returns why the present certificate cannot be used any more.
    async fn follow(&self, files: Watch, contents: Contents, tls: RustlsConfig) -> anyhow::Error {
        let take = |contents: &[Content]| {
            tls.reload_from_config(tls::of_estimator(contents, self.estimator.clock.wall())?);
            Ok(())
        };
        tls::follow(files, contents, "Karmada's scheduler", take).await
    }

    async fn count(self: Arc<Self>, question: Question) -> Result<u32, Status> {
        let turn = Arc::clone(&self.turn).acquire_owned().await;
        let answering = Arc::clone(&self);
        // A call that is given up keeps its turn until it is counted.
        let counted = blocking(move || {
            let _turn = turn;
            answering.estimator.count(&question)
        });
        let counted = counted.await;
        let result = if counted.is_ok() { "counted" } else { "refused" };
        self.estimator.metrics.estimates.at([result]).inc();
        if let Err(status) = &counted
            && let Some(held_back) = self.limit.due("estimator")
        {
            tracing::warn!(
                error = status.message(),
                held_back,
                "a call of Karmada's scheduler is not answered"
            );
        }
        counted
    }
}
