//! Composition root: listeners, background tasks, readiness and shutdown.
//!
//! [`Webhook`] is the production server. [`Server`] is the listeners with any set of tasks, as a value; `demo` and
//! tests use it too. [`serve`] runs a server until a signal ends it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use axum::Router;
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::admission::{self, Connections, Route, server};
use crate::instruments::metrics::Metrics;
use crate::platform::clock::Clock;
use crate::tls::{self, Certificates};

mod health;
mod live;
mod readiness;
mod supervision;
mod webhook;

pub use readiness::{Readiness, Requirement};
pub use supervision::Task;
pub use webhook::Webhook;

use supervision::Supervisor;

/// Default time to keep serving after a request to stop. It exceeds the few seconds that the removal of the endpoint
/// takes to reach the load balancing of the Service. It is also long enough that a connection left unused meanwhile
/// is not about to be used.
pub const DEFAULT_SHUTDOWN_DELAY: Duration = Duration::from_secs(15);

/// The longest time, after that delay, to wait for requests in flight. The delay and this limit together must stay
/// below the pod's `terminationGracePeriodSeconds` (30 s by default).
pub const DRAIN_LIMIT: Duration = Duration::from_secs(10);

const ADMISSION: &str = "admission listener";
const HEALTH: &str = "health listener";

/// Name of the readiness requirement for a certificate, and of the task that follows the certificate.
pub const CERTIFICATE: &str = "certificate";

/// Everything that a [`Server`] needs.
pub struct ServeOptions {
    /// Address for reviews over TLS. Port 0 picks a free port.
    pub listen: SocketAddr,
    /// Address for `/livez`, `/readyz` and `/metrics` over plain HTTP. Port 0 picks a free port.
    pub health_listen: SocketAddr,
    /// The serving certificate.
    pub tls: tls::Source,
    /// PEM file with the CAs that client certificates must come from. Without it, clients need no certificate.
    pub client_ca: Option<PathBuf>,
    /// The paths of reviews and of kube-scheduler's calls.
    pub routes: Vec<Route>,
    /// More pages of the health listener.
    pub pages: Router,
    /// The process's metrics.
    pub metrics: Arc<Metrics>,
    /// Readiness of the server. Add all requirements before the start.
    pub readiness: Readiness,
    /// The process's clocks.
    pub clock: Clock,
    /// How long to keep serving after a request to stop; see [`DEFAULT_SHUTDOWN_DELAY`].
    pub shutdown_delay: Duration,
    /// Tasks that run as long as the listeners.
    pub tasks: Vec<Task>,
}

/// A running server. [`Server::shutdown`] ends it; dropping it stops the listeners and the background tasks.
#[cfg_attr(not(feature = "testkit"), expect(dead_code, reason = "tests read addresses and CA"))]
pub struct Server {
    /// The bound address for reviews.
    pub admission: SocketAddr,
    /// The bound address for health and metrics.
    pub health: SocketAddr,
    /// The CA that clients must trust, in PEM; `None` if the certificate comes from files.
    pub ca_bundle: Option<String>,
    readiness: Readiness,
    shutdown_delay: Duration,
    connections: Connections,
    supervisor: Supervisor,
}

impl Server {
    /// Binds both ports, reads the certificate and serves. If the certificate comes from a Secret, the server starts
    /// without it and waits for it. Must be called within a [`tokio_runtime`].
    ///
    /// # Errors
    /// There is no certificate, or a port cannot be bound. Nothing is left running then.
    pub async fn start(options: ServeOptions) -> anyhow::Result<Self> {
        let (metrics, readiness, clock) = (options.metrics, options.readiness, options.clock);
        // Bind first: if another process has the port, its self-signed CA must not be overwritten.
        let (admission_socket, admission) = bind(options.listen, ADMISSION)?;
        let (health_socket, health) = bind(options.health_listen, HEALTH)?;
        let client_ca = options.client_ca.as_deref();
        let certificates = Certificates::load(&options.tls, client_ca, clock, Arc::clone(&metrics)).await?;
        let awaited = certificates.is_awaited().then(|| readiness.require(CERTIFICATE));
        let (tls, ca_bundle) = (certificates.settings.clone(), certificates.ca_bundle.clone());

        let mut supervisor = Supervisor::default();
        let connections = Connections::new(admission::ADMISSION, Arc::clone(&metrics));
        let router = server::router(options.routes, Arc::clone(&metrics), readiness.phase(), clock)?;
        let listener = server::listen(
            admission_socket,
            tls,
            router,
            connections.clone(),
            Arc::clone(&metrics),
            clock,
        );
        supervisor.spawn(Task::graceful(ADMISSION, listener));
        supervisor.spawn(health::serve(health_socket, readiness.clone(), metrics, options.pages)?);
        let loaded = move || awaited.iter().for_each(Requirement::met);
        supervisor.spawn(Task::endless(CERTIFICATE, certificates.follow(loaded)));
        for task in options.tasks {
            supervisor.spawn(task);
        }
        tracing::info!(%admission, %health, "serving");
        Ok(Self {
            admission,
            health,
            ca_bundle,
            readiness,
            shutdown_delay: options.shutdown_delay,
            connections,
            supervisor,
        })
    }

    /// Waits until a background task or a listener ends, which does not happen in normal operation. Returns an error
    /// that names it and the cause. Cancel-safe.
    pub async fn failed(&mut self) -> anyhow::Error {
        loop {
            let ended = self.supervisor.next().await;
            let name = ended.name;
            let is_draining = self.readiness.phase().borrow().is_draining;
            return match ended.result {
                Ok(()) if ended.is_graceful && is_draining => continue,
                Ok(()) => anyhow!("background task `{name}` ended"),
                Err(error) => error.context(format!("background task `{name}` failed")),
            };
        }
    }

    /// Stops in the order that a pod needs. The server turns unready at once. During the delay it still serves new
    /// connections, and every answer says `Connection: close`. Then each connection closes after its current answer,
    /// and graceful tasks finish, within [`DRAIN_LIMIT`]. Finally everything stops. The delay also ends when `hurry`
    /// resolves.
    ///
    /// # Errors
    /// A background task failed meanwhile. The server is stopped all the same.
    pub async fn shutdown(mut self, hurry: impl Future) -> anyhow::Result<()> {
        self.readiness.drain();
        let delay = self.shutdown_delay;
        tracing::info!(delay_ms = delay.as_millis(), "draining: not ready, still serving");
        let failure = tokio::select! {
            biased;
            failure = self.failed() => Some(failure),
            _ = hurry => None,
            () = tokio::time::sleep(delay) => None,
        };
        let drained = self.drain().await;
        failure.map_or(drained, Err)
    }

    /// Finishes the requests in flight and stops everything.
    async fn drain(mut self) -> anyhow::Result<()> {
        self.readiness.drain();
        self.connections.drain();
        let mut is_late = pin!(tokio::time::sleep(DRAIN_LIMIT));
        while self.supervisor.graceful > 0 {
            let ended = tokio::select! {
                biased;
                ended = self.supervisor.next() => ended,
                () = &mut is_late => break,
            };
            match ended.result {
                Ok(()) if ended.is_graceful => {}
                Ok(()) => tracing::warn!(task = ended.name, "ended while draining"),
                Err(error) => tracing::warn!(task = ended.name, error = format!("{error:#}"), "failed while draining"),
            }
        }
        let cut_off = self.connections.cut();
        self.supervisor.stop().await;
        if cut_off > 0 {
            tracing::warn!(connections = cut_off, "still open at the end of the drain, cut off");
        }
        tracing::info!("stopped");
        Ok(())
    }
}

/// Serves until SIGTERM or SIGINT, then drains. A second signal ends the drain's delay. Must be called within a
/// [`tokio_runtime`].
///
/// # Errors
/// The start failed, or a background task or a listener ended by itself. The error names it. Requests in flight are
/// finished in the second case.
pub async fn serve(options: ServeOptions) -> anyhow::Result<()> {
    // Must come first: process 1 of a container ignores a signal without a handler.
    let handler = |kind| signal(kind).context("no signal handler can be installed");
    let mut signals = [handler(SignalKind::terminate())?, handler(SignalKind::interrupt())?];
    let mut server = Server::start(options).await?;
    let failure = tokio::select! {
        failure = server.failed() => Some(failure),
        name = asked_to_stop(&mut signals) => {
            tracing::info!(signal = name, "asked to stop");
            None
        }
    };
    match failure {
        None => server.shutdown(asked_to_stop(&mut signals)).await,
        Some(failure) => {
            tracing::error!(error = format!("{failure:#}"), "stopping");
            server.drain().await?;
            Err(failure)
        }
    }
}

/// Threads that serve connections. Larger machines get no more, because each thread keeps memory of its own.
const WORKERS: usize = 4;

/// Builds the Tokio runtime that a server needs. A review that never ends keeps the runtime from being dropped, so a
/// process that exits shuts it down in the background.
///
/// # Errors
/// The system cannot start threads.
pub fn tokio_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
}

/// Parses an address to listen at.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "not an IP address and a port, such as 0.0.0.0:8443 or [::]:8443".to_owned())
}

pub(crate) fn bind(address: SocketAddr, name: &str) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let bind = || {
        let socket = match address.is_ipv4() {
            true => TcpSocket::new_v4()?,
            false => TcpSocket::new_v6()?,
        };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let bound = listener.local_addr()?;
        std::io::Result::Ok((listener, bound))
    };
    bind().with_context(|| format!("the {name} cannot bind {address}"))
}

/// How many connections may wait to be accepted. Beyond that the kernel drops the first packet, which the client
/// repeats after a second. A webhook's timeout may be that short.
const BACKLOG: u32 = 4_096;

/// Waits for a signal to stop: SIGTERM from kubelet, SIGINT from a terminal.
async fn asked_to_stop([terminate, interrupt]: &mut [Signal; 2]) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}
