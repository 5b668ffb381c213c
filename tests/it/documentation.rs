//! Documents that must not lag the code.

use std::collections::BTreeSet;

use edgeward_core::cluster::wan::Cause;
use edgeward_core::placement::verdict::{Reason, RefusalCode};
use edgeward_harness::checkout::workspace;

/// The first cells of table rows, where they are code.
fn documented(page: &str) -> BTreeSet<String> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| Some(row.split_once('`')?.0.to_owned())).collect()
}

#[test]
fn every_reason_and_refusal_is_explained() {
    let page = documented(include_str!("../../docs/decision.md"));
    let codes = Reason::ALL.iter().map(|code| code.as_str());
    let refusals = RefusalCode::ALL.iter().map(|code| code.as_str());
    for code in codes.chain(refusals) {
        assert!(page.contains(code), "docs/decision.md does not explain `{code}`");
    }
    let known: BTreeSet<_> = Reason::ALL.iter().map(|code| code.as_str()).collect();
    for code in page.iter().filter(|code| {
        ["edge_", "cloud_", "held_", "released_", "passthrough_", "denied_"]
            .iter()
            .any(|p| code.starts_with(p))
    }) {
        assert!(
            known.contains(code.as_str()),
            "docs/decision.md explains `{code}`, which does not exist"
        );
    }
}

#[test]
fn every_cause_of_a_lost_probe_is_explained() {
    let page = documented(include_str!("../../docs/wan.md"));
    for cause in Cause::ALL {
        assert!(
            page.contains(cause.as_str()),
            "docs/wan.md does not explain `{}`",
            cause.as_str()
        );
    }
}

/// `cargo xtask` and its help, the guide and the recipes tell of the same commands.
#[test]
fn developer_commands_are_in_the_guide_and_the_justfile() {
    let read = |path| std::fs::read_to_string(workspace().join(path)).unwrap();
    let (program, guide, recipes) = (read("xtask/src/main.rs"), read("CONTRIBUTING.md"), read("justfile"));
    let help = program.split_once("Commands:\n").unwrap().1;
    let help = help.split_once("\n\n").unwrap().0.lines();
    let commands: BTreeSet<&str> = help
        .filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let named = |text: &str| -> BTreeSet<String> {
        let after = text.split("cargo xtask ").skip(1);
        after
            .filter_map(|rest| rest.split(|c: char| !c.is_ascii_lowercase() && c != '-').next())
            .filter(|name| !name.starts_with('-'))
            .map(str::to_owned)
            .collect()
    };
    let commands: BTreeSet<String> = commands.into_iter().map(str::to_owned).collect();
    assert_eq!(named(&guide), commands);
    assert!(named(&recipes).is_subset(&commands));
    let block = guide.split_once("```sh\n").unwrap().1.split_once("```").unwrap().0;
    let recipes = recipes.replace(" --locked", "");
    for line in block.lines() {
        let command = line.split('#').next().unwrap().trim();
        let command = command.strip_suffix(" core").unwrap_or(command);
        assert!(recipes.contains(command), "the justfile has no recipe of `{command}`");
    }
}
