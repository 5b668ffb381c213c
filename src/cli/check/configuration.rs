//! Versions, and the configuration.

use super::finding::Finding;
use crate::cli::installed::{Found, State};

/// What the manifests need, and what the client that we speak through is made for.
const LEAST: (u32, u32) = (1, 30);
const SUPPORTED: (u32, u32) = (1, 33);

/// The API server answers, and its version.
pub(super) fn versions((major, minor, version): &(u32, u32, String), name: &str) -> Vec<Finding> {
    let found = (*major, *minor);
    let ours = format!("edgeward {}", env!("CARGO_PKG_VERSION"));
    let server = format!("{ours}; Kubernetes {version} at {name}");
    let finding = if found < LEAST {
        let text = format!("{server}: webhook/base needs 1.30 or later");
        Finding::fault("versions", text, "upgrade Kubernetes to 1.33 or later".to_owned())
    } else if found < SUPPORTED {
        let text = format!("{server}: older than 1.33, which edgeward's client library is made for");
        Finding::warning("versions", text, None)
    } else {
        Finding::ok("versions", server)
    };
    vec![finding]
}

/// The configuration, with every fault.
pub(super) fn judge(found: &Found) -> Vec<Finding> {
    const AREA: &str = "configuration";
    let place = &found.place;
    let edit = place.edit();
    match &found.state {
        State::Good(notices) => {
            let notices = notices.iter().map(|notice| {
                let text = format!("{place}: {notice}");
                Finding::warning(AREA, text, Some(edit.clone()))
            });
            let mut findings = vec![Finding::ok(AREA, format!("{place} can be taken"))];
            findings.extend(notices);
            findings
        }
        State::Faulty(faults) => {
            let faults = faults.0.iter();
            faults
                .map(|fault| Finding::fault(AREA, format!("{place}: {fault}"), edit.clone()))
                .collect()
        }
        State::Missing | State::Unnamed | State::Unknown(_) => {
            let fix = "edgeward check --deployment NAMESPACE/NAME, or --config FILE".to_owned();
            let found = found.assumption().into_iter();
            found
                .map(|assumption| Finding::warning(AREA, assumption, Some(fix.clone())))
                .collect()
        }
    }
}
