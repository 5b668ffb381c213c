//! Metrics of certificates, ours and those of clients.

use edgeward_core::words;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::instruments::metrics::{Counters, Reload, register};

/// The metrics of certificates.
#[derive(Debug)]
pub struct TlsMetrics {
    reloads: Counters<2>,
    not_after: Gauge,
}

words! {
    /// What is read again when it changes: the label `of`.
    pub enum TlsMaterial {
        /// The certificate that is served, with its key.
        Certificate = "certificate",
        /// The authorities of clients.
        ClientCa = "client_ca",
    }
}

impl TlsMetrics {
    pub(super) fn new(to: &mut Registry) -> Self {
        let name = "edgeward_tls_certificate_not_after_seconds";
        let metrics = Self {
            reloads: register(
                to,
                "edgeward_tls_reloads",
                "Changes of the certificate and of --client-ca",
            ),
            not_after: register(to, name, "When the certificate being served expires, in Unix seconds"),
        };
        for of in TlsMaterial::ALL {
            for result in Reload::ALL {
                metrics.reloads(of, result);
            }
        }
        metrics
    }

    /// Counts a change.
    pub fn reload(&self, of: TlsMaterial, result: Reload) {
        self.reloads(of, result).inc();
    }

    fn reloads(&self, of: TlsMaterial, result: Reload) -> Counter {
        let labels = [("of", of.as_str().into()), ("result", result.as_str().into())];
        self.reloads.get_or_create_owned(&labels)
    }

    /// Shows when the certificate that is served expires.
    pub fn certificate_not_after(&self, unix_seconds: i64) {
        self.not_after.set(unix_seconds);
    }
}
