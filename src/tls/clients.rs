//! `--client-ca`: only clients with a certificate of an authority in that file may connect.

use std::sync::Arc;

use anyhow::{anyhow, ensure};
use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

use super::verification::{parse, validity};
use crate::platform::files::Content;

/// The client authorities of the file, at least one, each with the time when it expires.
#[derive(Debug)]
pub(super) struct ClientCa(pub(super) Vec<(Timestamp, CertificateDer<'static>)>);

impl ClientCa {
    pub(super) fn from_contents(contents: &[Content], now: Timestamp) -> anyhow::Result<Self> {
        let bytes: Vec<u8> = contents.iter().flat_map(|content| content.bytes.clone()).collect();
        let mut authorities = Vec::new();
        for (der, number) in CertificateDer::pem_slice_iter(&bytes).zip(1..) {
            let der = der.map_err(|error| anyhow!("it is not valid PEM: {error}"))?;
            let usable = RootCertStore::empty().add(der.clone());
            usable.map_err(|error| anyhow!("certificate {number} of it cannot be used: {error}"))?;
            let (_, not_after) = validity(&parse(&der)?);
            authorities.push((not_after, der));
        }
        ensure!(!authorities.is_empty(), "it holds no CERTIFICATE block");
        let clients = Self(authorities);
        let not_after = clients.not_after();
        ensure!(not_after >= now, "the last of its certificates expired at {not_after}");
        Ok(clients)
    }

    /// When the last authority expires.
    pub(super) fn not_after(&self) -> Timestamp {
        self.0
            .iter()
            .map(|(not_after, _)| *not_after)
            .max()
            .unwrap_or(Timestamp::MIN)
    }

    /// Verifies clients against the authorities that have not expired, because rustls does not check their expiry.
    /// `None` if all have expired. The handshake names no authority, so a client sends whatever certificate it has.
    pub(super) fn verifier(&self, now: Timestamp) -> Option<Arc<dyn ClientCertVerifier>> {
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(self.roots(now)), super::provider());
        verifier.clear_root_hint_subjects().build().ok()
    }

    /// The authorities that have not expired.
    pub(super) fn roots(&self, now: Timestamp) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        let stand = self.0.iter().filter(|(not_after, _)| *not_after >= now);
        roots.add_parsable_certificates(stand.map(|(_, der)| der.clone()));
        roots
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use rustls::pki_types::UnixTime;

    use super::*;
    use crate::platform::files::Content;
    use crate::testkit::service;
    use crate::tls::Authority as Signer;

    #[test]
    fn expired_client_authority_admits_no_client() {
        let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
        let made = |hours| Signer::make(&service(), now, SignedDuration::from_hours(hours)).unwrap();
        let (short, long) = (made(1), made(9));
        let bytes = [&*short.certificate, &long.certificate].concat().into_bytes();
        let path = "clients.crt".into();
        let contents = [Content { path, bytes }];
        let after = |hours| now.checked_add(SignedDuration::from_hours(hours)).unwrap();
        let clients = ClientCa::from_contents(&contents, after(2)).unwrap();
        assert_eq!(clients.not_after(), after(9));
        // This signer lets its clients outlive it, which ours would not.
        let client = |signer: &crate::tls::Pem| {
            let key = rcgen::KeyPair::from_pem(&signer.key).unwrap();
            let issuer = rcgen::Issuer::from_ca_cert_pem(&signer.certificate, key).unwrap();
            let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
            params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
            let key = rcgen::KeyPair::generate().unwrap();
            params.signed_by(&key, &issuer).unwrap().der().clone()
        };
        let judged = |signer, at: Timestamp| {
            let second = std::time::Duration::from_secs(u64::try_from(at.as_second()).unwrap());
            let verifier = clients.verifier(at);
            let at = UnixTime::since_unix_epoch(second);
            verifier.is_some_and(|verifier| verifier.verify_client_cert(&client(signer), &[], at).is_ok())
        };
        assert_eq!((judged(&short, now), judged(&long, now)), (true, true));
        assert_eq!((judged(&short, after(2)), judged(&long, after(2))), (false, true));
        assert!(!judged(&long, after(10)));
        let fault = ClientCa::from_contents(&contents, after(10)).unwrap_err();
        assert!(fault.to_string().contains("expired at"), "{fault}");
    }
}
