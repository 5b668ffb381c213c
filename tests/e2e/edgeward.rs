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
use crate::pki::Authority;
use crate::process::Process;

/// A ready `edgeward serve`.
pub(crate) struct Edgeward<'run> {
    launch: Launch,
    process: Process,
    runtime: &'run Runtime,
    client: reqwest::Client,
    serving: Serving,
    fleet: PathBuf,
    /// Where the API server calls it.
    pub(crate) url: String,
    /// PEM; what a registration's `caBundle` needs.
    pub(crate) ca: String,
}

/// How it is started.
struct Launch {
    dir: PathBuf,
    args: Vec<String>,
    kubeconfig: Option<PathBuf>,
}

/// Where it serves.
#[derive(Clone, Copy)]
struct Serving {
    admission: SocketAddr,
    health: SocketAddr,
}

/// Name of the CA bundle that `--self-signed` writes.
const BUNDLE: &str = "ca.crt";

impl<'run> Edgeward<'run> {
    /// With a fleet file for its view, and a certificate of its own making.
    pub(crate) fn start(runtime: &'run Runtime, dir: &Path, fleet: &Value, config: &Value) -> Result<Self> {
        let fleet_file = dir.join("fleet.yaml");
        replace(&fleet_file, fleet)?;
        let args = vec![option("fleet", &fleet_file), option("self-signed", &tls(dir)?)];
        Self::start_as(runtime, dir, config, args, None)
    }

    /// With the live view of the cluster that this kubeconfig leads to, and a certificate that outlives a restart.
    pub(crate) fn start_live(runtime: &'run Runtime, dir: &Path, kubeconfig: PathBuf, config: &Value) -> Result<Self> {
        let authority = Authority::new()?;
        let tls = tls(dir)?;
        fs::write(tls.join(BUNDLE), &authority.certificate)?;
        let (certificate, key) = authority.server(&[])?.write(&tls, "tls")?;
        let args = vec![option("tls-cert", &certificate), option("tls-key", &key)];
        Self::start_as(runtime, dir, config, args, Some(kubeconfig))
    }

    fn start_as(
        runtime: &'run Runtime,
        dir: &Path,
        config: &Value,
        mut args: Vec<String>,
        kubeconfig: Option<PathBuf>,
    ) -> Result<Self> {
        // JSON is YAML, so both files can be written by serde_json.
        let config_file = dir.join("config.yaml");
        replace(&config_file, config)?;
        args.push(option("config", &config_file));
        args.push("--log-format=json".to_owned());
        let launch = Launch {
            dir: dir.to_owned(),
            args,
            kubeconfig,
        };
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let anywhere = Serving {
            admission: any,
            health: any,
        };
        let (process, serving) = launch.run(runtime, "edgeward", anywhere)?;

        let ca = fs::read_to_string(tls(dir)?.join(BUNDLE))?;
        let client = reqwest::Client::builder()
            .no_proxy()
            .timeout(BOUND)
            .tls_certs_only([Certificate::from_pem(ca.as_bytes())?])
            .build()?;
        Ok(Self {
            launch,
            process,
            runtime,
            client,
            serving,
            fleet: dir.join("fleet.yaml"),
            url: format!("https://{}/mutate", serving.admission),
            ca,
        })
    }

    /// Starts it again where it served, and waits until it is ready. Kill it first.
    pub(crate) fn start_again(&mut self) -> Result<()> {
        self.process = self.launch.run(self.runtime, "edgeward-again", self.serving)?.0;
        Ok(())
    }

    /// Puts another fleet file in place, at once.
    pub(crate) fn set_fleet(&self, fleet: &Value) -> Result<()> {
        replace(&self.fleet, fleet)
    }

    /// Sum of a metric over all series that carry these labels; of none, 0.
    pub(crate) fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Result<f64> {
        let text = self.runtime.block_on(async {
            let response = self
                .client
                .get(format!("http://{}/metrics", self.serving.health))
                .send()
                .await?;
            response.error_for_status()?.text().await
        })?;
        let wanted: Vec<String> = labels.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
        let series = text.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let labels = series.strip_prefix(name)?;
            let ours = labels.is_empty() || labels.starts_with('{');
            (ours && wanted.iter().all(|label| labels.contains(label))).then(|| value.parse::<f64>().ok())?
        });
        Ok(series.sum())
    }

    /// The same of a metric that counts.
    pub(crate) fn count(&self, name: &str, labels: &[(&str, &str)]) -> Result<u64> {
        // Counts stay far below 2^53.
        Ok(self.metric(name, labels)? as u64)
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

impl Launch {
    /// Starts it to serve there, and waits until it is ready.
    fn run(&self, runtime: &Runtime, name: &str, listen: Serving) -> Result<(Process, Serving)> {
        let mut args = vec![
            "serve".to_owned(),
            format!("--listen={}", listen.admission),
            format!("--health-listen={}", listen.health),
        ];
        args.extend_from_slice(&self.args);
        let program = Path::new(env!("CARGO_BIN_EXE_edgeward"));
        let environment: Vec<_> = self
            .kubeconfig
            .iter()
            .map(|file| ("KUBECONFIG", file.as_path()))
            .collect();
        let mut process = Process::start_with(name, program, &args, &self.dir, &environment)?;

        let serving = eventually("edgeward says where it serves", BOUND, || {
            process.ensure_running()?;
            let said = process.said("serving").context("it has not")?;
            let address = |field: &str| said[field].as_str().and_then(|text| text.parse().ok());
            let addresses = address("admission").zip(address("health"));
            let (admission, health) = addresses.with_context(|| said.to_string())?;
            Ok(Serving { admission, health })
        })?;

        let plain = reqwest::Client::builder().no_proxy().timeout(BOUND).build()?;
        eventually("edgeward is ready", BOUND, || {
            process.ensure_running()?;
            let answer = runtime.block_on(async {
                let response = plain.get(format!("http://{}/readyz", serving.health)).send().await?;
                anyhow::Ok((response.status(), response.text().await?))
            })?;
            ensure!(answer.0.is_success(), "{}: {}", answer.0, answer.1);
            Ok(())
        })?;
        Ok((process, serving))
    }
}

/// The directory with its certificates.
fn tls(dir: &Path) -> Result<PathBuf> {
    let tls = dir.join("tls");
    fs::create_dir_all(&tls)?;
    Ok(tls)
}

fn option(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

fn replace(file: &Path, content: &Value) -> Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, format!("{content:#}\n"))?;
    fs::rename(&new, file).with_context(|| format!("cannot replace {}", file.display()))
}
