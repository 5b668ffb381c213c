//! Kubernetes Events, as shown by `kubectl describe` and `kubectl get events`.
//!
//! The name of an Event is derived from its content. Two replicas, or a restarted one, therefore create a repeated
//! Event only once.

mod configuration;
mod decision;
mod recorder;

use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client, Error};

use crate::instruments::logs::LogLimit;
use crate::instruments::metrics::EventResult;
pub use configuration::follow;
pub use decision::{PodEvent, PodReason, bounds, in_words};
pub use recorder::{Events, Recorder};

/// Reporting controller of our Events.
const CONTROLLER: &str = "edgeward.io/edgeward";

/// The API server's limit for an Event's note, in bytes.
const NOTE_BYTES: usize = 1024;

/// A reference to an object of group `v1`.
fn object(kind: &str, namespace: &str, name: &str, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some(kind.to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

/// Builds an Event about an object with this type, reason and action. `what` distinguishes it from other Events about
/// the object.
fn event(
    regarding: ObjectReference,
    [kind, reason, action]: [&str; 3],
    note: String,
    at: Timestamp,
    what: impl Hash,
) -> Event {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    let object = regarding.name.as_deref().unwrap_or_default();
    Event {
        metadata: ObjectMeta {
            // An object's name may be as long as an Event's name, so it is shortened.
            name: Some(format!("{object:.236}.{:016x}", hasher.finish())),
            namespace: regarding.namespace.clone(),
            ..ObjectMeta::default()
        },
        type_: Some(kind.to_owned()),
        reason: Some(reason.to_owned()),
        action: Some(action.to_owned()),
        note: Some(note),
        regarding: Some(regarding),
        event_time: Some(MicroTime(at)),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(std::env::var("HOSTNAME").unwrap_or_else(|_| CONTROLLER.to_owned())),
        ..Event::default()
    }
}

/// Writes an Event. Returns `None` if the API server may accept it later. Failures are logged within the limit,
/// because deleting a namespace makes the API server refuse all Events of its pods.
async fn create(client: &Client, event: &Event, limit: &LogLimit) -> Option<EventResult> {
    let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let error = match events.create(&PostParams::default(), event).await {
        Ok(_) => return Some(EventResult::Written),
        Err(Error::Api(status)) if status.code == 409 => return Some(EventResult::Duplicate),
        Err(error) => error,
    };
    let (result, words) = match &error {
        Error::Api(status) if status.code < 500 && status.code != 429 => (
            Some(EventResult::Refused),
            "the API server refused an Event, which is dropped",
        ),
        _ => (None, "an Event is not written yet"),
    };
    if let Some(held_back) = limit.due(words) {
        tracing::warn!(%error, namespace, held_back, "{words}");
    }
    result
}

/// Shortens a note to the API server's limit. A shortened note ends with `end`.
fn cut(text: String, end: &str) -> String {
    if text.len() <= NOTE_BYTES {
        return text;
    }
    let cut = text.floor_char_boundary(NOTE_BYTES - end.len());
    format!("{}{end}", &text[..cut])
}
