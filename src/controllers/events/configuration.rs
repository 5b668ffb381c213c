//! Events about refused versions of the configuration.

use std::time::Duration;

use edgeward_decision::config::map::Refused;
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use tokio::sync::watch;

use super::{create, cut, object};
use crate::instruments::logs::LogLimit;
use crate::platform::clock::Clock;

/// Pause between attempts while the API server does not answer.
const PAUSE: Duration = Duration::from_secs(5);

/// Writes an Event on the ConfigMap for each refused version of the configuration, until the sender is gone. Each
/// version has one Event, regardless of how many replicas refuse it and how often they restart. An Event that the API
/// server refuses is logged and dropped.
pub async fn follow(mut refused: watch::Receiver<Option<Refused>>, client: Client, clock: Clock) {
    let limit = LogLimit::new(clock);
    loop {
        let event = refused
            .borrow_and_update()
            .as_ref()
            .map(|refused| event(refused, clock.wall()));
        if let Some(event) = event {
            // A newer refused version replaces this one.
            while !refused.has_changed().unwrap_or(true) && create(&client, &event, &limit).await.is_none() {
                tokio::time::sleep(PAUSE).await;
            }
        }
        if refused.changed().await.is_err() {
            return;
        }
    }
}

fn event(refused: &Refused, now: Timestamp) -> Event {
    let regarding = object("ConfigMap", &refused.namespace, &refused.name, &refused.uid);
    let end = format!("…\n(cut off; the log names all {})", refused.faults.0.len());
    // The note has one line per fault, up to the size limit.
    let note = cut(refused.faults.to_string(), &end);
    let what = (&refused.uid, &refused.resource_version);
    super::event(
        regarding,
        ["Warning", "ConfigRefused", "LoadConfiguration"],
        note,
        now,
        what,
    )
}

#[cfg(test)]
mod tests {
    use super::super::NOTE_BYTES;
    use super::*;
    use edgeward_decision::document::{Fault, Faults};

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
    fn refused_configuration_version_has_one_event_name() {
        let (first, second) = (refused("1", 1), refused("2", 1));
        assert_eq!(name(&first, 0), name(&first, 1));
        assert_ne!(name(&first, 0), name(&second, 0));
    }

    #[test]
    fn configuration_note_lists_faults_up_to_size_limit() {
        let note = |faults| event(&refused("1", faults), Timestamp::UNIX_EPOCH).note.unwrap();
        assert_eq!(note(2), "key0: ist größer\nkey1: ist größer");
        let cut = note(200);
        assert!((NOTE_BYTES - 4..=NOTE_BYTES).contains(&cut.len()), "{}", cut.len());
        assert!(cut.ends_with("…\n(cut off; the log names all 200)"), "{cut}");
    }
}
