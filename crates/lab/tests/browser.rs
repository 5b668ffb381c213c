//! Shows the page in a real browser: `EDGEWARD_CHROMIUM=<program>`, or the first installed Chromium. Without a browser,
//! the test is skipped; with `CI=true` it fails.

// Failures of tests panic. Clippy exempts test functions only, not their helpers.
#![allow(clippy::panic, clippy::unwrap_used)]

use std::fs;
use std::sync::atomic::AtomicBool;

use edgeward_harness::browser::{chromium, seen};
use edgeward_lab::experiment::{Plan, at_loads};
use edgeward_lab::policy::Policy;
use edgeward_lab::report;
use edgeward_lab::scenario::read;
use serde_json::{Value, json};
use tempfile::tempdir;

const LOADS: [f64; 3] = [0.5, 1.0, 1.5];

/// Attainment of two classes and of all classes, waiting times, and five time lines.
const PLOTS_OF_A_LOAD: usize = 9;

/// Writes the reader's view into the page, before and after moving the slider to the last load.
const PROBE: &str = include_str!("browser.js");

/// Returns the number of visible plots of each load while `shown` is selected.
fn plots(shown: &str) -> Value {
    let of = |load: f64| {
        json!([
            load.to_string(),
            if load.to_string() == shown { PLOTS_OF_A_LOAD } else { 0 }
        ])
    };
    LOADS.map(of).to_vec().into()
}

#[test]
fn the_page_shows_what_the_slider_says() {
    let Some(program) = chromium().unwrap() else {
        eprintln!("skipped: there is no Chromium, and EDGEWARD_CHROMIUM is not set");
        return;
    };
    let document = serde_json::from_str(include_str!("small.json")).unwrap();
    let scenario = read(&document, &|_| Err("there are no files".into())).unwrap();
    let plan = Plan {
        policies: Policy::of(&scenario).collect(),
        seeds: vec![1, 2],
        threads: 2,
    };
    let page = report::page(&at_loads(&scenario, &LOADS, &plan, &AtomicBool::new(false), |_, _| {}).unwrap());
    let folder = tempdir().unwrap();
    let file = folder.path().join("page.html");
    fs::write(
        &file,
        page.replace("<script>", &format!("<script>{PROBE}</script><script>")),
    )
    .unwrap();
    let url = format!("file://{}", file.display());
    // Links to a load, and a link to a load that does not exist.
    for (fragment, load, width, is_dark) in [
        ("", "1", 1_100, false),
        ("#load=1.5", "1.5", 1_100, true),
        ("#load=7", "1", 400, false),
        ("#load=0.5", "0.5", 400, true),
    ] {
        let seen = seen(&program, &format!("{url}{fragment}"), width, is_dark).unwrap();
        assert_eq!(seen["window"], json!([width, is_dark]), "{fragment}");
        assert_eq!(seen["plots"], plots(load), "{fragment}");
        let at = LOADS
            .iter()
            .position(|other| other.to_string() == load)
            .unwrap()
            .to_string();
        let slider = json!([
            at,
            format!("{load} times the load"),
            true,
            format!("× {load}"),
            "Load shown below"
        ]);
        assert_eq!(seen["slider"], slider, "{fragment}");
        assert_eq!(seen["curves"], 3 * Policy::of(&scenario).count());
        assert_eq!(seen["moved"], json!(["#load=1.5", plots("1.5")]), "{fragment}");
        for nothing in ["unreadable", "faults", "requests"] {
            assert_eq!(seen[nothing], json!([]), "{fragment}: {nothing}");
        }
        assert_eq!(seen["fits"], true, "{fragment}");
        let contrast: Vec<f64> = serde_json::from_value(seen["contrast"].clone()).unwrap();
        assert!(contrast[0] >= 4.5 && contrast[1] >= 3.0, "{fragment}: {contrast:?}");
    }
}
