//! A certificate that changes under a running server.

use std::future::pending;
use std::sync::Arc;

use edgeward::testkit::{Metrics, Server, Source};
use edgeward_harness::pki::Authority;
use edgeward_harness::volume::Volume;

use crate::client::{Client, der, eventually};
use crate::server::{options, publish};

struct Running {
    server: Server,
    client: Client,
    metrics: Arc<Metrics>,
    volume: Volume,
    authority: Authority,
}

async fn start() -> Running {
    let authority = Authority::new().unwrap();
    let leaf = authority.server(&[]).unwrap();
    let mut volume = Volume::new().unwrap();
    publish(&mut volume, &leaf.certificate, &leaf.key);
    let options = options(Source::Files {
        cert: volume.path("tls.crt"),
        key: volume.path("tls.key"),
    });
    let metrics = Arc::clone(&options.metrics);
    let server = Server::start(options).await.expect("started");
    let client = Client::new(server.admission, &authority.certificate);
    Running {
        server,
        client,
        metrics,
        volume,
        authority,
    }
}

impl Running {
    async fn served(&self) -> Vec<u8> {
        self.client.connect().await.expect("handshake").chain()[0].clone()
    }

    async fn counted(&self, line: &str) {
        eventually(line, async || self.metrics.encode().contains(line)).await;
    }
}

#[tokio::test]
async fn renewed_pair_is_served_and_open_connections_stay() {
    let mut running = start().await;
    let mut open = running.client.connect().await.expect("handshake");
    for year in [3001, 3002] {
        let next = running.authority.server_until(year, &[]).unwrap();
        publish(&mut running.volume, &next.certificate, &next.key);
        eventually("the new certificate is served", async || {
            running.served().await == der(&next.certificate)
        })
        .await;
    }
    assert_eq!(open.post().await.expect("answered").status, 200);
    running
        .counted("edgeward_tls_reloads_total{of=\"certificate\",result=\"loaded\"} 2\n")
        .await;
    running
        .counted("edgeward_tls_reloads_total{of=\"certificate\",result=\"refused\"} 0\n")
        .await;
    // 3002-01-01T00:00:00Z
    running
        .counted("edgeward_tls_certificate_not_after_seconds 32566752000\n")
        .await;
    running.server.shutdown(pending::<()>()).await.expect("stopped");
}

#[tokio::test]
async fn bad_pair_is_refused_and_next_good_pair_served() {
    let mut running = start().await;
    let first = running.served().await;
    let authority = &running.authority;
    let [good, another] = [(); 2].map(|()| authority.server(&[]).unwrap());
    let expired = authority.server_until(2001, &[]).unwrap();
    let bad = [
        ("garbage".to_owned(), good.key.clone()),
        (good.certificate.clone(), "garbage".to_owned()),
        (good.certificate.clone(), another.key),
        (expired.certificate, expired.key),
        (String::new(), String::new()),
    ];
    for (index, (cert, key)) in bad.iter().enumerate() {
        publish(&mut running.volume, cert, key);
        running
            .counted(&format!(
                "edgeward_tls_reloads_total{{of=\"certificate\",result=\"refused\"}} {}\n",
                index + 1
            ))
            .await;
        assert_eq!(running.served().await, first);
    }
    publish(&mut running.volume, &good.certificate, &good.key);
    eventually("the good pair is served", async || {
        running.served().await == der(&good.certificate)
    })
    .await;
    running.server.shutdown(pending::<()>()).await.expect("stopped");
}

#[tokio::test]
async fn vanished_files_keep_certificate() {
    let running = start().await;
    let first = running.served().await;
    std::fs::remove_file(running.volume.path("..data")).expect("removed");
    running
        .counted("edgeward_tls_reloads_total{of=\"certificate\",result=\"unreadable\"} 1\n")
        .await;
    assert_eq!(running.served().await, first);
    running.server.shutdown(pending::<()>()).await.expect("stopped");
}
