//! Certificates in files: a mounted Secret that changes to valid and to invalid pairs.

pub(crate) mod self_managed;
pub(crate) mod shown;

use edgeward_harness::installation::SECRET;
use edgeward_harness::installed_replicas::{InstalledReplicas, finds, secret};
use edgeward_harness::load::Pace;
use edgeward_harness::load::replicas::nodes;
use edgeward_harness::pki::Pair;
use edgeward_harness::prelude::*;
use edgeward_harness::webhook_credentials::NAME;

e2e! { "certificates::bad_pairs_are_refused", Cluster, bad_pairs_are_refused }
/// edgeward refuses an expired pair and a mismatched pair. It serves the previous certificate and logs why. `edgeward check`
/// names the fault in the Secret and fixes it. Every pod is decided meanwhile.
fn bad_pairs_are_refused(fixture: &Fixture<'_>) -> Result<()> {
    let nodes = nodes(fixture)?;
    let authority = Authority::new()?;
    let installed = InstalledReplicas::with_files(fixture, &nodes, Pace::Adaptive(20), 1, &authority)?;
    finds(fixture, "ok", "in Secret edgeward-system/edgeward-tls is for")?;
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
    let mut fix = String::new();
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
            fix = finds(fixture, "FAULT", words)?;
            installed.is_used(load, words)
        })?;
        println!("files: {words}: {report}");
        report.is_clean()?;
    }

    // The fix as `edgeward check` prints it. In a directory without the files it changes nothing.
    let elsewhere = fixture.dir.join("elsewhere");
    fs::create_dir_all(&elsewhere)?;
    let before = fixture.kubectl_in(NAMESPACE).get("secret", SECRET)?["data"].take();
    let pasted = fixture
        .kubectl
        .in_shell(&fix, &fixture.kubeconfig(), &elsewhere)
        .output()?;
    ensure!(!pasted.status.success(), "{fix}");
    ensure!(
        fixture.kubectl_in(NAMESPACE).get("secret", SECRET)?["data"] == before,
        "{fix}"
    );
    let last = authority.server(&[NAME])?.write(&fixture.dir, "tls")?;
    ensure!(fs::exists(&last.0)?);
    let report = installed.under_load(|load| {
        fixture.shell(&fix)?;
        installed.is_renewed(&good)?;
        installed.is_used(load, "the pair that fixes it")
    })?;
    println!("files: fixed: {report}");
    report.is_clean()?;
    finds(fixture, "ok", "in Secret edgeward-system/edgeward-tls is for")?;

    // The fix adds a CA that is missing from the bundle.
    fs::write(fixture.dir.join("ca.crt"), &authority.certificate)?;
    let foreign = Authority::new()?.certificate;
    installed.trust(&foreign)?;
    for entry in ["placed.edgeward.io", "pods.edgeward.io", "policies.edgeward.io"] {
        let place = "Secret edgeward-system/edgeward-tls";
        let words = format!("{entry}: the API server does not trust the certificate in {place} for");
        let fix = finds(fixture, "FAULT", &words)?;
        fixture.shell(&fix)?;
    }
    let bundle = installed.ca_bundle()?;
    ensure!(
        bundle.contains(foreign.trim()) && bundle.contains(authority.certificate.trim()),
        "{bundle}"
    );
    finds(fixture, "ok", "in Secret edgeward-system/edgeward-tls is for")?;

    // Without the Secret, no other replica starts.
    let args = ["delete", "secret", SECRET];
    fixture.kubectl_in(NAMESPACE).run(&args, "")?;
    finds(fixture, "FAULT", "Secret edgeward-system/edgeward-tls does not exist").map(drop)
}
