//! Certificates, and a Secret that holds them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use edgeward_harness::volume::Volume;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

/// Publishes `tls.crt` and `tls.key`.
pub(crate) fn publish(volume: &mut Volume, cert: &str, key: &str) {
    let files = [("tls.crt", cert), ("tls.key", key)];
    volume.swap(&files).expect("published");
}

pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate for `localhost` with its key.
pub(crate) struct Leaf {
    pub(crate) cert: String,
    pub(crate) der: Vec<u8>,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let issuer = CertifiedIssuer::self_signed(authority_params("root"), KeyPair::generate().expect("key"));
        Self {
            issuer: issuer.expect("signed"),
        }
    }

    pub(crate) fn intermediate(&self) -> Self {
        let key = KeyPair::generate().expect("key");
        let issuer = CertifiedIssuer::signed_by(authority_params("intermediate"), key, &*self.issuer);
        Self {
            issuer: issuer.expect("signed"),
        }
    }

    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    pub(crate) fn leaf(&self) -> Leaf {
        self.leaf_until(4000)
    }

    /// A leaf certificate that expires at the start of `year`.
    pub(crate) fn leaf_until(&self, year: i32) -> Leaf {
        self.leaf_with(|params| params.not_after = date_time_ymd(year, 1, 1))
    }

    pub(crate) fn leaf_in(&self, wait: Duration) -> Leaf {
        let begin = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970") + wait;
        self.leaf_with(|params| params.not_before = date_time_ymd(1970, 1, 1) + begin)
    }

    fn leaf_with(&self, set: impl FnOnce(&mut CertificateParams)) -> Leaf {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        set(&mut params);
        let key = KeyPair::generate().expect("key");
        let issuer: &Issuer<'_, KeyPair> = &self.issuer;
        let certificate = params.signed_by(&key, issuer).expect("signed");
        Leaf {
            cert: certificate.pem(),
            der: certificate.der().to_vec(),
            key: key.serialize_pem(),
        }
    }
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}
