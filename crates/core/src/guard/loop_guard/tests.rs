use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::keys::Keys;
use crate::wire::pod::Pod;

const SECOND: i64 = 1_000_000;
const SETTINGS: config::LoopGuard = config::LoopGuard {
    failures_per_minute: 3,
    pause: Micros::from_secs(120),
};

/// A guard, and what has happened to the pods that it sees.
struct Fixture {
    guard: LoopGuard,
    now: Moment,
    pods: usize,
}

fn pod(uid: &str, controller: &str, changes: &Value) -> Value {
    let mut pod = json!({
        "metadata": {
            "uid": uid, "namespace": "shop", "name": uid,
            "annotations": {
                "slo.example.io/class": "batch",
                "scheduling.example.io/decision-id": "00000000-0000-4000-8000-000000000001",
            },
            "ownerReferences": [{"apiVersion": "acme.dev/v1", "kind": "Robot", "name": "r2", "uid": controller, "controller": true}],
        },
        "spec": {"containers": []},
        "status": {"phase": "Pending"},
    });
    for (pointer, value) in changes.as_object().unwrap() {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        pod.pointer_mut(parent).unwrap()[key] = value.clone();
    }
    pod
}

fn bound() -> Value {
    json!({"/spec/nodeName": "n"})
}

fn failed() -> Value {
    json!({"/spec/nodeName": "n", "/status/phase": "Failed"})
}

impl Fixture {
    fn new() -> Self {
        Self {
            guard: LoopGuard::default(),
            now: Moment(1_000 * SECOND),
            pods: 0,
        }
    }

    fn wait(&mut self, milliseconds: i64) {
        self.now = Moment(self.now.0 + milliseconds * 1_000);
    }

    fn see(&mut self, pod: &Value, is_new: bool) -> Option<Loop> {
        let text = pod.to_string();
        let record = Pod::from_json(&text)
            .unwrap()
            .record(text.len(), &Keys::new("example.io"));
        self.guard.apply(&record.unwrap().unwrap(), is_new, SETTINGS, self.now)
    }

    /// Another pod of this controller is created.
    fn create(&mut self, controller: &str) -> (String, Option<Loop>) {
        self.pods += 1;
        let uid = format!("pod-{}", self.pods);
        let closed = self.see(&pod(&uid, controller, &json!({})), true);
        (uid, closed)
    }

    /// Each of so many pods is created, bound a second later, and becomes this after so many milliseconds more. Returns how
    /// many were created when the loop was closed.
    fn repeat(&mut self, times: usize, after: i64, end: &Value) -> Option<usize> {
        (1..=times).find(|_| {
            let (uid, closed) = self.create("c");
            self.wait(1_000);
            self.see(&pod(&uid, "c", &bound()), false);
            self.wait(after);
            self.see(&pod(&uid, "c", end), false);
            closed.is_some()
        })
    }

    fn is_paused(&self) -> bool {
        self.guard
            .paused()
            .get("shop", "c")
            .is_some_and(|until| self.now < *until)
    }
}

#[test]
fn failures_in_the_place_of_failures_close_a_loop() {
    for end in [failed(), json!({"/metadata/deletionTimestamp": "2026-01-01T00:00:00Z"})] {
        let mut fixture = Fixture::new();
        // The first is in nobody's place.
        assert_eq!(fixture.repeat(9, 100, &end), Some(5));
        assert!(fixture.is_paused());
        assert!(fixture.guard.paused().get("shop", "d").is_none() && fixture.guard.paused().get("till", "c").is_none());
    }
    // Gone without a word.
    let mut fixture = Fixture::new();
    let closed = (0..5).find_map(|_| {
        let (uid, closed) = fixture.create("c");
        fixture.wait(500);
        fixture.guard.delete(&uid, SETTINGS, fixture.now);
        closed
    });
    let closed = closed.unwrap();
    assert_eq!(
        (&*closed.namespace, &*closed.controller, closed.failures),
        ("shop", "Robot r2", 4)
    );
    assert_eq!((&*closed.pod, closed.pause), ("pod-5", SETTINGS.pause));
}

#[test]
fn a_pause_ends_and_the_count_begins_again() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.repeat(9, 100, &failed()), Some(5));
    assert_eq!(
        fixture
            .guard
            .next_change()
            .map(|at| at.since(fixture.now).0 / 1_000_000),
        Some(118)
    );
    // Its pods go on failing, but none of them was changed by us.
    let unchanged = json!({"/metadata/annotations": {"slo.example.io/class": "batch"}});
    for i in 0..20 {
        assert_eq!(fixture.see(&pod(&format!("free-{i}"), "c", &unchanged), true), None);
        fixture.guard.delete(&format!("free-{i}"), SETTINGS, fixture.now);
    }
    fixture.wait(120_000);
    fixture.guard.expire(SETTINGS, fixture.now);
    assert!(fixture.guard.paused().is_empty() && fixture.guard.next_change().is_none());
    assert_eq!(fixture.repeat(9, 100, &failed()), Some(5));

    // Nor is anybody paused any more, once there are no pauses.
    let off = config::LoopGuard {
        pause: Micros(0),
        ..SETTINGS
    };
    fixture.guard.expire(off, fixture.now);
    assert!(!fixture.is_paused());
}

#[test]
fn work_that_is_done_is_no_failure() {
    let mut fixture = Fixture::new();
    let done = json!({"/spec/nodeName": "n", "/status/phase": "Succeeded"});
    assert_eq!(fixture.repeat(50, 100, &done), None);
    // Nor is what fails when it has run for a while, however quickly another follows.
    assert_eq!(fixture.repeat(50, 10_001, &failed()), None);
}

#[test]
fn who_makes_room_for_others_has_not_failed() {
    let disrupted = |status: &str| {
        json!({
            "/spec/nodeName": "n",
            "/status/conditions": [{"type": "DisruptionTarget", "status": status, "reason": "PreemptionByScheduler"}],
        })
    };
    let mut deleted = disrupted("True");
    deleted["/metadata/deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut failed = disrupted("True");
    failed["/status/phase"] = json!("Failed");
    for end in [deleted, failed] {
        let mut fixture = Fixture::new();
        assert_eq!(fixture.repeat(50, 100, &end), None, "{end}");
    }
    // The condition comes first, and then the pod is gone at once.
    let mut fixture = Fixture::new();
    let mut closes = |status: &str| {
        (0..9).any(|_| {
            let (uid, closed) = fixture.create("c");
            fixture.wait(500);
            fixture.see(&pod(&uid, "c", &disrupted(status)), false);
            fixture.guard.delete(&uid, SETTINGS, fixture.now);
            closed.is_some()
        })
    };
    assert!(!closes("True"));
    assert!(closes("False"));
}

#[test]
fn who_is_scaled_up_and_down_once_is_not_paused() {
    let mut fixture = Fixture::new();
    // Two more than may fail: but so many failures are all that is kept of them.
    let mut up_and_down = || {
        let created: Vec<_> = (0..5).map(|_| fixture.create("c")).collect();
        fixture.wait(2_000);
        created
            .iter()
            .for_each(|(uid, _)| fixture.guard.delete(uid, SETTINGS, fixture.now));
        created.iter().any(|(_, closed)| closed.is_some())
    };
    assert!(!up_and_down());
    assert!(!up_and_down());
    // Up, down, up, down and up within a minute is.
    assert!(up_and_down());
}

#[test]
fn what_is_taken_away_and_not_replaced_is_no_loop() {
    let mut fixture = Fixture::new();
    let pods: Vec<_> = (0..30).map(|_| fixture.create("c").0).collect();
    fixture.wait(2_000);
    pods.iter()
        .for_each(|uid| fixture.guard.delete(uid, SETTINGS, fixture.now));
    // A minute later nobody remembers.
    fixture.wait(60_000);
    assert!((0..30).all(|_| fixture.create("c").1.is_none()));
}

#[test]
fn time_without_a_node_or_behind_a_gate_does_not_count() {
    let mut fixture = Fixture::new();
    let gated = json!({"/spec/schedulingGates": [{"name": "g"}]});
    let closed = (0..5).any(|i| {
        let uid = format!("late-{i}");
        let closed = fixture.see(&pod(&uid, "c", &gated), true);
        fixture.wait(70_000);
        fixture.see(&pod(&uid, "c", &json!({})), false);
        fixture.wait(9_000);
        fixture.see(&pod(&uid, "c", &bound()), false);
        fixture.wait(9_000);
        // All at once, at last.
        fixture.see(&pod(&uid, "c", &failed()), false);
        closed.is_some()
    });
    // Each failed soon, but it took longer than a minute.
    assert!(!closed);
    assert_eq!(
        fixture
            .guard
            .histories
            .values()
            .map(|history| history.failed.len())
            .max(),
        Some(1)
    );
}

#[test]
fn pods_that_were_there_before_count_for_nothing() {
    let mut fixture = Fixture::new();
    for i in 0..20 {
        let uid = format!("old-{i}");
        assert_eq!(fixture.see(&pod(&uid, "c", &bound()), false), None);
        fixture.see(&pod(&uid, "c", &failed()), false);
    }
    assert!(fixture.guard.starting.is_empty() && fixture.guard.histories.is_empty());
    let (uid, _) = fixture.create("c");
    fixture.guard.retain(|_| false);
    fixture.guard.delete(&uid, SETTINGS, fixture.now);
    assert!(fixture.guard.histories.is_empty());
}

proptest! {
    /// Pods of one controller that live so long after such a pause, with those that end soon replaced or not: it is paused in
    /// the moment in which the last minute holds one more than may be, and never otherwise; nothing is kept for ever.
    #[test]
    fn a_loop_is_closed_when_a_minute_holds_too_many(lives in prop::collection::vec((0_i64..30_000, 0_i64..15_000), 1..60)) {
        let mut fixture = Fixture::new();
        let (mut failures, mut again): (Vec<i64>, Vec<i64>) = (vec![], vec![]);
        let mut paused_until = i64::MIN;
        for (pause, life) in lives {
            fixture.wait(pause);
            let now = fixture.now.0;
            let minute = |at: &i64| now - *at < 60 * SECOND;
            failures.retain(minute);
            again.retain(minute);
            let is_paused = now < paused_until;
            if !failures.is_empty() && !is_paused {
                failures.remove(0);
                again.push(now);
            }
            let (uid, closed) = fixture.create("c");
            prop_assert_eq!(closed.is_some(), again.len() > SETTINGS.failures_per_minute);
            if closed.is_some() {
                paused_until = now + 120 * SECOND;
                (failures, again) = (vec![], vec![]);
            }
            fixture.wait(life);
            fixture.guard.delete(&uid, SETTINGS, fixture.now);
            if life <= 10_000 && !is_paused {
                failures.push(fixture.now.0);
            }
        }
        prop_assert!(fixture.guard.starting.is_empty());
        fixture.wait(60_000);
        fixture.create("d");
        prop_assert!(fixture.guard.histories.is_empty());
    }
}
