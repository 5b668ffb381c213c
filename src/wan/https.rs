//! HTTPS probe. It requires an HTTP answer, but the measured time is that of the preceding TCP handshake.

use std::sync::LazyLock;

use edgeward_cluster::wan::Cause;
use http::header::{CONNECTION, HOST, USER_AGENT};
use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::tls::{connect, with_anybody};
use crate::wan::target::Lost;

/// One client for all probes, so that they resume sessions.
static CLIENT: LazyLock<Result<TlsConnector, rustls::Error>> = LazyLock::new(with_anybody);

/// Requests `path` on this new connection. Any status below 500 passes, because it shows that the server works. Any
/// certificate is accepted, because nothing secret is sent and only the status is read.
pub(super) async fn get(stream: TcpStream, host: &str, port: Option<u16>, path: &str) -> Result<(), Lost> {
    let stream = connect(CLIENT.clone(), stream, host).await;
    let stream = stream.map_err(|error| Lost::new(Cause::Tls, format!("the TLS handshake failed: {error}")))?;

    let http = |error: &dyn std::error::Error| Lost::new(Cause::Http, format!("no HTTP answer: {error}"));
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    };
    let request = http::Request::get(if path.is_empty() { "/" } else { path })
        .header(HOST, port.map_or(host.clone(), |port| format!("{host}:{port}")))
        .header(USER_AGENT, concat!("edgeward/", env!("CARGO_PKG_VERSION")))
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|error| http(&error))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| http(&error))?;
    let answer = tokio::select! {
        answer = sender.send_request(request) => answer.map_err(|error| http(&error))?,
        // The connection ends before the answer only if it fails. In that case the request fails as well.
        Err(error) = connection => return Err(http(&error)),
    };
    match answer.status() {
        status if status.is_server_error() => Err(Lost::new(Cause::Http, format!("the answer is {status}"))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use rustls::crypto::ring;
    use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::platform::clock::Clock;
    use crate::wan::target::Target;
    use edgeward_decision::model::endpoint::Endpoint;
    use edgeward_kube::units::Micros;

    /// Probes `https://127.0.0.1:<port>/readyz?x` once.
    async fn probe(listener: &TcpListener) -> Result<Micros, Lost> {
        let endpoint = format!("https://{}/readyz?x", listener.local_addr().unwrap());
        let target = Target::new(Endpoint::parse(&endpoint).unwrap(), Arc::default(), Clock::start());
        target.resolve().await;
        target.probe(Duration::from_millis(900)).await
    }

    /// Serves one request with an expired, self-signed certificate for another name. Returns the request.
    async fn serve_once(listener: &TcpListener, answer: &str) -> String {
        let mut params = rcgen::CertificateParams::new(vec!["elsewhere.example.com".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = TlsAcceptor::from(Arc::new(config)).accept(stream).await.unwrap();
        let mut request = vec![0; 4096];
        let length = stream.read(&mut request).await.unwrap();
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream.shutdown().await.ok();
        String::from_utf8(request[..length].to_vec()).unwrap()
    }

    async fn answered_with(answer: &str) -> (Result<Micros, Lost>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        tokio::join!(probe(&listener), serve_once(&listener, answer))
    }

    #[tokio::test]
    async fn https_probe_succeeds_despite_invalid_certificate() {
        for status in ["200 OK", "301 Moved Permanently", "403 Forbidden"] {
            let (outcome, request) = answered_with(&format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n")).await;
            assert!(outcome.unwrap() > Micros(0));
            assert!(request.starts_with("GET /readyz?x HTTP/1.1\r\n"), "{request}");
            assert!(request.contains("host: 127.0.0.1:"), "{request}");
        }
    }

    #[tokio::test]
    async fn https_probe_with_server_error_is_lost() {
        let (outcome, _) = answered_with("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n").await;
        assert_eq!(
            outcome,
            Err(Lost::new(Cause::Http, "the answer is 503 Service Unavailable"))
        );
        let (outcome, _) = answered_with("").await;
        assert_eq!(outcome.unwrap_err().cause, Cause::Http);
    }

    #[tokio::test]
    async fn https_probe_of_non_tls_server_is_lost() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let plain = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"220 mail.example.com ESMTP\r\n").await.unwrap();
            stream.read_to_end(&mut Vec::new()).await.ok();
        };
        let (outcome, ()) = tokio::join!(probe(&listener), plain);
        assert_eq!(outcome.unwrap_err().cause, Cause::Tls);
    }

    #[tokio::test]
    async fn https_probe_does_not_wait_for_silent_address() {
        let mute = TcpListener::bind("127.0.9.9:0").await.unwrap();
        let listener = TcpListener::bind("127.0.9.9:0").await.unwrap();
        let addresses = [&mute, &listener].map(|listener| listener.local_addr().unwrap());
        let target = Target::new(
            Endpoint::parse("https://127.0.9.9").unwrap(),
            Arc::default(),
            Clock::start(),
        );
        let served = serve_once(&listener, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        let both = async { tokio::join!(target.probe_any(addresses.into(), Duration::from_secs(60)), served).0 };
        let outcome = tokio::time::timeout(Duration::from_secs(30), both).await.unwrap();
        assert!(outcome.unwrap() > Micros(0));
    }
}
