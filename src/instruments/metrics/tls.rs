//! Certificates, ours and those of clients.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::instruments::metrics::{Description, Kind, Reload, register};

pub(super) const RELOADS: Description = Description {
    name: "edgeward_tls_reloads_total",
    kind: Kind::Counter,
    labels: &["of", "result"],
    help: "Changes of the certificate (its files or its Secret) and of --client-ca, by what became of them (anything but loaded keeps what there was)",
};
pub(super) const NOT_AFTER: Description = Description {
    name: "edgeward_tls_certificate_not_after_seconds",
    kind: Kind::Gauge,
    labels: &[],
    help: "When the certificate being served expires, in seconds since the Unix epoch (0: there is none yet)",
};
pub(super) const KEPT: Description = Description {
    name: "edgeward_tls_self_managed_steps_total",
    kind: Kind::Counter,
    labels: &["wrote"],
    help: "What the leader did for self-managed certificates, by what it wrote (nothing: it failed)",
};
pub(super) const CA_NOT_AFTER: Description = Description {
    name: "edgeward_tls_ca_not_after_seconds",
    kind: Kind::Gauge,
    labels: &["ca"],
    help: "When a CA that edgeward knows expires, in seconds since the Unix epoch (serving, next: of a self-managed certificate; clients: the last of --client-ca)",
};

/// What is read again when it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsMaterial {
    /// The certificate that is served, with its key.
    Certificate,
    /// The authorities of clients.
    ClientCa,
}

impl TlsMaterial {
    /// The value of the label `of`.
    fn as_str(self) -> &'static str {
        match self {
            Self::Certificate => "certificate",
            Self::ClientCa => "client_ca",
        }
    }
}

/// A CA that is known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsCa {
    /// The one of ours that signs.
    Serving,
    /// The one of ours that is to follow.
    Next,
    /// Those that clients must have a certificate of; the last that is over counts.
    Clients,
}

impl TlsCa {
    /// The value of the label `ca`.
    fn as_str(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Next => "next",
            Self::Clients => "clients",
        }
    }
}

/// What the leader wrote for certificates of our own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// The Secret.
    Secret,
    /// `caBundle`.
    CaBundle,
    /// It failed.
    Nothing,
}

impl Kept {
    const ALL: [Self; 3] = [Self::Secret, Self::CaBundle, Self::Nothing];

    /// The value of the label `wrote`.
    fn as_str(self) -> &'static str {
        match self {
            Self::Secret => "secret",
            Self::CaBundle => "ca_bundle",
            Self::Nothing => "nothing",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KeptLabel {
    wrote: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReloadLabels {
    of: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CaLabel {
    ca: &'static str,
}

/// The metrics of certificates.
#[derive(Debug)]
pub struct TlsMetrics {
    reloads: Family<ReloadLabels, Counter>,
    not_after: Gauge,
    cas: Family<CaLabel, Gauge>,
    kept: Family<KeptLabel, Counter>,
}

impl TlsMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let reloads = Family::<ReloadLabels, Counter>::default();
        for of in [TlsMaterial::Certificate, TlsMaterial::ClientCa].map(TlsMaterial::as_str) {
            for result in Reload::ALL.map(Reload::as_str) {
                drop(reloads.get_or_create(&ReloadLabels { of, result }));
            }
        }
        let kept = Family::<KeptLabel, Counter>::default();
        for wrote in Kept::ALL.map(Kept::as_str) {
            drop(kept.get_or_create(&KeptLabel { wrote }));
        }
        Self {
            reloads: register(registry, &RELOADS, reloads),
            not_after: register(registry, &NOT_AFTER, Gauge::default()),
            cas: register(registry, &CA_NOT_AFTER, Family::default()),
            kept: register(registry, &KEPT, kept),
        }
    }

    /// The leader wrote this, or failed.
    pub fn kept(&self, wrote: Kept) {
        let wrote = wrote.as_str();
        self.kept.get_or_create(&KeptLabel { wrote }).inc();
    }

    /// Something changed, and this became of it.
    pub fn reload(&self, of: TlsMaterial, result: Reload) {
        let (of, result) = (of.as_str(), result.as_str());
        self.reloads.get_or_create(&ReloadLabels { of, result }).inc();
    }

    /// The certificate now served expires at this moment, in seconds since the Unix epoch.
    pub fn certificate_not_after(&self, unix_seconds: i64) {
        self.not_after.set(unix_seconds);
    }

    /// This CA expires at this moment, in seconds since the Unix epoch; `None` while there is none.
    pub fn ca_not_after(&self, of: TlsCa, unix_seconds: Option<i64>) {
        let label = CaLabel { ca: of.as_str() };
        match unix_seconds {
            Some(unix_seconds) => drop(self.cas.get_or_create(&label).set(unix_seconds)),
            None => drop(self.cas.remove(&label)),
        }
    }
}
