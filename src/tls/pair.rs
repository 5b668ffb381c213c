//! A certificate and its private key, read from PEM and checked before they are served.

use std::sync::Arc;

use anyhow::{Context as _, anyhow, ensure};
use jiff::Timestamp;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error as TlsError, InconsistentKeys};

use super::rotation::Certificate;
use super::verification::parse;

/// A checked certificate chain with the private key of its leaf.
#[derive(Debug)]
pub struct Pair {
    /// The chain and key, as rustls serves them.
    pub key: Arc<CertifiedKey>,
    /// The leaf certificate.
    pub certificate: Certificate,
    /// The subject alternative names of the leaf, for logs.
    pub names: Vec<String>,
}

impl Pair {
    /// Reads a chain and a key from PEM. Checks that the key belongs to the leaf and that the leaf has not expired.
    ///
    /// Other PEM blocks (parameters, a certificate in the key file) are skipped.
    ///
    /// # Errors
    /// The text names the first thing that is wrong.
    pub fn from_pem(cert: &[u8], key: &[u8], now: Timestamp) -> anyhow::Result<Self> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(cert).collect();
        let chain = chain.map_err(|error| anyhow!("the certificate is not valid PEM: {error}"))?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| match error {
            pem::Error::NoItemsFound => {
                anyhow!("the key file holds no private key (PRIVATE KEY, RSA PRIVATE KEY or EC PRIVATE KEY block)")
            }
            error => anyhow!("the private key is not valid PEM: {error}"),
        })?;
        // A client that parses the whole chain, such as the API server, would reject a broken certificate in it.
        let parsed = chain.iter().zip(1..).map(|(der, number)| {
            let parsed = parse(der);
            parsed.map_err(|error| anyhow!("certificate {number} of the chain cannot be parsed: {error}"))
        });
        let parsed = parsed.collect::<anyhow::Result<Vec<_>>>()?;
        let leaf = parsed
            .first()
            .context("the certificate file holds no CERTIFICATE block")?;
        let certificate = Certificate::read(&chain[0], leaf);
        let names = leaf.subject_alternative_name().ok().flatten();
        let names = names.iter().flat_map(|names| &names.value.general_names);
        let names = names.map(ToString::to_string).collect();
        drop(parsed);
        let key = CertifiedKey::from_der(chain, key, &super::provider()).map_err(|error| match error {
            TlsError::InconsistentKeys(InconsistentKeys::KeyMismatch) => anyhow!(
                "the private key does not belong to the first certificate of the file, which must be the server's own"
            ),
            error => anyhow!("the private key cannot be used: {error}"),
        })?;
        ensure!(
            !certificate.has_expired(now),
            "the certificate expired at {}",
            certificate.ends
        );
        Ok(Self {
            key: Arc::new(key),
            certificate,
            names,
        })
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn now() -> Timestamp {
        "2026-11-20T12:00:00Z".parse().expect("a timestamp")
    }

    /// A certificate for `key`, valid from the start of one year to the start of the other.
    fn issued(years: std::ops::Range<i32>, key: &KeyPair) -> String {
        let mut params = CertificateParams::new(vec!["edgeward.example.svc".to_owned(), "127.0.0.1".to_owned()])
            .expect("valid names");
        params.not_before = date_time_ymd(years.start, 1, 1);
        params.not_after = date_time_ymd(years.end, 1, 1);
        params.self_signed(key).expect("signed").pem()
    }

    #[test]
    fn valid_key_pair_exposes_names_and_expiry() {
        let key = KeyPair::generate().expect("key");
        let pair = Pair::from_pem(
            issued(2026..2027, &key).as_bytes(),
            key.serialize_pem().as_bytes(),
            now(),
        )
        .expect("good");
        assert_eq!(pair.names, ["DNSName(edgeward.example.svc)", "IPAddress(7f:00:00:01)"]);
        assert_eq!(pair.certificate.ends.to_string(), "2027-01-01T00:00:00Z");
    }

    #[test]
    fn certificate_chain_and_unrelated_pem_blocks_are_accepted() {
        let (key, other) = (KeyPair::generate().expect("key"), KeyPair::generate().expect("key"));
        let chain = format!("comment\n{}{}", issued(2026..2027, &key), issued(2020..2030, &other));
        let keys = format!("{}{}", other.public_key_pem(), key.serialize_pem());
        let pair = Pair::from_pem(chain.as_bytes(), keys.as_bytes(), now()).expect("good");
        assert_eq!(pair.key.cert.len(), 2);
    }

    #[test]
    fn invalid_key_pair_is_refused_with_its_cause() {
        let (key, other) = (KeyPair::generate().expect("key"), KeyPair::generate().expect("key"));
        let (good, pem) = (issued(2026..2027, &key), key.serialize_pem());
        let refused = |cert: &str, key: &str| {
            Pair::from_pem(cert.as_bytes(), key.as_bytes(), now())
                .expect_err("refused")
                .to_string()
        };
        assert!(refused("", &pem).contains("no CERTIFICATE block"));
        assert!(refused(&good, "").contains("no private key"));
        assert!(refused(&good, &good).contains("no private key"));
        assert!(refused(&good.replace("-----END CERTIFICATE-----", ""), &pem).contains("certificate is not valid PEM"));
        assert!(
            refused("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", &pem)
                .contains("certificate 1 of the chain cannot be parsed")
        );
        assert!(
            refused(
                &format!("{good}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
                &pem
            )
            .contains("certificate 2 of the chain cannot be parsed")
        );
        let mut longer = CertificateDer::from_pem_slice(good.as_bytes())
            .expect("a certificate")
            .to_vec();
        longer.extend([0; 3]);
        let longer = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, longer);
        let longer = format!("{good}-----BEGIN CERTIFICATE-----\n{longer}\n-----END CERTIFICATE-----\n");
        assert!(refused(&longer, &pem).contains("certificate 2 of the chain cannot be parsed: 3 bytes follow it"));
        assert!(refused(&good, &other.serialize_pem()).contains("does not belong to the first certificate"));
        assert!(
            refused(&good, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
                .contains("private key cannot be used")
        );
        assert!(refused(&issued(2025..2026, &key), &pem).contains("expired at 2026-01-01T00:00:00Z"));
    }

    /// A PKCS#8 key wraps the same key in its older form (SEC1 or PKCS#1), which this extracts.
    fn older_form(key: &KeyPair, label: &str) -> String {
        let (_, outer) = x509_parser::der_parser::parse_der(key.serialized_der()).expect("DER");
        let inner = outer.as_sequence().expect("a sequence")[2]
            .as_slice()
            .expect("an octet string");
        let base64 = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, inner);
        format!("-----BEGIN {label}-----\n{base64}\n-----END {label}-----\n")
    }

    #[test]
    fn pkcs8_pkcs1_and_sec1_keys_are_accepted() {
        let ec = KeyPair::generate().expect("key");
        let rsa = KeyPair::from_pem(include_str!("pair/rsa-key-of-tests.pem")).expect("key");
        for (key, pem) in [
            (&ec, ec.serialize_pem()),
            (&ec, older_form(&ec, "EC PRIVATE KEY")),
            (&rsa, rsa.serialize_pem()),
            (&rsa, older_form(&rsa, "RSA PRIVATE KEY")),
        ] {
            let cert = issued(2026..2027, key);
            Pair::from_pem(cert.as_bytes(), pem.as_bytes(), now()).unwrap_or_else(|fault| panic!("{fault}\n{pem}"));
        }
    }
}
