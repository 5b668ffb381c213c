//! Certificates in a Secret, and client certificates.

use edgeward::testkit::{Authority, Contents, Metrics, ServeOptions, Server, Service, Source, stored};
use edgeward_harness::pki;
use edgeward_harness::prelude::*;
use jiff::{SignedDuration, Timestamp};
use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};
use std::future::pending;
use tokio::sync::watch;

use crate::client::{Client, eventually, get};
use crate::server::{options, self_signed};

const LIFE: SignedDuration = SignedDuration::from_hours(24);

fn service() -> Service {
    Service {
        name: "edgeward".into(),
        namespace: "edgeward-system".into(),
    }
}

/// A server whose certificate comes from a Secret, with that Secret.
struct Shared {
    server: Server,
    metrics: Arc<Metrics>,
    secret: watch::Sender<Option<Arc<Contents>>>,
}

impl Shared {
    async fn start() -> Self {
        let (secret, contents) = watch::channel(None);
        let options = options(Source::Secret {
            contents,
            service: service(),
        });
        let metrics = Arc::clone(&options.metrics);
        let server = Server::start(options).await.expect("started");
        Self {
            server,
            metrics,
            secret,
        }
    }

    fn put(&self, contents: &Contents) {
        self.secret.send_replace(Some(Arc::new(contents.clone())));
    }

    /// The leaf certificate that the server shows to a client that trusts the Secret's CA.
    async fn served(&self, contents: &Contents) -> Option<Vec<u8>> {
        let ca = String::from_utf8(contents["ca.crt"].clone()).expect("PEM");
        let client = Client {
            name: "edgeward.edgeward-system.svc",
            ..Client::new(self.server.admission, &ca)
        };
        Some(client.connect().await.ok()?.chain()[0].clone())
    }

    async fn counted(&self, line: &str) {
        eventually(line, async || self.metrics.encode().contains(line)).await;
    }

    async fn readiness(&self) -> (u16, String) {
        let answered = get(self.server.health, "/readyz").await.expect("answered");
        (answered.status, answered.body)
    }
}

fn with_authority(now: Timestamp) -> Contents {
    let mut contents = Contents::new();
    stored::put_authority(&mut contents, Authority::make(&service(), now, LIFE).expect("made"));
    contents
}

fn put_leaf(contents: &mut Contents, now: Timestamp, life: SignedDuration) {
    let signer = Authority::read(&contents["ca.crt"], &contents["ca.key"], &service(), now).expect("ours");
    let leaf = signer.issue(&[service().dns_name()], now, life).expect("issued");
    stored::put(contents, stored::LEAF, leaf);
}

#[tokio::test]
async fn missing_certificate_is_awaited_and_bad_one_keeps_last() {
    let shared = Shared::start().await;
    let now = Timestamp::now();
    let mut contents = with_authority(now);
    assert_eq!(shared.readiness().await, (503, "certificate\n".to_owned()));
    assert_eq!(shared.served(&contents).await, None, "there is nothing to show");
    shared.put(&contents);
    assert_eq!(shared.readiness().await.0, 503);

    put_leaf(&mut contents, now, LIFE);
    shared.put(&contents);
    eventually("ready", async || shared.readiness().await.0 == 200).await;
    let first = shared.served(&contents).await.expect("served");
    // Extra entries in the Secret do not change the certificate.
    let mut next = contents.clone();
    stored::put(
        &mut next,
        stored::NEXT,
        Authority::make(&service(), now, LIFE).expect("made"),
    );
    shared.put(&next);

    let mut bad = [
        Contents::new(),
        contents.clone(),
        contents.clone(),
        contents.clone(),
        contents.clone(),
    ];
    bad[1].insert("tls.crt".into(), b"rubbish".to_vec());
    put_leaf(&mut bad[2], now, LIFE);
    let other_key = bad[2]["tls.key"].clone();
    bad[2] = contents.clone();
    bad[2].insert("tls.key".into(), other_key);
    let yesterday = now - SignedDuration::from_hours(23);
    bad[3] = with_authority(yesterday);
    put_leaf(&mut bad[3], yesterday, SignedDuration::from_hours(1));
    // The certificate's CA is not the one in the Secret.
    bad[4].insert("ca.crt".into(), with_authority(now)["ca.crt"].clone());
    for (i, bad) in bad.iter().enumerate() {
        shared.put(bad);
        shared
            .counted(&format!(
                "edgeward_tls_reloads_total{{of=\"certificate\",result=\"refused\"}} {}\n",
                i + 1
            ))
            .await;
        assert_eq!(shared.served(&contents).await.as_ref(), Some(&first), "{i}");
    }
    shared
        .counted("edgeward_tls_reloads_total{of=\"certificate\",result=\"loaded\"} 1\n")
        .await;

    put_leaf(&mut contents, now, LIFE);
    shared.put(&contents);
    eventually("the good one is served", async || {
        shared.served(&contents).await.is_some_and(|leaf| leaf != first)
    })
    .await;
    assert_eq!(shared.readiness().await.0, 200);
    shared.server.shutdown(pending::<()>()).await.expect("stopped");
}

/// A server that requires client certificates of an authority, which it reads from a file.
async fn choosy(authority: &str) -> (Server, Arc<Metrics>, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("clients.crt");
    fs::write(&file, authority).expect("written");
    let options = ServeOptions {
        client_ca: Some(file),
        ..options(self_signed())
    };
    let metrics = Arc::clone(&options.metrics);
    (Server::start(options).await.expect("started"), metrics, directory)
}

#[tokio::test]
async fn client_ca_refuses_other_clients_and_follows_file() {
    let [ours, other] = [(); 2].map(|()| pki::Authority::new().expect("made"));
    let (server, metrics, directory) = choosy(&ours.certificate).await;
    let client = Client::new(server.admission, server.ca_bundle.as_deref().expect("self-signed"));
    let as_client = |authority: &pki::Authority| {
        let pair = authority.client("client", "none").expect("signed");
        Client {
            identity: Some((pair.certificate, pair.key)),
            ..client.clone()
        }
    };
    let failures = |count: u32| format!("edgeward_tls_handshake_failures_total{{cause=\"client\"}} {count}\n");
    let mut refused = 0;
    const VERSIONS: [&[&SupportedProtocolVersion]; 2] = [&[&TLS12], &[&TLS13]];
    for versions in VERSIONS {
        let known = Client {
            versions,
            ..as_client(&ours)
        };
        assert_eq!(known.post().await.expect("served").body, "reviewed");
        for refused_client in [client.clone(), as_client(&other)] {
            assert!(
                Client {
                    versions,
                    ..refused_client
                }
                .post()
                .await
                .is_err()
            );
            refused += 1;
            eventually("counted", async || metrics.encode().contains(&failures(refused))).await;
        }
    }

    let file = directory.path().join("clients.crt");
    fs::write(&file, "rubbish").expect("written");
    let of = |result: &str| format!("edgeward_tls_reloads_total{{of=\"client_ca\",result=\"{result}\"}} 1\n");
    eventually("refused", async || metrics.encode().contains(&of("refused"))).await;
    assert!(as_client(&ours).post().await.is_ok(), "the old ones stay");
    fs::write(&file, &other.certificate).expect("written");
    eventually("loaded", async || metrics.encode().contains(&of("loaded"))).await;
    assert!(as_client(&other).post().await.is_ok());
    assert!(as_client(&ours).post().await.is_err());
    server.shutdown(pending::<()>()).await.expect("stopped");
}

#[tokio::test]
async fn invalid_client_ca_file_fails_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("clients.crt");
    let start = async || {
        let options = ServeOptions {
            client_ca: Some(file.clone()),
            shutdown_delay: Duration::ZERO,
            ..options(self_signed())
        };
        Server::start(options)
            .await
            .map(drop)
            .expect_err("no authority")
            .to_string()
    };
    assert!(start().await.starts_with("--client-ca cannot be read: "));
    for (content, fault) in [
        ("rubbish", "it holds no CERTIFICATE block"),
        (
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "certificate 1 of it cannot be used",
        ),
    ] {
        fs::write(&file, content).expect("written");
        let error = start().await;
        assert!(error.contains(fault) && error.contains("clients.crt"), "{error}");
    }
}
