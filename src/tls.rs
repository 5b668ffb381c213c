//! The serving certificate: where it comes from, how it is checked, and how it changes under a running server.
//!
//! The handshake reads the pair through an [`ArcSwap`]: one asynchronous writer, synchronous readers, no lock. A
//! connection keeps the certificate it was opened with.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{ClientHello, ResolvesServerCert, ServerConfig};
use rustls::sign::CertifiedKey;

use crate::clock::Clock;
use crate::files::{self, Unreadable, Watch};
use crate::metrics::{Metrics, Reload};

mod pair;
mod self_signed;

pub use pair::{Fault, Pair};

/// The only application protocol we offer. It is what the API server uses towards a Service, and HTTP/1.1's
/// `Connection: close` is how we drain.
pub const ALPN: &[u8] = b"http/1.1";

/// Where the serving certificate comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
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
        /// Name of our Service; the certificate is for `<service>.<namespace>.svc`, `localhost` and `127.0.0.1`.
        service: String,
        /// The namespace of our Service.
        namespace: String,
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

/// The certificate being served, and what may replace it.
#[derive(Debug)]
pub struct Certificates {
    current: Arc<Current>,
    ca_bundle: Option<String>,
    watch: Option<Watch>,
    clock: Clock,
    metrics: Arc<Metrics>,
}

impl Certificates {
    /// Reads or makes the first pair.
    ///
    /// # Errors
    /// There is no usable pair. At start that is final: a server without a certificate answers nobody.
    pub async fn load(source: &Source, clock: Clock, metrics: Arc<Metrics>) -> Result<Self, Error> {
        let (pair, ca_bundle, watch) = match source {
            Source::Files { cert, key } => {
                let (watch, contents) = Watch::open(vec![cert.clone(), key.clone()], files::POLL).await?;
                let pair = Pair::from_contents(&contents, clock.wall()).map_err(|fault| Error::Refused {
                    cert: cert.clone(),
                    key: key.clone(),
                    fault,
                })?;
                (pair, None, Some(watch))
            }
            Source::SelfSigned {
                directory,
                service,
                namespace,
            } => {
                let made = self_signed::make(service, namespace, clock.wall())?;
                if let Some(directory) = directory {
                    self_signed::write_bundle(directory, &made.ca_bundle)?;
                }
                (made.pair, Some(made.ca_bundle), None)
            }
        };
        announce(&pair, "serving certificate", &metrics);
        let current = Arc::new(Current(ArcSwap::new(pair.key)));
        Ok(Self {
            current,
            ca_bundle,
            watch,
            clock,
            metrics,
        })
    }

    /// The authority that clients must trust, in PEM; `None` when the pair comes from files.
    #[must_use]
    pub fn ca_bundle(&self) -> Option<&str> {
        self.ca_bundle.as_deref()
    }

    /// Rustls settings that serve the current pair: TLS 1.2 and 1.3, [`ALPN`] only, no client certificate. Needs
    /// no process-wide crypto provider.
    ///
    /// # Errors
    /// [`Error::Setup`], which would be a fault of the build.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, Error> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&self.current) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Arc::new(config))
    }

    /// Takes over every good pair that appears in the files, for ever; a bad one is refused and the old one kept,
    /// with a warning and a count. One that is not valid yet is tried again until it is. `None` when nothing can change, because the pair was made here.
    pub fn follow(self) -> Option<impl Future<Output = ()> + Send + 'static> {
        let Self {
            current,
            watch,
            clock,
            metrics,
            ..
        } = self;
        let mut watch = watch?;
        Some(async move {
            // Beginning of the pair in the files, while it is refused for that.
            let mut early = None;
            loop {
                let contents = match watch.changed().await {
                    Ok(contents) => contents,
                    Err(error) => {
                        metrics.tls_reload(Reload::Unreadable);
                        tracing::warn!(%error, "certificate files cannot be read, the old certificate stays");
                        continue;
                    }
                };
                match Pair::from_contents(&contents, clock.wall()) {
                    Ok(pair) => {
                        announce(&pair, "certificate reloaded", &metrics);
                        current.0.store(pair.key);
                        metrics.tls_reload(Reload::Loaded);
                        early = None;
                    }
                    Err(fault) => {
                        let begins = match &fault {
                            Fault::NotYetValid { not_before } => Some(*not_before),
                            _ => None,
                        };
                        if begins.is_none() || begins != early {
                            metrics.tls_reload(Reload::Refused);
                            tracing::warn!(error = %fault, "new certificate refused, the old certificate stays");
                        }
                        if begins.is_some() {
                            watch.again();
                        }
                        early = begins;
                    }
                }
            }
        })
    }
}

/// Makes aws-lc-rs the process's crypto provider, for clients that ask for the default one. Our own server does not
/// need it. May be called more than once.
pub fn install_crypto_provider() {
    // The error says that there is one already, which is what was wanted.
    let _ = aws_lc_rs::default_provider().install_default();
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn announce(pair: &Pair, message: &'static str, metrics: &Metrics) {
    metrics.tls_certificate_not_after(pair.not_after.as_second());
    tracing::info!(names = pair.names.join(","), not_after = %pair.not_after, chain = pair.key.cert.len(), "{message}");
    if pair.names.is_empty() {
        tracing::warn!("the certificate has no subject alternative name: the API server will not accept it");
    }
}

/// Answers every handshake with the pair of the moment, whatever name the client asks for: the API server may call
/// us by Service name or by URL, and the name is its business to check.
#[derive(Debug)]
struct Current(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}
