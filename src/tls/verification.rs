//! When a certificate is valid, and what a client would say of a chain.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{Error as TlsError, RootCertStore};
use x509_parser::prelude::X509Certificate;

/// From when to when a certificate is valid, as far as a [`Timestamp`] reaches.
pub(crate) fn validity(certificate: &X509Certificate<'_>) -> (Timestamp, Timestamp) {
    let validity = certificate.validity();
    let from = Timestamp::from_second(validity.not_before.timestamp());
    let to = Timestamp::from_second(validity.not_after.timestamp());
    (from.unwrap_or(Timestamp::MIN), to.unwrap_or(Timestamp::MAX))
}

/// Whether this authority vouches for a chain, leaf first, under this name at this time, as a client would say. It does not
/// ask whether the authority itself is valid.
///
/// # Errors
/// What the client would say.
pub(crate) fn vouches(
    authority: &[u8],
    chain: &[CertificateDer<'_>],
    name: &str,
    now: Timestamp,
) -> Result<(), TlsError> {
    let general = |error: &dyn std::fmt::Display| TlsError::General(error.to_string());
    let (leaf, intermediates) = chain.split_first().ok_or(TlsError::NoCertificatesPresented)?;
    let mut authorities = RootCertStore::empty();
    authorities.add(CertificateDer::from(authority))?;
    let name = ServerName::try_from(name).map_err(|error| general(&error))?;
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(authorities), super::provider())
        .build()
        .map_err(|error| general(&error))?;
    let now = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(now.as_second()).unwrap_or(0)));
    verifier
        .verify_server_cert(leaf, intermediates, &name, &[], now)
        .map(drop)
}
