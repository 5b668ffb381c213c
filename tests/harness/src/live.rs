//! Expected decisions on the live view.

use crate::prelude::*;

pub const EDGE: &str = "edge: edge_feasible_slo_met";

/// A pod that requests these millicores and has a deadline of one minute.
pub fn pod(fixture: &Fixture<'_>, name: &str, millicores: u32) -> Value {
    let slo = json!({"slo.example.io/class": "batch", "slo.example.io/deadlineMs": "60000"});
    fixture.in_its_domain(workloads::pod_of(name, slo, &format!("{millicores}m")))
}

/// Fails unless this pod would be placed as expected now.
pub fn is_now(fixture: &Fixture<'_>, pod: &Value, expected: &str) -> Result<()> {
    // A request that a cut connection interrupted is repeated.
    let outcome = eventually("it is decided", BOUND, || outcome(&fixture.kubectl.dry_run(pod)?))?;
    ensure!(outcome == expected, "{outcome}");
    Ok(())
}

/// Waits until a pod runs.
pub fn runs(fixture: &Fixture<'_>, name: &str) -> Result<()> {
    eventually(&format!("{name} runs"), BOUND, || {
        let pod = fixture.kubectl.get("pod", name)?;
        ensure!(pod["status"]["phase"] == "Running", "{}", pod["status"]);
        Ok(())
    })
}

pub fn outcome(pod: &Value) -> Result<String> {
    let (site, reason) = annotation(pod, "site")
        .zip(annotation(pod, "reason"))
        .context("not decided")?;
    Ok(format!("{site}: {reason}"))
}
