//! Certificates, ours and those of clients.

use edgeward_core::words;
use prometheus_client::metrics::gauge::Gauge;

use crate::instruments::metrics::Reload;
use crate::instruments::metrics::declaration::{Counters, Gauges, metrics};

metrics! {
    /// The metrics of certificates.
    pub struct TlsMetrics {
        reloads: Counters<2> = "edgeward_tls_reloads_total" ["of", "result"]
            "Changes of the certificate (its files or its Secret) and of --client-ca, by what became of them (anything but loaded keeps what there was)";
        not_after: Gauge = "edgeward_tls_certificate_not_after_seconds" []
            "When the certificate being served expires, in seconds since the Unix epoch (0: there is none yet)";
        cas: Gauges<1> = "edgeward_tls_ca_not_after_seconds" ["ca"]
            "When a CA that edgeward knows expires, in seconds since the Unix epoch (serving: in ca.crt beside the certificate, or of a self-managed one; next: of the latter; clients: the last of --client-ca)";
        kept: Counters<1> = "edgeward_tls_self_managed_steps_total" ["wrote"]
            "What the leader did for self-managed certificates, by what it wrote (nothing: it failed)";
    }
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

words! {
    /// A CA that is known here: the label `ca`.
    pub enum TlsCa {
        /// The one that signed what is served: of a self-managed certificate, or in `ca.crt` beside the files.
        Serving = "serving",
        /// The one of ours that is to follow.
        Next = "next",
        /// Those that clients must have a certificate of; the last that is over counts.
        Clients = "clients",
    }
}

words! {
    /// What the leader wrote for certificates of our own: the label `wrote`.
    pub enum Kept {
        /// The Secret.
        Secret = "secret",
        /// `caBundle`.
        CaBundle = "ca_bundle",
        /// It failed.
        Nothing = "nothing",
    }
}

impl TlsMetrics {
    pub(super) fn start_at_zero(&self) {
        for of in TlsMaterial::ALL {
            for result in Reload::ALL {
                self.reloads.of([of.as_str().into(), result.as_str().into()]);
            }
        }
        for wrote in Kept::ALL {
            self.kept.of([wrote.as_str().into()]);
        }
    }

    /// The leader wrote this, or failed.
    pub fn kept(&self, wrote: Kept) {
        self.kept.of([wrote.as_str().into()]).inc();
    }

    /// Something changed, and this became of it.
    pub fn reload(&self, of: TlsMaterial, result: Reload) {
        self.reloads.of([of.as_str().into(), result.as_str().into()]).inc();
    }

    /// The certificate now served expires at this moment, in seconds since the Unix epoch.
    pub fn certificate_not_after(&self, unix_seconds: i64) {
        self.not_after.set(unix_seconds);
    }

    /// This CA expires at this moment, in seconds since the Unix epoch; `None` while there is none.
    pub fn ca_not_after(&self, of: TlsCa, unix_seconds: Option<i64>) {
        let label = [of.as_str().into()];
        match unix_seconds {
            Some(unix_seconds) => drop(self.cas.of(label).set(unix_seconds)),
            None => self.cas.remove(label),
        }
    }
}
