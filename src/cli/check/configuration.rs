//! Versions, and the configuration.

use super::Facts;
use super::finding::Finding;

/// The version that the client which we speak through is made for.
const SUPPORTED: (u32, u32) = (1, 33);

/// The API server answers, and its version.
pub(super) fn version(facts: &Facts) -> Vec<Finding> {
    const AREA: &str = "versions";
    let (major, minor, name) = &facts.version;
    let server = format!("edgeward {}; {name}", env!("CARGO_PKG_VERSION"));
    if (*major, *minor) < SUPPORTED {
        let text = format!("{server}: older than 1.33, which edgeward is made for; webhook/base needs 1.30");
        return vec![Finding::warning(AREA, text)];
    }
    vec![Finding::ok(AREA, server)]
}

/// The configuration, with every fault.
pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    const AREA: &str = "configuration";
    let found = &facts.found;
    let place = &found.place;
    if found.missing.is_some() {
        let fix = "edgeward check --deployment NAMESPACE/NAME, or --config FILE";
        let why = found.assumption().unwrap_or_default();
        return vec![Finding::warning(AREA, why).fix(fix)];
    }
    let faults = found.faults.iter();
    let mut findings: Vec<_> = faults
        .map(|fault| Finding::fault(AREA, format!("{place}: {fault}")).fix(&found.edit))
        .collect();
    if findings.is_empty() {
        findings.push(Finding::ok(AREA, format!("{place} can be taken")));
    }
    let notices = found.notices.iter();
    findings.extend(notices.map(|notice| Finding::warning(AREA, format!("{place}: {notice}")).fix(&found.edit)));
    findings
}
