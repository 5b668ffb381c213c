//! `edgeward demo`: three situations, played over HTTPS against the real server on loopback.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use arc_swap::ArcSwap;
use base64::Engine as _;
use clap::Args;
use edgeward_core::config::{Config, Explain};
use edgeward_core::engine::SharedState;
use edgeward_core::wire::fleet_file;
use serde_json::{Value, json};

use super::trimmed;
use crate::admission::review::Reviewer;
use crate::instruments::logs::LogLimit;
use crate::instruments::metrics::Metrics;
use crate::platform::clock::Clock;
use crate::platform::yaml;
use crate::serve;
use crate::serve::{Readiness, ServeOptions, Server};
use crate::tls;

const PODS: &str = include_str!("../../examples/pods.yaml");
const SCENARIOS: [(&str, &str); 3] = [
    ("good WAN, low load", include_str!("../../examples/fleet.yaml")),
    (
        "edge overloaded, good WAN",
        include_str!("../../examples/fleet-overloaded.yaml"),
    ),
    (
        "edge overloaded, bad WAN",
        include_str!("../../examples/fleet-overloaded-bad-wan.yaml"),
    ),
];

/// Show three situations on this machine, without a cluster.
///
/// Starts the real server on loopback with a certificate of its own, and plays the API server: three pods (examples/)
/// arrive as AdmissionReviews over HTTPS while load and WAN change.
#[derive(Debug, Args)]
pub(super) struct Demo {}

impl Demo {
    pub(super) fn run(self) -> anyhow::Result<()> {
        tls::install_crypto_provider();
        serve::tokio_runtime()?.block_on(play())
    }
}

async fn play() -> anyhow::Result<()> {
    let clock = Clock::start();
    let config = Arc::new(Config {
        explain: Explain::Full,
        ..Config::default()
    });
    let shared = Arc::<SharedState>::default();
    let metrics = Arc::new(Metrics::new());
    let reviewer = Reviewer {
        policies: Arc::default(),
        config: Arc::new(ArcSwap::new(Arc::clone(&config))),
        shared: Arc::clone(&shared),
        metrics: Arc::clone(&metrics),
        clock,
        log_limit: LogLimit::new(clock),
    };
    let server = Server::start(ServeOptions {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        health_listen: (Ipv4Addr::LOCALHOST, 0).into(),
        tls: tls::Source::SelfSigned {
            service: tls::Service {
                name: "edgeward".into(),
                namespace: "edgeward-system".into(),
            },
            directory: None,
        },
        client_ca: None,
        answer: Arc::new(reviewer),
        metrics,
        readiness: Readiness::default(),
        clock,
        shutdown_delay: Duration::ZERO,
        tasks: vec![],
    })
    .await?;
    let api_server = ApiServer::trusting(&server)?;

    super::print(&format!(
        "Three pods arrive at https://{}/mutate, as the API server would send them.\n",
        server.admission()
    ))?;
    let pods = yaml::parse_all(PODS, "examples/pods.yaml")?;
    let mut shown = None;
    for (title, document) in SCENARIOS {
        let document = yaml::parse_one(document, title)?;
        let snapshot =
            fleet_file::read(&document, &config, clock.moment()).map_err(|faults| yaml::faulty(title, &faults))?;
        shared.set_snapshot(Arc::new(snapshot));

        let mut table = super::table([
            "POD",
            "CLASS",
            "TARGET",
            "VERDICT",
            "REASON",
            "EDGE ETA",
            "CLOUD ETA",
            "RTT",
        ]);
        for pod in &pods {
            let patch = api_server.create(pod).await?;
            table.add_row(row(pod, &patch)?);
            if decision(&patch, "decision").is_some_and(|decision| decision == "cloud") {
                shown.get_or_insert((pod["metadata"]["name"].clone(), patch));
            }
        }
        super::print(&format!("\n{title}\n{}", indented(&trimmed(&table))))?;
    }
    if let Some((name, patch)) = shown {
        let operations = patch
            .as_array()
            .into_iter()
            .flatten()
            .map(|operation| format!("{operation}\n"));
        let operations = indented(&operations.collect::<String>());
        let name = name.as_str().unwrap_or_default();
        super::print(&format!(
            "\nThe patch that sent {name} to the cloud, in full:\n{operations}"
        ))?;
    }
    server.shutdown().await
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

/// The API server's side of the conversation.
struct ApiServer {
    client: reqwest::Client,
    url: String,
}

impl ApiServer {
    fn trusting(server: &Server) -> anyhow::Result<Self> {
        let bundle = server.ca_bundle().context("the server's own CA")?;
        let client = reqwest::Client::builder()
            .tls_certs_only([reqwest::Certificate::from_pem(bundle.as_bytes())?])
            .no_proxy()
            .build()?;
        Ok(Self {
            client,
            url: format!("https://{}/mutate?timeout=1s", server.admission()),
        })
    }

    /// Sends the creation of a pod and returns the operations of the answer's patch.
    async fn create(&self, pod: &Value) -> anyhow::Result<Value> {
        let review = json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {
                "uid": uuid::Uuid::new_v4().to_string(),
                "kind": {"group": "", "version": "v1", "kind": "Pod"},
                "resource": {"group": "", "version": "v1", "resource": "pods"},
                "operation": "CREATE",
                "namespace": pod["metadata"]["namespace"],
                "dryRun": false,
                "object": pod,
            },
        });
        let request = self
            .client
            .post(&self.url)
            .header("Content-Type", "application/json")
            .body(review.to_string());
        let answer = request.send().await?.error_for_status()?.bytes().await?;
        let answer: Value = serde_json::from_slice(&answer)?;
        let patch = answer["response"]["patch"]
            .as_str()
            .with_context(|| format!("no patch in {answer}"))?;
        Ok(serde_json::from_slice(
            &base64::engine::general_purpose::STANDARD.decode(patch)?,
        )?)
    }
}

/// What the patch writes under one of our annotations.
fn decision(patch: &Value, name: &str) -> Option<String> {
    let path = format!("/metadata/annotations/scheduling.example.io~1{name}");
    let operation = patch
        .as_array()?
        .iter()
        .find(|operation| operation["path"] == path.as_str())?;
    Some(operation["value"].as_str()?.to_owned())
}

fn row(pod: &Value, patch: &Value) -> anyhow::Result<[String; 8]> {
    let slo = |name: &str| pod["metadata"]["annotations"][format!("slo.example.io/{name}")].as_str();
    let written = |name: &str| decision(patch, name).ok_or_else(|| anyhow!("the patch writes no {name}"));
    let target = match (slo("latencyTargetMs"), slo("deadlineMs")) {
        (Some(target), _) => format!("p95 {target} ms"),
        (None, Some(deadline)) => format!("by {deadline} ms"),
        (None, None) => "none".into(),
    };
    let explain: Value = serde_json::from_str(&written("explain")?)?;
    let eta = |site: &str| {
        let (eta, fits) = (&explain[site]["etaMs"], &explain[site]["fittingNodes"]);
        if *fits == 0 {
            format!("{eta} ms, full")
        } else {
            format!("{eta} ms")
        }
    };
    Ok([
        pod["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        slo("class").unwrap_or_default().to_owned(),
        target,
        // A pod that is held is not placed yet.
        decision(patch, "decision").unwrap_or_else(|| "hold".to_owned()),
        written("reason")?,
        eta("edge"),
        eta("cloud"),
        decision(patch, "wanRttMs").map_or_else(|| "–".to_owned(), |rtt| format!("{rtt} ms")),
    ])
}
