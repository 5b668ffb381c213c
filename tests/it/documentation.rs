//! Compares the decision codes with the tables of `docs/reference/codes.md`.

use std::collections::BTreeSet;

use edgeward_decision::placement::verdict::{Reason, RefusalCode};

/// The first cells of table rows, where they are code.
fn documented(page: &str) -> BTreeSet<String> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| Some(row.split_once('`')?.0.to_owned())).collect()
}

#[test]
fn every_reason_and_refusal_is_explained() {
    let page = documented(include_str!("../../docs/reference/codes.md"));
    let codes = Reason::ALL.iter().map(|code| code.as_str());
    let refusals = RefusalCode::ALL.iter().map(|code| code.as_str());
    for code in codes.chain(refusals) {
        assert!(page.contains(code), "docs/reference/codes.md does not explain `{code}`");
    }
    let known: BTreeSet<_> = Reason::ALL.iter().map(|code| code.as_str()).collect();
    for code in page.iter().filter(|code| {
        ["edge_", "cloud_", "held_", "released_", "passthrough_", "denied_"]
            .iter()
            .any(|p| code.starts_with(p))
    }) {
        assert!(
            known.contains(code.as_str()),
            "docs/reference/codes.md explains `{code}`, which does not exist"
        );
    }
}
