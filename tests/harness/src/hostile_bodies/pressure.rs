//! Measures a server's memory while clients send hostile bodies at the same time.

use std::cmp::Reverse;
use std::net::SocketAddr;

use futures::future::join_all;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Barrier;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Hostile, PARTS, ordinary};
use crate::prelude::*;
use crate::process::memory_kib;

/// Upper limit for any mix of bodies, in KiB. This is the container's memory without the share for the cluster's pods.
pub const MOST_KIB: u64 = 192 * 1024;

const CONNECTIONS: usize = 760;

const ORDINARY: usize = 100;

/// Length of a header field in each request head. The server accepts little more.
const HEAD: usize = 15_000;

const WORST: usize = 5;

#[derive(Clone)]
pub struct Target {
    address: SocketAddr,
    name: ServerName<'static>,
    pid: u32,
    connector: TlsConnector,
}

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub body: usize,
    pub ordinary: usize,
}

/// Resident memory, in KiB.
#[derive(Debug, Clone, Copy)]
pub struct Resident {
    pub before: u64,
    pub most: u64,
}

/// Tries each part by itself and the mixtures of these seeds, a few at a time. Then sends the worst body on all allowed
/// connections at once, three times. Prints the memory of each. Fails if the review of an ordinary pod gets no answer
/// meanwhile.
pub async fn press(target: &Target, limits: Limits, seeds: std::ops::Range<u64>) -> Result<Resident> {
    let before = memory_kib(target.pid, "VmRSS")?;
    let parts = PARTS.iter().copied().map(Hostile::Of);
    let tried: Vec<Hostile> = parts.chain(seeds.map(Hostile::Mixture)).collect();
    let (large, of_large) = worst(target, "large", &tried, 2, limits.body).await?;
    let (small, of_small) = worst(target, "ordinary", &tried, 32, limits.ordinary).await?;

    target.forget_peak()?;
    let ordinary = Arc::new(ordinary());
    let mut bodies = vec![ordinary; ORDINARY];
    bodies.extend(large.iter().map(|worst| Arc::new(worst.body(limits.body))));
    let small: Vec<_> = small
        .iter()
        .map(|worst| Arc::new(worst.body(limits.ordinary)))
        .collect();
    bodies.extend(small.iter().cycle().take(CONNECTIONS - bodies.len()).cloned());
    for _ in 0..3 {
        let answers = target.together(&bodies, ORDINARY).await?;
        let answered = answers[..ORDINARY].iter().filter(|&&status| status == 200).count();
        ensure!(
            answered == ORDINARY,
            "{answered} of {ORDINARY} ordinary ones were answered"
        );
    }
    let together = memory_kib(target.pid, "VmHWM")?;
    let most = together.max(of_large).max(of_small);
    println!("memory: KiB resident before: {before}, all at once: {together}, at most: {most}");
    Ok(Resident { before, most })
}

/// The bodies that took most, and the highest resident memory in KiB.
async fn worst(
    target: &Target,
    size: &str,
    tried: &[Hostile],
    at_once: usize,
    bytes: usize,
) -> Result<(Vec<Hostile>, u64)> {
    let mut found = Vec::new();
    for &hostile in tried {
        target.forget_peak()?;
        let before = memory_kib(target.pid, "VmRSS")?;
        let body = Arc::new(hostile.body(bytes));
        target.together(&vec![body; at_once], 0).await?;
        let most = memory_kib(target.pid, "VmHWM")?;
        found.push((most.saturating_sub(before), most, hostile));
    }
    found.sort_by_key(|(more, ..)| Reverse(*more));
    println!("memory: | {at_once} {size} bodies of | MiB more | MiB at most |");
    for (more, most, hostile) in found.iter().take(20) {
        println!("memory: | {} | {} | {} |", hostile.name(), more / 1024, most / 1024);
    }
    let most = found.iter().map(|(_, most, _)| *most).max().unwrap_or_default();
    let worst = found.into_iter().map(|(.., hostile)| hostile).take(WORST);
    Ok((worst.collect(), most))
}

impl Target {
    /// `name` is one of the server's certificate, and `ca` its authority in PEM.
    pub fn new(address: SocketAddr, name: &str, ca: &str, pid: u32) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(ca.as_bytes())?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            address,
            name: ServerName::try_from(name.to_owned())?,
            pid,
            connector: TlsConnector::from(Arc::new(config)),
        })
    }

    fn forget_peak(&self) -> Result<()> {
        Ok(fs::write(format!("/proc/{}/clear_refs", self.pid), "5")?)
    }

    /// Sends each body on its own connection. The first ones, `late` in number, begin once the others have begun, because the
    /// server ends a request that takes long. Each last byte is sent once all other bytes of all bodies are sent. Returns the
    /// status of each answer, or 0 without an answer.
    async fn together(&self, bodies: &[Arc<Vec<u8>>], late: usize) -> Result<Vec<u16>> {
        let [others, all] = [(); 2].map(|()| Arc::new(Barrier::new(bodies.len())));
        let clients = bodies.iter().enumerate().map(|(i, body)| {
            let (target, body) = (self.clone(), Arc::clone(body));
            let (others, all) = (Arc::clone(&others), Arc::clone(&all));
            tokio::spawn(async move {
                let begun = if i < late {
                    others.wait().await;
                    target.begin(&body).await
                } else {
                    let begun = target.begin(&body).await;
                    others.wait().await;
                    begun
                };
                all.wait().await;
                match begun {
                    Ok(stream) => end(stream, &body).await.unwrap_or(0),
                    Err(_) => 0,
                }
            })
        });
        let answers = tokio::time::timeout(BOUND, join_all(clients))
            .await
            .context("no answer")?;
        Ok(answers.into_iter().collect::<Result<_, _>>()?)
    }

    async fn begin(&self, body: &[u8]) -> Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        let mut stream = self.connector.connect(self.name.clone(), stream).await?;
        let head = format!(
            "POST /mutate?timeout=30s HTTP/1.1\r\nhost: x\r\nx: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            "x".repeat(HEAD),
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&body[..body.len() - 1]).await?;
        stream.flush().await?;
        Ok(stream)
    }
}

async fn end(mut stream: TlsStream<TcpStream>, body: &[u8]) -> Result<u16> {
    stream.write_all(&body[body.len() - 1..]).await?;
    stream.flush().await?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await?;
    let status = str::from_utf8(&answer)?.strip_prefix("HTTP/1.1 ");
    Ok(status.context("no HTTP")?.parse()?)
}
