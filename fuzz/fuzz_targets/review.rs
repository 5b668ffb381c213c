//! A review is answered with valid JSON, and with a patch that applies and only adds.
#![no_main]

use std::sync::{Arc, LazyLock};

use arbitrary::{Arbitrary, Unstructured};
use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use edgeward::testkit::{Answer as _, Clock, LogLimit, Metrics, Responder, Reviewer, yaml};
use edgeward_cluster::engine::SharedState;
use edgeward_decision::config::Config;
use edgeward_decision::fleet_file;
use edgeward_decision::model::snapshot::Snapshot;
use edgeward_fuzz::Pod;
use edgeward_kube::units::Moment;
use json_patch::{Patch, PatchOperation};
use serde_json::{Value, json};

/// Fleets with free capacity everywhere, with a full edge, and with several clouds.
static FLEETS: LazyLock<[Arc<Snapshot>; 3]> = LazyLock::new(|| {
    let fleets = [
        include_str!("../../examples/fleet.yaml"),
        include_str!("../../examples/fleet-overloaded.yaml"),
        include_str!("../../tests/golden/several-clouds/fleet.yaml"),
    ];
    // Later than any run ends, so that the snapshots do not go stale.
    let taken = Moment(1_000_000_000_000);
    fleets.map(|text| {
        let fleet = yaml::parse_one(text, "fleet").unwrap();
        Arc::new(fleet_file::read(&fleet, &Config::default(), taken).unwrap())
    })
});
static METRICS: LazyLock<Arc<Metrics>> = LazyLock::new(|| Arc::new(Metrics::new()));
static CLOCK: LazyLock<Clock> = LazyLock::new(Clock::start);

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let pod = Pod::arbitrary(&mut Unstructured::new(data)).map(|pod| pod.json());
    for fleet in FLEETS.iter() {
        let _ = answer(fleet, data);
        let Ok(pod) = &pod else { continue };
        let request = json!({
            "uid": "u", "operation": "CREATE", "namespace": "shop", "object": pod,
            "resource": {"group": "", "version": "v1", "resource": "pods"},
        });
        let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
        let response = answer(fleet, review.to_string().as_bytes()).expect("it is a review");
        assert_eq!(response["uid"], "u");
        let is_allowed = response["allowed"] == true;
        let Some(patch) = response["patch"].as_str() else {
            // Unreadable sites or traits are denied, with a message.
            assert!(is_allowed || response["status"]["message"].is_string(), "{response}");
            continue;
        };
        assert!(is_allowed, "{response}");
        let patch: Patch = serde_json::from_slice(&STANDARD.decode(patch).unwrap()).unwrap();
        let mut adds = patch
            .iter()
            .map(|operation| matches!(operation, PatchOperation::Add(_)));
        assert!(adds.all(|adds| adds), "{patch}");
        json_patch::patch(&mut pod.clone(), &patch).expect("it applies");
    }
});

/// The response to a body that is a valid review.
fn answer(fleet: &Arc<Snapshot>, body: &[u8]) -> Option<Value> {
    let config = Arc::new(Config::default());
    let reviewer = Reviewer {
        shared: Arc::new(SharedState::new(Arc::clone(fleet), config.reservation_ttl)),
        config: Arc::new(ArcSwap::new(config)),
        policies: Arc::default(),
        metrics: Arc::clone(&METRICS),
        clock: *CLOCK,
        log_limit: LogLimit::new(*CLOCK),
    };
    let answer = reviewer.review(body, &Responder::start()).ok()?;
    let answer: Value = serde_json::from_slice(&answer).expect("JSON");
    Some(answer["response"].clone())
}
