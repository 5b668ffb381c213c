//! Spans to a collector, by OTLP over HTTP in its JSON form.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use rustls::crypto::ring;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::instruments::traces::Span;

/// How many spans one request to the collector has at most.
const BATCH: usize = 512;

/// How long a span waits for others to go with it.
const GATHERED: Duration = Duration::from_secs(1);

/// How long the collector has to answer. Meanwhile spans wait.
const TIMEOUT: Duration = Duration::from_secs(5);

/// `SPAN_KIND_SERVER` and `STATUS_CODE_ERROR` of OTLP.
const SERVER: u8 = 2;
const ERROR: u8 = 2;

/// Sends spans. What a collector does not take is lost: nothing is sent twice.
#[derive(Debug)]
pub struct Exporter {
    client: Client,
    url: Url,
    spans: mpsc::Receiver<Span>,
}

impl Exporter {
    pub(super) fn new(url: &str, spans: mpsc::Receiver<Span>) -> anyhow::Result<Self> {
        // The error says that there is one already, which is what was wanted.
        let _ = ring::default_provider().install_default();
        let url: Url = url.parse().with_context(|| format!("{url:?} is no URL"))?;
        ensure!(
            ["http", "https"].contains(&url.scheme()),
            "{url} is not of http or https"
        );
        // Settings are arguments: no proxy out of the environment.
        let client = Client::builder().no_proxy().redirect(Policy::none()).timeout(TIMEOUT);
        Ok(Self {
            client: client.build()?,
            url,
            spans,
        })
    }

    /// Sends until nobody is left who would put a span into the queue, and it is empty.
    pub async fn run(mut self) {
        let mut is_told = false;
        let mut batch = Vec::with_capacity(BATCH);
        while self.spans.recv_many(&mut batch, BATCH).await > 0 {
            let gather = async {
                while let left @ 1.. = BATCH - batch.len()
                    && self.spans.recv_many(&mut batch, left).await > 0
                {}
            };
            // Those that have arrived are in the batch.
            let _ = tokio::time::timeout(GATHERED, gather).await;
            let sent = self.send(&batch).await;
            batch.clear();
            if let (Err(error), false) = (&sent, is_told) {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "the collector takes no spans; told once until it does"
                );
            }
            is_told = sent.is_err();
        }
    }

    async fn send(&self, batch: &[Span]) -> anyhow::Result<()> {
        let body = request(batch).to_string();
        let post = self.client.post(self.url.clone());
        let answer = post
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(body)
            .send()
            .await?;
        ensure!(answer.status().is_success(), "answered {}", answer.status());
        Ok(())
    }
}

/// `ExportTraceServiceRequest`.
fn request(batch: &[Span]) -> Value {
    let resource = [
        ("service.name", "edgeward"),
        ("service.version", env!("CARGO_PKG_VERSION")),
    ];
    json!({
        "resourceSpans": [{
            "resource": {"attributes": resource.map(|(key, text)| attribute(key, json!({"stringValue": text})))},
            "scopeSpans": [{
                "scope": {"name": "edgeward", "version": env!("CARGO_PKG_VERSION")},
                "spans": batch.iter().map(span).collect::<Value>(),
            }],
        }],
    })
}

/// Ids are in hex and 64-bit integers are strings, as OTLP's JSON has them.
fn span(span: &Span) -> Value {
    let began = span.began.as_nanosecond();
    let ended = began + i128::from(span.us) * 1_000;
    let status = json!({"intValue": span.status.as_u16().to_string()});
    let known = span.attributes.iter();
    let known = known.map(|(key, text)| attribute(key, json!({"stringValue": text})));
    let attributes: Value = known.chain([attribute("http.response.status_code", status)]).collect();
    let mut fields = json!({
        "traceId": format!("{:032x}", span.context.trace),
        "spanId": format!("{:016x}", span.id),
        "name": "POST /mutate",
        "kind": SERVER,
        "startTimeUnixNano": began.to_string(),
        "endTimeUnixNano": ended.to_string(),
        "attributes": attributes,
    });
    if let Some(parent) = span.context.parent {
        fields["parentSpanId"] = format!("{parent:016x}").into();
    }
    if span.status.is_server_error() {
        fields["status"] = json!({"code": ERROR});
    }
    fields
}

fn attribute(key: &str, value: Value) -> Value {
    json!({"key": key, "value": value})
}
