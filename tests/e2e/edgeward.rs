//! The program under test, as a process of its own.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use reqwest::Certificate;
use reqwest::header::CONTENT_TYPE;
use rustix::process::Signal;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::patience::{BOUND, eventually};
use crate::process::Process;

/// A running `edgeward serve`.
pub(crate) struct Edgeward<'run> {
    process: Process,
    runtime: &'run Runtime,
    client: reqwest::Client,
    health: SocketAddr,
    fleet: PathBuf,
    /// Where the API server calls it.
    pub(crate) url: String,
    /// PEM; what a registration's `caBundle` needs.
    pub(crate) ca: String,
}

impl<'run> Edgeward<'run> {
    /// With a fleet file for its view; ready.
    pub(crate) fn start(runtime: &'run Runtime, dir: &Path, fleet: &Value, config: &Value) -> Result<Self> {
        Self::launch(runtime, dir, &[view(dir, fleet)?, settings(dir, config)?], &[])?.ready()
    }

    /// With the live view of the cluster that this kubeconfig leads to; ready.
    pub(crate) fn start_live(runtime: &'run Runtime, dir: &Path, kubeconfig: &Path, config: &Value) -> Result<Self> {
        Self::launch(runtime, dir, &[settings(dir, config)?], &[("KUBECONFIG", kubeconfig)])?.ready()
    }

    /// With the configuration of the ConfigMap `namespace/name`, which this kubeconfig leads to; perhaps not ready yet.
    /// Without a fleet it has the live view.
    pub(crate) fn start_of_config_map(
        runtime: &'run Runtime,
        dir: &Path,
        kubeconfig: &Path,
        name: &str,
        fleet: Option<&Value>,
    ) -> Result<Self> {
        let mut args = vec![format!("--config-map={name}")];
        if let Some(fleet) = fleet {
            args.push(view(dir, fleet)?);
        }
        Self::launch(runtime, dir, &args, &[("KUBECONFIG", kubeconfig)])
    }

    fn launch(runtime: &'run Runtime, dir: &Path, options: &[String], environment: &[(&str, &Path)]) -> Result<Self> {
        let tls = dir.join("tls");
        fs::create_dir_all(&tls)?;

        let mut args = vec![
            "serve".to_owned(),
            "--listen=127.0.0.1:0".to_owned(),
            "--health-listen=127.0.0.1:0".to_owned(),
            option("self-signed", &tls),
            "--log-format=json".to_owned(),
        ];
        args.extend_from_slice(options);
        let program = Path::new(env!("CARGO_BIN_EXE_edgeward"));
        let mut process = Process::start_with("edgeward", program, &args, dir, environment)?;

        let [admission, health] = eventually("edgeward says where it serves", BOUND, || {
            process.ensure_running()?;
            let serving = process.said("serving").context("it has not")?;
            let address = |field: &str| serving[field].as_str().and_then(|text| text.parse::<SocketAddr>().ok());
            let addresses = address("admission").zip(address("health"));
            addresses.map(<[_; 2]>::from).with_context(|| serving.to_string())
        })?;

        let ca = fs::read_to_string(tls.join("ca.crt")).context("--self-signed writes ca.crt")?;
        let client = reqwest::Client::builder()
            .no_proxy()
            .timeout(BOUND)
            .tls_certs_only([Certificate::from_pem(ca.as_bytes())?])
            .build()?;
        let url = format!("https://{admission}/mutate");
        Ok(Self {
            process,
            runtime,
            client,
            health,
            fleet: dir.join("fleet.yaml"),
            url,
            ca,
        })
    }

    /// Waits until it is ready.
    pub(crate) fn ready(mut self) -> Result<Self> {
        eventually("edgeward is ready", BOUND, || {
            self.process.ensure_running()?;
            let (code, text) = self.readiness()?;
            ensure!(code == 200, "{code}: {text}");
            Ok(())
        })?;
        Ok(self)
    }

    /// What it says at `/readyz`, and with which status code.
    pub(crate) fn readiness(&self) -> Result<(u16, String)> {
        self.runtime.block_on(async {
            let request = self.client.get(format!("http://{}/readyz", self.health));
            let response = request.send().await?;
            Ok((response.status().as_u16(), response.text().await?))
        })
    }

    /// Puts another fleet file in place, at once.
    pub(crate) fn set_fleet(&self, fleet: &Value) -> Result<()> {
        replace(&self.fleet, fleet)
    }

    /// Sum of a counter over all series that carry these labels.
    pub(crate) fn count(&self, name: &str, labels: &[(&str, &str)]) -> Result<u64> {
        let text = self.runtime.block_on(async {
            let response = self
                .client
                .get(format!("http://{}/metrics", self.health))
                .send()
                .await?;
            response.error_for_status()?.text().await
        })?;
        let wanted: Vec<String> = labels.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
        let series = text.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let labels = series.strip_prefix(name)?;
            let ours = labels.is_empty() || labels.starts_with('{');
            (ours && wanted.iter().all(|label| labels.contains(label))).then(|| value.parse::<u64>().ok())?
        });
        Ok(series.sum())
    }

    /// Reviews answered so far, whatever the verdict.
    pub(crate) fn reviews(&self) -> Result<u64> {
        self.count("edgeward_reviews_total", &[])
    }

    /// Sends an AdmissionReview past the API server.
    pub(crate) fn post(&self, review: &Value) -> Result<Value> {
        let answer = self.runtime.block_on(async {
            let request = self.client.post(&self.url).header(CONTENT_TYPE, "application/json");
            request
                .body(review.to_string())
                .send()
                .await?
                .error_for_status()?
                .text()
                .await
        })?;
        Ok(serde_json::from_str(&answer)?)
    }

    /// SIGSTOP: it neither answers nor closes anything.
    pub(crate) fn freeze(&self) -> Result<()> {
        self.process.signal(Signal::STOP)
    }

    /// SIGCONT.
    pub(crate) fn thaw(&self) -> Result<()> {
        self.process.signal(Signal::CONT)
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }
}

/// Writes the fleet file and names it.
fn view(dir: &Path, fleet: &Value) -> Result<String> {
    let file = dir.join("fleet.yaml");
    replace(&file, fleet)?;
    Ok(option("fleet", &file))
}

/// Writes the configuration file and names it.
fn settings(dir: &Path, config: &Value) -> Result<String> {
    let file = dir.join("config.yaml");
    replace(&file, config)?;
    Ok(option("config", &file))
}

fn option(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

/// JSON is YAML, so serde_json can write what is read as that.
fn replace(file: &Path, content: &Value) -> Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, format!("{content:#}\n"))?;
    fs::rename(&new, file).with_context(|| format!("cannot replace {}", file.display()))
}
