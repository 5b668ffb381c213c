//! edgeward as a process of its own.

use std::net::SocketAddr;
use std::process::ExitStatus;

use reqwest::Certificate;
use reqwest::header::CONTENT_TYPE;
use rustix::process::Signal;
use tokio::runtime::Runtime;

use crate::hostile_bodies::pressure::Target;
use crate::metrics;
use crate::prelude::*;
use crate::process::{free_addresses, memory_kib};

/// The image's environment: the allocator requests no huge pages and returns memory at once.
pub const IMAGE_ENVIRONMENT: [(&str, &str); 2] = [("MIMALLOC_ALLOW_THP", "0"), ("MIMALLOC_PURGE_DELAY", "0")];

#[derive(Clone, Copy)]
pub(crate) struct Program<'run> {
    pub(crate) path: &'run Path,
    pub(crate) runtime: &'run Runtime,
}

/// A running `edgeward serve`.
pub struct Edgeward<'run> {
    launch: Launch,
    process: Process,
    program: Program<'run>,
    client: reqwest::Client,
    serving: Serving,
    pub url: String,
    /// The CA for a registration's `caBundle`, in PEM.
    pub ca: String,
}

struct Launch {
    dir: PathBuf,
    args: Vec<String>,
    kubeconfig: Option<PathBuf>,
}

#[derive(Clone, Copy)]
struct Serving {
    admission: SocketAddr,
    health: SocketAddr,
}

/// Name of the CA bundle that `--self-signed` writes.
const BUNDLE: &str = "ca.crt";

impl<'run> Edgeward<'run> {
    /// Starts edgeward with a fleet file as its view and a certificate that it creates itself. Returns once it is ready.
    pub(crate) fn start(program: Program<'run>, dir: &Path, fleet: &Value, config: &Value) -> Result<Self> {
        let args = vec![
            view(dir, fleet)?,
            settings(dir, config)?,
            option("self-signed", &tls(dir)?),
        ];
        Self::launch(program, dir, args, None)?.ready()
    }

    /// Starts edgeward with the live view of this kubeconfig's cluster and a certificate that outlives a restart. `namespace`
    /// is its own, `authority` signs. Returns once it is ready.
    pub(crate) fn start_live(
        program: Program<'run>,
        dir: &Path,
        kubeconfig: PathBuf,
        namespace: &str,
        config: &Value,
        authority: &Authority,
    ) -> Result<Self> {
        let tls = tls(dir)?;
        fs::write(tls.join(BUNDLE), &authority.certificate)?;
        let (certificate, key) = authority.server(&[])?.write(&tls, "tls")?;
        let args = vec![
            settings(dir, config)?,
            format!("--namespace={namespace}"),
            option("tls-cert", &certificate),
            option("tls-key", &key),
        ];
        Self::launch(program, dir, args, Some(kubeconfig))?.ready()
    }

    /// Starts edgeward with the configuration in the ConfigMap `namespace/name` of this kubeconfig's cluster. It may not be
    /// ready yet. Without a fleet it uses the live view.
    pub(crate) fn start_of_config_map(
        program: Program<'run>,
        dir: &Path,
        kubeconfig: PathBuf,
        name: &str,
        fleet: Option<&Value>,
    ) -> Result<Self> {
        let mut args = vec![format!("--config-map={name}"), option("self-signed", &tls(dir)?)];
        if let Some(fleet) = fleet {
            args.push(view(dir, fleet)?);
        }
        Self::launch(program, dir, args, Some(kubeconfig))
    }

    /// Starts edgeward with these arguments; the CA of its certificate is in `tls/ca.crt`. Returns once it is ready.
    pub(crate) fn start_of_arguments(
        program: Program<'run>,
        dir: &Path,
        kubeconfig: PathBuf,
        args: Vec<String>,
    ) -> Result<Self> {
        Self::launch(program, dir, args, Some(kubeconfig))?.ready()
    }

    fn launch(program: Program<'run>, dir: &Path, args: Vec<String>, kubeconfig: Option<PathBuf>) -> Result<Self> {
        let launch = Launch {
            dir: dir.to_owned(),
            args,
            kubeconfig,
        };
        // Not a port that a connection of another process may take while edgeward is down.
        let [admission, health] = free_addresses()?;
        let (process, serving) = launch.run("edgeward", program.path, Serving { admission, health })?;

        let ca = fs::read_to_string(tls(dir)?.join(BUNDLE))?;
        let client = reqwest::Client::builder()
            .no_proxy()
            .timeout(BOUND)
            .tls_certs_only([Certificate::from_pem(ca.as_bytes())?])
            .build()?;
        Ok(Self {
            launch,
            process,
            program,
            client,
            serving,
            url: format!("https://{}/mutate", serving.admission),
            ca,
        })
    }

    pub fn ready(mut self) -> Result<Self> {
        self.await_readiness()?;
        Ok(self)
    }

    fn await_readiness(&mut self) -> Result<()> {
        eventually("edgeward is ready", BOUND, || {
            self.process.ensure_running()?;
            let (code, text) = self.readiness()?;
            ensure!(code == 200, "{code}: {text}");
            Ok(())
        })
    }

    /// Status code and text of `/readyz`.
    pub fn readiness(&self) -> Result<(u16, String)> {
        self.program.runtime.block_on(async {
            let request = self.client.get(format!("http://{}/readyz", self.serving.health));
            let response = request.send().await?;
            Ok((response.status().as_u16(), response.text().await?))
        })
    }

    pub fn admission(&self) -> SocketAddr {
        self.serving.admission
    }

    pub fn health(&self) -> SocketAddr {
        self.serving.health
    }

    pub(crate) fn exit_status(&mut self) -> Result<Option<ExitStatus>> {
        self.process.exit_status()
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// A field of its `/proc/<pid>/status`, in KiB.
    pub fn memory_kib(&self, field: &str) -> Result<u64> {
        memory_kib(self.process.id(), field)
    }

    pub fn target(&self) -> Result<Target> {
        Target::new(self.serving.admission, "localhost", &self.ca, self.process.id())
    }

    /// Resets the peak memory (`VmHWM`) to the current value.
    pub fn forget_most_memory(&self) -> Result<()> {
        Ok(fs::write(format!("/proc/{}/clear_refs", self.process.id()), "5")?)
    }

    /// Restarts a killed edgeward at its old addresses, and waits until it is ready.
    pub fn start_again(&mut self) -> Result<()> {
        self.process = self.launch.run("edgeward-again", self.program.path, self.serving)?.0;
        self.await_readiness()
    }

    pub fn set_fleet(&self, fleet: &Value) -> Result<()> {
        view(&self.launch.dir, fleet).map(drop)
    }

    /// Replaces the configuration file at once. Needs an edgeward that was started with one.
    pub fn set_config(&self, config: &Value) -> Result<()> {
        settings(&self.launch.dir, config).map(drop)
    }

    pub fn said(&self, message: &str) -> Vec<Value> {
        self.process.all_said(message)
    }

    /// Sum of a metric over all series with these labels; 0 without any series.
    pub fn metric(&self, name: &str, labels: &[(&str, &str)]) -> Result<f64> {
        let text = self.program.runtime.block_on(async {
            let response = self
                .client
                .get(format!("http://{}/metrics", self.serving.health))
                .send()
                .await?;
            response.error_for_status()?.text().await
        })?;
        Ok(metrics::sum(&text, name, labels))
    }

    pub fn count(&self, name: &str, labels: &[(&str, &str)]) -> Result<u64> {
        // Counts stay far below 2^53.
        Ok(self.metric(name, labels)? as u64)
    }

    /// Fails unless it certainly holds the Lease.
    pub fn leads(&self) -> Result<()> {
        ensure!(self.count("edgeward_leader", &[])? == 1);
        Ok(())
    }

    pub fn reviews(&self) -> Result<u64> {
        self.count("edgeward_reviews_total", &[])
    }

    /// Sends a review directly, without the API server, and returns the pod as it would be created.
    pub fn ask(&self, namespace: &str, pod: &Value) -> Result<Value> {
        self.post(&json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": "u",
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "operation": "CREATE",
                "namespace": namespace,
                "dryRun": true,
                "object": pod,
            },
        }))
    }

    pub fn post(&self, review: &Value) -> Result<Value> {
        let answer = self.program.runtime.block_on(async {
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

    pub fn freeze(&self) -> Result<()> {
        self.process.signal(Signal::STOP)
    }

    pub fn thaw(&self) -> Result<()> {
        self.process.signal(Signal::CONT)
    }

    pub fn terminate(&self) -> Result<()> {
        self.process.signal(Signal::TERM)
    }

    pub fn kill(&mut self) -> Result<()> {
        self.process.kill()
    }
}

impl Launch {
    fn run(&self, name: &str, program: &Path, listen: Serving) -> Result<(Process, Serving)> {
        let mut args = vec![
            "serve".to_owned(),
            format!("--listen={}", listen.admission),
            format!("--health-listen={}", listen.health),
            "--log-format=json".to_owned(),
        ];
        args.extend_from_slice(&self.args);
        let of_image = IMAGE_ENVIRONMENT.map(|(name, value)| (name, Path::new(value)));
        let kubeconfig = self.kubeconfig.iter().map(|file| ("KUBECONFIG", file.as_path()));
        let environment: Vec<_> = kubeconfig.chain(of_image).collect();
        let mut process = Process::start_with(name, program, &args, &self.dir, &environment)?;

        let serving = eventually("edgeward says where it serves", BOUND, || {
            process.ensure_running()?;
            let said = process.said("serving").context("it has not")?;
            let address = |field: &str| said[field].as_str().and_then(|text| text.parse().ok());
            let addresses = address("admission").zip(address("health"));
            let (admission, health) = addresses.with_context(|| said.to_string())?;
            Ok(Serving { admission, health })
        })?;
        Ok((process, serving))
    }
}

fn tls(dir: &Path) -> Result<PathBuf> {
    let tls = dir.join("tls");
    fs::create_dir_all(&tls)?;
    Ok(tls)
}

pub fn view(dir: &Path, fleet: &Value) -> Result<String> {
    let file = dir.join("fleet.yaml");
    replace(&file, fleet)?;
    Ok(option("fleet", &file))
}

fn settings(dir: &Path, config: &Value) -> Result<String> {
    let file = dir.join("config.yaml");
    replace(&file, config)?;
    Ok(option("config", &file))
}

fn option(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

/// Writes JSON, which is valid YAML.
fn replace(file: &Path, content: &Value) -> Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, format!("{content:#}\n"))?;
    fs::rename(&new, file).with_context(|| format!("cannot replace {}", file.display()))
}
