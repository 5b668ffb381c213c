//! The check of who connects: only clients with a certificate of an authority in a file, where one is named.

use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error as TlsError, RootCertStore, SignatureScheme,
};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::verification::validity;
use crate::platform::files::Content;

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

/// The authorities of a file, at least one. rustls does not ask whether an authority has expired, so each is asked by itself.
#[derive(Debug)]
pub(super) struct ClientCa(Vec<Authority>);

/// One of them.
#[derive(Debug)]
pub(super) struct Authority {
    /// Its subject, for people.
    pub(super) subject: String,
    /// Its end.
    pub(super) not_after: Timestamp,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl ClientCa {
    pub(super) fn from_contents(contents: &[Content], now: Timestamp) -> Result<Self, ClientCaFault> {
        let bytes: Vec<u8> = contents.iter().flat_map(|content| content.bytes.clone()).collect();
        let mut authorities = Vec::new();
        for (i, der) in CertificateDer::pem_slice_iter(&bytes).enumerate() {
            let der = der?;
            let unusable = |source| ClientCaFault::Unusable {
                position: i + 1,
                source,
            };
            let (_, parsed) =
                X509Certificate::from_der(&der).map_err(|error| unusable(TlsError::General(error.to_string())))?;
            let (_, not_after) = validity(&parsed);
            let subject = parsed.subject().to_string();
            let mut roots = RootCertStore::empty();
            roots.add(der.clone()).map_err(unusable)?;
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), super::provider()).build()?;
            authorities.push(Authority {
                subject,
                not_after,
                verifier,
            });
        }
        let not_after = authorities.iter().map(|authority| authority.not_after).max();
        let not_after = not_after.ok_or(ClientCaFault::Empty)?;
        if not_after < now {
            return Err(ClientCaFault::Expired { not_after });
        }
        Ok(Self(authorities))
    }

    /// When the last of them is over.
    pub(super) fn not_after(&self) -> Timestamp {
        let ends = self.0.iter().map(|authority| authority.not_after);
        ends.max().unwrap_or(Timestamp::MIN)
    }

    /// Those that vouch for nobody any more.
    pub(super) fn expired(&self, now: Timestamp) -> impl Iterator<Item = &Authority> {
        self.0.iter().filter(move |authority| authority.not_after < now)
    }

    /// Asks those that have not expired.
    fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, TlsError> {
        let second = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let stand = self
            .0
            .iter()
            .filter(|authority| authority.not_after.as_second() >= second);
        let mut refusal = TlsError::InvalidCertificate(CertificateError::UnknownIssuer);
        for authority in stand {
            match authority.verifier.verify_client_cert(end_entity, intermediates, now) {
                Ok(verified) => return Ok(verified),
                // That of the one that signed tells the most.
                Err(TlsError::InvalidCertificate(CertificateError::UnknownIssuer)) => {}
                Err(error) => refusal = error,
            }
        }
        Err(refusal)
    }
}

/// Judges clients by the authorities of the moment. It asks for no particular ones: whoever has a certificate shows it.
#[derive(Debug)]
pub(super) struct Clients(pub(super) ArcSwap<ClientCa>);

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
        self.0.load().verify(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls12_signature(message, cert, dss, &super::provider().signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, cert, dss, &super::provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        super::provider().signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::platform::files::Content;
    use crate::testkit::service;
    use crate::tls::Authority as Signer;

    #[test]
    fn an_authority_that_has_expired_lets_nobody_in() {
        let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let made = |hours| Signer::make(&service(), now, SignedDuration::from_hours(hours)).unwrap();
        let (short, long) = (made(1), made(9));
        let bytes = [&*short.certificate, &long.certificate].concat().into_bytes();
        let path = "clients.crt".into();
        let contents = [Content { path, bytes }];
        let after = |hours| now.checked_add(SignedDuration::from_hours(hours)).unwrap();
        let clients = ClientCa::from_contents(&contents, after(2)).unwrap();
        let expired = |at| clients.expired(at).count();
        assert_eq!((expired(now), expired(after(2)), clients.not_after()), (0, 1, after(9)));
        // A signer that lets its clients outlive it, which ours would not.
        let client = |signer: &crate::tls::Pem| {
            let key = rcgen::KeyPair::from_pem(&signer.key).unwrap();
            let issuer = rcgen::Issuer::from_ca_cert_pem(&signer.certificate, key).unwrap();
            let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
            params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
            let key = rcgen::KeyPair::generate().unwrap();
            params.signed_by(&key, &issuer).unwrap().der().clone()
        };
        let judged = |signer, at: Timestamp| {
            let at = std::time::Duration::from_secs(u64::try_from(at.as_second()).unwrap());
            clients
                .verify(&client(signer), &[], UnixTime::since_unix_epoch(at))
                .is_ok()
        };
        assert_eq!((judged(&short, now), judged(&long, now)), (true, true));
        assert_eq!((judged(&short, after(2)), judged(&long, after(2))), (false, true));
        assert!(!judged(&long, after(10)));
        let fault = ClientCa::from_contents(&contents, after(10)).unwrap_err();
        assert!(matches!(fault, ClientCaFault::Expired { .. }), "{fault}");
    }
}
