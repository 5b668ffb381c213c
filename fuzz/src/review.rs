//! The body of a review, as the server hands it over.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine as _;
use edgeward::admission::Responder;
use edgeward::admission::review::{NoOpinion, Reviewer, WARNING_CHARS};
use edgeward::instruments::logs::LogLimit;
use edgeward::instruments::metrics::Metrics;
use edgeward::platform::clock::Clock;
use edgeward::platform::yaml;
use edgeward_core::config::Config;
use edgeward_core::engine::SharedState;
use edgeward_core::model::snapshot::Snapshot;
use edgeward_core::testkit;
use edgeward_core::units::Micros;
use serde_json::Value;

use super::documents;
use super::patched::{applied, assert_only_adds, has_shape_of_pod};

/// Room everywhere; an edge that is full; several clouds.
static FLEETS: LazyLock<[Arc<Snapshot>; 3]> = LazyLock::new(|| {
    let fleets = [
        include_str!("../../examples/fleet.yaml"),
        include_str!("../../examples/fleet-overloaded.yaml"),
        include_str!("../../tests/golden/several-clouds/fleet.yaml"),
    ];
    // Younger than any run takes.
    let age = Micros::from_secs(1_000_000);
    fleets.map(|text| Arc::new(testkit::snapshot(&yaml::parse_one(text, "fleet").unwrap()).younger(age)))
});

static METRICS: LazyLock<Arc<Metrics>> = LazyLock::new(|| Arc::new(Metrics::new()));
static CONFIG: LazyLock<Arc<Config>> = LazyLock::new(Arc::default);
static CLOCK: LazyLock<Clock> = LazyLock::new(Clock::start);

fn reviewer(fleet: &Arc<Snapshot>) -> Reviewer {
    Reviewer {
        config: Arc::new(ArcSwap::new(Arc::clone(&CONFIG))),
        policies: Arc::default(),
        shared: Arc::new(SharedState::new(Arc::clone(fleet), CONFIG.reservation_ttl)),
        metrics: Arc::clone(&METRICS),
        clock: *CLOCK,
        recording: None,
        log_limit: LogLimit::new(*CLOCK),
    }
}

/// # Panics
/// A body is answered wrongly, or its pod gets a patch that does not apply, changes what is not ours, or is made once more for
/// its own result.
pub fn check(data: &[u8]) {
    let answer = reviewer(&FLEETS[0]).review(data, &Responder::new(*CLOCK));
    let no_opinion = reviewer(&FLEETS[0]).no_opinion(data, NoOpinion::NotReady, Duration::ZERO);
    assert_eq!(
        answer.is_ok(),
        no_opinion.is_ok(),
        "a review for the one and not for the other"
    );
    for refused in [answer.err(), no_opinion.err()].into_iter().flatten() {
        assert!(refused.to_string().chars().count() <= WARNING_CHARS, "{refused}");
    }
    let Some(document) = documents::read(data) else { return };
    for fleet in FLEETS.iter() {
        check_on(fleet, &document);
    }
}

fn check_on(fleet: &Arc<Snapshot>, document: &Value) {
    let reviewer = reviewer(fleet);
    let Some(answer) = answer(&reviewer, document) else {
        return;
    };
    let again = self::answer(&self::reviewer(fleet), document).expect("it was a review before");
    assert_eq!(answer["auditAnnotations"], again["auditAnnotations"], "the same inputs");

    let object = &document["request"]["object"];
    if answer["patch"].is_null() || !has_shape_of_pod(object) {
        return;
    }
    let operations = base64::engine::general_purpose::STANDARD.decode(answer["patch"].as_str().unwrap());
    let operations: Vec<Value> = serde_json::from_slice(&operations.unwrap()).unwrap();
    assert!(!operations.is_empty() && operations.iter().all(|operation| operation["op"] == "add"));
    let patched = applied(object, &operations);
    assert_only_adds(object, &patched, &CONFIG);

    let mut second = document.clone();
    second["request"]["object"] = patched;
    let second = self::answer(&reviewer, &second).expect("it is a review");
    assert_eq!(second["patch"], Value::Null, "a patch for its own result: {second}");
}

/// The response to a review; nothing where it is none.
fn answer(reviewer: &Reviewer, document: &Value) -> Option<Value> {
    let body = document.to_string();
    let bytes = reviewer.review(body.as_bytes(), &Responder::new(*CLOCK)).ok()?;
    let answer: Value = serde_json::from_slice(&bytes).expect("JSON");
    assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(answer["kind"], "AdmissionReview");
    let response = &answer["response"];
    assert_eq!(response["uid"], document["request"]["uid"]);
    assert_eq!(
        response["allowed"], true,
        "nobody is denied by the default configuration"
    );
    assert_eq!(response["patch"].is_null(), response["patchType"].is_null());
    for warning in response["warnings"].as_array().into_iter().flatten() {
        let warning = warning.as_str().expect("a string");
        assert!(
            warning.chars().count() <= WARNING_CHARS && !warning.contains(char::is_control),
            "{warning:?}"
        );
    }
    assert!(response["auditAnnotations"]["reason"].is_string());
    Some(response.clone())
}
