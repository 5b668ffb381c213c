//! Validity of certificates, and the verdict of a client such as the API server on a chain.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use jiff::{SignedDuration, Timestamp};
use rustls::client::danger::ServerCertVerifier as _;
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error as TlsError, RootCertStore};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Parses a certificate. Bytes that follow it are an error, as for the API server.
pub(super) fn parse(der: &[u8]) -> anyhow::Result<X509Certificate<'_>> {
    let (rest, certificate) = X509Certificate::from_der(der)?;
    ensure!(rest.is_empty(), "{} bytes follow it", rest.len());
    Ok(certificate)
}

/// The validity period of a certificate, clamped to the range of [`Timestamp`].
pub(super) fn validity(certificate: &X509Certificate<'_>) -> (Timestamp, Timestamp) {
    let validity = certificate.validity();
    let from = Timestamp::from_second(validity.not_before.timestamp());
    let to = Timestamp::from_second(validity.not_after.timestamp());
    (from.unwrap_or(Timestamp::MIN), to.unwrap_or(Timestamp::MAX))
}

/// Verifies a chain (leaf first) against this authority, this name and this time, as a TLS client does. It does not
/// check whether the authority itself is valid now.
///
/// # Errors
/// The client's verification error.
pub(super) fn vouches(
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

/// A certificate that the bundle vouches for under the requested name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Serving {
    /// Total lifetime of the leaf.
    pub life: SignedDuration,
    /// When the leaf or the authority that vouches for it expires. If several authorities do, the latest counts.
    pub until: Timestamp,
}

/// The authorities of a `caBundle` that are valid now.
#[derive(Debug)]
pub struct Bundle {
    /// Each with the end of its validity.
    authorities: Vec<(CertificateDer<'static>, Timestamp)>,
    now: Timestamp,
}

impl Bundle {
    /// Reads PEM as the API server does: broken blocks and other items are skipped, and an authority counts only within
    /// its validity period.
    ///
    /// # Errors
    /// No authority counts. The text continues "caBundle …".
    pub fn read(pem: &[u8], now: Timestamp) -> Result<Self, String> {
        let mut authorities = Vec::new();
        let mut words = "holds no certificate".to_owned();
        for certificate in CertificateDer::pem_slice_iter(pem).flatten() {
            match parse(&certificate).map(|parsed| validity(&parsed)) {
                Ok((from, _)) if now < from => words = format!("has no authority that is valid before {from}"),
                Ok((_, to)) if to < now => words = format!("has no authority that is valid after {to}"),
                Ok((_, to)) => authorities.push((certificate, to)),
                Err(_) => {}
            }
        }
        match authorities.is_empty() {
            true => Err(words),
            false => Ok(Self { authorities, now }),
        }
    }

    /// Verifies a chain as the API server does. `name` is a host name or an IP address, and must be among the
    /// certificate's alternative names.
    ///
    /// # Errors
    /// Why the API server would refuse the server. The text continues "because it …".
    pub fn vouches(&self, chain: &[CertificateDer<'static>], name: &str) -> Result<Serving, String> {
        let leaf = chain.first().ok_or("is not there")?;
        let (from, to) = validity(&parse(leaf).map_err(|_| "cannot be parsed")?);
        // These checks come first, so that the error gives the times in words.
        if to < self.now {
            return Err(format!("expired at {to}"));
        }
        if from > self.now {
            return Err(format!("is not valid before {from}"));
        }
        let mut refusal = "is signed by no authority in caBundle".to_owned();
        let mut authority_not_after = None;
        for (authority, not_after) in &self.authorities {
            // The API server, unlike rustls, accepts a leaf that is itself in the bundle.
            let verified = match authority == leaf {
                true => is_for(leaf, name),
                false => vouches(authority, chain, name, self.now),
            };
            match verified {
                Ok(()) => authority_not_after = authority_not_after.max(Some(*not_after)),
                Err(error) => refusal = told(&error, name).unwrap_or(refusal),
            }
        }
        Ok(Serving {
            life: to.duration_since(from),
            until: to.min(authority_not_after.ok_or(refusal)?),
        })
    }
}

fn is_for(leaf: &CertificateDer<'_>, name: &str) -> Result<(), TlsError> {
    let name = ServerName::try_from(name).map_err(|error| TlsError::General(error.to_string()))?;
    verify_server_name(&ParsedCertificate::try_from(leaf)?, &name)
}

/// The error for a certificate that this authority signed; `None` if it did not sign it.
fn told(error: &TlsError, name: &str) -> Option<String> {
    use CertificateError as Fault;
    match error {
        TlsError::InvalidCertificate(Fault::UnknownIssuer | Fault::BadSignature) => None,
        TlsError::InvalidCertificate(Fault::NotValidForName | Fault::NotValidForNameContext { .. }) => {
            Some(format!("has no alternative name {name}"))
        }
        error => Some(format!("is not valid: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
        date_time_ymd,
    };

    use super::*;
    use crate::tls::Chain;

    const NAME: &str = "edgeward.example.svc";

    fn now() -> Timestamp {
        "2026-11-21T12:00:00Z".parse().unwrap()
    }

    type Authority = CertifiedIssuer<'static, KeyPair>;

    fn authority(name: &str, years: std::ops::Range<i32>) -> Authority {
        CertifiedIssuer::self_signed(authority_params(name, years), KeyPair::generate().unwrap()).unwrap()
    }

    fn authority_params(name: &str, years: std::ops::Range<i32>) -> CertificateParams {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.not_before = date_time_ymd(years.start, 1, 1);
        params.not_after = date_time_ymd(years.end, 1, 1);
        params
    }

    /// A leaf for [`NAME`] only.
    fn leaf(authority: &Authority, change: impl FnOnce(&mut CertificateParams)) -> Chain {
        let mut params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2026, 1, 1);
        params.not_after = date_time_ymd(2027, 1, 1);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        vec![params.signed_by(&key, authority).unwrap().der().clone()]
    }

    fn judged(bundle: &str, chain: &Chain, name: &str) -> Result<Serving, String> {
        Bundle::read(bundle.as_bytes(), now()).unwrap().vouches(chain, name)
    }

    const UNTRUSTED: &str = "is signed by no authority in caBundle";

    #[test]
    fn leaf_signed_by_bundle_is_trusted_for_its_names_while_valid() {
        let ours = authority("ours", 2020..2030);
        let good = leaf(&ours, |_| {});
        let serving = judged(&ours.pem(), &good, NAME).unwrap();
        assert_eq!(serving.until.to_string(), "2027-01-01T00:00:00Z");
        assert_eq!(serving.life.as_hours(), 365 * 24);
        let long = leaf(&ours, |params| params.not_after = date_time_ymd(2050, 1, 1));
        assert_eq!(
            judged(&ours.pem(), &long, NAME).unwrap().until.to_string(),
            "2030-01-01T00:00:00Z"
        );
        // Two authorities, as during a rotation.
        let both = format!("{}{}", authority("other", 2020..2040).pem(), ours.pem());
        assert_eq!(judged(&both, &good, NAME), Ok(serving));
        // Two certificates of one authority.
        let longer = authority_params("ours", 2020..2040).self_signed(ours.key()).unwrap();
        let both = format!("{}{}", longer.pem(), ours.pem());
        let serving = judged(&both, &long, NAME).unwrap();
        assert_eq!(serving.until.to_string(), "2040-01-01T00:00:00Z");

        let other = "other.example.svc";
        assert_eq!(
            judged(&ours.pem(), &good, other).unwrap_err(),
            format!("has no alternative name {other}")
        );
        let over = leaf(&ours, |params| params.not_after = date_time_ymd(2026, 11, 1));
        assert_eq!(
            judged(&ours.pem(), &over, NAME).unwrap_err(),
            "expired at 2026-11-01T00:00:00Z"
        );
        let early = leaf(&ours, |params| params.not_before = date_time_ymd(2026, 12, 1));
        assert_eq!(
            judged(&ours.pem(), &early, NAME).unwrap_err(),
            "is not valid before 2026-12-01T00:00:00Z"
        );
        // The common name is ignored.
        let nameless = leaf(&ours, |params| {
            params.subject_alt_names.clear();
            params.distinguished_name.push(DnType::CommonName, NAME);
        });
        assert!(
            judged(&ours.pem(), &nameless, NAME)
                .unwrap_err()
                .contains("no alternative name")
        );
        let client = leaf(&ours, |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        });
        assert!(
            judged(&ours.pem(), &client, NAME)
                .unwrap_err()
                .contains("extended key usage")
        );
        assert_eq!(judged(&ours.pem(), &vec![], NAME).unwrap_err(), "is not there");
    }

    #[test]
    fn foreign_authority_with_same_name_is_not_trusted() {
        let ours = authority("ours", 2020..2030);
        for foreign in [authority("other", 2020..2030), authority("ours", 2020..2030)] {
            let judged = judged(&foreign.pem(), &leaf(&ours, |_| {}), NAME);
            assert_eq!(judged, Err(UNTRUSTED.to_owned()));
        }
        let below = CertifiedIssuer::signed_by(
            authority_params("below", 2020..2030),
            KeyPair::generate().unwrap(),
            &*ours,
        );
        let below = below.unwrap();
        let mut chain = leaf(&below, |_| {});
        assert_eq!(judged(&ours.pem(), &chain, NAME), Err(UNTRUSTED.to_owned()));
        chain.push(below.der().clone());
        assert!(judged(&ours.pem(), &chain, NAME).is_ok());
    }

    #[test]
    fn certificate_in_the_bundle_is_trusted_directly() {
        let mut params = authority_params("by itself", 2020..2030);
        params.subject_alt_names = CertificateParams::new(vec![NAME.to_owned()]).unwrap().subject_alt_names;
        let itself = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let chain = vec![itself.der().clone()];
        assert!(judged(&itself.pem(), &chain, NAME).is_ok());
        assert!(
            judged(&itself.pem(), &chain, "other.example.svc")
                .unwrap_err()
                .contains("no alternative name")
        );
    }

    /// rustls accepts an authority outside its validity period; the API server does not.
    #[test]
    fn authority_outside_its_validity_period_is_not_trusted() {
        let (over, young) = (authority("ours", 2020..2026), authority("ours", 2027..2030));
        let read = |pem: &str| Bundle::read(pem.as_bytes(), now()).map(drop).unwrap_err();
        assert_eq!(
            read(&over.pem()),
            "has no authority that is valid after 2026-01-01T00:00:00Z"
        );
        assert_eq!(
            read(&young.pem()),
            "has no authority that is valid before 2027-01-01T00:00:00Z"
        );
        let other = authority("other", 2020..2030);
        let both = format!("{}{}", over.pem(), other.pem());
        assert_eq!(judged(&both, &leaf(&over, |_| {}), NAME), Err(UNTRUSTED.to_owned()));
        for nothing in [
            "",
            "nonsense",
            "-----BEGIN CERTIFICATE-----\n",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            assert_eq!(read(nothing), "holds no certificate", "{nothing}");
        }
        // A broken block affects no other.
        let broken = "-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n";
        let pem = format!("{broken}{}{broken}", other.pem());
        assert!(judged(&pem, &leaf(&other, |_| {}), NAME).is_ok());
    }
}
