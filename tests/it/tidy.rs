//! House rules that no lint knows. Each failure names the file and the rule.

use std::fs;
use std::path::{Path, PathBuf};

use edgeward_harness::checkout::workspace;

mod imports;

/// Lines outside tests from which a file is two ideas.
const MAX_LINES: usize = 600;

/// Where the sources are: the program, the core, what the tests share, and the lab.
const ROOTS: [&str; 4] = [OUTER, CORE, HARNESS, LAB];
const OUTER: &str = "src";
const CORE: &str = "crates/core/src";
const HARNESS: &str = "tests/harness/src";
const LAB: &str = "crates/lab/src";

struct Source {
    root: &'static str,
    /// Below it.
    path: PathBuf,
    /// Top-level module: `tls` for `src/tls/pair.rs`.
    module: String,
    /// The text before its inline tests; empty for a file of tests.
    code: String,
}

impl Source {
    fn new(root: &'static str, path: PathBuf, text: &str) -> Self {
        let mut names = path.iter().map(|name| name.to_str().unwrap().trim_end_matches(".rs"));
        let module = names.next().unwrap().to_owned();
        let is_test = module == "testkit" || names.any(|name| name == "tests");
        let code = match is_test {
            true => String::new(),
            false => text.split("#[cfg(test)]\nmod tests").next().unwrap().to_owned(),
        };
        Self {
            root,
            path,
            module,
            code,
        }
    }
}

fn sources() -> Vec<Source> {
    ROOTS.into_iter().flat_map(sources_in).collect()
}

fn sources_in(name: &'static str) -> Vec<Source> {
    let root = workspace().join(name);
    let mut files = Vec::new();
    collect(&root, &mut files);
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        Source::new(name, path.strip_prefix(&root).unwrap().to_owned(), &text)
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
        // A program has modules of its own beside those of its library.
        let parents = if folder.as_os_str().is_empty() {
            vec![PathBuf::from("lib.rs"), PathBuf::from("main.rs")]
        } else {
            vec![folder.with_extension("rs")]
        };
        let declares = |parent: &PathBuf| {
            let text = fs::read_to_string(root.join(parent)).unwrap_or_default();
            text.lines().any(|line| line.trim().ends_with(&format!("mod {name};")))
        };
        assert!(
            parents.iter().any(declares),
            "{}: {parents:?} do not declare it",
            source.path.display()
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
