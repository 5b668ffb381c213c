//! A client that shows details which HTTP libraries hide: the negotiated protocol, the served chain, the raw answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Time limit for a condition to come true. Tests never depend on a shorter time.
pub(crate) const BOUND: Duration = Duration::from_secs(60);

const REVIEW: &str = r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u"}}"#;

#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) ca_bundle: String,
    pub(crate) alpn: &'static [&'static [u8]],
    pub(crate) versions: &'static [&'static SupportedProtocolVersion],
    /// The name that the server's certificate must have.
    pub(crate) name: &'static str,
    /// The client's certificate and key, in PEM.
    pub(crate) identity: Option<(String, String)>,
}

pub(crate) struct Connection {
    stream: BufReader<TlsStream<TcpStream>>,
}

#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Client {
    pub(crate) fn new(address: SocketAddr, ca_bundle: &str) -> Self {
        Self {
            address,
            ca_bundle: ca_bundle.to_owned(),
            alpn: &[],
            versions: rustls::DEFAULT_VERSIONS,
            name: "localhost",
            identity: None,
        }
    }

    pub(crate) async fn connect(&self) -> std::io::Result<Connection> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(self.ca_bundle.as_bytes()) {
            roots.add(certificate.expect("PEM")).expect("a root");
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(self.versions)
            .expect("versions")
            .with_root_certificates(roots);
        let mut config = match &self.identity {
            Some((certificate, key)) => {
                let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).map(|der| der.expect("PEM"));
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("a key");
                config.with_client_auth_cert(chain.collect(), key).expect("a pair")
            }
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = self.alpn.iter().map(|protocol| protocol.to_vec()).collect();
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from(self.name).expect("a name");
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        // A TLS 1.3 client finishes its handshake before the server has verified it. A refusal shows at the next read or write.
        stream.flush().await?;
        Ok(Connection {
            stream: BufReader::new(stream),
        })
    }

    pub(crate) async fn post(&self) -> std::io::Result<Answered> {
        self.connect().await?.post().await
    }
}

impl Connection {
    pub(crate) fn protocol(&self) -> Option<&[u8]> {
        self.stream.get_ref().get_ref().1.alpn_protocol()
    }

    pub(crate) fn chain(&self) -> Vec<Vec<u8>> {
        let chain = self
            .stream
            .get_ref()
            .get_ref()
            .1
            .peer_certificates()
            .unwrap_or_default();
        chain.iter().map(|der| der.to_vec()).collect()
    }

    pub(crate) async fn post(&mut self) -> std::io::Result<Answered> {
        self.post_to("/mutate", REVIEW).await
    }

    pub(crate) async fn post_to(&mut self, target: &str, review: &str) -> std::io::Result<Answered> {
        self.post_with("", target, review).await
    }

    pub(crate) async fn post_with(&mut self, more: &str, target: &str, review: &str) -> std::io::Result<Answered> {
        self.send(&format!("{}{more}\r\n{review}", head(target, review.len())))
            .await?;
        self.receive().await
    }

    /// Sends the head of a review and returns once the server waits for the body.
    pub(crate) async fn begin_post(&mut self) -> std::io::Result<()> {
        let head = head("/mutate?timeout=30s", REVIEW.len());
        self.send(&format!("{head}expect: 100-continue\r\n\r\n")).await?;
        let interim = self.receive().await?;
        assert_eq!(interim.status, 100, "{interim:?}");
        Ok(())
    }

    pub(crate) async fn end_post(&mut self) -> std::io::Result<Answered> {
        self.send(REVIEW).await?;
        self.receive().await
    }

    /// Waits until the server closes the connection or sends something; true if it closed.
    pub(crate) async fn is_closed(&mut self) -> bool {
        matches!(self.stream.read(&mut [0; 1]).await, Ok(0) | Err(_))
    }

    async fn send(&mut self, text: &str) -> std::io::Result<()> {
        self.stream.write_all(text.as_bytes()).await?;
        self.stream.flush().await
    }

    async fn receive(&mut self) -> std::io::Result<Answered> {
        receive(&mut self.stream).await
    }
}

/// The head of a review with this content length, without the final empty line.
fn head(target: &str, length: usize) -> String {
    format!("POST {target} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n")
}

impl Answered {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(header, _)| header == name)
            .map(|(_, value)| value.as_str())
    }
}

/// The certificate in this PEM file.
pub(crate) fn der(pem: &str) -> Vec<u8> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM").to_vec()
}

/// `GET` over plain HTTP.
pub(crate) async fn get(address: SocketAddr, path: &str) -> std::io::Result<Answered> {
    let mut stream = BufReader::new(TcpStream::connect(address).await?);
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes())
        .await?;
    receive(&mut stream).await
}

pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(BOUND, waiting)
        .await
        .unwrap_or_else(|_| panic!("never happened: {what}"));
}

async fn receive(stream: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> std::io::Result<Answered> {
    let status_line = line(stream).await?;
    let status = status_line
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .unwrap_or_default();
    let mut headers = Vec::new();
    loop {
        let line = line(stream).await?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut answered = Answered {
        status,
        headers,
        body: String::new(),
    };
    let length = answered
        .header("content-length")
        .and_then(|value| value.parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    answered.body = String::from_utf8(body).expect("UTF-8");
    Ok(answered)
}

async fn line(stream: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> std::io::Result<String> {
    let mut line = String::new();
    if stream.read_line(&mut line).await? == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end().to_owned())
}
