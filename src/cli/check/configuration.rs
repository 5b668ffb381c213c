//! Versions, and the configuration.

use super::finding::Finding;
use crate::cli::installed::{Found, State};

/// The version that the client which we speak through is made for.
const SUPPORTED: (u32, u32) = (1, 33);

/// The API server answers, and its version.
pub(super) fn version((major, minor, version): &(u32, u32, String), name: &str) -> Finding {
    const AREA: &str = "versions";
    let server = format!("edgeward {}; Kubernetes {version} at {name}", env!("CARGO_PKG_VERSION"));
    if (*major, *minor) < SUPPORTED {
        let text = format!("{server}: older than 1.33, which edgeward is made for; webhook/base needs 1.30");
        return Finding::warning(AREA, text);
    }
    Finding::ok(AREA, server)
}

/// The configuration, with every fault.
pub(super) fn judge(Found { place, state, .. }: &Found) -> Vec<Finding> {
    const AREA: &str = "configuration";
    let edit = place.edit();
    match state {
        State::Good(notices) => {
            let mut findings = vec![Finding::ok(AREA, format!("{place} can be taken"))];
            let warning = |notice| Finding::warning(AREA, format!("{place}: {notice}")).fix(&edit);
            findings.extend(notices.iter().map(warning));
            findings
        }
        State::Faulty(faults) => {
            let fault = |fault| Finding::fault(AREA, format!("{place}: {fault}")).fix(&edit);
            faults.0.iter().map(fault).collect()
        }
        State::Assumed(why) => {
            let fix = "edgeward check --deployment NAMESPACE/NAME, or --config FILE";
            vec![Finding::warning(AREA, why).fix(fix)]
        }
    }
}
