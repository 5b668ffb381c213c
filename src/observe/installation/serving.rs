//! The certificate behind a webhook, looked at as the API server looks at it: by a TLS handshake that verifies it.

use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, Error as TlsError, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// How long a connection and its handshake may take.
const TIMEOUT: Duration = Duration::from_secs(3);

/// A certificate that the bundle and the name vouch for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Serving {
    /// The end of the leaf.
    pub not_after: jiff::Timestamp,
}

/// Why the API server would not believe who answers, or why that cannot be told from here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mistrust {
    /// The bundle holds no certificate, in these words.
    Bundle(String),
    /// The certificate is of an authority that is not in the bundle, or not by its key.
    Authority(String),
    /// The certificate itself does not stand: name, time or purpose.
    Certificate(String),
    /// Nobody answers here, or not in TLS. From where the API server is, that may be otherwise.
    Unreachable(String),
}

/// Connects to `address` (`host:port`) and verifies, by the certificates of `bundle` (PEM) alone, that whoever serves there
/// is `name`. Takes 3 s at most, sends nothing.
///
/// # Errors
/// [`Mistrust`].
pub async fn handshake(address: &str, name: &str, bundle: &[u8]) -> Result<Serving, Mistrust> {
    let certificates = CertificateDer::pem_slice_iter(bundle).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|error| Mistrust::Bundle(format!("is not PEM: {error}")))?;
    let mut roots = RootCertStore::empty();
    let (taken, _) = roots.add_parsable_certificates(certificates);
    if taken == 0 {
        return Err(Mistrust::Bundle("holds no certificate".to_owned()));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Mistrust::Unreachable(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let server = ServerName::try_from(name.to_owned());
    let server = server.map_err(|error| Mistrust::Unreachable(format!("{name:?} is no name of a server: {error}")))?;
    let connect = async {
        let stream = TcpStream::connect(address)
            .await
            .map_err(|error| Mistrust::Unreachable(error.to_string()))?;
        let connected = TlsConnector::from(Arc::new(config)).connect(server, stream).await;
        let stream = connected.map_err(|error| mistrust(&error))?;
        let (_, connection) = stream.get_ref();
        let leaf = connection.peer_certificates().and_then(<[_]>::first);
        leaf.and_then(|leaf| not_after(leaf))
            .map(|not_after| Serving { not_after })
            .ok_or_else(|| Mistrust::Unreachable("no certificate was shown".to_owned()))
    };
    let answer = tokio::time::timeout(TIMEOUT, connect).await;
    answer.unwrap_or_else(|_| Err(Mistrust::Unreachable(format!("no answer in {} s", TIMEOUT.as_secs()))))
}

/// A handshake fails as an I/O error, whatever the cause.
fn mistrust(error: &std::io::Error) -> Mistrust {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<TlsError>());
    match cause {
        // Go, which the API server is written in, also takes a certificate that is its own authority.
        Some(TlsError::InvalidCertificate(CertificateError::Other(_))) | None => {
            Mistrust::Unreachable(error.to_string())
        }
        Some(TlsError::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature)) => {
            Mistrust::Authority(error.to_string())
        }
        Some(TlsError::InvalidCertificate(_)) => Mistrust::Certificate(error.to_string()),
        Some(_) => Mistrust::Unreachable(error.to_string()),
    }
}

fn not_after(leaf: &CertificateDer<'_>) -> Option<jiff::Timestamp> {
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    jiff::Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
    use rustls::ServerConfig;
    use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    /// What is thought of a server with a certificate for `edgeward.example.svc` that ends in this year.
    async fn asked(
        authority: &CertifiedIssuer<'static, KeyPair>,
        end: i32,
        name: &str,
        bundle: &str,
    ) -> Result<Serving, Mistrust> {
        let mut params = CertificateParams::new(vec!["edgeward.example.svc".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(end, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, authority).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serve = async move {
            let (stream, _) = listener.accept().await.unwrap();
            TlsAcceptor::from(Arc::new(config)).accept(stream).await.ok()
        };
        let server = tokio::spawn(serve);
        let answer = handshake(&address, name, bundle.as_bytes()).await;
        server.abort();
        answer
    }

    #[tokio::test]
    async fn chain_name_and_time_are_verified() {
        const NAME: &str = "edgeward.example.svc";
        let (ours, other) = (authority("ours"), authority("other"));
        let bundle = ours.pem();
        let good = asked(&ours, 2999, NAME, &bundle).await.unwrap();
        assert_eq!(good.not_after.to_string(), "2999-01-01T00:00:00Z");
        // Two authorities, as while one is rotated.
        let both = format!("{}{bundle}", other.pem());
        assert!(asked(&ours, 2999, NAME, &both).await.is_ok());

        let stranger = |answer| match answer {
            Err(Mistrust::Authority(words)) => words,
            other => panic!("{other:?}"),
        };
        let words = |answer| match answer {
            Err(Mistrust::Certificate(words)) => words,
            other => panic!("{other:?}"),
        };
        assert!(stranger(asked(&other, 2999, NAME, &bundle).await).contains("UnknownIssuer"));
        assert!(words(asked(&ours, 2999, "other.example.svc", &bundle).await).contains("not valid for name"));
        assert!(words(asked(&ours, 2001, NAME, &bundle).await).contains("expired"));
        // An authority of the same name with another key.
        let same_name = authority("ours");
        assert!(stranger(asked(&same_name, 2999, NAME, &bundle).await).contains("BadSignature"));
        for nothing in ["", "nonsense"] {
            let answer = asked(&ours, 2999, NAME, nothing).await;
            assert_eq!(answer, Err(Mistrust::Bundle("holds no certificate".into())));
        }
    }

    #[tokio::test]
    async fn nobody_is_not_a_wrong_certificate() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let answer = handshake(&address, "edgeward.example.svc", authority("ours").pem().as_bytes()).await;
        assert!(matches!(answer, Err(Mistrust::Unreachable(_))), "{answer:?}");
    }
}
