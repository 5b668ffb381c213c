use std::sync::{Arc, Mutex};

use edgeward_decision::testkit;
use edgeward_decision::testkit::NOW;
use http::Response;

use super::*;

fn fleet() -> Value {
    let node = |name: &str, site: &str, used: &str, ready: bool| {
        let labels = json!({format!("node.role/{site}"): "true"});
        json!({"name": name, "labels": labels, "allocatable": {"cpu": "3", "pods": 10}, "used": {"cpu": used}, "ready": ready})
    };
    json!({
        "sites": [
            {"name": "edge", "kind": "edge"},
            {"name": "cloud", "kind": "cloud", "rttThresholdMs": 80, "wan": {"rttMs": 20, "lossPct": 0}},
        ],
        "nodes": [node("e", "edge", "1", true), node("c", "cloud", "3", true), node("d", "cloud", "0", false)],
        "profiles": [{
            "name": "greenness", "better": "lower", "stalenessSeconds": 60,
            "scores": [{"site": "edge", "score": 0.25, "ageSeconds": 60}, {"site": "cloud", "score": 0.5, "ageSeconds": 61}],
        }],
    })
}

fn of(fleet: &Value, site: usize, now: Moment) -> String {
    let snapshot = testkit::snapshot(fleet);
    let found = scores(&snapshot, &snapshot.sites[site], &Config::default(), now);
    let found: Vec<_> = found.iter().map(|(name, value)| format!("{name}={value}")).collect();
    found.join(" ")
}

#[test]
fn scores_are_percent_and_zero_if_bad_or_unknown() {
    let of = |fleet: &Value, site| of(fleet, site, NOW.moment);
    let healthy = fleet();
    assert_eq!(
        of(&healthy, 0),
        "wan-rtt=100 free-cpu=66 health=100 profile-greenness=75"
    );
    assert_eq!(of(&healthy, 1), "wan-rtt=75 free-cpu=0 health=100");
    for (rest, wan) in [
        ("wan-rtt=98 free-cpu=0 health=100", json!({"rttMs": 1, "lossPct": 0})),
        ("wan-rtt=0 free-cpu=0 health=50", json!({"rttMs": 81, "lossPct": 0})),
        ("wan-rtt=75 free-cpu=0 health=50", json!({"rttMs": 20, "lossPct": 5})),
        ("wan-rtt=0 free-cpu=0 health=0", json!({"reachable": false})),
        (
            "wan-rtt=0 free-cpu=0 health=0",
            json!({"rttMs": 20, "lossPct": 0, "ageSeconds": 61}),
        ),
        ("wan-rtt=0 free-cpu=0 health=0", Value::Null),
    ] {
        let found = of(&testkit::with(fleet(), "/sites/1/wan", wan.clone()), 1);
        assert_eq!(found, rest, "{wan}");
    }
    let without_nodes = testkit::with(fleet(), "/nodes/1/ready", json!(false));
    assert_eq!(of(&without_nodes, 1), "wan-rtt=75 free-cpu=0 health=0");
    for (score, better, expected) in [
        (0.255, "higher", 25),
        (1.5, "higher", 100),
        (-0.1, "higher", 0),
        (1.5, "lower", 0),
        (-0.1, "lower", 100),
    ] {
        let fleet = testkit::with(fleet(), "/profiles/0/better", json!(better));
        let fleet = testkit::with(fleet, "/profiles/0/scores/0/score", json!(score));
        let found = of(&fleet, 0);
        assert!(
            found.ends_with(&format!("profile-greenness={expected}")),
            "{score} {better}: {found}"
        );
    }
}

#[test]
fn stale_view_leaves_no_free_cpu_and_no_health() {
    let later = NOW.moment.after(Micros::from_secs(61));
    assert_eq!(of(&fleet(), 0, later), "wan-rtt=100 free-cpu=0 health=0");
}

#[test]
fn lost_api_server_of_liqo_is_not_healthy() {
    let mut snapshot = testkit::snapshot(&fleet());
    snapshot.sites[1].api_server = Some(ApiServerStatus::Error);
    assert_eq!(health(&snapshot.sites[1], &Config::default(), NOW.moment), 0);
}

#[test]
fn scores_are_due_when_changed_or_half_expired() {
    let clusters = [("edge", "factory"), ("cloud", "region"), ("gone", "lost")];
    let settings = Ocm {
        clusters: clusters
            .map(|(site, cluster)| (site.to_owned(), cluster.to_owned()))
            .into(),
        ..Ocm::default()
    };
    let (snapshot, config) = (testkit::snapshot(&fleet()), Config::default());
    let at = |seconds: u64| NOW.moment.after(Micros::from_secs(seconds));
    let due_at = |written: &Written, now| {
        let due = due(&settings, written, &snapshot, &config, now);
        due.into_iter().map(|(cluster, _)| cluster).collect::<Vec<_>>()
    };
    assert_eq!(due_at(&Written::new(), at(0)), ["factory", "region"]);
    let all = due(&settings, &Written::new(), &snapshot, &config, at(0));
    let written = |at: Moment| {
        all.iter()
            .map(move |(cluster, scores)| (cluster.clone(), (scores.clone(), at)))
    };
    let mut known: Written = written(at(0)).collect();
    assert_eq!(due_at(&known, at(0)), [""; 0]);
    // Half of three periods of 60 s.
    known.extend(written(at(0).before(Micros::from_secs(89))));
    assert_eq!(due_at(&known, at(0)), [""; 0]);
    known.extend(written(at(0).before(Micros::from_secs(90))));
    assert_eq!(due_at(&known, at(0)), ["factory", "region"]);
    known.extend(written(at(0)));
    known
        .entry("region".to_owned())
        .and_modify(|(scores, _)| scores[0].1 += 1);
    assert_eq!(due_at(&known, at(0)), ["region"]);
}

/// Writes to a hub that gives these answers in turn. Returns the result, and what was asked.
async fn written(answers: &[(u16, &str)]) -> (Result<(), String>, Vec<String>) {
    let answers: Vec<_> = answers.iter().map(|(code, body)| (*code, (*body).to_owned())).collect();
    let (answers, asked) = (Mutex::new(answers.into_iter()), Arc::new(Mutex::new(vec![])));
    let asks = Arc::clone(&asked);
    let hub = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().path().rsplit_once("/factory/").unwrap().1.to_owned();
        asks.lock().unwrap().push(format!("{} {path}", request.method()));
        let (code, body) = answers.lock().unwrap().next().unwrap();
        std::future::ready(Response::builder().status(code).body(Body::from(body.into_bytes())))
    });
    let client = Client::new(hub, "default");
    let result = write(&client, "factory", &status(&vec![], "2026-01-01T00:00:00Z")).await;
    let result = result.map_err(|failure| format!("{}: {}", failure.outcome.as_str(), failure.detail));
    let asked = asked.lock().unwrap().clone();
    (result, asked)
}

#[tokio::test]
async fn missing_object_is_created_and_refusals_are_told() {
    const PATCH: &str = "PATCH addonplacementscores/edgeward/status";
    const POST: &str = "POST addonplacementscores";
    let forbidden = json!({"kind": "Status", "code": 403, "message": "no rights"}).to_string();
    let long = json!({"kind": "Status", "message": "x".repeat(2 * MAX_ERROR)}).to_string();
    let endless = "x".repeat(MAX_ANSWER + 1);
    let short = format!("refused: {}…", "x".repeat(MAX_ERROR));
    for (answers, expected, asked) in [
        (&[(200, "{}")][..], Ok(()), &[PATCH][..]),
        (&[(200, &*endless)], Ok(()), &[PATCH]),
        (&[(404, ""), (201, "{}"), (200, "")], Ok(()), &[PATCH, POST, PATCH]),
        (&[(404, ""), (409, ""), (200, "")], Ok(()), &[PATCH, POST, PATCH]),
        (
            &[(404, ""), (403, &*forbidden)],
            Err("refused: no rights"),
            &[PATCH, POST],
        ),
        (&[(404, ""), (404, "")], Err("refused: 404 Not Found"), &[PATCH, POST]),
        (&[(403, &*forbidden)], Err("refused: no rights"), &[PATCH]),
        (&[(422, &*long)], Err(&*short), &[PATCH]),
        (&[(503, &*endless)], Err("refused: 503 Service Unavailable"), &[PATCH]),
        (&[(302, "")], Err("refused: 302 Found"), &[PATCH]),
    ] {
        let (result, requests) = written(answers).await;
        assert_eq!(
            result.as_ref().map_err(|error| &**error).copied(),
            expected,
            "{answers:?}"
        );
        assert_eq!(requests, asked);
    }
}

#[tokio::test(start_paused = true)]
async fn silent_hub_is_given_up() {
    let hub = tower::service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, http::Error>>());
    let failure = write(&Client::new(hub, "default"), "factory", &json!({}))
        .await
        .unwrap_err();
    assert_eq!(
        (failure.outcome, &*failure.detail),
        (Outcome::Unreachable, "no answer in 10s")
    );
}
