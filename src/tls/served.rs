//! The certificates that a server presents in a TLS handshake, seen from a client.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WantsClientCert, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, ConfigBuilder, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::rotation::{Der, Serves};
use super::verification::vouches;

/// Timeout of the connection and its handshake together.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Certificates, leaf first.
pub type Chain = Vec<CertificateDer<'static>>;

/// Returns which of these authorities vouches for the server at `address` (`host:port`) under `name`. Takes at most
/// 3 s, sends no application data and presents no certificate: in TLS 1.3, the server's certificate arrives before
/// the missing client certificate matters.
pub async fn served(address: &str, name: &str, authorities: &[Der], now: Timestamp) -> Serves {
    let Ok(chain) = shown(address, name).await else {
        return Serves::Nothing;
    };
    let signer = authorities
        .iter()
        .find(|authority| vouches(authority, &chain, name, now).is_ok());
    signer.map_or(Serves::Other, |signer| Serves::LeafOf(Arc::clone(signer)))
}

/// Connects to `address` (`host:port`), asks for `name`, and returns the certificates that the server presents. The
/// server proves that it has the leaf's key. The chain itself is not verified. Takes at most 3 s and sends no
/// application data.
///
/// # Errors
/// The server does not answer from here, or not in TLS; the text says why. It may still answer the API server, which
/// connects from elsewhere.
pub async fn shown(address: &str, name: &str) -> Result<Chain, String> {
    let connect = async {
        // A client of its own resumes no session, in which the server would show no certificate.
        let stream = connect(with_anybody(), TcpStream::connect(address).await?, name).await?;
        let (_, connection) = stream.get_ref();
        io::Result::Ok(connection.peer_certificates().unwrap_or_default().to_vec())
    };
    let answer = tokio::time::timeout(TIMEOUT, connect).await;
    let answer = answer.map_err(|_| format!("no answer in {} s", TIMEOUT.as_secs()))?;
    answer.map_err(|error| error.to_string())
}

/// Returns a TLS client for HTTP/1.1 that accepts any certificate whose key the server has, and presents none itself.
///
/// # Errors
/// Never with our provider.
pub(crate) fn with_anybody() -> Result<TlsConnector, TlsError> {
    let mut config = with_any_name(None)?.with_no_client_auth();
    config.alpn_protocols = vec![super::ALPN.to_vec()];
    Ok(Arc::new(config).into())
}

/// Begins the settings of a TLS client that accepts servers under any name: with a certificate of these authorities, or with any.
///
/// # Errors
/// Never with our provider.
pub(super) fn with_any_name(
    authorities: Option<RootCertStore>,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, TlsError> {
    let provider = super::provider();
    let verifier = Arc::new(AnyName {
        provider: Arc::clone(&provider),
        authorities,
    });
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.dangerous().with_custom_certificate_verifier(verifier))
}

/// Makes the TLS handshake of this client, which asks for `name`.
pub(crate) async fn connect(
    client: Result<TlsConnector, TlsError>,
    stream: TcpStream,
    name: &str,
) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    client.map_err(io::Error::other)?.connect(name, stream).await
}

#[derive(Debug)]
struct AnyName {
    provider: Arc<CryptoProvider>,
    /// `None` accepts every certificate.
    authorities: Option<RootCertStore>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        if let Some(authorities) = &self.authorities {
            let leaf = ParsedCertificate::try_from(leaf)?;
            let algorithms = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(&leaf, authorities, intermediates, now, algorithms)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls12_signature(message, leaf, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, leaf, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};
    use rustls::ServerConfig;
    use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    #[tokio::test]
    async fn served_chain_is_returned_without_verification() {
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec![]).unwrap().self_signed(&key).unwrap();
        let chain = vec![leaf.der().clone()];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(super::super::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain.clone(), key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            TlsAcceptor::from(Arc::new(config)).accept(stream).await.ok()
        });
        assert_eq!(shown(&address, "edgeward.example.svc").await, Ok(chain));
        server.abort();
    }

    #[tokio::test]
    async fn served_chain_of_closed_port_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        assert!(shown(&address, "edgeward.example.svc").await.is_err());
    }
}
