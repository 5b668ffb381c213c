//! The connection to the server, and its token and CA files, which may change at run time.

use std::sync::Arc;

use anyhow::Context as _;
use arc_swap::ArcSwap;
use edgeward_core::config::Prometheus;
use http::HeaderValue;
use http::header::AUTHORIZATION;
use prometheus_http_query::Client;
use reqwest::Certificate;
use reqwest::redirect::Policy;

use crate::platform::files;
use crate::platform::files::Watch;
use crate::tls::install_crypto_provider;

/// The current client.
pub(in crate::sources) type Current = ArcSwap<Client>;

pub(in crate::sources) struct Connection {
    settings: Prometheus,
    /// Watches no file if the settings name none.
    watch: Watch,
    client: Arc<Current>,
}

impl Connection {
    pub(in crate::sources) async fn open(prometheus: &Prometheus) -> anyhow::Result<Self> {
        install_crypto_provider();
        let paths = [&prometheus.token_file, &prometheus.ca_file].into_iter().flatten();
        let (watch, contents) = Watch::open(paths.cloned().collect()).await?;
        Ok(Self {
            settings: prometheus.clone(),
            watch,
            client: Arc::new(ArcSwap::from_pointee(open(prometheus, contents)?)),
        })
    }

    pub(in crate::sources) fn client(&self) -> Arc<Current> {
        Arc::clone(&self.client)
    }

    /// Replaces the client whenever a file changes. Never returns. Unusable files leave the last client in place.
    pub(in crate::sources) async fn follow(&mut self) {
        loop {
            let changed = self.watch.changed().await.map_err(anyhow::Error::from);
            match changed.and_then(|contents| open(&self.settings, contents)) {
                Ok(client) => {
                    self.client.store(Arc::new(client));
                    tracing::info!("token and CA certificates for Prometheus read again");
                }
                Err(error) => tracing::warn!(
                    error = format!("{error:#}"),
                    "token or CA certificates for Prometheus cannot be used; the last ones stay"
                ),
            }
        }
    }
}

/// Creates a client. `contents` holds the token first, then the CA certificates, each only if configured.
fn open(settings: &Prometheus, contents: files::Contents) -> anyhow::Result<Client> {
    let mut contents = contents.into_iter();
    // All settings are arguments, so proxies from the environment are ignored. A redirect would lead to a login page,
    // or leak the token.
    let mut builder = reqwest::Client::builder().no_proxy().redirect(Policy::none());
    if settings.token_file.is_some() {
        let token = contents.next().context("a file is missing")?;
        let token = std::str::from_utf8(&token.bytes).map_or("", str::trim);
        anyhow::ensure!(!token.is_empty(), "prometheus.tokenFile holds no token");
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).context("prometheus.tokenFile")?;
        value.set_sensitive(true);
        builder = builder.default_headers([(AUTHORIZATION, value)].into_iter().collect());
    }
    if settings.ca_file.is_some() {
        let pem = contents.next().context("a file is missing")?;
        let certificates = Certificate::from_pem_bundle(&pem.bytes).context("prometheus.caFile")?;
        anyhow::ensure!(!certificates.is_empty(), "prometheus.caFile holds no certificate");
        builder = builder.tls_certs_only(certificates);
    }
    Client::from(builder.build()?, &settings.url).with_context(|| format!("prometheus.url: {}", settings.url))
}
