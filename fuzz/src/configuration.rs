//! Configurations: the text of a file, and of a ConfigMap's keys.

use std::collections::BTreeMap;

use edgeward::platform::yaml;
use edgeward_core::config::{Config, map};
use serde_json::{Value, json};

use super::fleet_file::assert_told;

/// Text: as a file, as the key `config.yaml` of a ConfigMap, and as a manifest of one.
///
/// # Panics
/// The forms differ, a fault is not told, or an unknown field is none.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Ok(document) = yaml::parse_value(&text) else { return };
    let read = Config::read(&document);
    if let Err(faults) = &read {
        assert_told(faults, &document);
    }
    let of_map = map::read(
        &BTreeMap::from([(map::STRUCTURED.to_owned(), text.into_owned())]),
        yaml::parse_value,
    );
    match (&read, &of_map) {
        (Ok(config), Ok((of_map, notices))) => {
            assert_eq!(config, of_map);
            assert!(notices.is_empty(), "{notices:?}");
        }
        (Err(faults), Err(of_map)) => assert_eq!(faults.0.len(), of_map.0.len(), "{faults}\n{of_map}"),
        _ => panic!("as a file {read:?}, as a key {of_map:?}"),
    }
    if let Ok(config) = read {
        check_in_use(config, &document);
    }
    check_manifest(&document);
}

fn check_in_use(config: Config, document: &Value) {
    let mut unknown = document.clone();
    unknown["fieldOfTheFuture"] = json!(1);
    assert!(Config::read(&unknown).is_err(), "an unknown field is a fault");
    assert_eq!(Config::read(document).as_ref(), Ok(&config), "the same document");
    assert_eq!(
        config.clone().replacing(&config).as_ref(),
        Ok(&config),
        "in the place of itself"
    );
    assert!(!config.sites.is_empty());
}

/// A manifest has the keys of the first design beside, and is read as its data.
fn check_manifest(document: &Value) {
    let read = map::read_manifest(document, yaml::parse_value);
    if let Err(faults) = &read {
        assert_told(faults, document);
    }
    let data = document["data"].as_object().into_iter().flatten();
    let data: Option<BTreeMap<_, _>> = data
        .map(|(key, text)| Some((key.clone(), text.as_str()?.to_owned())))
        .collect();
    let Some(data) = data else { return };
    let of_data = map::read(&data, yaml::parse_value);
    if read.is_ok() {
        assert_eq!(read, of_data);
    }
}
