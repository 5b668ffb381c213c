//! Replaces certificates and their authorities under load. The API server must reconnect every half second, so the served
//! certificate and the trusted CA must match all the time.

use std::fmt;

use crate::installed_replicas::{InstalledReplicas, decode, render, secret};
use crate::load::replicas::REPLICAS;
use crate::load::{Pace, Report};
use crate::prelude::*;
use crate::tables::Table;
use crate::webhook_credentials::NAME;

/// Time that API servers may take to use a new `caBundle`. They do not report when they do.
pub const CA_BUNDLE_DELAY: Duration = Duration::from_secs(2);

/// Replaces the certificate in the mounted Secret, then replaces it with one of another CA. The new CA is trusted in advance,
/// together with the old one.
pub fn files_rotated(fixture: &Fixture<'_>, nodes: &Nodes<'_>, pace: Pace) -> Result<()> {
    let (old, new) = (Authority::new()?, Authority::new()?);
    let installed = InstalledReplicas::with_files(fixture, nodes, pace, REPLICAS, &old)?;
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
        load.lasts(CA_BUNDLE_DELAY)?;
        put(&new)?;
        installed.is_used(load, "a certificate of the new CA")?;
        installed.trust(&new.certificate)?;
        load.lasts(CA_BUNDLE_DELAY)?;
        installed.is_used(load, "the old CA is not trusted any more")
    })?;
    is_clean(
        "files: a certificate; both CAs in `caBundle`, a certificate of the new one, the old CA out",
        &report,
        &installed,
    )
}

/// Lifetimes of a CA and a certificate. Certificates are renewed every 30 s, the third time at 90 s. The next CA is due at
/// 100 s. If the leader is killed then, its successor takes over and completes its 7.5 s wait in time: that certificate
/// ends at 135 s.
const LIVES: [&str; 2] = ["--ca-life=150s", "--certificate-life=45s"];

/// Two thirds of a CA's life, plus the time for the rotation.
const ROTATION: Duration = Duration::from_secs(240);

/// The Secret with the certificates that edgeward manages itself.
pub fn managed_secret(fixture: &Fixture<'_>) -> Result<Value> {
    let kubectl = fixture.kubectl_in(NAMESPACE);
    Ok(kubectl.get("secret", "edgeward-certificates")?["data"].take())
}

/// The leader renews its certificate and makes the next CA. Then it is killed, and its successor completes the rotation. Returns
/// the replicas that are left.
pub fn self_managed_rotated<'s, 'run>(
    fixture: &'s Fixture<'run>,
    nodes: &'s Nodes<'run>,
    pace: Pace,
) -> Result<InstalledReplicas<'s, 'run>> {
    let objects = render(fixture, &["deploy/overlays/self-managed"])?;
    let mut installed = InstalledReplicas::open(fixture, nodes, pace, REPLICAS, objects, &LIVES)?;
    let (first, before) = (managed_secret(fixture)?, installed.shown()?);
    let report = installed.under_load(|load| {
        installed.is_renewed(&before)?;
        installed.is_of(&decode(&first["ca.crt"])?)?;
        installed.is_used(load, "a certificate of the same CA")?;
        eventually("the next CA is made", ROTATION, || {
            ensure!(managed_secret(fixture)?["next-ca.crt"].is_string());
            Ok(())
        })
    })?;
    is_clean("self-managed: a certificate, by the leader", &report, &installed)?;

    installed.take_leader()?.kill()?;
    let report = installed.under_load(|load| {
        let ca = eventually("another leader goes on to the end", 2 * ROTATION, || {
            let secret = managed_secret(fixture)?;
            let is_over = secret["next-ca.crt"].is_null() && secret["ca.crt"] != first["ca.crt"];
            ensure!(is_over, "no new CA signs");
            let (ca, bundle) = (decode(&secret["ca.crt"])?, installed.ca_bundle()?);
            let is_alone = bundle.contains(&ca) && bundle.matches("BEGIN CERTIFICATE").count() == 1;
            ensure!(is_alone, "{bundle}");
            Ok(ca)
        })?;
        installed.is_of(&ca)?;
        load.lasts(CA_BUNDLE_DELAY)?;
        installed.is_used(load, "the old CA is not trusted any more")
    })?;
    let way = "self-managed: the CA with another certificate, after the leader was killed";
    is_clean(way, &report, &installed)?;
    Ok(installed)
}

/// Fails unless every pod was decided and every served certificate was trusted.
pub fn is_clean(way: &str, report: &Report, installed: &InstalledReplicas<'_, '_>) -> Result<()> {
    println!("load: rotation, {way}: {report}");
    report.is_clean()?;
    let connections = installed.was_trusted()?;
    println!("load: rotation, {way}: {connections} connections, each trusted");
    tabulate(way, &connections, report);
    Ok(())
}

pub fn tabulate(of: &str, connections: &dyn fmt::Display, report: &Report) {
    let seconds = report.lasted.as_secs();
    let (failed, undecided) = (report.failed.len(), report.undecided.len());
    Table::Certificates.row(of, &[&seconds, connections, &report.created, &failed, &undecided]);
}
