//! edgeward's own certificate authority, the leaves it signs, and the `caBundle` in which it is published beside those of
//! other owners.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::pair::Pair;
use super::rotation::{BACKDATED, Certificate, Der};
use super::verification::parse;

/// Our Service, the subject of our own certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Name of the Service.
    pub name: String,
    /// Namespace of the Service.
    pub namespace: String,
}

impl Service {
    /// The DNS name that API servers ask for.
    pub fn dns_name(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }

    /// The subject that identifies an authority of this Service in a bundle.
    fn subject(&self) -> [(DnType, &str); 3] {
        [
            (DnType::CommonName, "edgeward CA"),
            (DnType::OrganizationName, &self.namespace),
            (DnType::OrganizationalUnitName, &self.name),
        ]
    }

    /// Returns the certificate if it is an authority that edgeward made for this Service.
    fn authority(&self, der: &[u8]) -> Option<Certificate> {
        let parsed = parse(der).ok()?;
        let subject = parsed.subject();
        let found = [
            subject.iter_common_name().next(),
            subject.iter_organization().next(),
            subject.iter_organizational_unit().next(),
        ];
        let found = found.map(|value| value.and_then(|value| value.as_str().ok()));
        let is_ours = parsed.is_ca() && found == self.subject().map(|(_, value)| Some(value));
        is_ours.then(|| Certificate::read(der, &parsed))
    }
}

/// A certificate with its private key, both PEM.
#[derive(Debug, Clone)]
pub struct Pem {
    /// The certificate.
    pub certificate: String,
    /// The private key, PKCS#8.
    pub key: String,
}

/// An authority that edgeward made and can sign with. Its key and those of its leaves are ECDSA P-256.
#[derive(Debug)]
pub struct Authority {
    /// The certificate of the authority.
    pub certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Makes a self-signed authority that is valid from now (backdated by an hour) for `life`.
    ///
    /// # Errors
    /// The crypto provider fails.
    pub fn make(service: &Service, now: Timestamp, life: SignedDuration) -> Result<Pem, rcgen::Error> {
        let key = KeyPair::generate()?;
        let ends = now.saturating_add(life).unwrap_or(Timestamp::MAX);
        let mut params = params(vec![], &service.subject(), now, ends)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(Pem {
            certificate: params.self_signed(&key)?.pem(),
            key: key.serialize_pem(),
        })
    }

    /// Reads an authority that edgeward made.
    ///
    /// # Errors
    /// The text names the first thing that is wrong.
    pub fn read(certificate: &[u8], key: &[u8], service: &Service, now: Timestamp) -> anyhow::Result<Self> {
        let certificate = Pair::from_pem(certificate, key, now)?.certificate;
        let ours = service.authority(&certificate.der);
        let certificate = ours.context("the certificate is not an authority that we made for our Service")?;
        let der = CertificateDer::from(&*certificate.der);
        let issuer =
            KeyPair::from_pem(&String::from_utf8_lossy(key)).and_then(|key| Issuer::from_ca_cert_der(&der, key));
        let issuer = issuer.map_err(|error| anyhow!("the private key cannot be used: {error}"))?;
        Ok(Self { certificate, issuer })
    }

    /// Makes a leaf for these names that is valid from now (backdated by an hour). It never outlives the authority.
    ///
    /// # Errors
    /// A name cannot be in a certificate, or the crypto provider fails.
    pub fn issue(&self, names: &[String], now: Timestamp, life: SignedDuration) -> Result<Pem, rcgen::Error> {
        let ends = now.saturating_add(life).unwrap_or(Timestamp::MAX);
        let mut leaf = params(
            names.to_vec(),
            &[(DnType::CommonName, "edgeward")],
            now,
            ends.min(self.certificate.ends),
        )?;
        leaf.use_authority_key_identifier_extension = true;
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        Ok(Pem {
            certificate: leaf.signed_by(&key, &self.issuer)?.pem(),
            key: key.serialize_pem(),
        })
    }
}

fn params(
    names: Vec<String>,
    subject: &[(DnType, &str)],
    made: Timestamp,
    ends: Timestamp,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    for (kind, value) in subject {
        params.distinguished_name.push(kind.clone(), *value);
    }
    let at = |at: Timestamp| {
        let since_epoch = Duration::from_secs(u64::try_from(at.as_second()).unwrap_or(0));
        date_time_ymd(1970, 1, 1) + since_epoch
    };
    params.not_before = at(made.saturating_sub(BACKDATED).unwrap_or(Timestamp::MIN));
    params.not_after = at(ends);
    Ok(params)
}

/// Returns the authorities of this Service in a `caBundle` (PEM). Blocks that cannot be parsed belong to other owners and are
/// skipped.
pub fn authorities_in(bundle: &[u8], service: &Service) -> Vec<Certificate> {
    let all = CertificateDer::pem_slice_iter(bundle).flatten();
    all.filter_map(|der| service.authority(&der)).collect()
}

/// Returns the bundle with exactly the `wanted` authorities of this Service. Certificates of other owners stay. Blocks
/// that are not certificates are dropped, because API servers ignore them.
pub fn with_authorities(bundle: &[u8], wanted: &BTreeSet<Der>, service: &Service) -> Vec<u8> {
    let mut missing = wanted.clone();
    let stays = |der: &CertificateDer<'_>| match service.authority(der) {
        Some(ours) => missing.remove(&ours.der),
        None => true,
    };
    let all = CertificateDer::pem_slice_iter(bundle).flatten();
    let kept: Vec<_> = all.filter(stays).collect();
    let kept = kept.iter().map(|der| pem(der));
    let added = missing.iter().map(|der| pem(der));
    kept.chain(added).collect::<String>().into_bytes()
}

fn pem(der: &[u8]) -> String {
    let base64 = STANDARD.encode(der);
    let lines = base64.as_bytes().chunks(64).map(String::from_utf8_lossy);
    let lines: String = lines.flat_map(|line| [line, "\n".into()]).collect();
    format!("-----BEGIN CERTIFICATE-----\n{lines}-----END CERTIFICATE-----\n")
}

#[cfg(test)]
mod tests {
    use rustls::Error as TlsError;

    use super::*;
    use crate::testkit::service;
    use crate::tls::verification::vouches;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn made(service: &Service, now: Timestamp) -> (Pem, Authority) {
        let pem = Authority::make(service, now, SignedDuration::from_hours(87_600)).unwrap();
        let read = Authority::read(pem.certificate.as_bytes(), pem.key.as_bytes(), service, now).unwrap();
        (pem, read)
    }

    fn vouched(authority: &Authority, leaf: &Pair, now: Timestamp) -> Result<(), TlsError> {
        vouches(&authority.certificate.der, &leaf.key.cert, &service().dns_name(), now)
    }

    #[test]
    fn authority_read_from_pem_issues_valid_leaves() {
        let now = at("2026-11-21T12:00:00Z");
        let (_, authority) = made(&service(), now);
        let (_, other) = made(&service(), now);
        assert_eq!(
            (authority.certificate.made, authority.certificate.ends),
            (now, at("2036-11-18T12:00:00Z"))
        );

        let life = SignedDuration::from_hours(2160);
        let pem = authority.issue(&[service().dns_name()], now, life).unwrap();
        let leaf = Pair::from_pem(pem.certificate.as_bytes(), pem.key.as_bytes(), now).unwrap();
        assert_eq!(leaf.names, ["DNSName(edgeward.edgeward-system.svc)"]);
        let certificate = &leaf.certificate;
        assert_eq!((certificate.made, certificate.ends), (now, at("2027-02-19T12:00:00Z")));
        assert_eq!(vouched(&authority, &leaf, now), Ok(()));
        // Another authority with the same subject and a different key; then a time after the end.
        assert!(vouched(&other, &leaf, now).is_err());
        assert!(vouched(&authority, &leaf, at("2027-02-19T12:00:01Z")).is_err());

        let pem = authority
            .issue(&[service().dns_name()], now, SignedDuration::from_hours(999_999))
            .unwrap();
        let leaf = Pair::from_pem(pem.certificate.as_bytes(), pem.key.as_bytes(), now).unwrap();
        assert_eq!(
            leaf.certificate.ends, authority.certificate.ends,
            "never longer than its authority"
        );
    }

    #[test]
    fn authority_of_another_service_or_key_is_refused() {
        let now = at("2026-11-21T12:00:00Z");
        let (pem, authority) = made(&service(), now);
        assert_eq!(
            service().authority(&authority.certificate.der),
            Some(authority.certificate.clone())
        );
        let neighbour = Service {
            namespace: "other".into(),
            ..service()
        };
        assert_eq!(neighbour.authority(&authority.certificate.der), None);
        let read = |certificate: &str, key: &str, service: &Service| {
            let read = Authority::read(certificate.as_bytes(), key.as_bytes(), service, now);
            read.map(|_| ()).unwrap_err().to_string()
        };
        assert!(read(&pem.certificate, &pem.key, &neighbour).contains("not an authority that we made"));
        assert!(read(&pem.certificate, &made(&service(), now).0.key, &service()).contains("does not belong"));
        let leaf = authority
            .issue(&[service().dns_name()], now, SignedDuration::from_hours(1))
            .unwrap();
        assert!(read(&leaf.certificate, &leaf.key, &service()).contains("not an authority that we made"));
    }

    fn of_namespace(namespace: &str) -> Service {
        Service {
            name: "edgeward".into(),
            namespace: namespace.into(),
        }
    }

    fn made_in(namespace: &str) -> String {
        let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        Authority::make(&of_namespace(namespace), now, SignedDuration::from_hours(1))
            .unwrap()
            .certificate
    }

    fn der(pem: &str) -> Der {
        Der::from(&*CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
    }

    fn with(bundle: &str, wanted: &[&str]) -> String {
        let wanted = wanted.iter().map(|pem| der(pem)).collect();
        String::from_utf8(with_authorities(bundle.as_bytes(), &wanted, &of_namespace("ours"))).unwrap()
    }

    #[test]
    fn bundle_update_keeps_authorities_of_others() {
        let [old, new, other] = [made_in("ours"), made_in("ours"), made_in("others")];
        assert_eq!(with("", &[&old]), old, "as it was written");
        let broken = "-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n";
        let both = with(&format!("a comment\n{other}{broken}"), &[&old]);
        assert_eq!(both, format!("{other}{old}"));
        let three = with(&both, &[&old, &new]);
        assert_eq!(three, format!("{other}{old}{new}"));
        assert_eq!(with(&three, &[&old, &new]), three, "nothing changes twice");
        assert_eq!(with(&three, &[&new]), format!("{other}{new}"));
        assert_eq!(with(&three, &[]), other);
        // A duplicate is removed.
        assert_eq!(with(&format!("{old}{old}"), &[&old]), old);

        let found = authorities_in(three.as_bytes(), &of_namespace("ours"));
        assert_eq!(
            found.iter().map(|found| found.der.clone()).collect::<Vec<_>>(),
            [der(&old), der(&new)]
        );
        assert!(authorities_in(&[0xff, 0xfe], &of_namespace("ours")).is_empty());
    }
}
