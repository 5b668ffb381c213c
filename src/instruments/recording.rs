//! What the engine was asked, in a file: a line of JSON for each step, in the order in which it counts. For tests, which ask
//! another engine the same.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use edgeward_core::engine::{Change, Journal, Step, account};
use edgeward_core::model::decision_id::DecisionId;
use edgeward_core::units::Now;
use serde_json::{Value, json};

/// The file, and the texts of objects whose steps are to come.
#[derive(Debug)]
pub struct Recording(Mutex<State>);

#[derive(Debug)]
struct State {
    file: File,
    nodes: VecDeque<Value>,
    pods: VecDeque<Value>,
    reviews: HashMap<DecisionId, Value>,
}

impl Recording {
    /// Writes to this file, from its beginning.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let file = File::create(path).with_context(|| path.display().to_string())?;
        Ok(Self(Mutex::new(State {
            file,
            nodes: VecDeque::new(),
            pods: VecDeque::new(),
            reviews: HashMap::new(),
        })))
    }

    /// The change that is sent next of its kind was read from this object.
    pub fn object(&self, change: &Change, text: &str) {
        let mut state = self.state();
        match change {
            Change::Node(_) => state.nodes.push_back(object(text)),
            Change::Pod(_) => state.pods.push_back(object(text)),
            _ => {}
        }
    }

    /// The decision of this id will be about this pod.
    pub fn review(&self, id: DecisionId, namespace: &str, text: &str) {
        let review = json!({"namespace": namespace, "pod": object(text)});
        self.state().reviews.insert(id, review);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Journal for Recording {
    fn record(&self, step: Step<'_>) {
        let mut state = self.state();
        let line = match step {
            Step::Apply(change, at) => json!({"apply": state.change(change), "at": time(at)}),
            Step::Prepare(at) => json!({"prepare": time(at)}),
            Step::Commit => json!({"commit": null}),
            Step::Review {
                id,
                now,
                is_wanted,
                verdict,
            } => {
                let review = state.reviews.remove(&id).unwrap_or_default();
                json!({"review": review, "id": id.to_string(), "at": time(now), "wanted": is_wanted, "verdict": account(verdict)})
            }
            Step::Release {
                id,
                now,
                uid,
                waited,
                verdict,
            } => {
                json!({"release": uid, "waited": waited.0, "id": id.to_string(), "at": time(now), "verdict": account(verdict)})
            }
            Step::Forget(id, namespace) => json!({"forget": id.to_string(), "namespace": namespace}),
        };
        if let Err(error) = state.file.write_all(format!("{line}\n").as_bytes()) {
            tracing::error!(%error, "a step could not be recorded");
        }
    }
}

impl State {
    fn change(&mut self, change: &Change) -> Value {
        match change {
            Change::Node(_) => json!({"node": self.nodes.pop_front()}),
            Change::Pod(_) => json!({"pod": self.pods.pop_front()}),
            Change::NodeGone(name) => json!({"nodeGone": name}),
            Change::PodGone(uid) => json!({"podGone": uid}),
            Change::Namespace(name, is_managed) => json!({"namespace": name, "managed": is_managed}),
            Change::Link(site, link) => json!({"link": site, "as": link.map(|link| json!({
                "state": link.state.as_str(),
                "rtt": link.rtt.map(|rtt| rtt.0),
                "loss": link.loss.map(|loss| loss.0),
                "asOf": link.as_of.0,
            }))}),
            // A recording is of one configuration, and of no Prometheus server, SloPolicy, PerformanceProfile, Liqo or data in clouds.
            Change::Liqo(_) => json!("liqo"),
            Change::Volumes(_) => json!("volumes"),
            Change::Telemetry(_) => json!("telemetry"),
            Change::Profiles(_) => json!("profiles"),
            Change::Settings(_) => json!("settings"),
            Change::Sites(_) => json!("sites"),
            Change::FirstRound(_) => json!("firstRound"),
            Change::Replicas(ready) => json!({"replicas": ready}),
            Change::ListBegan(kind) => json!({"listBegan": kind.as_str()}),
            Change::ListEnded(kind) => json!({"listEnded": kind.as_str()}),
            Change::WatchAlive(kind) => json!({"watchAlive": kind.as_str()}),
            Change::WatchLost(kind) => json!({"watchLost": kind.as_str()}),
        }
    }
}

/// The object without what nobody reads.
fn object(text: &str) -> Value {
    let mut object: Value = serde_json::from_str(text).unwrap_or_default();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    object
}

fn time(now: Now) -> Value {
    json!([now.moment.0, now.wall.to_string()])
}
