//! The check of who connects: only clients with a certificate of an authority in a file, where one is named.

use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error as TlsError, RootCertStore, SignatureScheme};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::files::Content;

/// Why a file with authorities of clients is not used.
#[derive(Debug, thiserror::Error)]
pub enum ClientCaFault {
    /// Not PEM.
    #[error("it is not valid PEM: {0}")]
    Pem(#[from] pem::Error),
    /// PEM without a certificate.
    #[error("it holds no CERTIFICATE block")]
    Empty,
    /// A certificate that cannot be an authority.
    #[error("certificate {position} of it cannot be used: {source}")]
    Unusable {
        /// Counted from 1.
        position: usize,
        /// What is wrong.
        source: TlsError,
    },
    /// All of them are over.
    #[error("the last of its certificates expired at {not_after}")]
    Expired {
        /// When.
        not_after: Timestamp,
    },
    /// Not a set of authorities after all.
    #[error("it cannot be used: {0}")]
    Verifier(#[from] VerifierBuilderError),
}

/// The authorities of a file.
#[derive(Debug)]
pub(super) struct ClientCa {
    verifier: Arc<dyn ClientCertVerifier>,
    /// When the last of them is over.
    pub(super) not_after: Timestamp,
}

impl ClientCa {
    pub(super) fn from_contents(contents: &[Content], now: Timestamp) -> Result<Self, ClientCaFault> {
        let bytes: Vec<u8> = contents.iter().flat_map(|content| content.bytes.clone()).collect();
        let mut roots = RootCertStore::empty();
        let mut not_after = Timestamp::MIN;
        for (i, der) in CertificateDer::pem_slice_iter(&bytes).enumerate() {
            let der = der?;
            let unusable = |source| ClientCaFault::Unusable {
                position: i + 1,
                source,
            };
            let (_, parsed) =
                X509Certificate::from_der(&der).map_err(|error| unusable(TlsError::General(error.to_string())))?;
            let ends = Timestamp::from_second(parsed.validity().not_after.timestamp());
            not_after = not_after.max(ends.unwrap_or(Timestamp::MAX));
            roots.add(der).map_err(unusable)?;
        }
        if roots.is_empty() {
            return Err(ClientCaFault::Empty);
        }
        if not_after < now {
            return Err(ClientCaFault::Expired { not_after });
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), super::provider()).build()?;
        Ok(Self { verifier, not_after })
    }
}

/// Judges clients by the authorities of the moment. It asks for no particular ones: whoever has a certificate shows it.
#[derive(Debug)]
pub(super) struct Clients(pub(super) ArcSwap<ClientCa>);

impl Clients {
    fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.0.load().verifier)
    }
}

impl ClientCertVerifier for Clients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, TlsError> {
        self.verifier().verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.verifier().verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        self.verifier().verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier().supported_verify_schemes()
    }
}
