use base64::Engine as _;
use edgeward_decision::config::InvalidSlo;
use edgeward_decision::placement::policy::{Policy, Seen};
use edgeward_decision::testkit;
use edgeward_kube::units::Moment;
use serde_json::{Value, json};

use super::*;

fn shared(fleet: &Value, reservation_ttl: Micros) -> Arc<SharedState> {
    let mut snapshot = testkit::snapshot(fleet);
    let later = |moment: &mut Moment| *moment = moment.after(Micros::from_secs(100_000));
    later(&mut snapshot.kubernetes_as_of);
    let links = snapshot.sites.iter_mut().filter_map(|site| site.link.as_mut());
    links.for_each(|link| later(&mut link.as_of));
    Arc::new(SharedState::new(Arc::new(snapshot), reservation_ttl))
}

fn reviewer(config: Config) -> Reviewer {
    let fleet = json!({
        "sites": [{"name": "edge", "kind": "edge"}],
        "nodes": [{"name": "e", "labels": {"node.role/edge": "true"}, "allocatable": {"cpu": 4, "pods": 9}}],
    });
    Reviewer {
        policies: Arc::default(),
        shared: shared(&fleet, config.reservation_ttl),
        config: Arc::new(ArcSwap::from_pointee(config)),
        metrics: Arc::new(Metrics::new()),
        clock: Clock::start(),
        log_limit: LogLimit::new(Clock::start()),
    }
}

fn create(pod: Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "operation": "CREATE",
            "namespace": "shop",
            "userInfo": {"username": "admin", "groups": ["a"]},
            "object": pod,
            "oldObject": null,
            "options": {"kind": "CreateOptions"},
        },
    })
}

fn latency_pod() -> Value {
    json!({
        "metadata": {"generateName": "web-", "annotations": {"slo.example.io/class": "latency"}},
        "spec": {"containers": [{"name": "c", "futureField": {"x": [1, null]}}]},
    })
}

fn answer(reviewer: &Reviewer, review: &Value) -> Value {
    let bytes = reviewer
        .review(review.to_string().as_bytes(), &Responder::start())
        .unwrap();
    let answer: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(answer["kind"], "AdmissionReview");
    assert_eq!(answer["response"]["uid"], review["request"]["uid"]);
    answer["response"].clone()
}

fn counted(reviewer: &Reviewer, reason: &str) -> bool {
    reviewer.metrics.encode().lines().any(|line| {
        line.starts_with("edgeward_reviews_total{")
            && line.contains(&format!("reason=\"{reason}\""))
            && line.ends_with(" 1")
    })
}

#[test]
fn pod_is_placed_by_base64_json_patch() {
    let reviewer = reviewer(Config::default());
    let response = answer(&reviewer, &create(latency_pod()));
    assert_eq!(response["allowed"], true);
    assert_eq!(response["patchType"], "JSONPatch");
    let patch = base64::engine::general_purpose::STANDARD
        .decode(response["patch"].as_str().unwrap())
        .unwrap();
    let patch: Vec<Value> = serde_json::from_slice(&patch).unwrap();
    assert!(patch.iter().all(|operation| operation["op"] == "add"));
    assert_eq!(
        response["auditAnnotations"],
        json!({"decision": "edge", "site": "edge", "reason": "edge_no_slo_target"})
    );
    assert_eq!(response.get("warnings"), None);
    assert!(counted(&reviewer, "edge_no_slo_target"));
}

#[test]
fn pod_without_slo_is_decided_by_its_policy() {
    let reviewer = reviewer(Config::default());
    let pod = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}});
    let review = create(pod);
    let untouched = answer(&reviewer, &review);
    assert_eq!(untouched["auditAnnotations"]["reason"], "passthrough_not_managed");
    assert_eq!(untouched.get("patch"), None);

    let spec = json!({"selector": {"matchLabels": {"app": "web"}}, "slo": {"class": "batch", "deadlineMs": 60_000}});
    let seen = Seen {
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        generation: None,
        policy: Policy::read(&json!({"spec": spec})),
        members: vec![],
    };
    reviewer.policies.store(Arc::new(Policies::of([Arc::new(seen)])));
    let response = answer(&reviewer, &review);
    assert_eq!(response["auditAnnotations"]["reason"], "edge_feasible_slo_met");
    let patch = base64::engine::general_purpose::STANDARD
        .decode(response["patch"].as_str().unwrap())
        .unwrap();
    let patch: Vec<Value> = serde_json::from_slice(&patch).unwrap();
    let annotations = patch.iter().find(|add| add["path"] == "/metadata/annotations").unwrap();
    assert_eq!(annotations["value"]["slo.example.io/class"], "batch");
    assert_eq!(annotations["value"]["slo.example.io/deadlineMs"], "60000");
    assert_eq!(annotations["value"].get("slo.example.io/priority"), None);

    // Pods that the policy does not select, and pods of other namespaces, stay unchanged.
    for (pointer, value) in [
        ("/request/object/metadata/labels/app", "api"),
        ("/request/namespace", "kube-system"),
    ] {
        let mut review = review.clone();
        *review.pointer_mut(pointer).unwrap() = json!(value);
        assert_eq!(answer(&reviewer, &review).get("patch"), None, "{pointer}");
    }
}

#[test]
fn pod_labelled_as_shadow_is_left_alone_if_liqo_creates_it() {
    let reviewer = reviewer(Config::default());
    let liqo = "system:serviceaccount:liqo:liqo-controller-manager";
    for (username, label, expected) in [
        (json!(liqo), "shadowpod", "passthrough_shadow_pod"),
        (json!(liqo), "else", "edge_no_slo_target"),
        (json!("admin"), "shadowpod", "edge_no_slo_target"),
        (
            json!("system:serviceaccount:liqo2:x"),
            "shadowpod",
            "edge_no_slo_target",
        ),
        (json!("x".repeat(1 << 20)), "shadowpod", "edge_no_slo_target"),
        (Value::Null, "shadowpod", "edge_no_slo_target"),
    ] {
        let mut pod = latency_pod();
        pod["metadata"]["labels"] = json!({"liqo.io/managed-by": label});
        let mut review = create(pod);
        review["request"]["userInfo"]["username"] = username;
        let reason = &answer(&reviewer, &review)["auditAnnotations"]["reason"];
        assert_eq!(
            reason,
            expected,
            "{label} by {:.60}",
            review["request"]["userInfo"]["username"].to_string()
        );
    }
}

#[test]
fn request_other_than_pod_create_is_allowed_unchanged() {
    let with = |pointer: &str, value: Value| {
        let mut review = create(latency_pod());
        let request = review["request"].as_object_mut().unwrap();
        request.insert(pointer.to_owned(), value);
        review
    };
    for review in [
        with("operation", json!("UPDATE")),
        with("operation", json!("DELETE")),
        with(
            "resource",
            json!({"group": "apps", "version": "v1", "resource": "pods"}),
        ),
        with("resource", json!({"group": "", "version": "v1", "resource": "nodes"})),
        with("resource", Value::Null),
        with("subResource", json!("binding")),
        with("object", Value::Null),
    ] {
        let reviewer = reviewer(Config::default());
        let response = answer(&reviewer, &review);
        let audit = json!({"reason": "passthrough_not_a_pod_create"});
        let untouched = json!({"uid": review["request"]["uid"], "allowed": true, "auditAnnotations": audit});
        assert_eq!(response, untouched, "{review}");
        assert!(counted(&reviewer, "passthrough_not_a_pod_create"));
    }
}

#[test]
fn unreadable_pod_is_allowed_with_a_warning() {
    let reviewer = reviewer(Config::default());
    let mut pod = latency_pod();
    pod["spec"]["containers"] = json!("none");
    let response = answer(&reviewer, &create(pod));
    assert_eq!(response["allowed"], true);
    assert_eq!(response.get("patch"), None);
    let warning = response["warnings"][0].as_str().unwrap();
    assert!(
        warning.starts_with("edgeward could not read the pod, which was left as it is: invalid type"),
        "{warning}"
    );
}

#[test]
fn pod_with_too_many_elements_is_left_unchanged_and_counted() {
    let review = |tolerations: usize| {
        let reviewer = reviewer(Config::default());
        let mut pod = latency_pod();
        pod["spec"]["tolerations"] = vec![json!({}); tolerations].into();
        pod["metadata"]["annotations"]["text"] = "\",".repeat(MAX_ELEMENTS).into();
        let response = answer(&reviewer, &create(pod));
        (response, counted(&reviewer, "passthrough_too_large"))
    };
    let expected = json!({
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "allowed": true,
        "warnings": ["not placed: the pod has more than 20000 list elements and fields"],
        "auditAnnotations": {"reason": "passthrough_too_large"},
    });
    assert_eq!(review(MAX_ELEMENTS + 1), (expected, true));
    let (response, is_too_large) = review(MAX_ELEMENTS - 100);
    assert!(response["patch"].is_string() && !is_too_large, "{response}");
}

#[test]
fn review_with_uid_or_namespace_over_253_bytes_is_refused() {
    let reviewer = reviewer(Config::default());
    for field in ["uid", "namespace"] {
        let ask = |name: String| {
            let mut review = create(latency_pod());
            review["request"][field] = name.into();
            let body = review.to_string();
            let asked = reviewer.review(body.as_bytes(), &Responder::start());
            let unasked = reviewer.no_opinion(body.as_bytes(), Reason::Deadline, Duration::ZERO);
            assert_eq!(asked.is_ok(), unasked.is_ok(), "{field}");
            asked.map(drop).map_err(|refusal| refusal.to_string())
        };
        assert_eq!(ask("u".repeat(253)), Ok(()), "{field}");
        let refusal = "uid or namespace has more than 253 bytes";
        assert_eq!(ask("u".repeat(254)), Err(refusal.to_owned()), "{field}");
        // JSON escapes these characters with six bytes each.
        assert_eq!(ask("\u{1}".repeat(253)), Ok(()), "{field}");
        assert_eq!(ask("\u{1}".repeat(254)), Err(refusal.to_owned()), "{field}");
    }
}

#[test]
fn escaped_names_of_a_review_are_read() {
    let reviewer = reviewer(Config::default());
    let mut body = create(latency_pod()).to_string();
    for (name, escaped) in [
        ("\"AdmissionReview\"", "\"Admission\\u0052eview\""),
        ("admission.k8s.io/v1", "admission.k8s.io\\/v1"),
        ("\"pods\"", "\"p\\u006fds\""),
        ("\"CREATE\"", "\"\\u0043REATE\""),
        ("\"shop\"", "\"sh\\u006fp\""),
        ("\"705ab4f5-", "\"705\\u0061b4f5-"),
    ] {
        assert!(body.contains(name), "{name}");
        body = body.replace(name, escaped);
    }
    let request = Request::read(body.as_bytes()).unwrap();
    assert_eq!(request.namespace(), "shop");
    let answered = reviewer.review(body.as_bytes(), &Responder::start());
    let answer: Value = serde_json::from_slice(&answered.unwrap()).unwrap();
    assert_eq!(answer["response"]["uid"], "705ab4f5-6393-11e8-b7cc-42010a800002");
    assert!(answer["response"]["patch"].is_string(), "{answer}");
}

#[test]
fn annotation_warnings_are_limited_to_five() {
    let reviewer = reviewer(Config::default());
    let mut pod = latency_pod();
    for i in 0..1_000 {
        pod["metadata"]["annotations"][format!("slo.example.io/x{i:03}")] = "".into();
    }
    let response = answer(&reviewer, &create(pod));
    let warnings = response["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 5);
    assert_eq!(
        warnings[4],
        "slo.example.io/x004 is not an annotation that edgeward reads"
    );
}

#[test]
fn invalid_admission_review_is_refused_with_a_reason() {
    let reviewer = reviewer(Config::default());
    let reason = |body: &str| {
        reviewer
            .review(body.as_bytes(), &Responder::start())
            .unwrap_err()
            .to_string()
    };
    assert!(reason("{").starts_with("not an AdmissionReview: EOF"));
    let quoted = "\u{7f}".repeat(1_000);
    assert!(reason(&json!({"apiVersion": quoted}).to_string()).len() < 2 * SHOWN_ERROR);
    assert_eq!(
        reason(r#"{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}"#),
        r#"expected admission.k8s.io/v1 AdmissionReview, found "admission.k8s.io/v1beta1" "AdmissionReview""#
    );
    assert_eq!(
        reason(r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}"#),
        "the AdmissionReview has no request"
    );
    assert_eq!(
        reason(r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {}}"#),
        "the AdmissionReview's request has no uid"
    );
}

#[test]
fn invalid_slo_warns_or_denies_with_every_fault() {
    let mut pod = latency_pod();
    pod["metadata"]["annotations"]["slo.example.io/deadlineMs"] = json!("soon");
    pod["metadata"]["annotations"]["slo.example.io/priority"] = json!("eleven");
    let warned = answer(&reviewer(Config::default()), &create(pod.clone()));
    assert_eq!(warned["allowed"], true);
    assert_eq!(warned["warnings"].as_array().unwrap().len(), 2);
    assert_eq!(warned["auditAnnotations"]["reason"], "edge_invalid_slo");

    let strict = reviewer(Config {
        invalid_slo: InvalidSlo::Deny,
        ..Config::default()
    });
    let denied = answer(&strict, &create(pod));
    assert_eq!(denied["allowed"], false);
    assert_eq!(
        denied["status"],
        json!({
            "code": 403,
            "message": "invalid SLO: slo.example.io/deadlineMs: \"soon\" is not a whole number of milliseconds from 1 to \
                        31536000000; slo.example.io/priority: \"eleven\" is not a whole number from 0 to 10",
        })
    );
    assert_eq!(denied.get("patch"), None);
}

#[test]
fn no_opinion_is_allowed_and_counted() {
    for (why, reason) in [
        (Reason::Deadline, "passthrough_deadline"),
        (Reason::Panic, "passthrough_panic"),
        (Reason::NotReady, "passthrough_not_ready"),
    ] {
        let reviewer = reviewer(Config::default());
        let bytes = reviewer
            .no_opinion(
                create(latency_pod()).to_string().as_bytes(),
                why,
                Duration::from_millis(900),
            )
            .unwrap();
        let response = serde_json::from_slice::<Value>(&bytes).unwrap()["response"].clone();
        assert_eq!(response["allowed"], true);
        assert_eq!(response.get("patch"), None);
        assert_eq!(response["auditAnnotations"], json!({ "reason": reason }));
        assert!(response["warnings"][0].as_str().unwrap().starts_with("edgeward "));
        assert!(counted(&reviewer, reason));
        let page = reviewer.metrics.encode();
        assert!(page.contains("edgeward_review_duration_seconds_sum 0.9\n"), "{page}");
    }
}

#[test]
fn already_answered_review_is_not_counted() {
    let reviewer = reviewer(Config::default());
    let mut other = create(latency_pod());
    other["request"]["operation"] = "UPDATE".into();
    for review in [create(latency_pod()), other] {
        let responder = Responder::start();
        assert!(responder.take());
        reviewer.review(review.to_string().as_bytes(), &responder).unwrap();
    }
    let page = reviewer.metrics.encode();
    assert!(page.contains("edgeward_review_duration_seconds_count 0\n"), "{page}");
}

#[test]
fn reinvocation_repeats_the_decision_without_a_patch() {
    let reviewer = reviewer(Config::default());
    let mut pod = latency_pod();
    pod["spec"]["nodeSelector"] = json!({"node.role/edge": "true"});
    for (name, value) in [
        ("decision", "edge".to_owned()),
        ("site", "edge".to_owned()),
        ("decision-id", "x".to_owned()),
        ("timestamp", jiff::Timestamp::now().to_string()),
    ] {
        pod["metadata"]["annotations"][format!("scheduling.example.io/{name}")] = value.into();
    }
    let response = answer(&reviewer, &create(pod));
    assert_eq!(response.get("patch"), None);
    assert_eq!(
        response["auditAnnotations"],
        json!({"decision": "edge", "site": "edge", "reason": "passthrough_reinvocation"})
    );
}

/// Long enough that no reservation expires during a test.
const HOUR: Micros = Micros::from_secs(3_600);

/// Two edge nodes with room for four [`core_pod`]s each, and a cloud with room for all.
fn burst_reviewer(reservation_ttl: Micros) -> Reviewer {
    let edge = ["e1", "e2"].map(
        |name| json!({"name": name, "labels": {"node.role/edge": "true"}, "allocatable": {"cpu": "4500m", "pods": 99}}),
    );
    let cloud = json!({"name": "c", "labels": {"node.role/cloud": "true"}, "allocatable": {"cpu": 999, "pods": 999}});
    let fleet = json!({
        "sites": [
            {"name": "edge", "kind": "edge"},
            {"name": "cloud", "kind": "cloud", "wan": {"rttMs": 25, "lossPct": 0}},
        ],
        "nodes": [edge[0], edge[1], cloud],
    });
    Reviewer {
        shared: shared(&fleet, reservation_ttl),
        ..reviewer(Config {
            reservation_ttl,
            ..Config::default()
        })
    }
}

fn core_pod() -> Value {
    let mut pod = latency_pod();
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    pod
}

fn site(reviewer: &Reviewer, review: &Value) -> String {
    let response = answer(reviewer, review);
    response["auditAnnotations"]["site"].as_str().unwrap().to_owned()
}

/// How many of 60 pods, created over six connections at once, are placed on the edge.
fn edge_share_of_a_burst(reviewer: &Reviewer) -> usize {
    let review = create(core_pod());
    let ten = || (0..10).filter(|_| site(reviewer, &review) == "edge").count();
    std::thread::scope(|scope| {
        let connections = [(); 6].map(|()| scope.spawn(ten));
        connections.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

fn open(reviewer: &Reviewer) -> usize {
    reviewer.shared.ledger().open()
}

#[test]
fn burst_of_reviews_does_not_reserve_room_twice() {
    let reviewer = burst_reviewer(HOUR);
    assert_eq!(edge_share_of_a_burst(&reviewer), 8);
    assert_eq!(open(&reviewer), 60);
    reviewer.metrics.follow(Arc::clone(&reviewer.shared), reviewer.clock);
    assert!(reviewer.metrics.encode().contains("edgeward_reservations 60\n"));

    let without = burst_reviewer(Micros(0));
    assert_eq!(edge_share_of_a_burst(&without), 60);
    assert_eq!(open(&without), 0);
}

#[test]
fn replica_scales_its_reservations_by_replica_count() {
    let reviewer = burst_reviewer(HOUR);
    reviewer.shared.ledger().set_replicas(4);
    assert_eq!(edge_share_of_a_burst(&reviewer), 2);
}

#[test]
fn dry_run_sees_reservations_and_makes_none() {
    let reviewer = burst_reviewer(HOUR);
    let mut dry = create(core_pod());
    dry["request"]["dryRun"] = true.into();
    for _ in 0..20 {
        assert_eq!(site(&reviewer, &dry), "edge");
    }
    assert_eq!(open(&reviewer), 0);
    assert_eq!(edge_share_of_a_burst(&reviewer), 8);
    assert_eq!(site(&reviewer, &dry), "cloud");
    assert_eq!(open(&reviewer), 60);
}

#[test]
fn unfit_pod_or_late_answer_reserves_nothing() {
    let reviewer = burst_reviewer(HOUR);
    let mut large = core_pod();
    large["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("1000");
    let response = answer(&reviewer, &create(large));
    assert_eq!(response["auditAnnotations"]["reason"], "edge_too_large");
    assert_eq!(open(&reviewer), 0);

    let responder = Responder::start();
    assert!(responder.take());
    reviewer
        .review(create(core_pod()).to_string().as_bytes(), &responder)
        .unwrap();
    assert_eq!(open(&reviewer), 0);
}

/// A pod with one core in a second review after another webhook's change: placed on the edge.
fn second_round(reviewer: &Reviewer) -> Value {
    let mut review = create(core_pod());
    let response = answer(reviewer, &review);
    let patch = base64::engine::general_purpose::STANDARD.decode(response["patch"].as_str().unwrap());
    let patch: json_patch::Patch = serde_json::from_slice(&patch.unwrap()).unwrap();
    json_patch::patch(&mut review["request"]["object"], &patch).unwrap();
    review
}

/// Millicores and pod slots reserved on the edge.
fn reserved(reviewer: &Reviewer) -> (i64, i64) {
    let ledger = reviewer.shared.ledger();
    let reserved = ledger.reserved("edge", 0, "shop");
    reserved.fold((0, 0), |(cpu, pods), (reservation, times)| {
        let times = i64::from(times);
        (cpu + reservation.amount.cpu.0 * times, pods + times)
    })
}

#[test]
fn reinvocation_adjusts_the_reservation() {
    let reviewer = burst_reviewer(HOUR);
    let mut review = second_round(&reviewer);
    assert_eq!(reserved(&reviewer), (1_000, 1));

    review["request"]["object"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2500m");
    review["request"]["dryRun"] = true.into();
    let audit = |review: &Value| answer(&reviewer, review)["auditAnnotations"]["reason"].clone();
    assert_eq!(audit(&review), "passthrough_reinvocation");
    assert_eq!(reserved(&reviewer), (1_000, 1));
    review["request"]["dryRun"] = false.into();
    assert_eq!(audit(&review), "passthrough_reinvocation");
    assert_eq!(reserved(&reviewer), (2_500, 1));
    // A pod that fits nowhere takes nothing, whatever is reserved for it.
    review["request"]["object"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("9E");
    assert_eq!(audit(&review), "passthrough_reinvocation");
    assert_eq!(reserved(&reviewer), (0, 0));
}

#[test]
fn reinvocation_of_gated_pod_drops_its_reservation() {
    let reviewer = burst_reviewer(HOUR);
    let mut review = second_round(&reviewer);
    assert_eq!(reserved(&reviewer), (1_000, 1));
    review["request"]["object"]["spec"]["schedulingGates"] = json!([{"name": "queue.example/admission"}]);
    let response = answer(&reviewer, &review);
    assert_eq!(response.get("patch"), None);
    assert_eq!(
        response["auditAnnotations"],
        json!({"decision": "edge", "site": "edge", "reason": "passthrough_reinvocation"})
    );
    assert_eq!(reserved(&reviewer), (0, 0));
    assert_eq!(reviewer.shared.ledger().expired(), 0);
}

#[test]
fn reinvocation_after_expiry_reserves_again() {
    let reviewer = burst_reviewer(Micros(1));
    let mut review = second_round(&reviewer);
    let cpu = |review: &mut Value, cpu: &str| {
        review["request"]["object"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu.into();
    };
    for (asked, expected) in [("2500m", (2_500, 1)), ("9", (0, 0)), ("1", (1_000, 1))] {
        cpu(&mut review, asked);
        let reason = &answer(&reviewer, &review)["auditAnnotations"]["reason"];
        assert_eq!(reason, "passthrough_reinvocation");
        assert_eq!(reserved(&reviewer), expected, "{asked}");
    }
}

#[test]
fn panic_under_ledger_lock_does_not_stop_reviews() {
    let reviewer = burst_reviewer(HOUR);
    let shared = Arc::clone(&reviewer.shared);
    let panicked = std::thread::spawn(move || {
        let _ledger = shared.ledger();
        panic!("in a review");
    });
    assert!(panicked.join().is_err());
    assert_eq!(edge_share_of_a_burst(&reviewer), 8);
}

#[test]
fn warnings_stay_on_one_line_of_120_characters() {
    assert_eq!(shorten("one\ntwo\t"), "one two ");
    let long = shorten(&"ü".repeat(200));
    assert_eq!(long.chars().count(), WARNING_CHARS);
    assert!(long.ends_with('…'));
    assert_eq!(shorten(&"x".repeat(120)), "x".repeat(120));
}
