//! Serves `/livez`, `/readyz` and `/metrics`, independently of the load from reviews.

use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use axum_server::accept::DefaultAcceptor;
use tokio::net::TcpListener;

use crate::admission;
use crate::admission::Connections;
use crate::instruments::metrics;
use crate::instruments::metrics::Metrics;
use crate::platform::threads::Threads;
use crate::serve::readiness::Readiness;
use crate::serve::{HEALTH, Task};

/// Creates the task of the listener, which has its own thread.
pub(super) fn serve(
    socket: TcpListener,
    readiness: Readiness,
    metrics: Arc<Metrics>,
    pages: Router,
) -> anyhow::Result<Task> {
    let context = || format!("the {HEALTH} has no thread");
    // A socket belongs to the runtime that created it.
    let socket = socket.into_std().with_context(context)?;
    let thread = Arc::new(Threads::start("health", 1).with_context(context)?);
    let service = router(readiness, Arc::clone(&metrics)).merge(pages);
    let listener = async move {
        let socket = TcpListener::from_std(socket)?;
        let connections = Connections::new(admission::HEALTH, metrics);
        admission::serve(socket, connections, DefaultAcceptor::new(), |_: &_| {}, service).await;
        Ok(())
    };
    Ok(Task::new(HEALTH, listener).on(&thread))
}

/// Routes of the listener. `/livez` answers while the process runs. `/readyz` answers `ok`, or 503 with one missing
/// requirement per line. `/metrics` returns the metrics.
fn router(readiness: Readiness, metrics: Arc<Metrics>) -> Router {
    type Shared = State<(Readiness, Arc<Metrics>)>;
    let scrape = async |State((readiness, metrics)): Shared| {
        metrics.ready.set(readiness.missing().is_empty().into());
        ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics.encode())
    };
    let ready = async |State((readiness, _)): Shared| {
        let missing = readiness.missing();
        if missing.is_empty() {
            return "ok".into_response();
        }
        let lines: String = missing.iter().flat_map(|name| [*name, "\n"]).collect();
        (StatusCode::SERVICE_UNAVAILABLE, lines).into_response()
    };
    Router::new()
        .route("/livez", get(async || "ok"))
        .route("/readyz", get(ready))
        .route("/metrics", get(scrape))
        .with_state((readiness, metrics))
}
