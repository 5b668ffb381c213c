//! The composition root: listeners, background tasks, readiness and the way out.
//!
//! [`Webhook`] is what production runs. [`Server`] is its listeners with whatever tasks, as a value, for `demo` and tests too;
//! [`serve`] is a server that ends with a signal.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::admission::{self, Answer, Connections, Phase, server};
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

/// How long we go on serving after being asked to stop, if not told otherwise: longer than the endpoint's removal takes
/// to reach whatever spreads connections over the Service, which is seconds, and so long that a connection which was not
/// used meanwhile is not about to be.
pub const DEFAULT_SHUTDOWN_DELAY: Duration = Duration::from_secs(15);

/// The longest we wait, after that delay, for requests in flight. Delay and limit together must stay below the
/// pod's `terminationGracePeriodSeconds` (30 s by default).
pub const DRAIN_LIMIT: Duration = Duration::from_secs(10);

const ADMISSION: &str = "admission listener";
const HEALTH: &str = "health listener";

/// What is missing while a certificate is waited for, and the task that follows it.
pub const CERTIFICATE: &str = "certificate";

/// What a [`Server`] is made of.
pub struct ServeOptions<A> {
    /// Where reviews are taken, over TLS. Port 0 picks one.
    pub listen: SocketAddr,
    /// Where `/livez`, `/readyz` and `/metrics` are, in plain HTTP. Port 0 picks one.
    pub health_listen: SocketAddr,
    /// The serving certificate.
    pub tls: tls::Source,
    /// PEM file with the authorities of which clients must have a certificate; everybody may connect without.
    pub client_ca: Option<PathBuf>,
    /// Answers reviews.
    pub answer: Arc<A>,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// What must be there before anything is decided. Requirements are added before the start.
    pub readiness: Readiness,
    /// The process's clocks.
    pub clock: Clock,
    /// How long to go on serving after being asked to stop; see [`DEFAULT_SHUTDOWN_DELAY`].
    pub shutdown_delay: Duration,
    /// What runs beside the listeners for as long as they do.
    pub tasks: Vec<Task>,
}

/// A running server. [`Server::shutdown`] ends it; dropping it stops the listeners and the background tasks.
pub struct Server {
    admission: SocketAddr,
    health: SocketAddr,
    ca_bundle: Option<String>,
    readiness: Readiness,
    shutdown_delay: Duration,
    connections: Connections,
    supervisor: Supervisor,
}

impl Server {
    /// Binds both ports, reads the certificate and serves; one in a Secret is waited for while it serves. Must be called within a [`tokio_runtime`].
    ///
    /// # Errors
    /// No certificate, or a port that cannot be had. Nothing is left running then.
    pub async fn start<A: Answer>(options: ServeOptions<A>) -> anyhow::Result<Self> {
        let (metrics, readiness, clock) = (options.metrics, options.readiness, options.clock);
        // Before a self-signed CA is written over that of the process that has the port.
        let (admission_socket, admission) = bind(options.listen, ADMISSION)?;
        let (health_socket, health) = bind(options.health_listen, HEALTH)?;
        let client_ca = options.client_ca.as_deref();
        let certificates = Certificates::load(&options.tls, client_ca, clock, Arc::clone(&metrics)).await?;
        let awaited = certificates.is_awaited().then(|| readiness.require(CERTIFICATE));
        let tls = certificates.settings();
        let ca_bundle = certificates.ca_bundle().map(str::to_owned);

        let mut supervisor = Supervisor::default();
        let connections = Connections::new(admission::ADMISSION, clock, Arc::clone(&metrics));
        let router = server::router(options.answer, Arc::clone(&metrics), readiness.phase(), clock)?;
        let listener = server::listen(
            admission_socket,
            tls,
            router,
            connections.clone(),
            Arc::clone(&metrics),
            clock,
        );
        supervisor.spawn(Task::graceful(ADMISSION, listener));
        supervisor.spawn(health::serve(health_socket, readiness.clone(), metrics, clock)?);
        let loaded = move || awaited.into_iter().for_each(Requirement::met);
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

    /// Where reviews are taken, as bound.
    pub fn admission(&self) -> SocketAddr {
        self.admission
    }

    /// Where health and metrics are, as bound.
    pub fn health(&self) -> SocketAddr {
        self.health
    }

    /// The authority that clients must trust, in PEM; `None` when the certificate comes from files.
    pub fn ca_bundle(&self) -> Option<&str> {
        self.ca_bundle.as_deref()
    }

    /// Waits until a background task or a listener ends, which none does by itself, and says which and why.
    /// Cancel-safe.
    pub async fn failed(&mut self) -> anyhow::Error {
        loop {
            let ended = self.supervisor.next().await;
            let name = ended.name;
            let is_draining = *self.readiness.phase().borrow() == Phase::Draining;
            return match ended.result {
                Ok(()) if ended.is_graceful && is_draining => continue,
                Ok(()) => anyhow!("background task `{name}` ended"),
                Err(error) => error.context(format!("background task `{name}` failed")),
            };
        }
    }

    /// Stops as a pod should: not ready at once; every answer says `Connection: close` while the delay passes and
    /// new connections are still served; then connections end, each after the answer to its request, and graceful tasks,
    /// within [`DRAIN_LIMIT`]; then everything is stopped.
    ///
    /// # Errors
    /// A background task failed meanwhile. The server is stopped all the same.
    pub async fn shutdown(self) -> anyhow::Result<()> {
        self.shutdown_unless_hurried(std::future::pending::<()>()).await
    }

    /// [`Server::shutdown`] whose delay also ends when `hurry` resolves.
    async fn shutdown_unless_hurried(mut self, hurry: impl Future) -> anyhow::Result<()> {
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

    /// Finishes what is in flight and stops everything.
    async fn drain(mut self) -> anyhow::Result<()> {
        self.readiness.drain();
        self.connections.drain();
        let mut is_late = pin!(tokio::time::sleep(DRAIN_LIMIT));
        while self.supervisor.runs_graceful() {
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

/// Serves until SIGTERM or SIGINT, then drains; a second signal ends the drain's delay. Must be called within a
/// [`tokio_runtime`].
///
/// # Errors
/// The start failed, or a background task or a listener ended by itself; the error names it. Requests in flight
/// are finished then too.
pub async fn serve<A: Answer>(options: ServeOptions<A>) -> anyhow::Result<()> {
    // Before anything else: as process 1 of a container, a signal without a handler is ignored.
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
        None => server.shutdown_unless_hurried(asked_to_stop(&mut signals)).await,
        Some(failure) => {
            tracing::error!(error = format!("{failure:#}"), "stopping");
            server.drain().await?;
            Err(failure)
        }
    }
}

/// The threads that serve connections. A larger machine has no more of them, because each keeps memory of its own.
const WORKERS: usize = 4;

/// The Tokio runtime that a server needs. A review that never ends keeps the runtime from being dropped, so a process that
/// ends shuts it down in the background.
///
/// # Errors
/// The system gives no threads.
pub fn tokio_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
}

fn bind(address: SocketAddr, name: &'static str) -> anyhow::Result<(TcpListener, SocketAddr)> {
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

/// How many connections wait to be accepted. The kernel drops the first packet of more, which the client repeats after a second:
/// that is a webhook's whole timeout.
const BACKLOG: u32 = 4_096;

/// Waits for what asks a process to stop: SIGTERM from kubelet, SIGINT from a terminal.
async fn asked_to_stop([terminate, interrupt]: &mut [Signal; 2]) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}
