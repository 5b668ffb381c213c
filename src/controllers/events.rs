//! Kubernetes Events, as shown by `kubectl describe` and `kubectl get events`.
//!
//! The name of an Event is derived from its content. Two replicas, or a restarted one, therefore create a repeated
//! Event only once.

mod decision;
mod recorder;

use std::hash::Hash;

use edgeward_decision::document::Faults;
use edgeward_kube::excerpt::excerpt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client, Error, Resource as _};

use crate::instruments::logs::LogLimit;
use crate::instruments::metrics::EventResult;
use crate::platform::hash;
pub use decision::{PodEvent, PodReason, assessment, bounds, in_words};
pub use recorder::{Events, Recorder};

/// Reporting controller of our Events.
const CONTROLLER: &str = "edgeward.io/edgeward";

/// The API server's limit for an Event's note, in bytes, less the sign of an excerpt.
const NOTE_BYTES: usize = 1024 - '…'.len_utf8();

/// Builds an Event about an object with this type, reason and action. `what` distinguishes it from other Events about
/// the object.
fn event(
    regarding: ObjectReference,
    [kind, reason, action]: [&str; 3],
    note: String,
    at: Timestamp,
    what: impl Hash,
) -> Event {
    let object = regarding.name.as_deref().unwrap_or_default();
    Event {
        metadata: ObjectMeta {
            // An object's name may be as long as an Event's name, so it is shortened.
            name: Some(format!("{object:.236}.{:016x}", hash(what))),
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

/// An Event on a ConfigMap whose version was refused for these faults. Each version has one Event, regardless of how
/// many replicas refuse it and how often they restart.
pub(crate) fn config_refused(map: &ConfigMap, faults: &Faults, at: Timestamp) -> Event {
    // The note has one line per fault, up to the size limit.
    let end = format!("\n(cut off; the log names all {})", faults.0.len());
    let mut note = excerpt(faults, NOTE_BYTES - end.len());
    if note.ends_with('…') {
        note.push_str(&end);
    }
    let what = (&map.metadata.uid, &map.metadata.resource_version);
    event(
        map.object_ref(&()),
        ["Warning", "ConfigRefused", "LoadConfiguration"],
        note,
        at,
        what,
    )
}

/// Writes an Event. Returns `None` if the API server may accept it later. Failures are logged within the limit,
/// because deleting a namespace makes the API server refuse all Events of its pods.
pub(crate) async fn create(client: &Client, event: &Event, limit: &LogLimit) -> Option<EventResult> {
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

#[cfg(test)]
mod tests {
    use edgeward_decision::document::Fault;
    use serde_json::json;

    use super::*;

    fn refused(resource_version: &str, faults: usize, at: i64) -> Event {
        let meta = json!({"namespace": "edgeward-system", "name": "edgeward", "uid": "u", "resourceVersion": resource_version});
        let map = serde_json::from_value(json!({"metadata": meta})).unwrap();
        let fault = |i| Fault {
            path: format!("key{i}"),
            message: "ist größer".to_owned(),
        };
        let faults = Faults((0..faults).map(fault).collect());
        config_refused(&map, &faults, Timestamp::from_second(at).unwrap())
    }

    #[test]
    fn refused_configuration_version_has_one_event_name() {
        let name = |version, at| refused(version, 1, at).metadata.name.unwrap();
        assert_eq!(name("1", 0), name("1", 1));
        assert_ne!(name("1", 0), name("2", 0));
    }

    #[test]
    fn configuration_note_lists_faults_up_to_size_limit() {
        let note = |faults| refused("1", faults, 0).note.unwrap();
        assert_eq!(note(2), "key0: ist größer\nkey1: ist größer");
        let cut = note(200);
        assert!((1020..=1024).contains(&cut.len()), "{}", cut.len());
        assert!(cut.ends_with("…\n(cut off; the log names all 200)"), "{cut}");
    }
}
