//! The serving certificate: its sources, its checks, and its replacement while the server runs. With `--client-ca`,
//! also which clients may connect.
//!
//! Every change builds new TLS settings, which axum-server takes over. A connection keeps the certificate it was opened
//! with.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use arc_swap::ArcSwapOption;
use axum_server::tls_rustls::RustlsConfig;
use edgeward_kube::units::{Micros, Now};
use jiff::Timestamp;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::{NoServerSessionStorage, ResolvesServerCert, ResolvesServerCertUsingSni, ServerConfig};
use rustls::sign::SingleCertAndKey;
use tokio::sync::watch;

use crate::instruments::metrics::{Metrics, Reload, TlsMaterial};
use crate::platform::clock::Clock;
use crate::platform::files::{Content, Watch};

mod authority;
pub mod bundle;
mod clients;
mod pair;
pub mod rotation;
mod self_signed;
mod served;
pub mod stored;
mod verification;

pub use authority::{Authority, Pem, Service};
pub use pair::{Fault, Pair};
pub(crate) use served::with_anybody;
pub use served::{Chain, served, shown};
pub use stored::{Contents, Stored};
pub use verification::{Bundle, VerificationError};

use clients::ClientCa;
use rotation::{Der, Since, ders};

/// The only application protocol we offer. The API server uses it towards a Service, and we drain with HTTP/1.1's
/// `Connection: close`.
pub const ALPN: &[u8] = b"http/1.1";

/// Longest pause between two checks of the certificates' ends.
const OVER: Duration = Duration::from_secs(60);

/// Retry interval for a certificate that is not valid yet.
const EARLY: Duration = Duration::from_secs(1);

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
        /// the bundle is available only from [`Certificates::ca_bundle`].
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
        /// How long a new authority must have been in the Secret before its leaf replaces a valid leaf of another
        /// authority: [`Lives::settle`](rotation::Lives::settle).
        settle: Micros,
    },
}

/// The serving certificate, its source, and the authorities of the clients that may connect.
#[derive(Debug)]
pub struct Certificates {
    current: Current,
    ca_bundle: Option<String>,
    source: Source,
    /// The files of that source.
    files: Option<Watch>,
    client_ca: Option<Watch>,
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
        let (pair, ca_bundle, files) = match source {
            Source::Files { cert, key } => {
                let opened = Watch::open(vec![cert.clone(), key.clone()]).await;
                let (watch, contents) =
                    opened.map_err(|error| anyhow!("the TLS certificate and key cannot be read: {error}"))?;
                let pair = Pair::from_contents(&contents, clock.wall()).map_err(|fault| {
                    let (cert, key) = (cert.display(), key.display());
                    anyhow!("the TLS certificate {cert} with key {key} cannot be used: {fault}")
                })?;
                (Some(pair), None, Some(watch))
            }
            Source::SelfSigned { directory, service } => {
                let (pair, bundle) = self_signed::make(service, clock.wall())?;
                if let Some(directory) = directory {
                    self_signed::write_bundle(directory, &bundle)?;
                }
                (Some(pair), Some(bundle), None)
            }
            Source::Secret { .. } => (None, None, None),
        };
        let current = Current::new(clock, metrics)?;
        if let Some(pair) = pair {
            current.take_over(pair, "serving certificate");
        }
        let client_ca = match client_ca {
            Some(path) => {
                let opened = Watch::open(vec![path.to_owned()]).await;
                let (watch, contents) = opened.map_err(|error| anyhow!("--client-ca cannot be read: {error}"))?;
                let authorities = ClientCa::from_contents(&contents, clock.wall());
                let unusable = |fault| anyhow!("--client-ca {} cannot be used: {fault}", path.display());
                current.let_in(authorities.map_err(unusable)?);
                Some(watch)
            }
            None => None,
        };
        Ok(Self {
            current,
            ca_bundle,
            source: source.clone(),
            files,
            client_ca,
        })
    }

    /// The CA certificate that clients must trust, in PEM. `None` unless the pair was made at start.
    pub fn ca_bundle(&self) -> Option<&str> {
        self.ca_bundle.as_deref()
    }

    /// Whether there is no certificate yet.
    pub fn is_awaited(&self) -> bool {
        self.current.pair.load().is_none()
    }

    /// TLS settings that always serve the current pair. While there is no pair, every handshake fails.
    pub fn settings(&self) -> RustlsConfig {
        self.current.settings.clone()
    }

    /// Takes over each new pair and each new set of client authorities, until the process ends. A bad one is refused
    /// with a warning and a count, and the old one stays. A pair that is not valid yet is retried until it is. An
    /// expired serving certificate is logged every minute. `loaded` is called once, when a Secret first has a usable
    /// pair.
    pub async fn follow(self, loaded: impl FnOnce() + Send) {
        let (current, clock) = (&self.current, self.current.clock);
        let renew = async {
            if let Some(watch) = self.files {
                let read = |contents: &[Content]| {
                    let pair = Pair::from_contents(contents, clock.wall())?;
                    current.take_over(pair, "certificate reloaded");
                    Ok(())
                };
                follow_files(watch, TlsMaterial::Certificate, &current.metrics, read).await;
            } else if let Source::Secret {
                contents,
                service,
                settle,
            } = self.source
            {
                let authorities = Authorities {
                    settle,
                    since: Since::default(),
                    serving: None,
                };
                follow_secret(contents, &service, authorities, current, loaded).await;
            }
        };
        let judge = async {
            if let Some(watch) = self.client_ca {
                let read = |contents: &[Content]| {
                    current.let_in(ClientCa::from_contents(contents, clock.wall())?);
                    Ok(())
                };
                follow_files(watch, TlsMaterial::ClientCa, &current.metrics, read).await;
            }
        };
        tokio::join!(renew, judge, watch_ends(current));
    }
}

/// Calls `take_over` with the new contents of the watched files after each change. If they are refused or unreadable,
/// the old ones stay.
async fn follow_files(
    mut watch: Watch,
    of: TlsMaterial,
    metrics: &Metrics,
    take_over: impl Fn(&[Content]) -> Result<(), Fault>,
) {
    let what = match of {
        TlsMaterial::Certificate => "certificate",
        TlsMaterial::ClientCa => "client CA",
    };
    // `not_before` of the certificate that was refused as not valid yet.
    let mut early = None;
    loop {
        let contents = match watch.changed().await {
            Ok(contents) => contents,
            Err(error) => {
                metrics.tls_reload(of, Reload::Unreadable);
                tracing::warn!(%error, "the new {what} cannot be read, the old {what} stays");
                continue;
            }
        };
        let taken = take_over(&contents);
        let begins = match &taken {
            Err(Fault::NotYetValid { not_before }) => Some(*not_before),
            _ => None,
        };
        match taken {
            Ok(()) => metrics.tls_reload(of, Reload::Loaded),
            Err(fault) if begins.is_none() || begins != early => {
                metrics.tls_reload(of, Reload::Refused);
                tracing::warn!(error = %fault, "new {what} refused, the old {what} stays");
            }
            Err(_) => {}
        }
        if begins.is_some() {
            watch.again();
        }
        early = begins;
    }
}

/// Since when authorities have been in the Secret. One that comes with a leaf, as from a backup or another cluster, is not known to
/// API servers until the leader has told them.
#[derive(Debug)]
struct Authorities {
    settle: Micros,
    since: Since,
    /// That of the leaf being served.
    serving: Option<Der>,
}

impl Authorities {
    /// This is in the Secret now: how long its leaf must wait, for as long as the present one is valid; `None` where it is to
    /// be served at once.
    fn wait(&mut self, stored: &Stored, current: &Current, now: Now) -> Option<Duration> {
        let found = [&stored.authority, &stored.next].into_iter().flatten();
        let found = ders(found.map(|authority| &authority.certificate));
        self.since.observe(&found, now.moment);
        let signer = stored.authority.as_ref().filter(|_| stored.leaf.is_some())?;
        let signer = &signer.certificate.der;
        let age = self.since.age(signer, now.moment);
        let wait = Duration::from_micros((self.settle - age).0);
        let left = current.ends().map(|ends| ends.duration_since(now.wall));
        let left = left.and_then(|left| Duration::try_from(left).ok()).unwrap_or_default();
        let wait = wait.min(left);
        if wait.is_zero() || self.serving.as_ref() == Some(signer) {
            self.serving = Some(Arc::clone(signer));
            return None;
        }
        tracing::warn!(
            seconds = wait.as_secs(),
            "the Secret holds a certificate of a CA that is new to it: the old one stays until API servers may trust that"
        );
        Some(wait)
    }
}

async fn follow_secret(
    mut contents: watch::Receiver<Option<Arc<Contents>>>,
    service: &Service,
    mut authorities: Authorities,
    current: &Current,
    loaded: impl FnOnce() + Send,
) {
    let metrics = &current.metrics;
    let mut loaded = Some(loaded);
    // The faults that were logged last.
    let mut said = String::new();
    loop {
        let seen = contents.borrow_and_update().clone().unwrap_or_default();
        let now = current.clock.now();
        let stored = Stored::read(&seen, service, now.wall);
        let wait = authorities.wait(&stored, current, now);
        let is_early = stored.early().is_some();
        let faults = match &stored.leaf {
            Some(_) => String::new(),
            None if stored.faults.is_empty() && loaded.is_none() => "there is none".to_owned(),
            None => stored.faults(),
        };
        if faults != said && !faults.is_empty() {
            metrics.tls_reload(TlsMaterial::Certificate, Reload::Refused);
            let instead = match loaded {
                None => "the old certificate stays",
                Some(_) => "not ready until there is one",
            };
            tracing::warn!(
                error = faults,
                "the Secret holds no certificate that can be served, {instead}"
            );
        }
        said = faults;
        if let Some(pair) = stored.leaf {
            if wait.is_none() && !current.is(&pair) {
                current.take_over(pair, "certificate loaded");
                metrics.tls_reload(TlsMaterial::Certificate, Reload::Loaded);
            }
            if let Some(loaded) = loaded.take() {
                loaded();
            }
        }
        let changed = tokio::select! {
            changed = contents.changed() => changed,
            () = tokio::time::sleep(EARLY), if is_early => Ok(()),
            () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => Ok(()),
        };
        if changed.is_err() {
            // The sender is gone: the process is ending.
            return;
        }
    }
}

/// Logs every minute that the serving certificate has expired; API servers then refuse it, and pods are created without
/// a decision. Also logs each expired client authority, whose clients are then refused.
async fn watch_ends(current: &Current) {
    loop {
        let now = current.clock.wall();
        let mut pause = OVER;
        if let Some(ends) = current.ends() {
            match Duration::try_from(ends.duration_since(now)) {
                Ok(left) => pause = pause.min(left.saturating_add(EARLY)),
                Err(_) => {
                    tracing::error!(not_after = %ends, "the serving certificate is past its end: API servers refuse it");
                }
            }
        }
        for authority in current.clients.load().iter().flat_map(|clients| &clients.0) {
            match Duration::try_from(authority.not_after.duration_since(now)) {
                Ok(left) => pause = pause.min(left.saturating_add(EARLY)),
                Err(_) => tracing::warn!(
                    subject = authority.subject,
                    not_after = %authority.not_after,
                    "a CA of --client-ca has expired: its clients are refused"
                ),
            }
        }
        if current.clients.load().is_some() {
            current.publish();
        }
        tokio::time::sleep(pause).await;
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

/// The current pair, the client authorities, and the TLS settings made of them. Expired client authorities are ignored.
#[derive(Debug)]
struct Current {
    pair: ArcSwapOption<Pair>,
    clients: ArcSwapOption<ClientCa>,
    /// Made of both and rebuilt when either changes. Connections keep the settings they were opened with.
    settings: RustlsConfig,
    clock: Clock,
    metrics: Arc<Metrics>,
}

impl Current {
    fn new(clock: Clock, metrics: Arc<Metrics>) -> anyhow::Result<Self> {
        Ok(Self {
            pair: ArcSwapOption::empty(),
            clients: ArcSwapOption::empty(),
            settings: RustlsConfig::from_config(settings(None, None, clock.wall())?),
            clock,
            metrics,
        })
    }

    fn ends(&self) -> Option<Timestamp> {
        self.pair.load().as_ref().map(|pair| pair.certificate.ends)
    }

    fn is(&self, pair: &Pair) -> bool {
        let current = self.pair.load();
        current
            .as_ref()
            .is_some_and(|current| current.key.cert == pair.key.cert)
    }

    fn take_over(&self, pair: Pair, message: &'static str) {
        let (names, not_after) = (pair.names.join(","), pair.certificate.ends);
        self.metrics.certificate_not_after.set(not_after.as_second());
        tracing::info!(names, %not_after, chain = pair.key.cert.len(), "{message}");
        if pair.names.is_empty() {
            tracing::warn!("the certificate has no subject alternative name: the API server will not accept it");
        }
        self.pair.store(Some(Arc::new(pair)));
        self.publish();
    }

    /// From now on, only clients of these authorities may connect.
    fn let_in(&self, clients: ClientCa) {
        tracing::info!(not_after = %clients.not_after(), "only clients with a certificate may connect");
        self.clients.store(Some(Arc::new(clients)));
        self.publish();
    }

    fn publish(&self) {
        let (pair, clients) = (self.pair.load_full(), self.clients.load_full());
        match settings(pair.as_deref(), clients.as_deref(), self.clock.wall()) {
            Ok(settings) => self.settings.reload_from_config(settings),
            Err(error) => tracing::error!(error = format!("{error:#}"), "the old TLS settings stay"),
        }
    }
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
