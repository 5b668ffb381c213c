//! A certificate authority that lives as long as the run.

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType, date_time_ymd,
};

use crate::prelude::*;

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// The CA certificate, in PEM.
    pub certificate: String,
    /// The CA's key, in PEM.
    pub(crate) key: String,
}

/// A certificate and its key, in PEM.
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new() -> Result<Self> {
        let (params, key) = (of_authority("edgeward e2e"), KeyPair::generate()?);
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self::of(certificate, params, key))
    }

    /// A CA whose certificate this one has signed.
    pub fn intermediate(&self) -> Result<Self> {
        let (params, key) = (of_authority("edgeward e2e, intermediate"), KeyPair::generate()?);
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Self::of(certificate, params, key))
    }

    fn of(certificate: String, params: CertificateParams, key: KeyPair) -> Self {
        Self {
            certificate,
            key: key.serialize_pem(),
            issuer: Issuer::new(params, key),
        }
    }

    /// A server certificate for loopback and for `names`.
    pub fn server(&self, names: &[&str]) -> Result<Pair> {
        self.sign(of_server(names)?, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A server certificate for loopback and for `names` that expires at the start of `year`.
    pub fn server_until(&self, year: i32, names: &[&str]) -> Result<Pair> {
        let mut params = of_server(names)?;
        params.not_after = date_time_ymd(year, 1, 1);
        self.sign(params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    pub fn client(&self, user: &str, group: &str) -> Result<Pair> {
        let mut params = CertificateParams::default();
        params.distinguished_name = subject(user, Some(group));
        self.sign(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// A certificate of a cluster of the federation `edge.test`, for both ends of a connection.
    pub fn member(&self, id: &str) -> Result<Pair> {
        let mut params = CertificateParams::default();
        let name = format!("spiffe://edge.test/cluster/{id}").try_into()?;
        params.subject_alt_names = vec![SanType::URI(name)];
        let both = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        self.sign_for(params, both.to_vec())
    }

    fn sign(&self, params: CertificateParams, usage: ExtendedKeyUsagePurpose) -> Result<Pair> {
        self.sign_for(params, vec![usage])
    }

    fn sign_for(&self, mut params: CertificateParams, usages: Vec<ExtendedKeyUsagePurpose>) -> Result<Pair> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages;
        let key = KeyPair::generate()?;
        Ok(Pair {
            certificate: params.signed_by(&key, &self.issuer)?.pem(),
            key: key.serialize_pem(),
        })
    }
}

impl Pair {
    /// Writes the files of a cluster of a federation with this CA, as a Secret of cert-manager has them.
    pub fn write_member(&self, dir: &Path, authorities: &str) -> Result<()> {
        fs::create_dir_all(dir)?;
        fs::write(dir.join("tls.crt"), &self.certificate)?;
        fs::write(dir.join("tls.key"), &self.key)?;
        Ok(fs::write(dir.join("ca.crt"), authorities)?)
    }

    /// Writes `<name>.crt` and `<name>.key`, and returns their paths.
    pub fn write(&self, dir: &Path, name: &str) -> Result<(PathBuf, PathBuf)> {
        let (certificate, key) = (dir.join(format!("{name}.crt")), dir.join(format!("{name}.key")));
        fs::write(&certificate, &self.certificate)?;
        fs::write(&key, &self.key)?;
        Ok((certificate, key))
    }
}

fn of_authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = subject(name, None);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params
}

fn of_server(names: &[&str]) -> Result<CertificateParams> {
    let names = ["localhost", "127.0.0.1"].iter().chain(names).map(ToString::to_string);
    Ok(CertificateParams::new(names.collect::<Vec<_>>())?)
}

fn subject(common_name: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name
}
