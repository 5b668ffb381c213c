//! The connection to the server, and its token and CA files, which may change at run time.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use edgeward_decision::config::Prometheus;
use http::HeaderValue;
use http::header::AUTHORIZATION;
use prometheus_http_query::Client;
use reqwest::Certificate;
use reqwest::redirect::Policy;

use crate::prometheus::outcome::{Failure, Outcome};
use crate::tls::install_crypto_provider;

/// Token and CA certificates, each if configured, or why they cannot be read.
type Files = Result<[Option<Vec<u8>>; 2], String>;

pub(crate) struct Connection {
    settings: Prometheus,
    current: Mutex<Current>,
}

/// The files as read last, the client made from the last usable ones, and why none was made from the files read last.
#[derive(Default)]
struct Current {
    files: Option<Files>,
    client: Option<Client>,
    fault: Option<String>,
}

impl Connection {
    /// Reads and sends nothing yet.
    pub(crate) fn new(settings: &Prometheus) -> Self {
        install_crypto_provider();
        Self {
            settings: settings.clone(),
            current: Mutex::default(),
        }
    }

    /// Returns a client with the current files. Unusable files leave the last client in use. After a fault, which may
    /// lie outside the files, each call tries again.
    pub(super) async fn client(&self) -> Result<Client, Failure> {
        let Prometheus {
            token_file, ca_file, ..
        } = &self.settings;
        let files = async { Ok([read(token_file.as_ref()).await?, read(ca_file.as_ref()).await?]) }.await;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.fault.is_some() || current.files.as_ref() != Some(&files) {
            match open(&self.settings, &files) {
                Ok(client) => (current.client, current.fault) = (Some(client), None),
                Err(error) => {
                    let error = format!("{error:#}");
                    if current.fault.as_ref() != Some(&error) {
                        tracing::warn!(
                            error,
                            "token or CA certificates for Prometheus cannot be used; the last ones stay"
                        );
                    }
                    current.fault = Some(error);
                }
            }
            current.files = Some(files);
        }
        let fault = current.fault.as_deref().unwrap_or_default();
        let client = current.client.clone();
        client.ok_or_else(|| Failure::new(Outcome::Unreachable, fault))
    }
}

async fn read(path: Option<&PathBuf>) -> Result<Option<Vec<u8>>, String> {
    let Some(path) = path else { return Ok(None) };
    let read = tokio::fs::read(path).await;
    read.map(Some).map_err(|error| format!("{}: {error}", path.display()))
}

fn open(settings: &Prometheus, files: &Files) -> anyhow::Result<Client> {
    let [token, authorities] = files.as_ref().map_err(|error| anyhow::anyhow!("{error}"))?;
    // All settings are arguments, so proxies from the environment are ignored. A redirect would lead to a login page,
    // or leak the token.
    let mut builder = reqwest::Client::builder().no_proxy().redirect(Policy::none());
    if let Some(token) = token {
        let token = std::str::from_utf8(token).map_or("", str::trim);
        anyhow::ensure!(!token.is_empty(), "prometheus.tokenFile holds no token");
        let mut value = HeaderValue::from_str(&format!("Bearer {token}")).context("prometheus.tokenFile")?;
        value.set_sensitive(true);
        builder = builder.default_headers([(AUTHORIZATION, value)].into_iter().collect());
    }
    if let Some(pem) = authorities {
        let certificates = Certificate::from_pem_bundle(pem).context("prometheus.caFile")?;
        anyhow::ensure!(!certificates.is_empty(), "prometheus.caFile holds no certificate");
        builder = builder.tls_certs_only(certificates);
    }
    Client::from(builder.build()?, &settings.url).with_context(|| format!("prometheus.url: {}", settings.url))
}
