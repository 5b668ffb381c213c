//! A configuration is parsed, or its faults are named.
#![no_main]

use edgeward::testkit::yaml;
use edgeward_decision::config::{Config, map};

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Ok(document) = yaml::parse_value(text) else { return };
    match Config::read(&document) {
        Ok(config) => assert!(!config.sites.is_empty()),
        Err(faults) => assert!(!faults.0.is_empty()),
    }
    let _ = map::read_manifest(&document, yaml::parse_value);
});
