//! Replaces certificates and their authorities under load. The API server must reconnect every half second, so the served
//! certificate and the trusted CA must match all the time.

use std::fmt;

use crate::installed_replicas::{InstalledReplicas, secret};
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
