use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;

use axum::Router;
use axum::extract::{Query as Parameters, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use edgeward_decision::config::{Input, Prometheus};
use edgeward_kube::units::{Moment, Now};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::*;
use crate::tls;

/// Answer of the server, and the token of the last request.
#[derive(Clone)]
struct Script {
    answer: Arc<Mutex<(u16, String)>>,
    token: Arc<Mutex<Option<String>>>,
}

impl Script {
    fn new() -> Self {
        Self {
            answer: Arc::new(Mutex::new((200, String::new()))),
            token: Arc::default(),
        }
    }

    fn says(&self, status: u16, body: impl ToString) {
        *self.answer.lock().unwrap() = (status, body.to_string());
    }

    fn routes(&self) -> Router {
        type Asked = Parameters<std::collections::HashMap<String, String>>;
        async fn answer(State(script): State<Script>, headers: HeaderMap, asked: Asked) -> (StatusCode, String) {
            assert_eq!((&*asked["query"], &*asked["timeout"]), ("free", "400ms"));
            let token = headers
                .get("authorization")
                .map(|token| token.to_str().unwrap().to_owned());
            *script.token.lock().unwrap() = token;
            let (status, body) = script.answer.lock().unwrap().clone();
            if status == 999 {
                std::future::pending::<()>().await;
            }
            (StatusCode::from_u16(status).unwrap(), body)
        }
        Router::new()
            .route("/k8s/api/v1/query", get(answer))
            .with_state(self.clone())
    }

    async fn serve(&self) -> SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let routes = self.routes();
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        address
    }
}

fn settings(url: String) -> Prometheus {
    Prometheus {
        url,
        required: true,
        token_file: None,
        ca_file: None,
        period: Micros::from_millis(5),
        timeout: Micros::from_millis(400),
        staleness: Micros::from_secs(600),
        queries: [(Input::EdgeFreeMemory, "free".into())].into(),
        traits: vec![],
    }
}

/// Queries that run until this is dropped.
struct Polling {
    sent: mpsc::Receiver<(Now, Change)>,
    telemetry: Telemetry,
    metrics: Arc<Metrics>,
    clock: Clock,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Polling {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Polling {
    fn start(settings: Prometheus) -> Self {
        let (clock, metrics) = (Clock::start(), Arc::new(Metrics::new()));
        let (sender, sent) = mpsc::channel(1);
        let changes = Changes::to(sender, clock);
        let config = Config {
            prometheus: Some(settings),
            ..Config::default()
        };
        let counted = Arc::clone(&metrics);
        Self {
            sent,
            telemetry: Telemetry::default(),
            metrics,
            clock,
            task: tokio::spawn(async move { ask_by(&config, clock, &counted, &changes).await }),
        }
    }

    fn free(&self) -> Option<(u64, Moment)> {
        let sample = self.telemetry.edge_free(Input::EdgeFreeMemory, self.clock.moment())?;
        Some((sample.value, sample.as_of))
    }

    fn asked(&self, outcome: Outcome) -> u64 {
        let name = format!("{{query=\"edgeFreeMemoryBytes\",result=\"{}\"}} ", outcome.as_str());
        let page = self.metrics.encode();
        let line = page
            .lines()
            .find_map(|line| line.split_once(&*name).filter(|_| line.contains("queries_total")));
        line.map_or(0, |(_, count)| count.parse().unwrap())
    }

    async fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let waited = tokio::time::timeout(Duration::from_secs(30), async {
            while !holds(self) {
                if let Some((_, Change::Telemetry(telemetry))) = self.sent.recv().await {
                    self.telemetry = *telemetry;
                }
            }
        });
        waited.await.unwrap_or_else(|_| panic!("never: {what}"));
    }

    /// Waits until one more query ends with this outcome.
    async fn until_it_ends(&mut self, outcome: Outcome) {
        let before = self.asked(outcome);
        self.until(outcome.as_str(), |polling| polling.asked(outcome) > before)
            .await;
    }
}

fn vector(number: &str, seconds_ago: i64) -> Value {
    let at = Clock::start().wall().as_second() - seconds_ago;
    let series = json!([{"metric": {}, "value": [at, number]}]);
    json!({"status": "success", "data": {"resultType": "vector", "result": series}})
}

#[tokio::test]
async fn failed_query_reports_its_outcome_and_keeps_last_value() {
    let script = Script::new();
    script.says(200, vector("5000", 0));
    let mut polling = Polling::start(settings(format!("http://{}/k8s", script.serve().await)));
    polling
        .until("the first value", |polling| polling.free().is_some())
        .await;

    for (expected, status, body) in [
        (Outcome::Stale, 200, vector("1", 900).to_string()),
        (Outcome::Rejected, 302, String::new()),
        (Outcome::TooLarge, 200, "1".repeat(5 << 20)),
        (Outcome::Timeout, 999, String::new()),
    ] {
        script.says(status, &body);
        polling.until_it_ends(expected).await;
        assert_eq!(polling.free().unwrap().0, 5_000, "{}", expected.as_str());
    }

    script.says(200, vector("6000", 0));
    let is_new = |polling: &Polling| polling.free().unwrap().0 == 6_000;
    polling.until("the value after all that", is_new).await;
    let (_, as_of) = polling.free().unwrap();
    assert!(as_of <= polling.clock.moment());

    // The age of a sample follows from its timestamp. The wall clock may jump, so the test does not check it more
    // closely.
    script.says(200, vector("7000", 300));
    let is_new = |polling: &Polling| polling.free().unwrap().0 == 7_000;
    polling.until("an old value", is_new).await;
    let age = polling.clock.moment().since(polling.free().unwrap().1);
    assert!(age > Micros::from_secs(200), "{age}");
}

#[tokio::test]
async fn unreachable_prometheus_is_retried_until_it_answers() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut polling = Polling::start(settings(format!("http://{address}/k8s")));
    polling.until_it_ends(Outcome::Unreachable).await;
    assert_eq!(polling.free(), None);
    let (now, ttl) = (polling.clock.moment(), Micros::from_secs(60));
    let as_of = polling.telemetry.kubernetes_as_of(now, ttl);
    assert!(now.since(as_of) > ttl);

    let script = Script::new();
    script.says(200, vector("1", 0));
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    let routes = script.routes();
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    polling
        .until("the first value", |polling| polling.free().is_some())
        .await;
    let now = polling.clock.moment();
    assert_eq!(polling.telemetry.kubernetes_as_of(now, ttl), now);
}

#[tokio::test]
async fn tokens_and_authorities_are_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    let write = |name: &str, text: &str| {
        std::fs::write(file("new"), text).unwrap();
        std::fs::rename(file("new"), file(name)).unwrap();
    };
    let script = Script::new();
    script.says(200, vector("1", 0));
    let (url, authority) = serve_tls(&script).await;
    let (_, another) = serve_tls(&script).await;
    write("token", "first\n");
    write("ca.crt", &another);
    let mut settings = settings(url);
    settings.token_file = Some(file("token"));
    settings.ca_file = Some(file("ca.crt"));

    let mut polling = Polling::start(settings);
    polling.until_it_ends(Outcome::Unreachable).await;
    assert_eq!(*script.token.lock().unwrap(), None);
    write("ca.crt", &authority);
    polling.until_it_ends(Outcome::Ok).await;
    let token_is = |expected: &'static str| {
        let token = Arc::clone(&script.token);
        move |_: &Polling| token.lock().unwrap().as_deref() == Some(expected)
    };
    polling.until("the first token", token_is("Bearer first")).await;
    write("token", "second");
    polling.until("the second token", token_is("Bearer second")).await;
}

/// Serves the script over TLS. Returns its address and its CA certificate.
async fn serve_tls(script: &Script) -> (String, String) {
    let source = tls::Source::SelfSigned {
        directory: None,
        service: tls::Service {
            name: "prometheus".into(),
            namespace: "monitoring".into(),
        },
    };
    let certificates = tls::Certificates::load(&source, None, Clock::start(), Arc::default())
        .await
        .unwrap();
    let authority = certificates.ca_bundle.clone().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("https://{}/k8s", listener.local_addr().unwrap());
    let config = certificates.settings;
    let routes = script.routes().into_make_service();
    let server = axum_server::from_tcp_rustls(listener, config).unwrap();
    tokio::spawn(async move { server.serve(routes).await.unwrap() });
    (url, authority)
}

#[tokio::test]
async fn empty_token_or_ca_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "\n").unwrap();
    let error = |token_file: Option<PathBuf>, ca_file: Option<PathBuf>, url: &str| {
        let settings = Prometheus {
            token_file,
            ca_file,
            ..settings(url.to_owned())
        };
        async move { format!("{:#}", Connection::new(&settings).client().await.err().unwrap()) }
    };
    assert_eq!(
        error(Some(file.clone()), None, "https://p").await,
        "prometheus.tokenFile holds no token"
    );
    assert_eq!(
        error(None, Some(file), "https://p").await,
        "prometheus.caFile holds no certificate"
    );
    assert!(
        error(None, None, "https://p:x")
            .await
            .starts_with("prometheus.url: https://p:x: ")
    );
    let missing = Some(directory.path().join("none"));
    assert!(error(missing, None, "https://p").await.contains("none"));
}

proptest! {
    #[test]
    fn query_interval_jitter_is_at_most_ten_percent(period in 0..1_u64 << 40, random: u64) {
        let time = jittered(Micros(period), random).0;
        prop_assert!(time >= period - period / 10 && time <= period + period / 10);
    }
}
