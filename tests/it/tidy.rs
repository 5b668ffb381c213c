//! House rules that no lint knows. Each failure names the file and the rule.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use edgeward_harness::checkout::workspace;

/// Lines outside tests from which a file is two ideas.
const MAX_LINES: usize = 600;

/// What may be imported by every module that the table does not say it of.
const FOR_ALL: [&str; 3] = ["api", "instruments", "platform"];

/// What each module may import of the others, as the page of the architecture has it.
fn edges() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let page = include_str!("../../docs/architecture.md");
    let table = page.split("| module | may import |").nth(1).expect("the table");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let edges = rows.map(|row| {
        let mut cells = row.split('|').skip(1);
        let (module, imports) = (cells.next().unwrap(), cells.next().unwrap());
        let words = |cell: &'static str| cell.split('`').skip(1).step_by(2);
        (words(module).next().unwrap(), words(imports).collect())
    });
    edges.collect()
}

/// Where the sources are: the program, the core, and what the tests share.
const ROOTS: [&str; 3] = [OUTER, "crates/core/src", HARNESS];
const OUTER: &str = "src";
const HARNESS: &str = "tests/harness/src";

struct Source {
    root: &'static str,
    /// Below it.
    path: PathBuf,
    /// Top-level module: `tls` for `src/tls/pair.rs`.
    module: String,
    /// The text before its inline tests; empty for a file of tests.
    code: String,
}

fn sources() -> Vec<Source> {
    ROOTS.into_iter().flat_map(sources_in).collect()
}

fn sources_in(name: &'static str) -> Vec<Source> {
    let root = workspace().join(name);
    let mut files = Vec::new();
    collect(&root, &mut files);
    let read = |path: PathBuf| {
        let relative = path.strip_prefix(&root).unwrap();
        let module = relative
            .iter()
            .next()
            .unwrap()
            .to_str()
            .unwrap()
            .trim_end_matches(".rs")
            .to_owned();
        let text = fs::read_to_string(&path).unwrap();
        let is_test = relative.with_extension("").iter().any(|part| part == "tests") || module == "testkit";
        let code = if is_test {
            String::new()
        } else {
            text.split("#[cfg(test)]\nmod tests").next().unwrap().to_owned()
        };
        Source {
            root: name,
            module,
            code,
            path: relative.to_owned(),
        }
    };
    files.into_iter().map(read).collect()
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The first path segments of every `use` and every qualified path after `crate::`.
fn imported_modules(code: &str) -> BTreeSet<&str> {
    let after_crate = code.split("crate::").skip(1);
    after_crate
        .map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap())
        .collect()
}

#[test]
fn modules_meet_only_where_they_may() {
    let edges = edges();
    for source in sources().iter().filter(|source| source.root == OUTER) {
        if ["lib", "main", "testkit"].contains(&&*source.module) {
            continue;
        }
        let Some(allowed) = edges.get(&*source.module) else {
            panic!("docs/architecture.md does not say what `{}` may import", source.module);
        };
        let for_all = !FOR_ALL.contains(&&*source.module);
        for module in imported_modules(&source.code) {
            let fine = module == source.module
                || allowed.contains(module)
                || (for_all && FOR_ALL.contains(&module))
                || module == "testkit";
            assert!(
                fine,
                "{}: {} may not use {module}",
                source.path.display(),
                source.module
            );
        }
    }
}

#[test]
fn the_clock_is_read_in_one_place() {
    let outside = sources()
        .into_iter()
        .filter(|source| source.root != HARNESS && !source.path.ends_with("platform/clock.rs"));
    for source in outside {
        for call in ["Instant::now", "SystemTime::now", "Timestamp::now", "Zoned::now"] {
            assert!(
                !source.code.contains(call),
                "{}: {call} belongs in platform/clock.rs",
                source.path.display()
            );
        }
    }
}

#[test]
fn files_hold_one_idea_each() {
    for source in sources() {
        let lines = source.code.lines().count();
        assert!(
            lines <= MAX_LINES,
            "{}: {lines} lines, more than {MAX_LINES}",
            source.path.display()
        );
    }
}

#[test]
fn names_are_words_of_the_domain() {
    for source in sources() {
        for part in source
            .path
            .iter()
            .map(|part| part.to_str().unwrap().trim_end_matches(".rs"))
        {
            let vague = ["mod", "utils", "util", "common", "manager", "helpers", "misc"].contains(&part);
            assert!(!vague, "{}: `{part}` says nothing", source.path.display());
        }
    }
}

#[test]
fn every_file_is_compiled() {
    for source in sources() {
        let root = workspace().join(source.root);
        let name = source.path.file_stem().unwrap().to_str().unwrap();
        if ["main", "lib"].contains(&name) {
            continue;
        }
        let folder = source.path.parent().unwrap();
        let parent = if folder.as_os_str().is_empty() {
            PathBuf::from("lib.rs")
        } else {
            folder.with_extension("rs")
        };
        let text = fs::read_to_string(root.join(&parent)).unwrap();
        let declared = text.lines().any(|line| line.trim().ends_with(&format!("mod {name};")));
        assert!(
            declared,
            "{}: {} does not declare it",
            source.path.display(),
            parent.display()
        );
    }
}

#[test]
fn no_test_is_switched_off() {
    let root = workspace();
    let mut files = Vec::new();
    ["src", "crates", "tests"]
        .iter()
        .for_each(|folder| collect(&root.join(folder), &mut files));
    for path in files {
        let text = fs::read_to_string(&path).unwrap();
        let off = ["#[", "ignore"].concat();
        assert!(
            !text.contains(&off),
            "{}: an ignored test is not a test",
            path.display()
        );
    }
}
