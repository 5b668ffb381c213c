//! The certificate that a server presents in a TLS handshake, and whether a CA trusts it.
//!
//! The webhook has similar code in `tls::served`. It is not used here, because it would test itself. It would also make every
//! unit test of the webhook wait for the harness, and the harness for the webhook.

use std::net::SocketAddr;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::prelude::*;

pub(crate) type Chain = Vec<CertificateDer<'static>>;

/// The chain that the server at this address presents for `name`, trusted or not.
pub(crate) async fn shown(address: SocketAddr, name: &'static str) -> Result<Chain> {
    let provider = CryptoProvider::get_default().context("no TLS provider")?;
    let config = ClientConfig::builder()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody(Arc::clone(provider))))
        .with_no_client_auth();
    let connect = async {
        let stream = TcpStream::connect(address).await?;
        let connector = TlsConnector::from(Arc::new(config));
        let stream = connector.connect(ServerName::try_from(name)?, stream).await?;
        let (_, connection) = stream.get_ref();
        anyhow::Ok(connection.peer_certificates().unwrap_or_default().to_vec())
    };
    tokio::time::timeout(BOUND, connect).await?
}

/// Fails unless one of these CAs (PEM) validates the chain for this name.
pub(crate) fn vouch(authorities: &str, chain: &[CertificateDer<'_>], name: &'static str) -> Result<()> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(authorities.as_bytes()) {
        roots.add(authority?)?;
    }
    let verifier = WebPkiServerVerifier::builder(Arc::new(roots)).build()?;
    let (leaf, others) = chain.split_first().context("no certificate")?;
    verifier.verify_server_cert(leaf, others, &ServerName::try_from(name)?, &[], UnixTime::now())?;
    Ok(())
}

#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, leaf, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, leaf, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
