//! The page in a real browser: `EDGEWARD_CHROMIUM=<program>`, or the first Chromium that is installed. Without one this is skipped,
//! but with `CI=true` it fails. `EDGEWARD_SCREENSHOTS=<folder>` keeps pictures.

// A test says what it expects by failing; clippy's own exception covers test functions, not their helpers.
#![allow(clippy::panic, clippy::unwrap_used)]

mod devtools;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use edgeward_lab::experiment::{Plan, at_loads};
use edgeward_lab::policy::Policy;
use edgeward_lab::report;
use edgeward_lab::scenario::{Scenario, read};
use serde_json::{Value, json};

use devtools::Tab;

const LOADS: [f64; 3] = [0.5, 1.0, 1.5];

/// What a block has of plots that one can see: of lines and bars.
const PLOTS: &str = "[...document.querySelectorAll('[data-load]')].map(block => [block.dataset.load, \
    [...block.querySelectorAll('svg')].filter(svg => svg.getBoundingClientRect().height > 40 && \
    svg.querySelector('.bar, .curve')).length])";

/// Texts that one cannot read: cut off, over one another's beginning, or too small.
const UNREADABLE: &str = "[...document.querySelectorAll('svg text')].filter(text => text.getClientRects().length).filter(text => { \
    const [own, all] = [text, text.ownerSVGElement].map(element => element.getBoundingClientRect()); \
    return own.left < all.left - 1 || own.right > all.right + 1 || own.bottom > all.bottom + 1 || own.height < 10; \
    }).map(text => text.textContent)";

/// The lowest contrast with the background of texts, and of what is drawn.
const CONTRAST: &str = "(() => { \
    const parts = colour => colour.match(/[\\d.]+/g).map(Number); \
    const luminance = colour => parts(colour).slice(0, 3).map(part => part / 255) \
        .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4) \
        .reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0); \
    const back = luminance(getComputedStyle(document.body).backgroundColor); \
    const contrast = colour => { const [low, high] = [luminance(colour), back].sort((a, b) => a - b); return (high + 0.05) / (low + 0.05); }; \
    const least = (selector, property) => Math.min(...[...document.querySelectorAll(selector)] \
        .map(element => contrast(getComputedStyle(element)[property]))); \
    return [Math.min(least('p, h1, h2, h3, td, th, small, label, li', 'color'), least('svg text', 'fill')), \
        Math.min(least('svg .curve', 'stroke'), least('svg .bar', 'fill'), least('.legend i', 'backgroundColor'))]; \
    })()";

fn chromium() -> Option<PathBuf> {
    if let Some(program) = env::var_os("EDGEWARD_CHROMIUM").filter(|program| !program.is_empty()) {
        return Some(program.into());
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    let names = [
        "chromium-headless-shell",
        "chrome-headless-shell",
        "chromium",
        "google-chrome",
    ];
    let mut programs = env::split_paths(&folders).flat_map(|folder| names.map(|name| folder.join(name)));
    let found = programs.find(|program| program.is_file());
    let is_ci = env::var_os("CI").is_some_and(|ci| ci == "true");
    assert!(
        found.is_some() || !is_ci,
        "there is no Chromium: Debian has it as chromium-headless-shell"
    );
    found
}

fn page(scenario: &Scenario) -> String {
    let plan = Plan {
        policies: Policy::of(scenario).collect(),
        seeds: vec![1, 2],
        threads: 2,
    };
    let stop = AtomicBool::new(false);
    report::page(&at_loads(scenario, &LOADS, &plan, &stop, |_, _| {}).unwrap())
}

/// Attainment of two classes and of all, waiting, and five time lines.
const PLOTS_OF_A_LOAD: usize = 9;

/// What there is to be seen if these loads are shown.
fn shown(loads: &[&str]) -> Value {
    LOADS
        .map(|load| load.to_string())
        .map(|load| json!([load, if loads.contains(&&*load) { PLOTS_OF_A_LOAD } else { 0 }]))
        .to_vec()
        .into()
}

fn keep(tab: &mut Tab, name: &str) {
    if let Some(folder) = env::var_os("EDGEWARD_SCREENSHOTS") {
        fs::write(Path::new(&folder).join(format!("{name}.png")), tab.screenshot()).unwrap();
    }
}

#[test]
fn the_page_shows_what_the_slider_says() {
    let Some(program) = chromium() else {
        eprintln!("skipped: there is no Chromium, and EDGEWARD_CHROMIUM is not set");
        return;
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("browser-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("page.html");
    let document = serde_json::from_str(include_str!("../small.json")).unwrap();
    let scenario = read(&document, &|_| Err("there are no files".into())).unwrap();
    fs::write(&file, page(&scenario)).unwrap();
    let url = format!("file://{}", file.display());

    let mut tab = Tab::open(&program, &folder.join("profile"));
    tab.emulate(1_100, "light");
    tab.navigate(&url);
    tab.eventually(PLOTS, &shown(&["1"]));
    let slider = "(slider => [slider.value, slider.getAttribute('aria-valuetext'), slider.getBoundingClientRect().width > 100, \
                  document.querySelector('output').textContent])(document.querySelector('input[type=range]'))";
    assert_eq!(tab.value(slider), json!(["1", "1 times the load", true, "× 1"]));
    assert_eq!(
        tab.value("document.querySelectorAll('.policy svg .curve').length"),
        json!(3 * Policy::of(&scenario).count())
    );

    // By the keyboard alone.
    tab.press("Tab", 9);
    assert_eq!(
        tab.value("document.activeElement.labels[0].textContent"),
        "Load shown below"
    );
    tab.press("ArrowRight", 39);
    tab.eventually(PLOTS, &shown(&["1.5"]));
    assert_eq!(tab.value("location.hash"), "#load=1.5");
    assert_eq!(tab.value(slider), json!(["2", "1.5 times the load", true, "× 1.5"]));
    tab.press("Home", 36);
    tab.eventually(PLOTS, &shown(&["0.5"]));

    // By a link, and by one that is none.
    for (fragment, load) in [("#load=1.5", "1.5"), ("#load=7", "1"), ("#load=0.5", "0.5")] {
        tab.navigate(&format!("{url}{fragment}"));
        tab.eventually(PLOTS, &shown(&[load]));
    }

    for (width, scheme) in [(1_100, "light"), (1_100, "dark"), (400, "light"), (400, "dark")] {
        tab.emulate(width, scheme);
        tab.eventually(
            "[innerWidth, matchMedia('(prefers-color-scheme: dark)').matches]",
            &json!([width, scheme == "dark"]),
        );
        let name = format!("{scheme}-{width}");
        assert_eq!(
            tab.value("document.documentElement.scrollWidth <= innerWidth"),
            true,
            "{name}"
        );
        assert_eq!(tab.value(UNREADABLE), json!([]), "{name}");
        let contrast: Vec<f64> = serde_json::from_value(tab.value(CONTRAST)).unwrap();
        assert!(contrast[0] >= 4.5 && contrast[1] >= 3.0, "{name}: {contrast:?}");
        keep(&mut tab, &name);
    }

    assert_eq!(tab.told("Runtime.exceptionThrown"), Vec::<&Value>::new());
    assert_eq!(tab.told("Runtime.consoleAPICalled"), Vec::<&Value>::new());
    assert_eq!(tab.told("Log.entryAdded"), Vec::<&Value>::new());
    let requests = tab.told("Network.requestWillBeSent").into_iter();
    let elsewhere = requests.filter(|request| request["request"]["url"] != *url);
    assert_eq!(elsewhere.collect::<Vec<_>>(), Vec::<&Value>::new());
    assert!(!tab.told("Network.requestWillBeSent").is_empty());

    // Without scripts all loads are there, one after the other.
    tab.call("Emulation.setScriptExecutionDisabled", json!({"value": true}));
    tab.navigate("about:blank");
    tab.navigate(&url);
    assert_eq!(tab.value(PLOTS), shown(&["0.5", "1", "1.5"]));
    assert_eq!(
        tab.value("document.querySelector('.slider').getBoundingClientRect().height"),
        0
    );
    tab.close();
    fs::remove_dir_all(&folder).unwrap();
}
