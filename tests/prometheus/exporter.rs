//! A program that says numbers, as node-exporter and kube-state-metrics do.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::runtime::Handle;

/// What it says; `None` for an error.
type Page = Arc<Mutex<Option<String>>>;

pub(crate) struct Exporter {
    pub(crate) address: SocketAddr,
    page: Page,
}

impl Exporter {
    pub(crate) fn start(runtime: &Handle) -> Result<Self> {
        async fn metrics(State(page): State<Page>) -> Result<String, StatusCode> {
            let page = page.lock().ok().and_then(|page| page.clone());
            page.ok_or(StatusCode::INTERNAL_SERVER_ERROR)
        }
        let page = Page::default();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let routes = Router::new()
            .route("/metrics", get(metrics))
            .with_state(Arc::clone(&page));
        runtime.spawn(async move { axum::serve(listener, routes).await });
        Ok(Self { address, page })
    }

    /// Says these lines from now on.
    pub(crate) fn says(&self, lines: &[&str]) {
        self.replace(Some(lines.iter().map(|line| format!("{line}\n")).collect()));
    }

    /// Says nothing any more.
    pub(crate) fn fails(&self) {
        self.replace(None);
    }

    fn replace(&self, page: Option<String>) {
        if let Ok(mut said) = self.page.lock() {
            *said = page;
        }
    }
}
