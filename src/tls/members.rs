//! Mutual TLS between the clusters of a federation. A member has a certificate of the federation's CA with one URI name,
//! `spiffe://DOMAIN/cluster/ID`.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::server::ServerConfig;
use rustls::sign::SingleCertAndKey;
use tokio_rustls::TlsConnector;
use x509_parser::extensions::GeneralName;

use super::clients::ClientCa;
use super::served::with_any_name;
use super::verification::parse;
use super::{ALPN, Pair, settings};
use crate::platform::files::Content;

/// Both sides of mutual TLS. Each side accepts only certificates of the authorities that have not expired.
#[derive(Clone)]
pub struct Member {
    /// The URI name of our own certificate.
    pub uri: String,
    /// Settings for connections from other members.
    pub server: Arc<ServerConfig>,
    /// Connects to other members.
    pub client: TlsConnector,
}

impl Member {
    /// Reads the certificate, its key and the authorities, in this order. The file of authorities may hold several, for the
    /// time in which they are replaced.
    ///
    /// # Errors
    /// One of them is missing or unusable. The text names it.
    pub fn read(contents: &[Content], now: Timestamp) -> anyhow::Result<Self> {
        let (pair, authorities, server) = read(contents, now)?;
        let leaf = pair.key.cert.first().context("there is no certificate")?;
        let uri = uri_of(leaf).context("the certificate needs exactly one URI name, spiffe://DOMAIN/cluster/ID")?;
        // The URI name of a server is checked before anything is sent.
        let client = with_any_name(Some(authorities))?;
        let mut client = client.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(&pair.key))));
        client.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self {
            uri,
            server,
            client: Arc::new(client).into(),
        })
    }
}

/// Settings of a server of gRPC, whose clients need a certificate of the authorities. For `contents` see [`Member::read`].
pub fn of_estimator(contents: &[Content], now: Timestamp) -> anyhow::Result<Arc<ServerConfig>> {
    let (_, _, server) = read(contents, now)?;
    let mut server = Arc::unwrap_or_clone(server);
    server.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(server))
}

/// The certificate with its key, the authorities that have not expired, and settings of a server with both.
fn read(contents: &[Content], now: Timestamp) -> anyhow::Result<(Pair, RootCertStore, Arc<ServerConfig>)> {
    let [certificate, key, authorities] = contents else {
        anyhow::bail!("a certificate, its key and authorities are needed");
    };
    let pair = Pair::from_pem(&certificate.bytes, &key.bytes, now)?;
    let path = authorities.path.display();
    let authorities = ClientCa::from_contents(std::slice::from_ref(authorities), now);
    let authorities = authorities.with_context(|| format!("{path} cannot be used"))?;
    let server = settings(Some(&pair), Some(&authorities), now)?;
    let authorities = authorities.roots(now);
    ensure!(!authorities.is_empty(), "all authorities in {path} have expired");
    Ok((pair, authorities, server))
}

/// The URI name of the member at the other end of a connection, whose chain is verified. `None` if it has none or several.
pub fn member(chain: Option<&[CertificateDer<'_>]>) -> Option<String> {
    uri_of(chain?.first()?)
}

fn uri_of(leaf: &CertificateDer<'_>) -> Option<String> {
    let certificate = parse(leaf).ok()?;
    let names = certificate.subject_alternative_name().ok()??;
    let uri = |name: &GeneralName<'_>| match name {
        GeneralName::URI(uri) => Some((*uri).to_owned()),
        _ => None,
    };
    let uris: Vec<_> = names.value.general_names.iter().filter_map(uri).collect();
    <[String; 1]>::try_from(uris).ok().map(|[uri]| uri)
}
