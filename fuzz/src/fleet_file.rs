//! Fleet files.

use edgeward::platform::yaml;
use edgeward_core::config::Config;
use edgeward_core::document::Faults;
use edgeward_core::model::snapshot::Snapshot;
use edgeward_core::placement::decide::decide;
use edgeward_core::placement::room::Room;
use edgeward_core::placement::verdict::Action;
use edgeward_core::testkit::NOW;
use edgeward_core::units::Micros;
use edgeward_core::wire::fleet_file;
use edgeward_core::wire::pod::Pod;
use serde_json::{Value, json};

/// Text, as YAML.
///
/// # Panics
/// A fault has no place, a fleet is not written as it was read, or a decision on it depends on anything else.
pub fn check(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let Ok(document) = yaml::parse_one(text, "fleet") else {
        return;
    };
    let config = Config::default();
    let read = |document: &Value| fleet_file::read(document, &config, NOW.moment);
    let fleet = match read(&document) {
        Ok(fleet) => fleet,
        Err(faults) => return assert_told(&faults, &document),
    };
    let mut unknown = document.clone();
    unknown["fieldOfTheFuture"] = json!(1);
    assert!(read(&unknown).is_err(), "an unknown field is a fault");

    let written = fleet_file::write(&fleet, NOW.moment);
    let again = read(&written).unwrap_or_else(|faults| panic!("{faults}: {written}"));
    assert_eq!(fleet_file::write(&again, NOW.moment), written);
    // Of what is written nothing is lost that a decision reads.
    for pod in pods() {
        let verdicts = [&fleet, &fleet, &again].map(|fleet| verdict(fleet, &pod, &config));
        assert_eq!(verdicts[0], verdicts[1], "the same inputs");
        assert_eq!(verdicts[0], verdicts[2], "{written}");
    }
}

pub(crate) fn assert_told(faults: &Faults, document: &Value) {
    assert!(!faults.0.is_empty(), "no fault in {document}");
    for fault in &faults.0 {
        assert!(!fault.message.is_empty(), "{faults}");
    }
}

fn pods() -> [Value; 3] {
    let pod = |annotations: Value, cpu: &str, spec: Value| {
        let container = json!({"resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}});
        let owner = json!({"kind": "ReplicaSet", "name": "c", "uid": "c-1", "controller": true});
        let metadata = json!({"annotations": annotations, "ownerReferences": [owner]});
        let mut pod = json!({"metadata": metadata, "spec": {"containers": [container]}});
        pod["spec"]
            .as_object_mut()
            .unwrap()
            .extend(spec.as_object().unwrap().clone());
        pod
    };
    let slo =
        |class: &str, deadline: &str| json!({"slo.example.io/class": class, "slo.example.io/deadlineMs": deadline});
    [
        pod(slo("latency", "300"), "250m", json!({})),
        pod(
            slo("batch", "60000"),
            "2",
            json!({"priority": 5, "tolerations": [{"operator": "Exists"}]}),
        ),
        pod(
            slo("throughput", "2000"),
            "100m",
            json!({"nodeSelector": {"zone": "a"}}),
        ),
    ]
}

/// What is decided, and why.
fn verdict(fleet: &Snapshot, pod: &Value, config: &Config) -> String {
    let json = pod.to_string();
    let pod = Pod::from_json(&json).unwrap();
    let mut workload = pod.workload("shop".into(), &config.keys);
    let of = |workload: &_| {
        let verdict = decide(workload, &Room::of(fleet), config, NOW);
        let node = verdict
            .site()
            .into_iter()
            .flat_map(|site| site.nodes())
            .find(|node| Some(node.id) == verdict.node);
        assert!(verdict.node.is_none() || node.is_some(), "a node of the site");
        assert!(!matches!(verdict.action, Action::Deny), "the SLO is valid");
        let estimates: Vec<_> = verdict
            .sites
            .iter()
            .map(|site| (site.site.name(), site.estimate.eta()))
            .collect();
        format!(
            "{:?} {:?} {:?} {estimates:?}",
            verdict.action.as_str(),
            verdict.reason,
            node.map(|node| &node.name)
        )
    };
    let arriving = of(&workload);
    workload.held = Some(Micros::from_secs(60));
    format!("{arriving}, held: {}", of(&workload))
}
