//! A real Prometheus server, and an exporter that supplies numbers as node-exporter and kube-state-metrics do.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use tempfile::TempDir;
use tokio::runtime::Handle;

use crate::checkout::xtask;
use crate::prelude::*;
use crate::process::{free_addresses, tail};

type Page = Arc<Mutex<String>>;

pub struct Exporter {
    pub address: SocketAddr,
    page: Page,
}

impl Exporter {
    /// Starts an exporter with an empty page.
    pub fn start(runtime: &Handle) -> Result<Self> {
        async fn metrics(State(page): State<Page>) -> String {
            page.lock().unwrap_or_else(PoisonError::into_inner).clone()
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

    pub fn says(&self, lines: &[&str]) {
        let page = lines.iter().map(|line| format!("{line}\n")).collect();
        *self.page.lock().unwrap_or_else(PoisonError::into_inner) = page;
    }
}

/// The program of a Prometheus server.
pub fn program() -> Result<PathBuf> {
    xtask("prometheus")?.context("there is no Prometheus to be had")
}

pub struct Server {
    pub address: SocketAddr,
    program: PathBuf,
    dir: TempDir,
    process: Option<Process>,
}

impl Server {
    pub fn start(program: &Path, exporter: &Exporter) -> Result<Self> {
        let job =
            json!({"job_name": "edge", "honor_labels": true, "static_configs": [{"targets": [exporter.address]}]});
        Self::scraping(program, &[job])
    }

    /// Starts a server with these scrape configurations.
    pub fn scraping(program: &Path, jobs: &[Value]) -> Result<Self> {
        Self::prepared(program, jobs, |_| Ok(()))
    }

    /// Starts a server that holds these samples, in the OpenMetrics format with times, and scrapes nothing.
    pub fn holding(program: &Path, samples: &str) -> Result<Self> {
        Self::prepared(program, &[], |dir| {
            fs::write(dir.join("samples"), samples)?;
            let mut promtool = Command::new(program.with_file_name("promtool"));
            promtool.args(["tsdb", "create-blocks-from", "openmetrics", "samples", "data"]);
            let output = promtool.current_dir(dir).output().context("promtool")?;
            ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Ok(())
        })
    }

    fn prepared(program: &Path, jobs: &[Value], prepare: impl FnOnce(&Path) -> Result<()>) -> Result<Self> {
        let [address] = free_addresses()?;
        let dir = tempfile::Builder::new().prefix("edgeward-prometheus-").tempdir()?;
        prepare(dir.path())?;
        let config = json!({
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"},
            "scrape_configs": jobs,
        });
        fs::write(dir.path().join("prometheus.yml"), config.to_string())?;
        let mut server = Self {
            address,
            program: program.to_owned(),
            dir,
            process: None,
        };
        server.start_again()?;
        Ok(server)
    }

    pub fn start_again(&mut self) -> Result<()> {
        let dir = self.dir.path().display();
        let args = [
            format!("--config.file={dir}/prometheus.yml"),
            format!("--storage.tsdb.path={dir}/data"),
            format!("--web.listen-address={}", self.address),
        ];
        self.process = Some(Process::start("prometheus", &self.program, &args, self.dir.path())?);
        Ok(())
    }

    pub fn stop(&mut self) {
        self.process = None;
    }

    pub fn tail(&self) -> String {
        tail(&self.dir.path().join("prometheus.log"))
    }
}
