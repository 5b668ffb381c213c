//! The serving certificate: where it comes from, how it is checked, and how it changes under a running server. And who may
//! connect, where that is not everybody.
//!
//! The handshake reads the pair through an [`ArcSwapOption`]: one asynchronous writer, synchronous readers, no lock. A
//! connection keeps the certificate it was opened with.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use edgeward_core::units::Micros;
use jiff::Timestamp;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, ServerConfig};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;

use crate::instruments::metrics::{Metrics, Reload, TlsMaterial};
use crate::platform::clock::Clock;
use crate::platform::files::{Unreadable, Watch};

mod authorities;
mod authority;
pub mod bundle;
mod clients;
mod pair;
mod self_signed;
mod served;
pub mod stored;
mod verification;

pub use authority::{Authority, Pem, Service};
pub use clients::ClientCaFault;
pub use pair::{Fault, Pair};
pub use served::{Chain, served, shown};
pub use stored::{Contents, Stored};
pub(crate) use verification::{validity, vouches};

use authorities::Authorities;
use clients::{ClientCa, Clients};

/// The only application protocol we offer. It is what the API server uses towards a Service, and HTTP/1.1's
/// `Connection: close` is how we drain.
pub const ALPN: &[u8] = b"http/1.1";

/// How often it is said that a certificate is served past its end.
const OVER: Duration = Duration::from_secs(60);

/// How often it is said that an authority of clients has expired.
const EXPIRED: Duration = Duration::from_secs(3_600);

/// How often a certificate that is not valid yet is tried again.
const EARLY: Duration = Duration::from_secs(1);

/// Where the serving certificate comes from.
#[derive(Debug, Clone)]
pub enum Source {
    /// PEM files, read again when they change.
    Files {
        /// The certificate, leaf first, intermediates after it.
        cert: PathBuf,
        /// Its private key: PKCS#8, PKCS#1 or SEC1.
        key: PathBuf,
    },
    /// A certificate authority and a leaf made at start. Their keys never leave memory, so every start has new
    /// ones: for one replica, a demonstration or a test.
    SelfSigned {
        /// Gets `ca.crt`, for the `caBundle` of a MutatingWebhookConfiguration; created if missing. `None`: the
        /// bundle is only to be had from [`Certificates::ca_bundle`].
        directory: Option<PathBuf>,
        /// Our Service; the certificate is for `<service>.<namespace>.svc`, `localhost` and `127.0.0.1`.
        service: Service,
    },
    /// A Secret that the replicas share and one of them keeps up to date ([`stored`]). Until it holds something that can be
    /// served, there is no certificate.
    Secret {
        /// What is in it, always the newest; `None` while that is not known or there is none yet.
        contents: watch::Receiver<Option<Arc<Contents>>>,
        /// Our Service, whose name the certificate must have.
        service: Service,
        /// How long an authority must have been in it before a leaf of it takes the place of a valid one of another:
        /// [`Lives::settle`](edgeward_core::certificates::Lives::settle).
        settle: Micros,
    },
}

/// There is no certificate to start with.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("the TLS certificate and key cannot be read: {0}")]
    Unreadable(#[from] Unreadable),
    /// The files hold nothing that could be served.
    #[error("the TLS certificate {} with key {} cannot be used: {fault}", cert.display(), key.display())]
    Refused {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What is wrong.
        #[source]
        fault: Fault,
    },
    /// The file with authorities of clients cannot be read.
    #[error("--client-ca cannot be read: {0}")]
    ClientCaUnreadable(#[source] Unreadable),
    /// The file with authorities of clients holds none.
    #[error("--client-ca {} cannot be used: {fault}", path.display())]
    ClientCa {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        fault: ClientCaFault,
    },
    /// A certificate could not be made.
    #[error("the self-signed certificate cannot be made: {0}")]
    Generate(#[from] rcgen::Error),
    /// The certificate we made does not pass our own checks.
    #[error("the self-signed certificate cannot be used: {0}")]
    Generated(#[source] Fault),
    /// The CA bundle cannot be written.
    #[error("the CA bundle {} cannot be written: {source}", path.display())]
    Write {
        /// Where to.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The crypto provider has no cipher suite for TLS 1.2 or 1.3.
    #[error("TLS cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
}

/// The certificate being served, and what may replace it; and who may connect.
#[derive(Debug)]
pub struct Certificates {
    current: Arc<Current>,
    ca_bundle: Option<String>,
    origin: Origin,
    clients: Option<(Arc<Clients>, Watch)>,
    clock: Clock,
    metrics: Arc<Metrics>,
}

/// What may replace the certificate.
#[derive(Debug)]
enum Origin {
    Files(Watch),
    Made,
    Secret(watch::Receiver<Option<Arc<Contents>>>, Service, Authorities),
}

impl Certificates {
    /// Reads or makes the first pair; of a Secret, that is left to [`Self::follow`].
    ///
    /// # Errors
    /// There is no usable pair. At start that is final: a server without a certificate answers nobody.
    pub async fn load(source: &Source, clock: Clock, metrics: Arc<Metrics>) -> Result<Self, Error> {
        let (pair, ca_bundle, origin) = match source {
            Source::Files { cert, key } => {
                let (watch, contents) = Watch::open(vec![cert.clone(), key.clone()]).await?;
                let pair = Pair::from_contents(&contents, clock.wall()).map_err(|fault| Error::Refused {
                    cert: cert.clone(),
                    key: key.clone(),
                    fault,
                })?;
                (Some(pair), None, Origin::Files(watch))
            }
            Source::SelfSigned { directory, service } => {
                let made = self_signed::make(service, clock.wall())?;
                if let Some(directory) = directory {
                    self_signed::write_bundle(directory, &made.ca_bundle)?;
                }
                (Some(made.pair), Some(made.ca_bundle), Origin::Made)
            }
            Source::Secret {
                contents,
                service,
                settle,
            } => {
                let authorities = Authorities::new(*settle);
                let origin = Origin::Secret(contents.clone(), service.clone(), authorities);
                (None, None, origin)
            }
        };
        let current = Arc::<Current>::default();
        if let Some(pair) = pair {
            current.take_over(pair, "serving certificate", &metrics);
        }
        Ok(Self {
            current,
            ca_bundle,
            origin,
            clients: None,
            clock,
            metrics,
        })
    }

    /// From now on only clients with a certificate of an authority in this PEM file may connect.
    ///
    /// # Errors
    /// The file cannot be read or holds no usable authority.
    pub async fn only_for(self, client_ca: &Path) -> Result<Self, Error> {
        let opened = Watch::open(vec![client_ca.to_owned()]).await;
        let (watch, contents) = opened.map_err(Error::ClientCaUnreadable)?;
        let authorities = ClientCa::from_contents(&contents, self.clock.wall()).map_err(|fault| Error::ClientCa {
            path: client_ca.to_owned(),
            fault,
        })?;
        announce_client_ca(&authorities);
        let clients = Arc::new(Clients(ArcSwap::from_pointee(authorities)));
        Ok(Self {
            clients: Some((clients, watch)),
            ..self
        })
    }

    /// The authority that clients must trust, in PEM; `None` unless the pair was made here.
    #[must_use]
    pub fn ca_bundle(&self) -> Option<&str> {
        self.ca_bundle.as_deref()
    }

    /// Whether there is no certificate yet.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.current.0.load().is_none()
    }

    /// Rustls settings that serve the current pair: TLS 1.2 and 1.3, [`ALPN`] only. While there is none, every handshake
    /// fails. Needs no process-wide crypto provider.
    ///
    /// # Errors
    /// [`Error::Setup`], which would be a fault of the build.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, Error> {
        let config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?;
        let certificate = Arc::clone(&self.current) as Arc<dyn ResolvesServerCert>;
        let mut config = match &self.clients {
            Some((clients, _)) => {
                let clients = Arc::clone(clients) as Arc<dyn rustls::server::danger::ClientCertVerifier>;
                let mut config = config
                    .with_client_cert_verifier(clients)
                    .with_cert_resolver(certificate);
                // A session that is resumed is judged by the authorities of when it began.
                config.session_storage = Arc::new(NoServerSessionStorage {});
                config.send_tls13_tickets = 0;
                config
            }
            None => config.with_no_client_auth().with_cert_resolver(certificate),
        };
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Arc::new(config))
    }

    /// Takes over every good pair, and every good set of authorities of clients, for ever; a bad one is refused and the old
    /// one kept, with a warning and a count. A pair that is not valid yet is tried again until it is. That a certificate is
    /// served past its end is said every minute. `loaded` is called when there is a certificate.
    pub async fn follow(self, loaded: impl FnOnce() + Send) {
        let Self {
            current,
            origin,
            clients,
            clock,
            metrics,
            ..
        } = self;
        let renew = async {
            match origin {
                Origin::Files(watch) => {
                    loaded();
                    follow_files(watch, &current, clock, &metrics).await;
                }
                Origin::Made => loaded(),
                Origin::Secret(contents, service, authorities) => {
                    follow_secret(contents, &service, authorities, &current, loaded, clock, &metrics).await;
                }
            }
        };
        let judge = async {
            if let Some((clients, watch)) = clients {
                tokio::join!(
                    follow_client_ca(watch, &clients, clock, &metrics),
                    warn_of_expired(&clients, clock)
                );
            }
        };
        tokio::join!(renew, judge, warn_when_over(&current, clock));
    }
}

async fn follow_files(mut watch: Watch, current: &Current, clock: Clock, metrics: &Metrics) {
    const OF: TlsMaterial = TlsMaterial::Certificate;
    // Beginning of the pair in the files, while it is refused for that.
    let mut early = None;
    loop {
        let contents = match watch.changed().await {
            Ok(contents) => contents,
            Err(error) => {
                metrics.tls.reload(OF, Reload::Unreadable);
                tracing::warn!(%error, "certificate files cannot be read, the old certificate stays");
                continue;
            }
        };
        match Pair::from_contents(&contents, clock.wall()) {
            Ok(pair) => {
                current.take_over(pair, "certificate reloaded", metrics);
                metrics.tls.reload(OF, Reload::Loaded);
                early = None;
            }
            Err(fault) => {
                let begins = match &fault {
                    Fault::NotYetValid { not_before } => Some(*not_before),
                    _ => None,
                };
                if begins.is_none() || begins != early {
                    metrics.tls.reload(OF, Reload::Refused);
                    tracing::warn!(error = %fault, "new certificate refused, the old certificate stays");
                }
                if begins.is_some() {
                    watch.again();
                }
                early = begins;
            }
        }
    }
}

async fn follow_secret(
    mut contents: watch::Receiver<Option<Arc<Contents>>>,
    service: &Service,
    mut authorities: Authorities,
    current: &Current,
    loaded: impl FnOnce() + Send,
    clock: Clock,
    metrics: &Metrics,
) {
    let mut loaded = Some(loaded);
    // What was said last against what is in it.
    let mut said = String::new();
    loop {
        let seen = contents.borrow_and_update().clone().unwrap_or_default();
        let now = clock.now();
        let stored = Stored::read(&seen, service, now.wall);
        let wait = authorities.wait(&stored, current, now);
        let (is_usable, faults) = take_stored(stored, wait.is_none(), current, metrics);
        let is_early = faults
            .iter()
            .any(|(_, fault)| matches!(fault, Fault::NotYetValid { .. }));
        let faults: Vec<_> = faults.iter().map(|(key, fault)| format!("{key}: {fault}")).collect();
        let faults = faults.join("; ");
        if is_usable {
            said.clear();
            if let Some(loaded) = loaded.take() {
                loaded();
            }
        } else if loaded.is_none() && said.is_empty() || faults != said {
            metrics.tls.reload(TlsMaterial::Certificate, Reload::Refused);
            let instead = match loaded {
                None => "the old certificate stays",
                Some(_) => "not ready until there is one",
            };
            said = match faults.is_empty() {
                true => "there is none".to_owned(),
                false => faults,
            };
            tracing::warn!(
                error = said,
                "the Secret holds no certificate that can be served, {instead}"
            );
        }
        let changed = tokio::select! {
            changed = contents.changed() => changed,
            () = tokio::time::sleep(EARLY), if is_early => Ok(()),
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => Ok(()),
        };
        if changed.is_err() {
            // Nobody looks any more: the process is ending.
            return;
        }
    }
}

/// Whether there is a leaf to serve, which is served from now on if it `may` be, and what cannot be used.
fn take_stored(stored: Stored, may: bool, current: &Current, metrics: &Metrics) -> (bool, Vec<(&'static str, Fault)>) {
    let is_usable = stored.leaf.is_some();
    if let Some(pair) = stored.leaf.filter(|pair| may && !current.is(pair)) {
        current.take_over(pair, "certificate loaded", metrics);
        metrics.tls.reload(TlsMaterial::Certificate, Reload::Loaded);
    }
    (is_usable, stored.faults)
}

async fn follow_client_ca(mut watch: Watch, clients: &Clients, clock: Clock, metrics: &Metrics) {
    const OF: TlsMaterial = TlsMaterial::ClientCa;
    loop {
        let contents = match watch.changed().await {
            Ok(contents) => contents,
            Err(error) => {
                metrics.tls.reload(OF, Reload::Unreadable);
                tracing::warn!(%error, "the authorities of clients cannot be read, the old ones stay");
                continue;
            }
        };
        match ClientCa::from_contents(&contents, clock.wall()) {
            Ok(authorities) => {
                announce_client_ca(&authorities);
                clients.0.store(Arc::new(authorities));
                metrics.tls.reload(OF, Reload::Loaded);
            }
            Err(fault) => {
                metrics.tls.reload(OF, Reload::Refused);
                tracing::warn!(error = %fault, "new authorities of clients refused, the old ones stay");
            }
        }
    }
}

fn announce_client_ca(authorities: &ClientCa) {
    tracing::info!(not_after = %authorities.not_after(), "only clients with a certificate may connect");
}

/// Clients of such an authority are refused.
async fn warn_of_expired(clients: &Clients, clock: Clock) {
    loop {
        for authority in clients.0.load().expired(clock.wall()) {
            tracing::warn!(
                subject = authority.subject,
                not_after = %authority.not_after,
                "a CA of --client-ca has expired: its clients are refused"
            );
        }
        tokio::time::sleep(EXPIRED).await;
    }
}

/// The API server refuses such a certificate, so every pod is created undecided.
async fn warn_when_over(current: &Current, clock: Clock) {
    loop {
        let ends = current.ends();
        let left = ends.map(|ends| ends.duration_since(clock.wall()));
        if let (Some(ends), Some(left)) = (ends, left)
            && left.is_negative()
        {
            tracing::error!(not_after = %ends, "the certificate being served is past its end: no API server accepts it");
        }
        let left = left.and_then(|left| Duration::try_from(left).ok());
        let past = left.map_or(OVER, |left| left.saturating_add(EARLY));
        tokio::time::sleep(past.min(OVER)).await;
    }
}

/// Makes ring the process's crypto provider, for clients that ask for the default one. Our own server does not
/// need it. May be called more than once.
pub fn install_crypto_provider() {
    // The error says that there is one already, which is what was wanted.
    let _ = ring::default_provider().install_default();
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Answers every handshake with the pair of the moment, whatever name the client asks for: the API server may call
/// us by Service name or by URL, and the name is its business to check.
#[derive(Debug, Default)]
struct Current(ArcSwapOption<Pair>);

impl Current {
    fn ends(&self) -> Option<Timestamp> {
        self.0.load().as_ref().map(|pair| pair.not_after)
    }

    fn is(&self, pair: &Pair) -> bool {
        let current = self.0.load();
        current
            .as_ref()
            .is_some_and(|current| current.key.cert == pair.key.cert)
    }

    fn take_over(&self, pair: Pair, message: &'static str, metrics: &Metrics) {
        metrics.tls.certificate_not_after(pair.not_after.as_second());
        let names = pair.names.join(",");
        tracing::info!(names, not_after = %pair.not_after, chain = pair.key.cert.len(), "{message}");
        if pair.names.is_empty() {
            tracing::warn!("the certificate has no subject alternative name: the API server will not accept it");
        }
        self.0.store(Some(Arc::new(pair)));
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.load().as_ref().map(|pair| Arc::clone(&pair.key))
    }
}

#[cfg(test)]
mod tests;
