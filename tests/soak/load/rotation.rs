//! Replaces certificates and their authorities under load, in each of the three ways to provide them. The API server must
//! reconnect every half second, so the served certificate and the trusted CA must match all the time.

use edgeward_harness::cert_manager::{CA, CertManager, LEAF, all_is_well};
use edgeward_harness::installed_replicas::{InstalledReplicas, finds, render};
use edgeward_harness::load::highest_steady;
use edgeward_harness::load::replicas::{REPLICAS, nodes};
use edgeward_harness::prelude::*;
use edgeward_harness::rotation::{CA_BUNDLE_DELAY, files_rotated, is_clean, self_managed_rotated, tabulate};

e2e! { "load::steady_file_rotation_decides_every_pod", Machine, steady_file_rotation_decides_every_pod }
fn steady_file_rotation_decides_every_pod(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = nodes(fixture)?;
    files_rotated(fixture, &nodes, highest_steady(fixture, &nodes)?)
}

e2e! { "load::self_managed_rotation_decides_every_pod", Machine, self_managed_rotation_decides_every_pod }
fn self_managed_rotation_decides_every_pod(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = nodes(fixture)?;
    self_managed_rotated(fixture, &nodes, highest_steady(fixture, &nodes)?).map(drop)
}

/// How often cert-manager renews the certificate by itself.
const PERIOD: Duration = Duration::from_secs(10);

e2e! { "load::cert_manager_rotation_decides_every_pod", Machine, cert_manager_rotation_decides_every_pod }
/// cert-manager's controllers and cainjector replace the certificates. First the certificate expires by time. Then the CA and
/// the certificate are replaced by hand, in this order, twice. While `caBundle` is outdated nothing is decided, and `edgeward
/// check` says why.
fn cert_manager_rotation_decides_every_pod(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = nodes(fixture)?;
    let pace = highest_steady(fixture, &nodes)?;
    let cert_manager = CertManager::start(fixture)?;
    let mut objects = render(fixture, &["deploy/overlays/cert-manager"])?;
    let named = |object: &Value| object["kind"] == "Certificate" && object["metadata"]["name"] == LEAF;
    let leaf = objects.iter_mut().find(|object| named(object)).context("no leaf")?;
    // Long enough for a busy machine.
    let life = Duration::from_secs(300);
    leaf["spec"]["duration"] = json!(format!("{}s", life.as_secs()));
    leaf["spec"]["renewBefore"] = json!(format!("{}s", (life - PERIOD).as_secs()));
    let installed = InstalledReplicas::open(fixture, &nodes, pace, REPLICAS, objects, &[])?;
    all_is_well(fixture)?;

    let report = installed.under_load(|load| {
        installed.is_renewed(&installed.shown()?)?;
        installed.is_used(load, "a certificate of the same CA, by time")?;
        // From here on, only manual renewals happen.
        let patch = json!({"spec": {"renewBefore": "60s"}});
        fixture.kubectl_in(NAMESPACE).patch("certificate", LEAF, &patch, &[])?;
        cert_manager.renew(LEAF)?;
        for _ in 0..2 {
            let old = cert_manager.authority()?;
            cert_manager.renew(CA)?;
            let new = cert_manager.authority()?;
            eventually("caBundle has the new CA beside the old one", BOUND, || {
                let bundle = installed.ca_bundle()?;
                let has = |authority: &str| bundle.contains(authority.trim());
                ensure!(old != new && has(&old) && has(&new), "{bundle}");
                Ok(())
            })?;
            // Both CAs are trusted, and the certificate still comes from the old one.
            installed.is_of(&old)?;
            installed.is_used(load, "the new CA is trusted beside the old one")?;
            cert_manager.renew(LEAF)?;
            installed.is_of(&new)?;
            installed.is_used(load, "a certificate of the new CA")?;
        }
        Ok(())
    })?;
    is_clean(
        "cert-manager and its cainjector: a certificate by time and one by hand, then twice the CA and a certificate of it",
        &report,
        &installed,
    )?;
    all_is_well(fixture)?;

    // Simulates an absent cainjector.
    cert_manager.inject(None)?;
    let report = installed.under_load(|_| {
        cert_manager.renew(CA)?;
        cert_manager.renew(LEAF)?;
        let words = "it is signed by no authority in caBundle";
        finds(fixture, "FAULT", words)
    })?;
    println!("load: cert-manager: both renewed, and nobody fills in caBundle: {report}");
    tabulate("cert-manager with cainjector away: CA and certificate", &"–", &report);
    report.has_no_failure()?;
    ensure!(
        !report.undecided.is_empty() && report.failed_open > 0,
        "the API server goes by another bundle than that of the webhook"
    );
    cert_manager.inject(Some(CA))?;
    all_is_well(fixture)?;
    eventually("pods are decided again", BOUND, || {
        installed.under_load(|load| load.lasts(CA_BUNDLE_DELAY))?.is_clean()
    })
}
