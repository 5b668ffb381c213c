//! A pod, a fleet, a configuration and a policy, to patches; applied by another implementation, and decided again.

use std::sync::{Arc, LazyLock};

use edgeward::platform::yaml;
use edgeward_core::config::Config;
use edgeward_core::model::decision_id::DecisionId;
use edgeward_core::model::snapshot::Snapshot;
use edgeward_core::model::workload::Workload;
use edgeward_core::placement::decide::decide;
use edgeward_core::placement::patch::{Operation, Stamp, patch, release, remove_gate, update_reason};
use edgeward_core::placement::policy::{Policies, Policy, Seen};
use edgeward_core::placement::room::Room;
use edgeward_core::placement::verdict::{Reason, Verdict};
use edgeward_core::testkit::{self, NOW};
use edgeward_core::units::Micros;
use edgeward_core::wire::fleet_file;
use edgeward_core::wire::pod::Pod;
use serde_json::{Value, json};

use super::documents;
use super::patched::{applied, assert_only_adds, gates, has_shape_of_pod, try_apply};

static FLEET: LazyLock<Snapshot> = LazyLock::new(|| {
    let fleet = yaml::parse_one(include_str!("../../examples/fleet-overloaded.yaml"), "fleet").unwrap();
    testkit::snapshot(&fleet)
});

/// What is decided on.
struct Case {
    pod: Value,
    fleet: Snapshot,
    config: Config,
    policies: Policies,
    held: Micros,
    stamp: Stamp,
}

/// An object with `pod`, and perhaps `fleet`, `config`, `policy` and `heldSeconds`. Of a part that is missing or has a fault, a
/// default is taken.
///
/// # Panics
/// A patch does not apply, changes what is not ours, is made once more for its own result, or leaves a pod that is not placed.
pub fn check(data: &[u8]) {
    let Some(document) = documents::read(data) else { return };
    let config = Config::read(&document["config"]).unwrap_or_default();
    let fleet = fleet_file::read(&document["fleet"], &config, NOW.moment);
    let policy = document.get("policy").map(|policy| {
        Arc::new(Seen {
            namespace: "shop".to_owned(),
            name: "all".to_owned(),
            generation: None,
            policy: Policy::read(policy),
        })
    });
    let case = Case {
        pod: document["pod"].clone(),
        fleet: fleet.unwrap_or_else(|_| FLEET.clone()),
        policies: Policies::of(policy),
        held: Micros::from_secs(document["heldSeconds"].as_u64().unwrap_or(0)),
        stamp: Stamp {
            at: NOW.wall,
            id: DecisionId(7).to_string(),
        },
        config,
    };
    let json = case.pod.to_string();
    let Some(pod) = has_shape_of_pod(&case.pod)
        .then(|| Pod::from_json(&json).ok())
        .flatten()
    else {
        return;
    };
    case.check_arrival(pod.clone());
    case.check_gate(&pod);
    case.check_reason(&pod);
    case.check_release(&pod);
}

impl Case {
    /// The patch of a pod that is created, and of the same once more with that patch.
    fn check_arrival(&self, mut pod: Pod<'_>) {
        self.policies.apply(&mut pod, "shop", &self.config.keys);
        let verdict = self.decide(&pod);
        let operations = patch(&pod, &verdict, &self.config, &self.stamp);
        let patched = applied(&self.pod, &operations);
        assert_only_adds(&self.pod, &without_policy(&patched, pod.inherited()), &self.config);
        assert!(gates(&patched).starts_with(&gates(&self.pod)), "gates stay, in order");
        if operations.is_empty() {
            assert_eq!(patched, self.pod);
            return;
        }
        self.assert_decided(&patched, &verdict);
    }

    /// The second round of admission finds nothing to do.
    fn assert_decided(&self, patched: &Value, first: &Verdict<'_>) {
        let json = patched.to_string();
        let mut again = Pod::from_json(&json).expect("it was a pod before");
        self.policies.apply(&mut again, "shop", &self.config.keys);
        let second = self.decide(&again);
        let expected = first
            .site()
            .map_or_else(|| second.reason.is_hold(), |_| second.reason == Reason::Reinvocation);
        assert!(expected, "{:?}, then {:?}: {patched}", first.reason, second.reason);
        assert_eq!(patch(&again, &second, &self.config, &self.stamp), vec![]);
    }

    fn decide(&self, pod: &Pod<'_>) -> Verdict<'_> {
        let workload = pod.workload("shop".into(), &self.config.keys);
        decide(&workload, &Room::of(&self.fleet), &self.config, NOW)
    }

    /// Removing the gate changes nothing else.
    fn check_gate(&self, pod: &Pod<'_>) {
        let Some(operations) = remove_gate(pod, &self.config.keys) else {
            return;
        };
        let patched = self.of_this_version(&operations);
        assert_eq!(patched, self.without_gate());
    }

    /// The pod without the first gate of ours.
    fn without_gate(&self) -> Value {
        let mut pod = self.pod.clone();
        let gates = pod["spec"]["schedulingGates"].as_array_mut().expect("it has a gate");
        let ours = gates.iter().position(|gate| gate["name"] == *self.config.keys.gate);
        gates.remove(ours.expect("it has ours"));
        pod
    }

    /// Another reason is written once. A gate of others is none that a hold goes on with: the time of that begins again.
    fn check_reason(&self, pod: &Pod<'_>) {
        let is_ours = |reason: &Reason| reason.is_hold() && *reason != Reason::HeldForeignGate;
        for reason in Reason::ALL.iter().copied().filter(is_ours) {
            let Some(operations) = update_reason(pod, reason, &self.config, &self.stamp) else {
                return;
            };
            let patched = self.of_this_version(&operations);
            assert_only_adds(&self.pod, &patched, &self.config);
            assert_eq!(patched["spec"], self.pod["spec"], "the spec stays");
            assert_eq!(
                patched["metadata"]["annotations"][&self.config.keys.reason],
                reason.as_str()
            );
            let json = patched.to_string();
            let again = Pod::from_json(&json).expect("it was a pod before");
            let operations = update_reason(&again, reason, &self.config, &self.stamp).expect("it has a version");
            assert!(matches!(operations[..], [Operation::Test { .. }]), "{operations:?}");
        }
    }

    /// A release by what is decided about a held pod places it, and does so once.
    fn check_release(&self, pod: &Pod<'_>) {
        let config = &self.config;
        let is_held = pod.gate(&config.keys.gate).is_some() && pod.resource_version().is_some();
        let workload = Workload {
            held: Some(self.held),
            ..pod.workload("shop".into(), &config.keys)
        };
        let verdict = decide(&workload, &Room::of(&self.fleet), config, NOW);
        let Some(site) = verdict.site().filter(|_| is_held) else {
            return;
        };
        let operations = release(pod, &verdict, config, &self.stamp).expect("it has the gate and a version");
        let patched = self.of_this_version(&operations);
        assert_only_adds(&self.pod, &patched, config);
        assert_eq!(gates(&patched), gates(&self.without_gate()), "one gate goes");
        for (key, value) in site.definition.selector() {
            assert_eq!(patched["spec"]["nodeSelector"][key], value);
        }
        let json = patched.to_string();
        let placed = Pod::from_json(&json).expect("it was a pod before");
        for wanted in &site.definition.tolerations {
            assert!(
                placed.tolerations().any(|toleration| toleration.covers(wanted)),
                "{wanted:?}"
            );
        }
        // With another gate it is under review again when that is gone.
        if gates(&patched).is_empty() {
            assert_eq!(release(&placed, &verdict, config, &self.stamp), None, "it was released");
            let second = self.decide(&placed);
            assert_eq!(second.reason, Reason::Reinvocation, "{:?}: {patched}", verdict.reason);
            assert_eq!(patch(&placed, &second, config, &self.stamp), vec![]);
        }
    }

    /// What a patch of a held pod makes of it. Of any other version it makes nothing.
    fn of_this_version(&self, operations: &[Operation]) -> Value {
        let mut newer = self.pod.clone();
        newer["metadata"]["resourceVersion"] = json!("of another version");
        let before = newer.clone();
        assert!(try_apply(&mut newer, &operations).is_err(), "it speaks of one version");
        assert_eq!(newer, before);
        applied(&self.pod, &operations)
    }
}

/// The pod without the annotations that it has from a policy.
fn without_policy(pod: &Value, inherited: &[(String, String)]) -> Value {
    let mut pod = pod.clone();
    if let Some(annotations) = pod["metadata"]["annotations"].as_object_mut() {
        annotations.retain(|key, _| !inherited.iter().any(|(inherited, _)| inherited == key));
    }
    pod
}
