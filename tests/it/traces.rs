//! A small collector gets a span for each request that is traced, and nothing else.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::routing::post;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::client::BOUND;
use crate::logs::{CREATE, ends};
use crate::process::Process;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

/// An OpenTelemetry collector, as far as it is called.
struct Collector {
    address: SocketAddr,
    requests: UnboundedReceiver<Value>,
}

impl Collector {
    async fn start() -> Self {
        let (told, requests) = unbounded_channel();
        let take = async move |headers: HeaderMap, body: Bytes| {
            assert_eq!(headers["content-type"], "application/json");
            told.send(serde_json::from_slice(&body).unwrap()).unwrap();
            "{}"
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/v1/traces", post(take));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, requests }
    }

    fn url(&self) -> String {
        format!("http://{}/v1/traces", self.address)
    }

    /// So many spans, the next that come.
    async fn spans(&mut self, count: usize) -> Vec<Value> {
        let mut spans = Vec::new();
        while spans.len() < count {
            let request = tokio::time::timeout(BOUND, self.requests.recv()).await;
            let request = request.expect("in time").expect("it runs");
            let resource = &request["resourceSpans"][0];
            assert_eq!(
                resource["resource"]["attributes"][0],
                json!({"key": "service.name", "value": {"stringValue": "edgeward"}})
            );
            spans.extend(resource["scopeSpans"][0]["spans"].as_array().unwrap().clone());
        }
        assert_eq!(spans.len(), count, "{spans:#?}");
        spans
    }
}

fn attribute<'s>(span: &'s Value, key: &str) -> Option<&'s str> {
    let mut attributes = span["attributes"].as_array().unwrap().iter();
    let value = &attributes.find(|attribute| attribute["key"] == key)?["value"];
    value["stringValue"].as_str().or(value["intValue"].as_str())
}

async fn create(process: &Process, more: &str) {
    let mut connection = process.client().connect().await.expect("handshake");
    let answered = connection.post_with(more, "/mutate", CREATE).await.expect("answered");
    assert_eq!(answered.status, 200, "{}", answered.body);
}

#[tokio::test]
async fn a_review_is_a_span_of_the_callers_trace() {
    let mut collector = Collector::start().await;
    let mut process = Process::start_with(&["--traces", &collector.url()]);
    process.discard_log();
    create(&process, &format!("traceparent: 00-{TRACE}-{CALLER}-00\r\n")).await;
    create(&process, &format!("traceparent: 00-{TRACE}-{CALLER}-01\r\n")).await;
    let [span] = collector.spans(1).await.try_into().unwrap();
    assert_eq!(
        (&span["traceId"], &span["parentSpanId"]),
        (&json!(TRACE), &json!(CALLER))
    );
    assert_eq!(span["kind"], 2);
    let nanoseconds = |field: &str| -> u64 { span[field].as_str().unwrap().parse().unwrap() };
    assert!(nanoseconds("startTimeUnixNano") < nanoseconds("endTimeUnixNano"));
    for (key, value) in [
        ("http.response.status_code", "200"),
        ("edgeward.review.uid", "u"),
        ("k8s.namespace.name", "shop"),
        ("edgeward.class", "none"),
        ("edgeward.verdict", "passthrough"),
        ("edgeward.reason", "passthrough_not_managed"),
    ] {
        assert_eq!(attribute(&span, key), Some(value), "{key}");
    }

    // Two of nobody's trace, and a request that is no review.
    create(&process, "").await;
    create(&process, "traceparent: nonsense\r\n").await;
    let mut connection = process.client().connect().await.expect("handshake");
    let refused = connection.post_to("/mutate", "{}").await.expect("answered");
    assert_eq!(refused.status, 400);
    let roots = collector.spans(3).await;
    assert!(roots.iter().all(|span| span.get("parentSpanId").is_none()));
    let traces: std::collections::BTreeSet<_> = roots.iter().map(|span| span["traceId"].to_string()).collect();
    assert_eq!(traces.len(), 3);
    let codes = roots.iter().map(|span| attribute(span, "http.response.status_code"));
    assert_eq!(codes.filter(|code| *code == Some("400")).count(), 1);

    // What is left when it ends goes out before.
    create(&process, "").await;
    assert_eq!(ends(process).await, Some(0));
    collector.spans(1).await;
    assert!(collector.requests.try_recv().is_err());
}

#[tokio::test]
async fn a_collector_that_is_away_holds_nothing_up() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let mut process = Process::start_with(&["--traces", &format!("http://{nobody}/v1/traces")]);
    process.discard_log();
    for _ in 0..3 {
        create(&process, "").await;
    }
}
