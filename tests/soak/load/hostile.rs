//! Hostile clients reach the port while reviews go on.

use std::net::SocketAddr;

use edgeward_harness::checkout::is_ci;
use edgeward_harness::load::replicas::{Replicas, nodes};
use edgeward_harness::load::{highest_steady, under_load};
use edgeward_harness::prelude::*;
use edgeward_harness::tables::Table;
use futures::StreamExt as _;
use futures::stream;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Memory limit of the container in `deploy/base`.
const MEMORY_KIB: u64 = 256 * 1024;

const IDLE: usize = 10_000;
const HALF_OPEN: usize = 2_000;
const SLOW: usize = 300;
const LARGE: usize = 60;
const GARBAGE: usize = 500;

const AT_ONCE: usize = 8;

const DRIP: Duration = Duration::from_millis(500);

#[derive(Clone)]
struct HostileClients {
    connector: TlsConnector,
    replicas: Vec<SocketAddr>,
}

e2e! { "load::hostile_clients", Machine, hostile_clients }
/// Runs one kind of attack after another. Reviews go on, and no replica uses more memory than its container has.
fn hostile_clients(fixture: &Fixture<'_>) -> Result<()> {
    let idle = IDLE.min(files()?);
    if idle < IDLE {
        let fewer = format!("only {idle} of {IDLE} idle connections are tried, for more files cannot be open");
        ensure!(!is_ci(), "{fewer}");
        println!("load: {fewer}");
    }
    let nodes = nodes(fixture)?;
    let pace = highest_steady(fixture, &nodes)?;
    let replicas = Replicas::open(fixture, &nodes, pace)?;
    let clients = HostileClients::of(&replicas)?;
    // A separate runtime, so that the attacks do not slow the load generator down.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;

    let memory = |field: &str| -> Result<Vec<u64>> {
        let members = replicas.members.iter();
        members.map(|member| Ok(member.memory_kib(field)? / 1024)).collect()
    };
    let before = memory("VmRSS")?;
    println!("load: MiB resident before: {before:?}");
    let report = under_load(fixture, &nodes, pace, |load| {
        let during = |attack: &str, begun: Duration| -> Result<()> {
            load.lasts(Duration::from_secs(1))?;
            let seconds = (load.time() - begun).as_secs_f64();
            println!("load: {attack}, {seconds:.0} s: MiB resident: {:?}", memory("VmRSS")?);
            Ok(())
        };
        let begun = load.time();
        let held = runtime.block_on(clients.connected(idle));
        ensure!(held.len() > idle / 2, "{} of {idle} connected", held.len());
        during(&format!("{} idle connections", held.len()), begun)?;
        drop(held);

        let begun = load.time();
        let held = runtime.block_on(clients.half_open(HALF_OPEN));
        let opened = held.len();
        ensure!(opened > HALF_OPEN / 2, "{opened} of {HALF_OPEN} connected");
        during(&format!("{opened} half-open handshakes"), begun)?;
        runtime.block_on(closed(held)).context("half-open handshakes")?;

        let begun = load.time();
        let cut = runtime.block_on(clients.all(SLOW, slow_head))?;
        during(&format!("{cut} slow heads, each cut"), begun)?;

        let begun = load.time();
        let cut = runtime.block_on(clients.all(SLOW, slow_body))?;
        during(&format!("{cut} slow bodies, each cut"), begun)?;

        let begun = load.time();
        let refused = runtime.block_on(clients.all(LARGE, large_body))?;
        during(&format!("{refused} bodies of 8 MiB, each refused"), begun)?;

        let begun = load.time();
        let held = runtime.block_on(clients.garbage(GARBAGE));
        let sent = held.len();
        ensure!(sent > GARBAGE / 2, "{sent} of {GARBAGE} connected");
        runtime.block_on(closed(held)).context("garbage")?;
        during(&format!("{sent} times garbage"), begun)
    })?;
    let most = memory("VmHWM")?;
    println!("load: hostile clients: {report}; MiB resident at most: {most:?}");
    let (failed, undecided) = (report.failed.len(), report.undecided.len());
    let pods = format!("{}, {failed}, {undecided}", report.created);
    Table::UnprovenConnections.row("pods created, failed, undecided", &[&pods]);
    Table::UnprovenConnections.row("MiB resident of each replica before", &[&format!("{before:?}")]);
    Table::UnprovenConnections.row("at most", &[&format!("{most:?}")]);
    report.is_clean()?;
    for (member, most) in replicas.members.iter().zip(most) {
        ensure!(most < MEMORY_KIB / 1024, "{most} MiB");
        let refused = member.count("edgeward_connections_refused_total", &[("port", "admission")])?;
        ensure!(refused > 0, "it was never full");
    }
    Ok(())
}

/// How many connections the test may open in addition to its other files. The limit is first raised to the system's maximum.
fn files() -> Result<usize> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    )?;
    let files = limit.maximum.map_or(usize::MAX, |files| files as usize);
    Ok(files.saturating_sub(2_000))
}

impl HostileClients {
    fn of(replicas: &Replicas<'_, '_>) -> Result<Self> {
        let members = &replicas.members;
        let mut roots = RootCertStore::empty();
        let ca = &members.first().context("no replica")?.ca;
        roots.add(rustls::pki_types::CertificateDer::from_pem_slice(ca.as_bytes())?)?;
        let config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            connector: TlsConnector::from(std::sync::Arc::new(config)),
            replicas: members.iter().map(|member| member.admission()).collect(),
        })
    }

    /// Opens `count` connections and returns the ones left after the handshake.
    async fn connected(&self, count: usize) -> Vec<TlsStream<TcpStream>> {
        let connecting = stream::iter(0..count).map(|i| self.connect(i));
        let connected = connecting.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await;
        connected.into_iter().flatten().collect()
    }

    /// Opens `count` connections at the same time and runs `act` on each. All of them must finish.
    async fn all<F>(&self, count: usize, act: impl Fn(TlsStream<TcpStream>) -> F) -> Result<usize>
    where
        F: Future<Output = Result<()>>,
    {
        let clients = self.connected(count).await;
        let connected = clients.len();
        ensure!(connected > count / 2, "{connected} of {count} connected");
        let acts = futures::future::join_all(clients.into_iter().map(act));
        let ends = tokio::time::timeout(2 * BOUND, acts)
            .await
            .context("some are not cut")?;
        ends.into_iter().collect::<Result<Vec<_>>>()?;
        Ok(connected)
    }

    async fn connect(&self, i: usize) -> Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.replicas[i % self.replicas.len()]).await?;
        Ok(self
            .connector
            .connect(ServerName::try_from("localhost")?, stream)
            .await?)
    }

    /// Opens connections that begin a handshake. Each sends only the first bytes of a longer record.
    async fn half_open(&self, count: usize) -> Vec<TcpStream> {
        let mut held = Vec::new();
        for i in 0..count {
            let Ok(mut stream) = TcpStream::connect(self.replicas[i % self.replicas.len()]).await else {
                continue;
            };
            // The server may already have closed the connection.
            let _ = stream.write_all(&[22, 3, 1, 2, 0, 1, 0]).await;
            held.push(stream);
        }
        held
    }

    async fn garbage(&self, count: usize) -> Vec<TcpStream> {
        let garbage: Vec<u8> = (0..4096_u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        let mut held = Vec::new();
        for i in 0..count {
            if let Ok(mut stream) = TcpStream::connect(self.replicas[i % self.replicas.len()]).await {
                // The server may already have refused the connection.
                let _ = stream.write_all(&garbage[i % 2048..]).await;
                held.push(stream);
            }
        }
        held
    }
}

/// Fails unless the server closes all connections within its ten seconds for a handshake.
async fn closed(held: Vec<TcpStream>) -> Result<()> {
    let ends = held
        .into_iter()
        .map(async |mut stream| while stream.read(&mut [0; 64]).await.is_ok_and(|read| read > 0) {});
    let ends = futures::future::join_all(ends);
    tokio::time::timeout(BOUND, ends).await.context("some are not closed")?;
    Ok(())
}

/// Sends a request head byte by byte until the server cuts the connection.
async fn slow_head(mut client: TlsStream<TcpStream>) -> Result<()> {
    let head = b"POST /mutate HTTP/1.1\r\nx: ".iter().chain([b'x'].iter().cycle());
    dripped(&mut client, head.copied()).await;
    Ok(())
}

/// Announces a body and sends it byte by byte until the server cuts the connection.
async fn slow_body(mut client: TlsStream<TcpStream>) -> Result<()> {
    let head = "POST /mutate?timeout=10s HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n\r\n";
    if client.write_all(head.as_bytes()).await.is_ok() {
        dripped(&mut client, std::iter::repeat(b' ')).await;
    }
    Ok(())
}

/// Sends bytes one after another until the server answers or closes.
async fn dripped(client: &mut TlsStream<TcpStream>, bytes: impl Iterator<Item = u8>) {
    for byte in bytes {
        let sent = async { client.write_all(&[byte]).await.is_ok() && client.flush().await.is_ok() };
        if !sent.await {
            return;
        }
        if let Ok(_said) = tokio::time::timeout(DRIP, client.read(&mut [0; 1])).await {
            return;
        }
    }
}

/// Sends 8 MiB in chunks, without announcing the length. Fails if the server accepts them.
async fn large_body(mut client: TlsStream<TcpStream>) -> Result<()> {
    let head =
        "POST /mutate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let mut chunk = b"10000\r\n".to_vec();
    chunk.resize(chunk.len() + 0x1_0000, b' ');
    chunk.extend_from_slice(b"\r\n");
    let sent = async {
        client.write_all(head.as_bytes()).await?;
        for _ in 0..128 {
            client.write_all(&chunk).await?;
        }
        client.write_all(b"0\r\n\r\n").await?;
        client.flush().await
    };
    // The server may cut the connection or answer, but must not allow the request.
    if sent.await.is_ok() {
        let mut answer = [0; 12];
        let read = client.read(&mut answer).await.unwrap_or(0);
        ensure!(!answer[..read].ends_with(b"200"), "it was taken");
    }
    Ok(())
}
