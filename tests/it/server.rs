//! A running server from a client's point of view.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use edgeward::testkit::{
    Answer, Clock, Metrics, REVIEWS_AT_A_TIME, Readiness, Responder, Route, ServeOptions, Server, Service, Source,
    Task, serve,
};
use edgeward_decision::placement::verdict::Reason;
use edgeward_harness::pki::Authority;
use edgeward_harness::volume::Volume;
use serde_json::Value;

use crate::client::{BOUND, Client, der, eventually, get};
use crate::process::Process;

pub(crate) struct Told;

impl Answer for Told {
    fn review(&self, _: &[u8], _: &Responder) -> anyhow::Result<Vec<u8>> {
        Ok(b"reviewed".to_vec())
    }

    fn no_opinion(&self, _: &[u8], why: Reason, _: Duration) -> anyhow::Result<Vec<u8>> {
        Ok(format!("no opinion: {why:?}").into_bytes())
    }
}

pub(crate) fn options(tls: Source) -> ServeOptions {
    answering(Told, tls)
}

fn answering(answer: impl Answer, tls: Source) -> ServeOptions {
    let loopback = "127.0.0.1:0".parse().expect("an address");
    ServeOptions {
        listen: loopback,
        health_listen: loopback,
        tls,
        client_ca: None,
        routes: vec![Route::of_reviews(Arc::new(answer))],
        pages: Default::default(),
        metrics: Arc::new(Metrics::new()),
        readiness: Readiness::default(),
        clock: Clock::start(),
        shutdown_delay: Duration::ZERO,
        tasks: Vec::new(),
    }
}

pub(crate) fn self_signed() -> Source {
    Source::SelfSigned {
        directory: None,
        service: Service {
            name: "edgeward".into(),
            namespace: "edgeward-system".into(),
        },
    }
}

/// Publishes `tls.crt` and `tls.key`.
pub(crate) fn publish(volume: &mut Volume, cert: &str, key: &str) {
    let files = [("tls.crt", cert), ("tls.key", key)];
    volume.swap(&files).expect("published");
}

fn client(server: &Server) -> Client {
    Client::new(server.admission, server.ca_bundle.as_deref().expect("self-signed"))
}

#[tokio::test]
async fn failed_second_start_keeps_written_ca() {
    let directory = tempfile::tempdir().expect("a directory");
    let bundle = directory.path().join("ca.crt");
    let start = |listen| {
        let source = Source::SelfSigned {
            directory: Some(directory.path().to_owned()),
            service: Service {
                name: "edgeward".into(),
                namespace: "edgeward-system".into(),
            },
        };
        Server::start(ServeOptions {
            listen,
            ..options(source)
        })
    };
    let first = start("127.0.0.1:0".parse().expect("an address"))
        .await
        .expect("started");
    let written = std::fs::read_to_string(&bundle).expect("written");
    assert!(start(first.admission).await.is_err());
    assert_eq!(std::fs::read_to_string(&bundle).expect("still there"), written);
}

#[tokio::test]
async fn only_http_1_1_is_negotiated() {
    let options = options(self_signed());
    let metrics = Arc::clone(&options.metrics);
    let server = Server::start(options).await.expect("started");
    let client = client(&server);

    let both = Client {
        alpn: &[b"h2", b"http/1.1"],
        ..client.clone()
    };
    let mut connection = both.connect().await.expect("handshake");
    assert_eq!(connection.protocol(), Some(b"http/1.1".as_slice()));
    for _ in 0..2 {
        let answered = connection.post().await.expect("answered on the same connection");
        assert_eq!((answered.status, answered.body.as_str()), (200, "reviewed"));
        assert_eq!(answered.header("connection"), None);
    }
    let silent = client.connect().await.expect("handshake");
    assert_eq!(silent.protocol(), None);
    let h2_only = Client {
        alpn: &[b"h2"],
        ..client.clone()
    };
    assert!(h2_only.connect().await.is_err());
    assert!(
        Client {
            ca_bundle: Authority::new().expect("made").certificate,
            ..client
        }
        .connect()
        .await
        .is_err()
    );

    eventually("every handshake is counted", async || {
        let page = metrics.encode();
        [
            "edgeward_tls_handshake_failures_total{cause=\"protocol\"} 1\n",
            "edgeward_tls_handshake_failures_total{cause=\"rejected\"} 1\n",
        ]
        .iter()
        .all(|line| page.contains(line))
    })
    .await;
    server.shutdown(pending::<()>()).await.expect("stopped");
}

#[tokio::test]
async fn full_certificate_chain_is_served() {
    let root = Authority::new().unwrap();
    let intermediate = root.intermediate().unwrap();
    let leaf = intermediate.server(&[]).unwrap();
    let mut volume = Volume::new().unwrap();
    let chain = format!("{}{}", leaf.certificate, intermediate.certificate);
    publish(&mut volume, &chain, &leaf.key);
    let files = Source::Files {
        cert: volume.path("tls.crt"),
        key: volume.path("tls.key"),
    };
    let server = Server::start(options(files)).await.expect("started");
    assert_eq!(server.ca_bundle, None);
    let connection = Client::new(server.admission, &root.certificate)
        .connect()
        .await
        .expect("the chain leads to the root");
    assert_eq!(connection.chain().len(), 2);
    assert_eq!(connection.chain()[0], der(&leaf.certificate));
    server.shutdown(pending::<()>()).await.expect("stopped");
}

#[tokio::test]
async fn bad_pair_fails_start_and_names_file() {
    let authority = Authority::new().unwrap();
    let mut volume = Volume::new().unwrap();
    let files = || Source::Files {
        cert: volume.path("tls.crt"),
        key: volume.path("tls.key"),
    };
    let missing = Server::start(options(files()))
        .await
        .err()
        .expect("refused")
        .to_string();
    assert!(
        missing.contains("tls.crt") && missing.contains("cannot be read"),
        "{missing}"
    );
    let source = files();
    let [one, other] = [(); 2].map(|()| authority.server(&[]).unwrap());
    publish(&mut volume, &one.certificate, &other.key);
    let mismatch = Server::start(options(source)).await.err().expect("refused").to_string();
    assert!(
        mismatch.contains("tls.crt") && mismatch.contains("does not belong"),
        "{mismatch}"
    );
}

#[tokio::test]
async fn taken_port_fails_start_and_names_address() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("an address");
    let options = ServeOptions {
        listen: address,
        ..options(self_signed())
    };
    let error = format!("{:#}", Server::start(options).await.err().expect("refused"));
    assert!(
        error.contains(&format!("the admission listener cannot bind {address}")),
        "{error}"
    );
}

#[tokio::test]
async fn missing_fleet_file_is_unready_and_gives_no_opinion() {
    let options = options(self_signed());
    let fleet = options.readiness.require("fleet file");
    let server = Server::start(options).await.expect("started");
    let client = client(&server);

    let ready = get(server.health, "/readyz").await.expect("answered");
    assert_eq!((ready.status, ready.body.as_str()), (503, "fleet file\n"));
    assert_eq!(get(server.health, "/livez").await.expect("answered").status, 200);
    assert_eq!(client.post().await.expect("answered").body, "no opinion: NotReady");
    fleet.met();
    let ready = get(server.health, "/readyz").await.expect("answered");
    assert_eq!((ready.status, ready.body.as_str()), (200, "ok"));
    assert_eq!(client.post().await.expect("answered").body, "reviewed");

    let page = get(server.health, "/metrics").await.expect("answered");
    assert_eq!(page.header("content-type"), Some(edgeward::testkit::CONTENT_TYPE));
    assert!(page.body.contains("edgeward_ready 1\n"), "{}", page.body);
    server.shutdown(pending::<()>()).await.expect("stopped");
}

/// A reviewer that holds reviews with a `long` body until the test releases it.
struct Stuck {
    begun: Arc<AtomicUsize>,
    released: Mutex<Receiver<()>>,
}

impl Answer for Stuck {
    fn review(&self, body: &[u8], responder: &Responder) -> anyhow::Result<Vec<u8>> {
        if body == b"long" {
            self.begun.fetch_add(1, Ordering::Relaxed);
            let released = self.released.lock().expect("not poisoned");
            let ended = released.recv_timeout(BOUND);
            assert_ne!(ended, Err(RecvTimeoutError::Timeout), "nothing else was done meanwhile");
        }
        Told.review(body, responder)
    }

    fn no_opinion(&self, body: &[u8], why: Reason, elapsed: Duration) -> anyhow::Result<Vec<u8>> {
        Told.no_opinion(body, why, elapsed)
    }
}

#[tokio::test]
async fn long_reviews_do_not_block_health_or_deadlines() {
    let (release, released) = channel();
    let begun = Arc::new(AtomicUsize::new(0));
    let options = answering(
        Stuck {
            begun: Arc::clone(&begun),
            released: Mutex::new(released),
        },
        self_signed(),
    );
    let server = Server::start(options).await.expect("started");
    let client = client(&server);
    let posting = |target: &'static str, body: &'static str| {
        let client = client.clone();
        async move { client.connect().await?.post_to(target, body).await }
    };
    let turns = REVIEWS_AT_A_TIME;
    let long: Vec<_> = (0..turns)
        .map(|_| tokio::spawn(posting("/mutate?timeout=30s", "long")))
        .collect();
    eventually("every turn is taken", async || begun.load(Ordering::Relaxed) == turns).await;

    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(get(server.health, path).await.expect("answered").status, 200, "{path}");
    }
    let short = || posting("/mutate?timeout=200ms", "short");
    assert_eq!(short().await.expect("answered").body, "no opinion: Deadline");
    drop(release);
    for long in long {
        let answered = long.await.expect("joined").expect("answered");
        assert_ne!(answered.body, "no opinion: Panic");
    }
    eventually("short ones are reviewed again", async || {
        short().await.expect("answered").body == "reviewed"
    })
    .await;
    server.shutdown(pending::<()>()).await.expect("stopped");
}

#[tokio::test]
async fn ended_task_stops_server_with_task_name() {
    for (future, expected) in [
        (
            Box::pin(async { Ok(()) }) as std::pin::Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>,
            "ended",
        ),
        (Box::pin(async { anyhow::bail!("no disk") }), "failed: no disk"),
        (Box::pin(async { panic!("a bug") }), "failed: panicked: a bug"),
    ] {
        let options = ServeOptions {
            tasks: vec![Task::new("fleet file", future)],
            ..options(self_signed())
        };
        let error = format!("{:#}", serve(options).await.expect_err("failed"));
        assert_eq!(error, format!("background task `fleet file` {expected}"));
    }
}

#[tokio::test]
async fn alto_is_served_on_the_health_port_if_enabled() {
    let process = Process::start_with(&["--alto"]);
    let page = async |path: &str| get(process.health, path).await.expect("answered");
    let directory = page("/alto/directory").await;
    assert_eq!(
        directory.header("content-type"),
        Some("application/alto-directory+json")
    );
    let directory: Value = serde_json::from_str(&directory.body).expect("JSON");
    // The addresses in the directory are relative to it.
    for (name, resource) in directory["resources"].as_object().expect("resources") {
        let path = format!("/alto/{}", resource["uri"].as_str().expect("an address"));
        let answered = page(&path).await;
        assert_eq!(answered.status, 200, "{name}");
        assert_eq!(
            answered.header("content-type"),
            resource["media-type"].as_str(),
            "{name}"
        );
        assert!(answered.header("etag").is_some(), "{name}");
    }
    let map: Value = serde_json::from_str(&page("/alto/costmap/delay-rt").await.body).expect("JSON");
    assert_eq!(map["cost-map"]["edge"]["cloud"], 22_000);
    let network: Value = serde_json::from_str(&page("/alto/networkmap").await.body).expect("JSON");
    assert_eq!(map["meta"]["dependent-vtags"][0], network["meta"]["vtag"]);
    assert_eq!(page("/alto/costmap/hopcount").await.status, 404);
    assert_eq!(
        get(Process::start().health, "/alto/directory")
            .await
            .expect("answered")
            .status,
        404
    );
}
