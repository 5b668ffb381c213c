//! Reads kube-scheduler's message about a pod that fits no node.

use std::collections::BTreeSet;

use edgeward_decision::model::remote_room::POD_SLOT;

/// Maximum number of resources that are read from a message.
const MAX_RESOURCES: usize = 16;

/// Returns the resources that the usable nodes have too little of; `pods` stands for pod slots. Cordoned and unready
/// nodes, and nodes with taints that the pod does not tolerate, are not usable. Returns `None` if the message states
/// any other cause, or names more resources than are read.
///
/// Source: `FitError.Error` and the reasons of `NodeResourcesFit`, `TaintToleration` and `NodeUnschedulable` in
/// kube-scheduler 1.22 to 1.36.
pub(super) fn missing(message: &str) -> Option<BTreeSet<&str>> {
    let (_, reasons) = message.strip_prefix("0/")?.split_once(" nodes are available: ")?;
    // The rest of the message is about preemption.
    let reasons = reasons.split_once(". ").map_or(reasons, |(reasons, _)| reasons);
    let reasons = reasons.strip_suffix('.').unwrap_or(reasons);
    let mut resources = BTreeSet::new();
    for reason in reasons.split(", ") {
        let reason = reason
            .trim_start_matches(|digit: char| digit.is_ascii_digit())
            .trim_start();
        if reason == "Too many pods" {
            resources.insert(POD_SLOT);
        } else if let Some(resource) = reason.strip_prefix("Insufficient ") {
            resources.insert(resource);
        } else if !is_about_others(reason) {
            return None;
        }
        if resources.len() > MAX_RESOURCES {
            return None;
        }
    }
    (!resources.is_empty()).then_some(resources)
}

/// Whether the reason excludes nodes whatever the pod requests.
fn is_about_others(reason: &str) -> bool {
    const BEGINNINGS: [&str; 5] = [
        "node(s) had untolerated taint",
        "node(s) had taint {",
        "node(s) were unschedulable",
        "node(s) were not ready",
        // The rest of the second reason, which contains a comma.
        "that the pod didn't tolerate",
    ];
    BEGINNINGS.iter().any(|beginning| reason.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages with the resources that they name. A message without resources states another cause.
    const MESSAGES: &str = r#"
0/4 nodes are available: 4 Insufficient cpu. => cpu
0/4 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, 3 Insufficient cpu, 2 Insufficient memory. preemption: 0/4 nodes are available: 1 Preemption is not helpful for scheduling, 3 No preemption victims found for incoming pod. => cpu memory
0/2 nodes are available: 2 Insufficient example.com/gpu.v2. no new claims to deallocate, preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod. => example.com/gpu.v2
0/1 nodes are available: 1 Insufficient example.com/gpu.v2. => example.com/gpu.v2
0/3 nodes are available: 1 Too many pods, 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable. => pods
0/3 nodes are available: 1 Insufficient memory, 2 node(s) had taint {cloud: gpu}, that the pod didn't tolerate. => memory
0/1 nodes are available: 1 Insufficient cpu, 1 Too many pods => cpu pods
 =>
0/4 nodes are available:  =>
no nodes available to schedule pods =>
0/4 nodes are available: 4 node(s) had untolerated taint {a: b}. =>
0/4 nodes are available: 4 node(s) didn't match Pod's node affinity/selector. =>
0/4 nodes are available: 1 node(s) didn't match pod topology spread constraints, 3 Insufficient cpu. =>
0/4 nodes are available: 3 Insufficient cpu, 1 node(s) didn't have free ports for the requested pod ports. =>
0/4 nodes are available: persistentvolumeclaim "data" not found. =>
0/4 nodes are available: 1 node(s) had volume node affinity conflict, 3 Insufficient cpu. preemption: 0/4 nodes are available: 4 x. =>
running Bind plugin: Insufficient cpu =>
"#;

    #[test]
    fn refusal_message_only_about_room_names_resources() {
        for line in MESSAGES.trim_matches('\n').lines() {
            let (message, expected) = line.split_once(" =>").unwrap();
            let expected: BTreeSet<_> = expected.split_whitespace().collect();
            assert_eq!(missing(message).unwrap_or_default(), expected, "{message}");
        }
    }

    #[test]
    fn message_with_too_many_resources_is_not_read() {
        let reasons = |count| {
            (0..count)
                .map(|i| format!("1 Insufficient example.com/{i:03}"))
                .collect::<Vec<_>>()
        };
        let message = |count| format!("0/1 nodes are available: {}.", reasons(count).join(", "));
        assert_eq!(
            missing(&message(MAX_RESOURCES)).map(|found| found.len()),
            Some(MAX_RESOURCES)
        );
        assert_eq!(missing(&message(MAX_RESOURCES + 1)), None);
    }
}
