//! The documentation site in a real browser. `cargo xtask docs` builds it, and `EDGEWARD_BOOK` says where it is.

use std::path::Path;
use std::{env, fs};

use edgeward_harness::browser::{chromium, seen};
use edgeward_harness::checkout::workspace;
use serde_json::json;

/// A script that writes what a reader sees into the page.
const PROBE: &str = include_str!("book.js");

/// The pages of the table of contents, without the site's folder and the file extension.
fn listed() -> Vec<String> {
    let contents = fs::read_to_string(workspace().join("docs/SUMMARY.md")).unwrap();
    let links = contents.split("](").skip(1).filter_map(|rest| rest.split_once(".md)"));
    links.map(|(page, _)| page.to_owned()).collect()
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let mut pages = vec![];
    for folder in ["", "guide/", "reference/", "design/"] {
        for entry in fs::read_dir(workspace().join("docs").join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            pages.extend(name.strip_suffix(".md").map(|page| format!("{folder}{page}")));
        }
    }
    pages.retain(|page| page != "SUMMARY");
    let mut listed = listed();
    listed.sort();
    pages.sort();
    assert_eq!(listed, pages);
}

#[test]
fn book_site_has_navigation_search_and_both_themes() {
    let (Some(book), Some(program)) = (env::var_os("EDGEWARD_BOOK"), chromium().unwrap()) else {
        let is_ci = env::var_os("CI").is_some_and(|ci| ci == "true");
        assert!(!is_ci, "EDGEWARD_BOOK is not set");
        eprintln!("skipped: `cargo xtask test` builds the site and brings a browser");
        return;
    };
    let chapters: Vec<_> = listed()
        .iter()
        .map(|page| format!("{}.html", page.replace("README", "index")))
        .collect();
    for (page, heading, width, is_dark) in [
        ("index", "Documentation", 1_100, false),
        ("guide/decide", "How edgeward decides", 400, true),
        ("reference/settings", "Settings", 400, false),
        ("design/security", "Security and the threat model", 1_100, true),
    ] {
        let file = Path::new(&book).join(page).with_extension("html");
        let probed = file.with_extension("probed.html");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(
            &probed,
            text.replacen("<head>", &format!("<head><script>{PROBE}</script>"), 1),
        )
        .unwrap();
        let seen = seen(
            &program,
            &format!("file://{}?search=placeholder", probed.display()),
            width,
            is_dark,
        )
        .unwrap();
        fs::remove_file(probed).unwrap();
        assert_eq!(seen["window"], json!([width, is_dark]), "{page}");
        assert_eq!(seen["theme"], if is_dark { "navy" } else { "light" }, "{page}");
        assert_eq!(seen["heading"], heading, "{page}");
        let shown: Vec<&str> = seen["chapters"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|href| href.as_str())
            .collect();
        for chapter in &chapters {
            assert!(
                shown.iter().any(|href| href.ends_with(&**chapter)),
                "{page} does not lead to {chapter}: {shown:?}"
            );
        }
        let found = seen["found"].to_string();
        assert!(found.contains("decide.html"), "{page}: {found}");
        assert_eq!(seen["fits"], true, "{page} is wider than {width} pixels");
        assert_eq!(seen["faults"], json!([]), "{page}");
    }
}
