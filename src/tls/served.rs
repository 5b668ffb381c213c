//! What a replica serves, looked at from outside.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, Error as TlsError, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::authority::vouches;
use crate::rotation::{Der, Serves};

/// How long a connection and its handshake may take.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Which of these authorities vouches for whoever serves at `address` (`host:port`) under this name. Takes 3 s at most, sends
/// nothing, and brings no certificate: in TLS 1.3, the server's is seen before ours is missed.
pub async fn served(address: &str, name: &str, authorities: &[Der], now: Timestamp) -> Serves {
    let chain = tokio::time::timeout(TIMEOUT, chain(address, name, authorities)).await;
    match chain {
        Ok(Ok(chain)) => {
            let signer = authorities
                .iter()
                .find(|authority| vouches(authority, &chain, name, now).is_ok());
            signer.map_or(Serves::Other, |signer| Serves::LeafOf(Arc::clone(signer)))
        }
        Ok(Err(Some(TlsError::InvalidCertificate(_)))) => Serves::Other,
        Ok(Err(_)) | Err(_) => Serves::Nothing,
    }
}

/// The chain that is served, if one of the authorities vouches for it.
async fn chain(
    address: &str,
    name: &str,
    authorities: &[Der],
) -> Result<Vec<CertificateDer<'static>>, Option<TlsError>> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities.iter().map(|der| CertificateDer::from(&**der)));
    let config = ClientConfig::builder_with_provider(super::provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).map_err(|_| None)?;
    let stream = TcpStream::connect(address).await.map_err(|_| None)?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    let stream = stream.map_err(|error| error.get_ref()?.downcast_ref::<TlsError>().cloned())?;
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    Ok(chain.to_vec())
}
