use crate::tls::Service;

/// The Service that the manifests install.
pub(crate) fn service() -> Service {
    Service {
        name: "edgeward".into(),
        namespace: "edgeward-system".into(),
    }
}
