//! Kubernetes Events: what `kubectl describe` and `kubectl get events` show.
//!
//! The name of an Event is made from what it tells, so what is told twice, by two replicas or after a restart, is one Event.

mod configuration;
mod decision;
mod recorder;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client, Error};

use crate::instruments::logs::LogLimit;
pub use configuration::follow;
pub use decision::{PodEvent, PodReason, bounds, in_words};
pub use recorder::{Events, Recorder};

/// Who reports.
const CONTROLLER: &str = "edgeward.io/edgeward";

/// What the API server takes as a note.
const NOTE_BYTES: usize = 1024;

/// Between attempts, while the API server does not answer.
const PAUSE: Duration = Duration::from_secs(5);

/// How it is told.
struct Content<'t> {
    kind: &'t str,
    reason: &'t str,
    action: &'t str,
    note: String,
    at: Timestamp,
}

/// An Event about an object. `what` tells it from other Events about the same.
fn event(regarding: ObjectReference, content: Content<'_>, what: impl Hash) -> Event {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    let object = regarding.name.as_deref().unwrap_or_default();
    Event {
        metadata: ObjectMeta {
            // An object's name may be as long as an Event's.
            name: Some(format!("{object:.236}.{:016x}", hasher.finish())),
            namespace: regarding.namespace.clone(),
            ..ObjectMeta::default()
        },
        type_: Some(content.kind.to_owned()),
        reason: Some(content.reason.to_owned()),
        action: Some(content.action.to_owned()),
        note: Some(content.note),
        regarding: Some(regarding),
        event_time: Some(MicroTime(content.at)),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(std::env::var("HOSTNAME").unwrap_or_else(|_| CONTROLLER.to_owned())),
        ..Event::default()
    }
}

/// What became of writing an Event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Written,
    /// Another replica was first, or this one before it was restarted.
    Duplicate,
    /// It will never be taken.
    Refused,
    /// The API server answered that it may be taken later.
    Later,
    /// The API server does not answer.
    Unavailable,
}

/// Writes an Event. What is not taken is logged, as far as the limit goes: whoever deletes a namespace has those of its pods
/// refused.
async fn create(client: &Client, event: &Event, limit: &LogLimit) -> Outcome {
    let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let error = match events.create(&PostParams::default(), event).await {
        Ok(_) => return Outcome::Written,
        Err(error) => error,
    };
    let (outcome, words) = match &error {
        Error::Api(status) if status.code == 409 => return Outcome::Duplicate,
        Error::Api(status) if status.code < 500 && status.code != 429 => {
            (Outcome::Refused, "an Event was not accepted and is not written")
        }
        Error::Api(_) => (Outcome::Later, "an Event is not written yet"),
        _ => (Outcome::Unavailable, "an Event is not written yet"),
    };
    if let Some(held_back) = limit.due(words) {
        tracing::warn!(%error, namespace, held_back, "{words}");
    }
    outcome
}

/// As much of a note as there is room for, with `end` where it is cut off.
fn cut(text: String, end: impl FnOnce() -> String) -> String {
    if text.len() <= NOTE_BYTES {
        return text;
    }
    let end = end();
    let cut = text.floor_char_boundary(NOTE_BYTES - end.len());
    format!("{}{end}", &text[..cut])
}
