//! A `caBundle`: PEM in which others may have certificates as well.

use std::collections::BTreeSet;
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use edgeward_core::certificates::{Certificate, Der};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::authority::Service;

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// The authorities of ours in a bundle. What cannot be read is somebody else's.
#[must_use]
pub fn authorities(bundle: &[u8], service: &Service) -> Vec<Certificate> {
    let bundle = String::from_utf8_lossy(bundle);
    let ours = blocks(&bundle)
        .into_iter()
        .filter_map(|block| of_block(&bundle[block], service));
    ours.collect()
}

/// The bundle with these authorities of ours, and no others of ours. Everything else stays as it is.
#[must_use]
pub fn with_authorities(bundle: &[u8], wanted: &BTreeSet<Der>, service: &Service) -> Vec<u8> {
    let bundle = String::from_utf8_lossy(bundle);
    let mut missing = wanted.clone();
    let mut text = String::new();
    let mut rest = 0;
    for block in blocks(&bundle) {
        let is_gone = of_block(&bundle[block.clone()], service).is_some_and(|ours| !missing.remove(&ours.der));
        text.push_str(&bundle[rest..block.start]);
        rest = block.end;
        if !is_gone {
            text.push_str(&bundle[block]);
        }
    }
    text.push_str(&bundle[rest..]);
    for der in missing {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&pem(&der));
    }
    text.into_bytes()
}

fn of_block(block: &str, service: &Service) -> Option<Certificate> {
    let der = CertificateDer::from_pem_slice(block.as_bytes()).ok()?;
    service.authority(&der)
}

/// Where the certificates are, each with the end of its last line.
fn blocks(bundle: &str) -> Vec<Range<usize>> {
    let mut blocks = Vec::new();
    let mut from = 0;
    while let Some(start) = bundle[from..].find(BEGIN).map(|found| from + found) {
        let Some(end) = bundle[start..].find(END).map(|found| start + found + END.len()) else {
            break;
        };
        let line_end = bundle[end..].strip_prefix("\r\n").or(bundle[end..].strip_prefix('\n'));
        from = line_end.map_or(end, |rest| bundle.len() - rest.len());
        blocks.push(start..from);
    }
    blocks
}

fn pem(der: &[u8]) -> String {
    let base64 = STANDARD.encode(der);
    let lines = base64.as_bytes().chunks(64).map(String::from_utf8_lossy);
    let lines: String = lines.flat_map(|line| [line, "\n".into()]).collect();
    format!("{BEGIN}\n{lines}{END}\n")
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
    fn only_what_is_ours_comes_and_goes() {
        let [old, new, other] = [made("ours"), made("ours"), made("others")];
        assert_eq!(with("", &[&old]), old, "as it was written");
        let foreign = format!("a comment\n{other}{BEGIN}\nrubbish\n{END}");
        let both = with(&foreign, &[&old]);
        assert_eq!(both, format!("{foreign}\n{old}"));
        let three = with(&both, &[&old, &new]);
        assert_eq!(three, format!("{foreign}\n{old}{new}"));
        assert_eq!(with(&three, &[&old, &new]), three, "nothing changes twice");
        assert_eq!(with(&three, &[&new]), format!("{foreign}\n{new}"));
        assert_eq!(with(&three, &[]), format!("{foreign}\n"));
        // The same one twice is one too many.
        assert_eq!(with(&format!("{old}{old}"), &[&old]), old);

        let found = authorities(three.as_bytes(), &service("ours"));
        assert_eq!(
            found.iter().map(|found| found.der.clone()).collect::<Vec<_>>(),
            [der(&old), der(&new)]
        );
        assert!(authorities(&[0xff, 0xfe], &service("ours")).is_empty());
    }
}
