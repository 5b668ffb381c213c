//! Kubernetes Events: what `kubectl describe` and `kubectl get events` show.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client, Error};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::config::document::Faults;
use crate::config::map::Refused;

/// Who reports.
const CONTROLLER: &str = "edgeward.io/edgeward";

/// What the API server takes as a note.
const NOTE_BYTES: usize = 1024;

/// Between attempts, while the API server does not answer.
const PAUSE: Duration = Duration::from_secs(5);

/// Tells each refused version of the configuration in an Event of its ConfigMap, until the sender is gone. One version
/// is one Event, however many replicas refuse it and however often they start. What the API server does not accept is
/// logged and let go.
pub async fn follow(mut refused: watch::Receiver<Option<Refused>>, client: Client, clock: Clock) {
    loop {
        let event = refused
            .borrow_and_update()
            .as_ref()
            .map(|refused| event(refused, clock.wall()));
        let told = async {
            if let Some(event) = event {
                write(&client, &event).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = told => {}
            // What is newer is told instead.
            changed = refused.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

async fn write(client: &Client, event: &Event) {
    let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    loop {
        let error = match events.create(&PostParams::default(), event).await {
            Ok(_) => return,
            Err(error) => error,
        };
        match &error {
            // Another replica was first, or this one before it was restarted.
            Error::Api(status) if status.code == 409 => return,
            Error::Api(status) if status.code < 500 && status.code != 429 => {
                tracing::warn!(%error, namespace, "an Event was not accepted and is not written");
                return;
            }
            _ => tracing::warn!(%error, namespace, "an Event is not written yet"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

fn event(refused: &Refused, now: Timestamp) -> Event {
    let mut hasher = DefaultHasher::new();
    (&refused.uid, &refused.resource_version).hash(&mut hasher);
    Event {
        metadata: ObjectMeta {
            // A ConfigMap's name may be as long as an Event's.
            name: Some(format!("{:.236}.{:016x}", refused.name, hasher.finish())),
            namespace: Some(refused.namespace.clone()),
            ..ObjectMeta::default()
        },
        type_: Some("Warning".to_owned()),
        reason: Some("ConfigRefused".to_owned()),
        action: Some("LoadConfiguration".to_owned()),
        note: Some(note(&refused.faults)),
        regarding: Some(ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("ConfigMap".to_owned()),
            namespace: Some(refused.namespace.clone()),
            name: Some(refused.name.clone()),
            uid: Some(refused.uid.clone()),
            resource_version: Some(refused.resource_version.clone()),
            ..ObjectReference::default()
        }),
        event_time: Some(MicroTime(now)),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(std::env::var("HOSTNAME").unwrap_or_else(|_| CONTROLLER.to_owned())),
        ..Event::default()
    }
}

/// Every fault on a line, as far as there is room.
fn note(faults: &Faults) -> String {
    let text = faults.to_string();
    if text.len() <= NOTE_BYTES {
        return text;
    }
    let end = format!("…\n(cut off; the log names all {})", faults.0.len());
    let cut = text.floor_char_boundary(NOTE_BYTES - end.len());
    format!("{}{end}", &text[..cut])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::document::Fault;

    fn refused(resource_version: &str, faults: usize) -> Refused {
        let fault = |i| Fault {
            path: format!("key{i}"),
            message: "ist größer".to_owned(),
        };
        Refused {
            namespace: "edgeward-system".to_owned(),
            name: "edgeward".to_owned(),
            uid: "u".to_owned(),
            resource_version: resource_version.to_owned(),
            faults: Faults((0..faults).map(fault).collect()),
        }
    }

    fn name(refused: &Refused, at: i64) -> Option<String> {
        event(refused, Timestamp::from_second(at).unwrap()).metadata.name
    }

    #[test]
    fn one_version_is_one_event() {
        let (first, second) = (refused("1", 1), refused("2", 1));
        assert_eq!(name(&first, 0), name(&first, 1));
        assert_ne!(name(&first, 0), name(&second, 0));
        let long = Refused {
            name: "x".repeat(253),
            ..first
        };
        assert_eq!(name(&long, 0).map(|name| name.len()), Some(253));
    }

    #[test]
    fn a_note_names_every_fault_as_far_as_there_is_room() {
        let note = |faults| event(&refused("1", faults), Timestamp::UNIX_EPOCH).note.unwrap();
        assert_eq!(note(2), "key0: ist größer\nkey1: ist größer");
        let cut = note(200);
        assert!((NOTE_BYTES - 4..=NOTE_BYTES).contains(&cut.len()), "{}", cut.len());
        assert!(cut.ends_with("…\n(cut off; the log names all 200)"), "{cut}");
    }
}
