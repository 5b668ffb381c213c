//! Certificates and their authorities are replaced under load, in each of the three ways to have them. Every half second the API
//! server must connect anew, so that what a replica shows and what is trusted must fit all the time.

use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::replicas::{REPLICAS, stage};
use super::{Pace, Report, highest_steady};
use crate::cert_manager::{CA, CertManager, LEAF, all_is_well};
use crate::certificates::finds;
use crate::installed::{Installed, NAME, decode, render, secret};
use crate::patience::{BOUND, eventually};
use crate::pki::Authority;
use crate::rights::NAMESPACE;
use crate::scene::Scene;
use crate::stage::Stage;
use crate::tables::Table;

/// How long API servers may take to hear of a `caBundle`; nobody tells when they have.
const HEARD: Duration = Duration::from_secs(2);

/// In the Secret that the replicas mount: a certificate, then one of another CA, which is trusted before and beside the old one.
pub(crate) fn rotation_files(scene: &Scene<'_>) -> Result<()> {
    files_rotated(scene, &stage(scene)?, Pace::Adaptive)
}

/// The same at a steady rate.
pub(crate) fn rotation_files_at_a_steady_rate(scene: &Scene<'_>) -> Result<()> {
    let stage = stage(scene)?;
    files_rotated(scene, &stage, highest_steady(scene, &stage)?)
}

fn files_rotated(scene: &Scene<'_>, stage: &Stage<'_>, pace: Pace) -> Result<()> {
    let (old, new) = (Authority::new()?, Authority::new()?);
    let installed = Installed::with_files(scene, stage, pace, REPLICAS, &old)?;
    let put = |authority: &Authority| -> Result<()> {
        let before = installed.shown()?;
        installed.put(&secret(&authority.server(&[NAME])?, authority))?;
        installed.is_renewed(&before)?;
        installed.is_of(&authority.certificate)
    };
    let report = installed.under_load(|load| {
        put(&old)?;
        installed.is_used(load, "a certificate of the same CA")?;
        installed.trust(&[&*old.certificate, &*new.certificate].concat())?;
        load.lasts(HEARD)?;
        put(&new)?;
        installed.is_used(load, "a certificate of the new CA")?;
        installed.trust(&new.certificate)?;
        load.lasts(HEARD)?;
        installed.is_used(load, "the old CA is not trusted any more")
    })?;
    is_clean(
        "files: a certificate; both CAs in `caBundle`, a certificate of the new one, the old CA out",
        &report,
        &installed,
    )
}

/// Fails unless every pod was decided, and whatever was shown was trusted.
fn is_clean(way: &str, report: &Report, installed: &Installed<'_, '_>) -> Result<()> {
    println!("load: rotation, {way}: {report}");
    report.is_clean()?;
    let connections = installed.was_trusted()?;
    println!("load: rotation, {way}: {connections} connections, each trusted");
    tabulate(way, &connections, report);
    Ok(())
}

fn tabulate(of: &str, connections: &dyn fmt::Display, report: &Report) {
    let seconds = report.lasted.as_secs();
    let (failed, undecided) = (report.failed.len(), report.undecided.len());
    Table::Certificates.row(of, &[&seconds, connections, &report.created, &failed, &undecided]);
}

/// Lives of a CA and a certificate: certificates are renewed every 20 s, and the next CA is due at 64 s.
const LIVES: [&str; 2] = ["--ca-life=96s", "--certificate-life=30s"];

/// By the leader: a certificate, then the CA with another.
pub(crate) fn rotation_self_managed(scene: &Scene<'_>) -> Result<()> {
    let stage = stage(scene)?;
    let pace = highest_steady(scene, &stage)?;
    let objects = render(scene, &["deploy/overlays/self-managed"])?;
    let installed = Installed::open(scene, &stage, pace, REPLICAS, objects, &LIVES)?;
    let authority = || -> Result<String> {
        let kubectl = scene.kubectl_in(NAMESPACE);
        decode(&kubectl.get("secret", "edgeward-certificates")?["data"]["ca.crt"])
    };
    let report = installed.under_load(|load| {
        let (old, before) = (authority()?, installed.shown()?);
        installed.is_renewed(&before)?;
        installed.is_of(&old)?;
        installed.is_used(load, "a certificate of the same CA")?;

        let new = eventually("another CA signs", 4 * BOUND, || {
            let new = authority()?;
            ensure!(new != old, "not yet");
            Ok(new)
        })?;
        installed.is_of(&new)?;
        installed.is_used(load, "a certificate of the new CA")?;
        eventually("the old CA is not trusted any more", BOUND, || {
            let bundle = installed.ca_bundle()?;
            ensure!(bundle.contains(&new) && !bundle.contains(&old), "{bundle}");
            Ok(())
        })?;
        load.lasts(HEARD)?;
        installed.is_used(load, "the old CA is not trusted any more")
    })?;
    is_clean(
        "self-managed: certificates, then the CA with another, by the leader",
        &report,
        &installed,
    )
}

/// How often cert-manager renews the certificate by itself.
const PERIOD: Duration = Duration::from_secs(10);

/// By cert-manager's controllers, and its cainjector: a certificate by time, then CA and certificate by hand, twice, in this order.
/// Where `caBundle` stays behind, nothing is decided, and `edgeward check` says why.
pub(crate) fn rotation_cert_manager(scene: &Scene<'_>) -> Result<()> {
    let stage = stage(scene)?;
    let pace = highest_steady(scene, &stage)?;
    let cert_manager = CertManager::start(scene)?;
    let mut objects = render(scene, &["deploy/overlays/cert-manager"])?;
    let named = |object: &Value| object["kind"] == "Certificate" && object["metadata"]["name"] == LEAF;
    let leaf = objects.iter_mut().find(|object| named(object)).context("no leaf")?;
    // Longer than the machine may be busy with other things.
    let life = Duration::from_secs(300);
    leaf["spec"]["duration"] = json!(format!("{}s", life.as_secs()));
    leaf["spec"]["renewBefore"] = json!(format!("{}s", (life - PERIOD).as_secs()));
    let installed = Installed::open(scene, &stage, pace, REPLICAS, objects, &[])?;
    all_is_well(scene)?;

    let report = installed.under_load(|load| {
        installed.is_renewed(&installed.shown()?)?;
        installed.is_used(load, "a certificate of the same CA, by time")?;
        // By hand alone from here on.
        let patch = json!({"spec": {"renewBefore": "60s"}}).to_string();
        let args = ["patch", "certificate", LEAF, "--type=merge", "-p", &patch];
        scene.kubectl_in(NAMESPACE).run(&args, "")?;
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
            // Both are trusted, and the certificate is of the old one still.
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
    all_is_well(scene)?;

    // As while cainjector is away.
    cert_manager.inject(None)?;
    let report = installed.under_load(|_| {
        cert_manager.renew(CA)?;
        cert_manager.renew(LEAF)?;
        let words = "its certificate is of none of the authorities in caBundle";
        finds(scene, "FAULT", words).map(drop)
    })?;
    println!("load: cert-manager: both renewed, and nobody fills in caBundle: {report}");
    tabulate("cert-manager with cainjector away: CA and certificate", &"–", &report);
    report.has_no_failure()?;
    ensure!(
        !report.undecided.is_empty() && report.failed_open > 0,
        "the API server goes by another bundle than that of the webhook"
    );
    cert_manager.inject(Some(CA))?;
    all_is_well(scene)?;
    eventually("pods are decided again", BOUND, || {
        installed.under_load(|load| load.lasts(HEARD))?.is_clean()
    })
}
