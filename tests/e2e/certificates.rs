//! Certificates in files: a mounted Secret that changes to valid and to invalid pairs.

pub(crate) mod self_managed;
pub(crate) mod shown;

use edgeward_harness::installed_replicas::{InstalledReplicas, finds, secret};
use edgeward_harness::load::Pace;
use edgeward_harness::load::replicas::nodes;
use edgeward_harness::pki::Pair;
use edgeward_harness::prelude::*;
use edgeward_harness::webhook_credentials::NAME;

e2e! { "certificates::bad_pairs_are_refused", Cluster, bad_pairs_are_refused }
/// edgeward refuses an expired pair and a mismatched pair. It serves the previous certificate and logs why. Every pod is
/// decided meanwhile. `edgeward check` names a CA that is missing from `caBundle`.
fn bad_pairs_are_refused(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = nodes(fixture)?;
    let authority = Authority::new()?;
    let installed = InstalledReplicas::with_files(fixture, &nodes, Pace::Adaptive(20), 1, &authority)?;
    finds(fixture, "ok", "pods.edgeward.io: the certificate at ")?;
    let edgeward = installed.members.first().context("no replica")?;
    let reloads = |result: &str| edgeward.count("edgeward_tls_reloads_total", &[("result", result)]);

    let good = installed.shown()?;
    let mismatched = Pair {
        key: authority.server(&[NAME])?.key,
        ..authority.server(&[NAME])?
    };
    let bad = [
        (
            authority.server_until(2001, &[NAME])?,
            "the certificate expired at 2001-01-01",
        ),
        (mismatched, "the private key does not belong to the first certificate"),
    ];
    for (index, (bad, words)) in bad.iter().enumerate() {
        let report = installed.under_load(|load| {
            installed.put(&secret(bad, &authority))?;
            // The line is written after the metric.
            eventually("the bad pair is refused", BOUND, || {
                let said = edgeward.said("new certificate refused, the old certificate stays");
                let errors: Vec<_> = said.iter().map(|said| said["error"].to_string()).collect();
                ensure!(reloads("refused")? == index as u64 + 1, "{errors:?}");
                ensure!(errors.iter().any(|error| error.contains(words)), "{errors:?}");
                Ok(())
            })?;
            ensure!(installed.shown()? == good, "another certificate is served");
            installed.is_used(load, words)
        })?;
        println!("files: {words}: {report}");
        report.is_clean()?;
    }

    let last = authority.server(&[NAME])?;
    let report = installed.under_load(|load| {
        installed.put(&secret(&last, &authority))?;
        installed.is_renewed(&good)?;
        installed.is_used(load, "a good pair")
    })?;
    println!("files: a good pair: {report}");
    report.is_clean()?;

    installed.trust(&Authority::new()?.certificate)?;
    for entry in ["placed.edgeward.io", "pods.edgeward.io", "policies.edgeward.io"] {
        let words = format!("{entry}: the API server does not trust the certificate at ");
        finds(fixture, "FAULT", &words)?;
    }
    installed.trust(&authority.certificate)?;
    finds(fixture, "ok", "pods.edgeward.io: the certificate at ")
}
