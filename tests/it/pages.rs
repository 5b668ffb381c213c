//! The documents lead to each other, and to what they name.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use edgeward_harness::checkout::workspace;

/// Every page of ours by its path from the root of the repository.
fn pages() -> BTreeMap<PathBuf, String> {
    let mut pages = BTreeMap::new();
    let mut folders = vec![
        PathBuf::new(),
        "docs".into(),
        "docs/adr".into(),
        "tests/golden/upstream".into(),
    ];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(workspace().join(&folder)).unwrap() {
            let path = folder.join(entry.unwrap().file_name());
            if path.extension().is_some_and(|extension| extension == "md") {
                let text = fs::read_to_string(workspace().join(&path)).unwrap();
                pages.insert(path, text);
            }
        }
    }
    pages
}

/// The text without blocks of code.
fn prose(page: &str) -> String {
    let mut is_code = false;
    let lines = page.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    lines.map(|line| format!("{line}\n")).collect()
}

/// The same without code between words either.
fn words(page: &str) -> String {
    prose(page).split('`').step_by(2).collect()
}

/// What the page links to.
fn links(page: &str) -> Vec<String> {
    let words = words(page);
    let targets = words.split("](").skip(1).map(|rest| rest.split(')').next().unwrap());
    targets.map(|target| target.split_whitespace().collect()).collect()
}

/// What its headings can be linked by, as GitHub makes it.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for heading in prose(page).lines().filter(|line| line.starts_with('#')) {
        let text = heading.trim_start_matches('#').trim();
        // Of a link, its text.
        let text = text.split("](").enumerate().map(|(i, part)| {
            if i == 0 {
                part
            } else {
                part.split_once(')').map_or("", |(_, rest)| rest)
            }
        });
        let text: String = text.collect::<String>().to_lowercase();
        let kept = text
            .chars()
            .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let number = (1..).find(|n| !anchors.contains(&format!("{anchor}-{n}"))).unwrap();
        anchors.insert(if anchors.contains(&anchor) {
            format!("{anchor}-{number}")
        } else {
            anchor
        });
    }
    anchors
}

/// The page or file that a link of `from` leads to, and the anchor in it. `None` if it leads out of the repository.
fn target(from: &Path, link: &str) -> Option<(PathBuf, Option<String>)> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link
        .split_once('#')
        .map_or((link, None), |(path, anchor)| (path, Some(anchor.to_owned())));
    let mut target = PathBuf::new();
    let from = if path.is_empty() {
        from.to_owned()
    } else {
        from.with_file_name(path)
    };
    for part in from.components() {
        match part {
            Component::ParentDir => drop(target.pop()),
            part => target.push(part),
        }
    }
    if workspace().join(&target).join("README.md").exists() {
        target.push("README.md");
    }
    Some((target, anchor))
}

#[test]
fn every_link_leads_somewhere() {
    let pages = pages();
    let mut broken = Vec::new();
    for (path, text) in &pages {
        for link in links(text) {
            let Some((target, anchor)) = target(path, &link) else {
                continue;
            };
            let leads = match (pages.get(&target), anchor) {
                (Some(page), Some(anchor)) => anchors(page).contains(&anchor),
                (None, Some(_)) => false,
                (_, None) => workspace().join(&target).exists(),
            };
            if !leads {
                broken.push(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_page_is_found_from_the_readme() {
    let pages = pages();
    let mut found = BTreeSet::new();
    let mut next = vec![PathBuf::from("README.md")];
    while let Some(path) = next.pop() {
        let Some(text) = pages.get(&path).filter(|_| found.insert(path.clone())) else {
            continue;
        };
        next.extend(links(text).iter().filter_map(|link| Some(target(&path, link)?.0)));
    }
    let lost: Vec<_> = pages
        .keys()
        .filter(|path| path.starts_with("docs") || path.components().count() == 1)
        .filter(|path| !found.contains(*path))
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
}

/// What the pages say that something is in: "`this` in `that/file.rs`", or "`module::test` in `tests/e2e`".
#[test]
fn what_is_named_is_where_it_is_said_to_be() {
    let mut missing = Vec::new();
    let mut found = 0;
    for (path, text) in pages() {
        let text = prose(&text).split_whitespace().collect::<Vec<_>>().join(" ");
        let parts: Vec<_> = text.split('`').collect();
        for window in parts.windows(4).skip(1).step_by(2) {
            let [name, " in ", place, _] = window else { continue };
            let ours = ["crates/", "src/", "tests/", "deploy/", "webhook/", "certs/", "xtask/"];
            if !ours.iter().any(|folder| place.starts_with(folder)) || name.contains('*') {
                continue;
            }
            found += 1;
            if !is_in(name, &workspace().join(place)) {
                missing.push(format!("{}: `{name}` in `{place}`", path.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(found > 100, "only {found} names");
}

/// Where tests run on a control plane.
const CLUSTERS: [&str; 2] = ["tests/e2e", "tests/soak"];

fn is_in(name: &str, place: &Path) -> bool {
    // Tests on a control plane have the names that the list of all of them gives them.
    if CLUSTERS.iter().any(|folder| place.ends_with(folder)) && name.contains("::") {
        let list = fs::read_to_string(place.join("main.rs")).unwrap();
        return list.contains(&format!("\"{name}\""));
    }
    let (module, item) = name
        .split_once("::")
        .map_or((None, name), |(module, item)| (Some(module), item));
    let file = match module {
        Some(module) if place.is_dir() => place.join(module).with_extension("rs"),
        _ => place.to_owned(),
    };
    if file.is_dir() {
        return fs::read_dir(file)
            .unwrap()
            .any(|entry| is_in(name, &entry.unwrap().path()));
    }
    let text = fs::read_to_string(&file).unwrap_or_default();
    if file.extension().is_none_or(|extension| extension != "rs") {
        return text.contains(name);
    }
    // A name that is cut short by an ellipsis stands for those that begin so.
    let (item, is_short) = item.strip_suffix('…').map_or((item, false), |start| (start, true));
    ["fn", "const", "static", "struct", "mod"].iter().any(|kind| {
        let start = format!("{kind} {item}");
        let mut rests = text.split(&start).skip(1);
        rests.any(|rest| is_short || !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    })
}

#[test]
fn every_threat_is_answered() {
    let page = fs::read_to_string(workspace().join("docs/threat-model.md")).unwrap();
    let answers: Vec<_> = page.split("\n### ").skip(1).collect();
    let numbers: Vec<_> = answers
        .iter()
        .map(|answer| answer.split('.').next().unwrap().to_owned())
        .collect();
    let expected: Vec<_> = (1..=18).map(|number: u32| number.to_string()).collect();
    assert_eq!(numbers, expected);
    for answer in answers {
        let answer = answer.split("\n## ").next().unwrap();
        let title = answer.lines().next().unwrap();
        assert!(
            answer.contains("\n**Left to you.**"),
            "{title}: what is left to the operator?"
        );
        let is_held = answer.contains("\n**Held by** `");
        assert!(
            is_held || answer.contains("\n**Held by** nothing"),
            "{title}: what holds it?"
        );
    }
}

/// A test, what the end-to-end tests do at their end, or words of a manifest.
#[test]
fn what_holds_a_threat_is_a_test_or_a_manifest() {
    let page = fs::read_to_string(workspace().join("docs/threat-model.md")).unwrap();
    let mut others = Vec::new();
    let mut found = 0;
    for holders in page.split("**Held by** ").skip(1) {
        let holders = holders.split("\n\n").next().unwrap().replace('\n', " ");
        let parts: Vec<_> = holders.split('`').collect();
        let mut next = 1;
        while let Some(&name) = parts.get(next) {
            let place = parts.get(next + 2).filter(|_| parts[next + 1] == " in ");
            let holds = place.map_or_else(|| workspace().join(name).is_file(), |place| holds(name, place));
            if !holds {
                others.push(format!("`{name}` in `{}`", place.unwrap_or(&"")));
            }
            found += 1;
            next += if place.is_some() { 4 } else { 2 };
        }
    }
    assert!(others.is_empty(), "{others:#?}");
    assert!(found > 30, "only {found}");
}

fn holds(name: &str, place: &str) -> bool {
    if Path::new(place)
        .extension()
        .is_some_and(|extension| extension == "yaml")
    {
        return is_in(name, &workspace().join(place));
    }
    if let Some(folder) = CLUSTERS.into_iter().find(|folder| place.starts_with(folder)) {
        let name = name.rsplit("::").next().unwrap();
        let list = fs::read_to_string(workspace().join(folder).join("main.rs")).unwrap();
        let is_there = place == folder || is_in(name, &workspace().join(place));
        return is_there && list.contains(&format!("::{name}\""));
    }
    if place == "tests/harness/src/clusters.rs" {
        let text = fs::read_to_string(workspace().join(place)).unwrap();
        return text.contains(&format!(".{name}("));
    }
    // Its attributes, and what it says of itself, are above it.
    let text = fs::read_to_string(workspace().join(place)).unwrap_or_default();
    let Some((above, _)) = text.split_once(&format!("fn {name}(")) else {
        return false;
    };
    let above = above.lines().rev().map(str::trim);
    let mut above = above.take_while(|line| !line.ends_with('}') && !line.ends_with(';'));
    above.any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
}

#[test]
fn the_readme_is_for_people_in_a_hurry() {
    let lines = include_str!("../../README.md").lines().count();
    assert!(lines <= 110, "{lines} lines are more than two screens");
}
