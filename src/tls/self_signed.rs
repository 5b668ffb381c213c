//! Self-signed mode: an authority in memory, for one replica, a demonstration or a test.

use std::path::Path;

use anyhow::anyhow;
use jiff::{SignedDuration, Timestamp};

use super::Pair;
use super::authority::{Authority, Service};

/// File name of the CA bundle.
const BUNDLE: &str = "ca.crt";

/// The keys die with the process, so a shorter lifetime would gain nothing.
const VALID_FOR: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);

/// Makes an authority and its leaf for `<service>.<namespace>.svc`, `localhost` and `127.0.0.1`. Returns the leaf and
/// the authority's certificate in PEM.
pub(super) fn make(service: &Service, now: Timestamp) -> anyhow::Result<(Pair, String)> {
    let pem = Authority::make(service, now, VALID_FOR)?;
    let authority = Authority::read(pem.certificate.as_bytes(), pem.key.as_bytes(), service, now)?;
    let names = [service.dns_name(), "localhost".to_owned(), "127.0.0.1".to_owned()];
    let leaf = authority.issue(&names, now, VALID_FOR)?;
    let pair = Pair::from_pem(leaf.certificate.as_bytes(), leaf.key.as_bytes(), now)?;
    Ok((pair, pem.certificate))
}

/// Writes the bundle as `ca.crt`.
pub(super) fn write_bundle(directory: &Path, bundle: &str) -> anyhow::Result<()> {
    let path = directory.join(BUNDLE);
    let written = std::fs::create_dir_all(directory).and_then(|()| std::fs::write(&path, bundle));
    written.map_err(|error| anyhow!("the CA bundle {} cannot be written: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn self_signed_leaf_names_service_and_loopback() {
        let now: Timestamp = "2026-11-20T12:00:00Z".parse().expect("a timestamp");
        let service = Service {
            name: "edgeward".into(),
            namespace: "edgeward-system".into(),
        };
        let (pair, _) = make(&service, now).expect("made");
        let names = [
            "DNSName(edgeward.edgeward-system.svc)",
            "DNSName(localhost)",
            "IPAddress(7f:00:00:01)",
        ];
        assert_eq!(pair.names, names);
        assert_eq!(pair.certificate.ends.to_string(), "2036-11-17T12:00:00Z");
    }

    #[test]
    fn bundle_write_error_names_the_file() {
        let file = tempfile::NamedTempFile::new().expect("file");
        let error = write_bundle(&file.path().join("bundle"), "x").expect_err("not a directory");
        assert!(error.to_string().contains("ca.crt cannot be written"), "{error}");
    }
}
