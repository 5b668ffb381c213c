//! The serving certificate: its sources, its checks, and its replacement while the server runs. With `--client-ca`,
//! also which clients may connect.
//!
//! Every change builds new TLS settings, which axum-server takes over. A connection keeps the certificate it was opened
//! with.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use axum_server::tls_rustls::RustlsConfig;
use futures::future::OptionFuture;
use jiff::Timestamp;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::{NoServerSessionStorage, ResolvesServerCert, ResolvesServerCertUsingSni, ServerConfig};
use rustls::sign::SingleCertAndKey;
use tokio::sync::watch;

use crate::instruments::metrics::{Metrics, Reload, TlsMaterial};
use crate::platform::clock::Clock;
use crate::platform::files::{self, Content, Watch};

mod authority;
mod clients;
mod members;
mod pair;
pub mod rotation;
mod self_signed;
mod served;
pub mod stored;
mod verification;

pub use authority::{Authority, Pem, Service, authorities_in, with_authorities};
pub use members::{Member, follow, member, of_estimator};
pub use pair::Pair;
pub use served::{Chain, served, shown};
pub(crate) use served::{connect, with_anybody};
pub use stored::{Contents, Stored};
pub use verification::Bundle;

use clients::ClientCa;

/// The only application protocol we offer. The API server uses it towards a Service, and we drain with HTTP/1.1's
/// `Connection: close`.
pub const ALPN: &[u8] = b"http/1.1";

/// How often the ends of the certificates are checked.
const PERIOD: Duration = Duration::from_secs(60);

/// Where the serving certificate comes from.
#[derive(Debug, Clone)]
pub enum Source {
    /// PEM files, read again whenever they change.
    Files {
        /// The certificate chain: leaf first, then intermediates.
        cert: PathBuf,
        /// The leaf's private key: PKCS#8, PKCS#1 or SEC1.
        key: PathBuf,
    },
    /// A certificate authority and a leaf, both made at start. Their keys never leave memory, so each start makes new
    /// ones. Meant for one replica, a demonstration or a test.
    SelfSigned {
        /// Directory for `ca.crt`, the `caBundle` of a MutatingWebhookConfiguration; created if missing. With `None`,
        /// the bundle is available only from [`Certificates`].
        directory: Option<PathBuf>,
        /// Our Service. The certificate is for `<service>.<namespace>.svc`, `localhost` and `127.0.0.1`.
        service: Service,
    },
    /// A Secret that all replicas read and the leader keeps up to date ([`stored`]). There is no certificate until the
    /// Secret holds a usable one.
    Secret {
        /// The newest contents of the Secret. `None` while they are unknown or the Secret does not exist.
        contents: watch::Receiver<Option<Arc<Contents>>>,
        /// Our Service; the certificate must have its name.
        service: Service,
    },
}

/// The serving certificate, its source, and the authorities of the clients that may connect. Expired client authorities
/// are ignored.
#[derive(Debug)]
pub struct Certificates {
    /// Made of the pair and the client authorities. Connections keep the settings they were opened with.
    /// While there is no pair, every handshake fails.
    pub settings: RustlsConfig,
    pair: Option<Pair>,
    clients: Option<ClientCa>,
    /// The CA certificate that clients must trust, in PEM. `None` unless the pair was made at start.
    pub ca_bundle: Option<String>,
    /// The files of the pair.
    files: Option<Watch>,
    client_ca: Option<Watch>,
    /// The contents of the Secret, and our Service.
    secret: Option<(watch::Receiver<Option<Arc<Contents>>>, Service)>,
    clock: Clock,
    metrics: Arc<Metrics>,
}

impl Certificates {
    /// Reads or makes the first pair. For a Secret, [`Self::follow`] does this. With a `client_ca` file (PEM), only
    /// clients with a certificate of an authority in it may connect.
    ///
    /// # Errors
    /// The pair or the client authorities are unusable. At start this is final: a server without a certificate can
    /// answer no request.
    pub async fn load(
        source: &Source,
        client_ca: Option<&Path>,
        clock: Clock,
        metrics: Arc<Metrics>,
    ) -> anyhow::Result<Self> {
        let mut certificates = Self {
            settings: RustlsConfig::from_config(settings(None, None, clock.wall())?),
            pair: None,
            clients: None,
            ca_bundle: None,
            files: None,
            client_ca: None,
            secret: None,
            clock,
            metrics,
        };
        match source {
            Source::Files { cert, key } => {
                let opened = Watch::open(vec![cert.clone(), key.clone()]).await;
                let (watch, contents) =
                    opened.map_err(|error| anyhow!("the TLS certificate and key cannot be read: {error}"))?;
                certificates.load_pair(&contents).map_err(|fault| {
                    let (cert, key) = (cert.display(), key.display());
                    anyhow!("the TLS certificate {cert} with key {key} cannot be used: {fault}")
                })?;
                certificates.files = Some(watch);
            }
            Source::SelfSigned { directory, service } => {
                let (pair, bundle) = self_signed::make(service, clock.wall())?;
                if let Some(directory) = directory {
                    self_signed::write_bundle(directory, &bundle)?;
                }
                certificates.take_over(pair);
                certificates.ca_bundle = Some(bundle);
            }
            Source::Secret { contents, service } => certificates.secret = Some((contents.clone(), service.clone())),
        }
        if let Some(path) = client_ca {
            let opened = Watch::open(vec![path.to_owned()]).await;
            let (watch, contents) = opened.map_err(|error| anyhow!("--client-ca cannot be read: {error}"))?;
            let loaded = certificates.load_clients(&contents);
            loaded.map_err(|fault| anyhow!("--client-ca {} cannot be used: {fault}", path.display()))?;
            certificates.client_ca = Some(watch);
        }
        Ok(certificates)
    }

    /// Whether there is no certificate yet.
    pub fn is_awaited(&self) -> bool {
        self.pair.is_none()
    }

    /// Takes over each new pair and each new set of client authorities, until the process ends. A bad one is refused
    /// with a warning and a count, and the old one stays. An expired certificate is logged every minute. `loaded` is
    /// called once, when there is a pair.
    pub async fn follow(mut self, loaded: impl FnOnce() + Send) {
        let (mut loaded, mut said) = (Some(loaded), String::new());
        let mut secret = self.secret.take();
        loop {
            if let Some((contents, service)) = &mut secret {
                let contents = contents.borrow_and_update().clone().unwrap_or_default();
                self.load_secret(&contents, service, &mut said);
            }
            if self.pair.is_some()
                && let Some(loaded) = loaded.take()
            {
                loaded();
            }
            self.check_ends();
            tokio::select! {
                Some(read) = OptionFuture::from(self.files.as_mut().map(Watch::changed)) => {
                    self.reload(TlsMaterial::Certificate, read);
                }
                Some(read) = OptionFuture::from(self.client_ca.as_mut().map(Watch::changed)) => {
                    self.reload(TlsMaterial::ClientCa, read);
                }
                Some(Ok(())) = OptionFuture::from(secret.as_mut().map(|(contents, _)| contents.changed())) => {}
                () = tokio::time::sleep(PERIOD) => {}
            }
        }
    }

    /// Takes over new contents of watched files. If they are refused or unreadable, the old ones stay.
    fn reload(&mut self, of: TlsMaterial, read: anyhow::Result<files::Contents>) {
        let what = of.as_str();
        let loaded = read.map(|contents| match of {
            TlsMaterial::Certificate => self.load_pair(&contents),
            TlsMaterial::ClientCa => self.load_clients(&contents),
        });
        let result = match loaded {
            Ok(Ok(())) => Reload::Loaded,
            Ok(Err(error)) => {
                tracing::warn!(%error, "new {what} refused, the old {what} stays");
                Reload::Refused
            }
            Err(error) => {
                tracing::warn!(%error, "the new {what} cannot be read, the old {what} stays");
                Reload::Unreadable
            }
        };
        self.metrics.tls_reload(of, result);
    }

    /// Reads a pair from the contents of two files: certificate first, key second.
    fn load_pair(&mut self, contents: &[Content]) -> anyhow::Result<()> {
        let bytes = |index: usize| contents.get(index).map_or(&[][..], |content| &content.bytes);
        self.take_over(Pair::from_pem(bytes(0), bytes(1), self.clock.wall())?);
        Ok(())
    }

    /// From now on, only clients of the authorities in this file may connect.
    fn load_clients(&mut self, contents: &[Content]) -> anyhow::Result<()> {
        let clients = ClientCa::from_contents(contents, self.clock.wall())?;
        tracing::info!(not_after = %clients.not_after(), "only clients with a certificate may connect");
        self.clients = Some(clients);
        self.publish();
        Ok(())
    }

    /// Takes over the leaf in the Secret. Logs and counts faults unless they were `said` last.
    fn load_secret(&mut self, contents: &Contents, service: &Service, said: &mut String) {
        let stored = Stored::read(contents, service, self.clock.wall());
        let faults = match &stored.leaf {
            Some(_) => String::new(),
            None if stored.faults.is_empty() && self.pair.is_some() => "there is none".to_owned(),
            None => stored.faults(),
        };
        if faults != *said && !faults.is_empty() {
            self.metrics.tls_reload(TlsMaterial::Certificate, Reload::Refused);
            let instead = match self.pair {
                Some(_) => "the old certificate stays",
                None => "not ready until there is one",
            };
            tracing::warn!(
                error = faults,
                "the Secret holds no certificate that can be served, {instead}"
            );
        }
        *said = faults;
        let is_served = |pair: &Pair| {
            self.pair
                .as_ref()
                .is_some_and(|served| served.key.cert == pair.key.cert)
        };
        if let Some(pair) = stored.leaf.filter(|pair| !is_served(pair)) {
            self.take_over(pair);
            self.metrics.tls_reload(TlsMaterial::Certificate, Reload::Loaded);
        }
    }

    fn take_over(&mut self, pair: Pair) {
        let (names, not_after) = (pair.names.join(","), pair.certificate.ends);
        self.metrics.certificate_not_after.set(not_after.as_second());
        tracing::info!(names, %not_after, chain = pair.key.cert.len(), "certificate loaded");
        if pair.names.is_empty() {
            tracing::warn!("the certificate has no subject alternative name: the API server will not accept it");
        }
        self.pair = Some(pair);
        self.publish();
    }

    /// Logs that the serving certificate has expired; API servers then refuse it, and pods are created without a
    /// decision. Also logs each expired client authority, whose clients are then refused.
    fn check_ends(&self) {
        let now = self.clock.wall();
        if let Some(pair) = self.pair.as_ref().filter(|pair| pair.certificate.has_expired(now)) {
            let not_after = pair.certificate.ends;
            tracing::error!(%not_after, "the serving certificate is past its end: API servers refuse it");
        }
        let Some(clients) = &self.clients else { return };
        for (not_after, _) in clients.0.iter().filter(|(not_after, _)| *not_after < now) {
            tracing::warn!(%not_after, "a CA of --client-ca has expired: its clients are refused");
        }
        self.publish();
    }

    fn publish(&self) {
        match settings(self.pair.as_ref(), self.clients.as_ref(), self.clock.wall()) {
            Ok(settings) => self.settings.reload_from_config(settings),
            Err(error) => tracing::error!(error = format!("{error:#}"), "the old TLS settings stay"),
        }
    }
}

/// Makes ring the default crypto provider of the process, for clients that ask for the default one. Our own server does
/// not need it. May be called more than once.
pub fn install_crypto_provider() {
    // The error means that a provider is installed already, which is the aim.
    let _ = ring::default_provider().install_default();
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Builds settings for TLS 1.2 and 1.3 and [`ALPN`] only. The server shows this pair for any requested name: the API
/// server may call by Service name or by URL, and checks the name itself. Without a pair, or without a valid client
/// authority, every handshake fails.
fn settings(pair: Option<&Pair>, clients: Option<&ClientCa>, now: Timestamp) -> anyhow::Result<Arc<ServerConfig>> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .context("TLS cannot be set up")?;
    let verifier = clients.and_then(|clients| clients.verifier(now));
    let pair = pair.filter(|_| clients.is_none() || verifier.is_some());
    let pair: Arc<dyn ResolvesServerCert> = match pair {
        Some(pair) => Arc::new(SingleCertAndKey::from(Arc::clone(&pair.key))),
        None => Arc::new(ResolvesServerCertUsingSni::new()),
    };
    let mut settings = match verifier {
        Some(verifier) => {
            let mut settings = builder.with_client_cert_verifier(verifier).with_cert_resolver(pair);
            // A resumed session would be judged by the client authorities of its first handshake.
            settings.session_storage = Arc::new(NoServerSessionStorage {});
            settings.send_tls13_tickets = 0;
            settings
        }
        None => builder.with_no_client_auth().with_cert_resolver(pair),
    };
    settings.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Arc::new(settings))
}

#[cfg(test)]
mod tests;
