//! Decisions over the link. `edgeward serve` at the edge probes the cloud. A client continuously asks it about a pod that does
//! not fit at the edge.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use edgeward_harness::prelude::*;
use edgeward_harness::wan::Wan;
use reqwest::{Certificate, Client};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::cluster::{self, CLOUD_ONLY, NAMESPACE};
use crate::history::{DWELL, History};
use crate::program::Edgeward;

const CLOUD: &str = "cloud: cloud_edge_no_capacity";
const DEGRADED: &str = "edge: edge_wan_degraded";
const UNREACHABLE: &str = "edge: edge_wan_unreachable";

const PACE: Duration = Duration::from_millis(100);

/// edgeward at the edge, and every decision it makes.
struct Decided {
    // Dropped in this order: the client, edgeward, and its files.
    _runtime: Runtime,
    _edgeward: Edgeward,
    _files: TempDir,
    decisions: History<String>,
}

impl Decided {
    /// Starts edgeward with this `probing` configuration.
    fn start(wan: &Wan, endpoint: &str, probing: &Value) -> Result<Self> {
        let runtime = wan.edge_runtime()?;
        let files = tempfile::tempdir()?;
        let sites = json!([
            {"name": "edge", "kind": "edge"},
            {"name": "cloud", "kind": "cloud", "probes": [endpoint]},
        ]);
        let config = json!({"sites": sites, "probing": probing, "onNoCapacity": "edge"});
        let (config, kubeconfig) = (
            write(files.path(), "config.yaml", &config)?,
            write(files.path(), "kubeconfig", &cluster::start(&runtime)?)?,
        );
        let config = format!("--config={}", config.display());
        let edgeward = Edgeward::start(&wan.edge, &[&config], &[("KUBECONFIG", &kubeconfig)])?;
        eventually("edgeward is ready", BOUND, || {
            let answer = edgeward.get(&wan.edge, "/readyz")?;
            ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}\n{}", edgeward.tail());
            Ok(())
        })?;

        let client = Client::builder()
            .no_proxy()
            .timeout(BOUND)
            .tls_certs_only([Certificate::from_pem(edgeward.ca()?.as_bytes())?])
            .build()?;
        let url = edgeward.url();
        let decisions = History::new();
        let told = decisions.clone();
        runtime.spawn(async move {
            loop {
                let decision = ask(&client, &url).await;
                told.record(decision.unwrap_or_else(|error| format!("{error:#}")));
                tokio::time::sleep(PACE).await;
            }
        });
        Ok(Self {
            _runtime: runtime,
            _edgeward: edgeward,
            _files: files,
            decisions,
        })
    }

    fn until(&self, decision: &str, bound: Duration) -> Result<()> {
        self.decisions.until(&decision.to_owned(), bound)
    }

    /// Fails unless these were the decisions, and each but the last held for at least the dwell time.
    fn expect(&self, decisions: &[&str]) -> Result<()> {
        self.decisions.expect(&owned(decisions))
    }
}

fn owned(decisions: &[&str]) -> Vec<String> {
    decisions.iter().map(|&decision| decision.to_owned()).collect()
}

/// Writes JSON, which is valid YAML.
fn write(dir: &Path, name: &str, content: &Value) -> Result<std::path::PathBuf> {
    let file = dir.join(name);
    fs::write(&file, content.to_string())?;
    Ok(file)
}

async fn ask(client: &Client, url: &str) -> Result<String> {
    let mut pod = cluster::pod("asking", CLOUD_ONLY);
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "asking",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": NAMESPACE,
            "operation": "CREATE",
            "dryRun": true,
            "object": pod,
        },
    });
    let request = client.post(url).header("content-type", "application/json");
    let answer = request.body(review.to_string()).send().await?.error_for_status()?;
    let answer: Value = serde_json::from_slice(&answer.bytes().await?)?;
    let patch = answer["response"]["patch"].as_str();
    let patch = STANDARD.decode(patch.with_context(|| format!("no patch in {answer}"))?)?;
    json_patch::patch(&mut pod, &serde_json::from_slice::<json_patch::Patch>(&patch)?)?;
    let annotation = |name: &str| pod["metadata"]["annotations"][format!("scheduling.example.io/{name}")].as_str();
    let (site, reason) = annotation("site").zip(annotation("reason")).context("not decided")?;
    Ok(format!("{site}: {reason}"))
}

/// Twenty probes a second, which fill the window in five seconds. See `probes`.
fn fast() -> Value {
    json!({"probes": 20, "period": "1s", "timeout": "500ms"})
}

/// At 20 ms the pod is sent to the cloud, at 150 ms it is not.
pub(crate) fn slow(wan: &mut Wan, endpoint: &str) -> Result<()> {
    wan.tell("rtt 20ms")?;
    let decided = Decided::start(wan, endpoint, &fast())?;
    decided.until(CLOUD, BOUND)?;
    wan.tell("rtt 150ms")?;
    decided.until(DEGRADED, DWELL + BOUND)?;
    wan.tell("rtt 20ms")?;
    decided.until(CLOUD, DWELL + BOUND)?;
    decided.expect(&[CLOUD, DEGRADED, CLOUD])
}

/// A link that loses one packet in twenty gets no pods.
pub(crate) fn lossy(wan: &mut Wan, endpoint: &str) -> Result<()> {
    wan.tell("rtt 20ms loss 5%")?;
    let decided = Decided::start(wan, endpoint, &fast())?;
    decided.until(DEGRADED, DWELL + BOUND)?;
    wan.tell("loss 0%")?;
    decided.until(CLOUD, DWELL + BOUND)?;
    // Until enough probes are over to judge the loss, only the RTT counts.
    decided.expect(&[CLOUD, DEGRADED, CLOUD])
}

/// After five lost probes nothing is sent over a cut link. After five answers the cloud is used again.
pub(crate) fn cut(wan: &mut Wan, endpoint: &str) -> Result<()> {
    wan.tell("rtt 20ms")?;
    let decided = Decided::start(wan, endpoint, &fast())?;
    decided.until(CLOUD, BOUND)?;
    wan.tell("cut")?;
    decided.until(UNREACHABLE, BOUND)?;
    let [forth, _] = wan.counts()?;
    ensure!(forth.cut >= 5, "after {forth:?}");
    wan.tell("heal")?;
    decided.until(CLOUD, BOUND)?;
    decided.decisions.expect_at_once(&owned(&[CLOUD, UNREACHABLE, CLOUD]))
}

/// The link is cut for 3 s, whole for 3 s, and so on, with a probe each second. Sixteen outages change the decision only once.
pub(crate) fn flapping(wan: &mut Wan, endpoint: &str) -> Result<()> {
    const ALL_OUTAGES: Duration = Duration::from_secs(100);
    wan.tell("rtt 20ms")?;
    let probing = json!({"probes": 10, "period": "10s", "timeout": "900ms"});
    let decided = Decided::start(wan, endpoint, &probing)?;
    decided.until(CLOUD, BOUND)?;
    let begun = Instant::now();
    wan.tell("flap 3s")?;
    decided.until(DEGRADED, ALL_OUTAGES)?;
    eventually("the link has flapped for long", ALL_OUTAGES, || {
        ensure!(begun.elapsed() >= ALL_OUTAGES, "{:?}", begun.elapsed());
        Ok(())
    })?;
    decided.expect(&[CLOUD, DEGRADED])
}
