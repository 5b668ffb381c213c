//! A certificate that edgeward manages itself, on a real API server.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use edgeward_harness::fixture::ENTRIES;
use edgeward_harness::installation::WEBHOOK;
use edgeward_harness::installed_replicas::decode;
use edgeward_harness::load::Pace;
use edgeward_harness::load::replicas::nodes;
use edgeward_harness::prelude::*;
use edgeward_harness::rotation::{managed_secret, self_managed_rotated};

e2e! { "certificates::self_managed", Cluster, 101, self_managed }
/// The leaf and then the CA are renewed, and the leader is killed meanwhile. Every pod is decided. edgeward also repairs changes
/// that are made by hand.
pub(crate) fn self_managed(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = nodes(fixture)?;
    let installed = self_managed_rotated(fixture, &nodes, Pace::Adaptive(5))?;

    // An operator applies an old manifest.
    let ca = decode(&managed_secret(fixture)?["ca.crt"])?;
    let remove = |entry| json!({"op": "remove", "path": format!("/webhooks/{entry}/clientConfig/caBundle")});
    let patch = ENTRIES.map(remove).collect();
    fixture
        .kubectl
        .patch("mutatingwebhookconfiguration", WEBHOOK, &patch, &[])?;
    eventually("what was removed is there again", BOUND, || {
        ensure!(installed.ca_bundle()?.contains(&ca));
        Ok(())
    })?;

    let rubbish = json!(STANDARD.encode("rubbish"));
    let patch = json!({"data": {"tls.crt": rubbish}});
    fixture
        .kubectl_in(NAMESPACE)
        .patch("secret", "edgeward-certificates", &patch, &[])?;
    for replica in &installed.members {
        eventually("what cannot be served is refused", BOUND, || {
            let refused = replica.said("the Secret holds no certificate that can be served, the old certificate stays");
            let error = refused.last().context("not refused")?["error"].to_string();
            let fault = "tls.crt: the certificate file holds no CERTIFICATE block";
            ensure!(error.contains(fault), "{error}");
            Ok(())
        })?;
    }
    eventually("the leader makes another", BOUND, || {
        ensure!(managed_secret(fixture)?["tls.crt"] != rubbish);
        Ok(())
    })?;
    installed
        .under_load(|load| load.lasts(Duration::from_secs(1)))?
        .is_clean()
}
