//! A `caBundle`: PEM certificates, some of edgeward and some of other owners.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::authority::Service;
use super::rotation::{Certificate, Der};

/// Returns the authorities of this Service in a bundle. Blocks that cannot be parsed belong to other owners and are
/// skipped.
pub fn authorities(bundle: &[u8], service: &Service) -> Vec<Certificate> {
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
    use jiff::{SignedDuration, Timestamp};

    use super::*;
    use crate::tls::authority::Authority;

    fn service(namespace: &str) -> Service {
        Service {
            name: "edgeward".into(),
            namespace: namespace.into(),
        }
    }

    fn made(namespace: &str) -> String {
        let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        Authority::make(&service(namespace), now, SignedDuration::from_hours(1))
            .unwrap()
            .certificate
    }

    fn der(pem: &str) -> Der {
        Der::from(&*CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
    }

    fn with(bundle: &str, wanted: &[&str]) -> String {
        let wanted = wanted.iter().map(|pem| der(pem)).collect();
        String::from_utf8(with_authorities(bundle.as_bytes(), &wanted, &service("ours"))).unwrap()
    }

    #[test]
    fn bundle_update_keeps_authorities_of_others() {
        let [old, new, other] = [made("ours"), made("ours"), made("others")];
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

        let found = authorities(three.as_bytes(), &service("ours"));
        assert_eq!(
            found.iter().map(|found| found.der.clone()).collect::<Vec<_>>(),
            [der(&old), der(&new)]
        );
        assert!(authorities(&[0xff, 0xfe], &service("ours")).is_empty());
    }
}
