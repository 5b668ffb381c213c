//! Mutual TLS between the clusters of a federation. A member has a certificate of the federation's CA with one URI name,
//! `spiffe://DOMAIN/cluster/ID`.

use std::sync::Arc;
use std::time::Duration;

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
use crate::platform::files::{Content, Contents, Watch};

/// How often authorities that have expired are dropped.
const PERIOD: Duration = Duration::from_secs(60);

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

/// Hands new files to `take`, and the present ones every minute, because authorities expire. Bad files are refused with a warning.
/// Returns why the present ones cannot be used any more. `whom` names the clients in the log.
pub async fn follow(
    mut files: Watch,
    mut contents: Contents,
    whom: &str,
    take: impl Fn(&[Content]) -> anyhow::Result<()>,
) -> anyhow::Error {
    loop {
        tokio::select! {
            changed = files.changed() => match changed.and_then(|new| take(&new).map(|()| new)) {
                Ok(new) => {
                    tracing::info!("new certificate for {whom} loaded");
                    contents = new;
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::warn!(error, "the new certificate for {whom} is refused, the old one stays");
                }
            },
            () = tokio::time::sleep(PERIOD) => {
                if let Err(error) = take(&contents) {
                    return error.context(format!("the certificate for {whom} cannot be used any more"));
                }
            }
        }
    }
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
