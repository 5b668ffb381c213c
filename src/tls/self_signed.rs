//! A certificate authority of our own, for one replica, a demonstration or a test.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::{Error, Pair};

/// File name of the CA bundle.
const BUNDLE: &str = "ca.crt";

/// Clients whose clock is behind ours must not see a certificate from the future.
const BACKDATED: Duration = Duration::from_secs(3600);

/// The keys die with the process, so nothing is gained by an end that a long-lived process could reach.
const VALID_FOR: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// What was made.
pub(super) struct Made {
    pub(super) pair: Pair,
    /// The authority's certificate in PEM.
    pub(super) ca_bundle: String,
}

/// Makes an authority and a leaf for `<service>.<namespace>.svc`, `localhost` and `127.0.0.1`.
pub(super) fn make(service: &str, namespace: &str, now: Timestamp) -> Result<Made, Error> {
    let authority = authority(now)?;
    let names = vec![
        format!("{service}.{namespace}.svc"),
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
    ];
    let mut leaf = params(names, "edgeward", now)?;
    leaf.use_authority_key_identifier_extension = true;
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let certificate = leaf.signed_by(&key, &authority)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let pair = Pair::from_der(vec![certificate.der().clone()], key, now).map_err(Error::Generated)?;
    Ok(Made {
        pair,
        ca_bundle: authority.pem(),
    })
}

/// Writes the bundle as `ca.crt`, readable by all, in one step: a reader sees the old file or the new one.
pub(super) fn write_bundle(directory: &Path, bundle: &str) -> Result<(), Error> {
    let path = directory.join(BUNDLE);
    let write = || {
        std::fs::create_dir_all(directory)?;
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        file.write_all(bundle.as_bytes())?;
        file.as_file().set_permissions(std::fs::Permissions::from_mode(0o644))?;
        file.as_file().sync_all()?;
        file.persist(&path).map_err(|error| error.error)?;
        Ok(())
    };
    write().map_err(|source| Error::Write {
        path: path.clone(),
        source,
    })
}

fn authority(now: Timestamp) -> Result<CertifiedIssuer<'static, KeyPair>, Error> {
    let mut ca = params(Vec::new(), "edgeward self-signed CA", now)?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(CertifiedIssuer::self_signed(ca, KeyPair::generate()?)?)
}

fn params(names: Vec<String>, common_name: &str, now: Timestamp) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    let since_epoch = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or(0));
    let now = date_time_ymd(1970, 1, 1) + since_epoch;
    params.not_before = now - BACKDATED;
    params.not_after = now + VALID_FOR;
    Ok(params)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leaf_is_for_the_service_and_for_loopback() {
        let now: Timestamp = "2026-11-20T12:00:00Z".parse().expect("a timestamp");
        let made = make("edgeward", "edgeward-system", now).expect("made");
        assert_eq!(
            made.pair.names,
            ["edgeward.edgeward-system.svc", "localhost", "127.0.0.1"]
        );
        assert_eq!(made.pair.not_after.to_string(), "2036-11-17T12:00:00Z");
    }

    #[test]
    fn the_bundle_is_replaced_whole_and_readable_by_all() {
        let parent = tempfile::tempdir().expect("tempdir");
        let directory = parent.path().join("bundle");
        for content in ["first", "second"] {
            write_bundle(&directory, content).expect("written");
            let path = directory.join(BUNDLE);
            assert_eq!(std::fs::read_to_string(&path).expect("read"), content);
            let mode = std::fs::metadata(&path).expect("metadata").permissions().mode();
            assert_eq!(mode & 0o777, 0o644);
        }
        assert_eq!(
            std::fs::read_dir(&directory).expect("list").count(),
            1,
            "nothing is left beside it"
        );
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let file = tempfile::NamedTempFile::new().expect("file");
        let error = write_bundle(&file.path().join("bundle"), "x").expect_err("not a directory");
        assert!(error.to_string().contains("ca.crt cannot be written"), "{error}");
    }
}
