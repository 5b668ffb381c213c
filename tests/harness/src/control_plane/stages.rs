//! What kwok does to pods beside its own stages.

use super::{SLOW, SLOW_END, WORKS_ON};
use crate::prelude::*;

pub(super) fn own() -> [(&'static str, Value); 3] {
    [("slow-end", slow_end()), ("forced-end", forced_end()), ("work", work())]
}

/// How long a pod takes to terminate that is labelled [`SLOW`].
fn slow_end() -> Value {
    let label = format!(".metadata.labels[\"{SLOW}\"]");
    let matching = json!([
        {"key": ".metadata.deletionTimestamp", "operator": "Exists"},
        {"key": label, "operator": "Exists"},
    ]);
    let delay = json!({"durationMilliseconds": SLOW_END.as_millis()});
    stage("slow-end", matching, delay, json!({"delete": true}))
}

/// A pod that is deleted by force is the API server's to remove, at once. kwok deletes by name, and where it lags behind, the next
/// pod of that name: so it waits, until it sees that the pod is gone.
fn forced_end() -> Value {
    let is_forced = ".metadata.deletionGracePeriodSeconds == 0";
    let matching = json!([{"key": is_forced, "operator": "In", "values": ["true"]}]);
    let delay = json!({"durationMilliseconds": Duration::from_secs(60 * 60).as_millis()});
    stage("forced-end", matching, delay, json!({}))
}

/// How long the work of a pod takes that says so ([`WORKS_ON`]).
fn work() -> Value {
    let works = format!(".metadata.annotations[\"{WORKS_ON}\" + .spec.nodeName]");
    let matching = json!([
        {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"},
        {"key": ".status.phase", "operator": "In", "values": ["Running"]},
        {"key": works, "operator": "Exists"},
    ]);
    let delay = json!({"durationFrom": {"expressionFrom": works}});
    stage("work", matching, delay, json!({"statusTemplate": DONE}))
}

fn stage(name: &str, matching: Value, delay: Value, next: Value) -> Value {
    json!({
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": format!("pod-{name}")},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
            "selector": {"matchExpressions": matching},
            // Of stages that match, those with a weight come before those without.
            "weight": 1,
            "delay": delay,
            "next": next,
        },
    })
}

/// The status of a pod whose work is done. Unlike kwok's own it tells when the work began: edgeward learns from it.
const DONE: &str = r#"
{{ $now := Now }}
{{ $root := . }}
phase: Succeeded
containerStatuses:
{{ range $index, $item := .spec.containers }}
{{ $origin := index $root.status.containerStatuses $index }}
- image: {{ $item.image | Quote }}
  name: {{ $item.name | Quote }}
  ready: false
  restartCount: 0
  started: false
  state:
    terminated:
      exitCode: 0
      finishedAt: {{ $now | Quote }}
      reason: Completed
      startedAt: {{ $origin.state.running.startedAt | Quote }}
{{ end }}
"#;
