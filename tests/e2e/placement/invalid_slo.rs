//! Annotations with invalid values. Every fault is named, not only the first.

use edgeward_harness::prelude::*;

use crate::placement::{fleet, untouched};

/// The keys that are at fault in [`faulty`].
const FAULTS: [&str; 3] = [
    "slo.example.io/class",
    "slo.example.io/deadlineMs",
    "slo.example.io/priority",
];

fn faulty(name: &str) -> Value {
    let slo = json!({
        "slo.example.io/class": "fastest",
        "slo.example.io/deadlineMs": "-5",
        "slo.example.io/priority": "11",
    });
    workloads::pod(name, slo)
}

e2e! { "invalid_slo::hints", Nodes, hints }
/// Keys without effect give the pod's creator a warning. The pod is created as it was written.
pub(crate) fn hints(fixture: &Fixture<'_>) -> Result<()> {
    let edgeward = fixture.edgeward(&fleet::relaxed())?;
    let _registered = fixture.register(&edgeward.url, &edgeward.ca)?;

    let mut hinted = workloads::pod("hinted", json!({"slo.example.io/deadlineMs": "500"}));
    hinted["metadata"]["labels"] = json!({"slo.example.io/class": "batch"});
    let said = fixture.kubectl.apply(&hinted)?;
    let expected = [
        "slo.example.io/class is a label; edgeward reads it as an annotation",
        "slo.example.io/deadlineMs has no effect without slo.example.io/class",
    ];
    ensure!(said.warnings() == expected, "{said:?}");
    untouched::undecided(&fixture.kubectl.get("pod", "hinted")?)
}

e2e! { "invalid_slo::denies", Nodes, denies }
/// If configured to, edgeward refuses the pod.
fn denies(fixture: &Fixture<'_>) -> Result<()> {
    let edgeward = fixture.edgeward_with(&fleet::overloaded(), &json!({"invalidSlo": "deny"}))?;
    let _registered = fixture.register(&edgeward.url, &edgeward.ca)?;

    let said = fixture
        .kubectl
        .attempt(&["apply", "-f", "-"], &faulty("denied").to_string())?;
    ensure!(!said.succeeded, "created: {said:?}");
    ensure!(said.stderr.contains("denied the request"), "{}", said.stderr);
    for key in FAULTS {
        ensure!(said.stderr.contains(key), "{key} is not named: {}", said.stderr);
    }
    let gone = fixture.kubectl.attempt(&["get", "pod", "denied"], "")?;
    ensure!(gone.stderr.contains("NotFound"), "{gone:?}");
    Ok(())
}
