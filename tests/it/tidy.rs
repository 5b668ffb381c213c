//! House rules that no lint knows. Each failure names the file and the rule.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Lines outside tests from which a file is two ideas.
const MAX_LINES: usize = 600;

/// Crates that the inner ring may use.
const PURE_CRATES: [&str; 8] = [
    "std",
    "core",
    "serde",
    "serde_json",
    "jiff",
    "thiserror",
    "crate",
    "super",
];

/// What each outer module may import of the others; everything may import the inner ring.
const OUTER_EDGES: [(&str, &[&str]); 12] = [
    ("api", &[]),
    ("clock", &[]),
    ("metrics", &[]),
    ("yaml", &[]),
    ("files", &[]),
    ("tls", &["clock", "files", "metrics"]),
    ("traces", &["clock", "metrics"]),
    ("admit", &["clock", "metrics", "tls", "traces"]),
    ("observe", &["api", "clock", "files", "metrics", "yaml"]),
    ("controllers", &["api", "clock", "metrics", "tls"]),
    ("runtime", &["admit", "clock", "metrics", "tls", "traces"]),
    (
        "cli",
        &[
            "admit",
            "api",
            "clock",
            "controllers",
            "metrics",
            "observe",
            "runtime",
            "tls",
            "traces",
            "yaml",
        ],
    ),
];

struct Source {
    path: PathBuf,
    /// Top-level module: `decide` for `src/decide/explain.rs`.
    module: String,
    /// The text before its inline tests; empty for a file of tests.
    code: String,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
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

fn is_outer(module: &str) -> bool {
    OUTER_EDGES.iter().any(|(outer, _)| *outer == module)
}

/// The first path segments of every `use` and every qualified path after `crate::`.
fn imported_modules(code: &str) -> BTreeSet<&str> {
    let after_crate = code.split("crate::").skip(1);
    after_crate
        .map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap())
        .collect()
}

fn used_crates(code: &str) -> BTreeSet<&str> {
    let lines = code.lines().map(str::trim);
    let uses = lines.filter_map(|line| line.strip_prefix("use ").or_else(|| line.strip_prefix("pub use ")));
    uses.map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap())
        .collect()
}

/// `mod x;` of the same file, which a `use` may start with.
fn child_modules(code: &str) -> BTreeSet<&str> {
    let lines = code.lines().map(str::trim);
    let mods = lines.filter_map(|line| line.strip_prefix("pub mod ").or_else(|| line.strip_prefix("mod ")));
    mods.filter_map(|rest| rest.strip_suffix(';')).collect()
}

#[test]
fn the_inner_ring_is_pure() {
    for source in sources().iter().filter(|source| !is_outer(&source.module)) {
        if ["main", "lib"].contains(&source.module.as_str()) {
            continue;
        }
        let children = child_modules(&source.code);
        for name in used_crates(&source.code) {
            let known = PURE_CRATES.contains(&name) || children.contains(name);
            assert!(known, "{}: the inner ring may not use {name}", source.path.display());
        }
        for module in imported_modules(&source.code) {
            assert!(
                !is_outer(module),
                "{}: the inner ring may not use {module}",
                source.path.display()
            );
        }
    }
}

#[test]
fn outer_modules_meet_only_where_they_may() {
    for source in sources() {
        let Some((_, allowed)) = OUTER_EDGES.iter().find(|(outer, _)| *outer == source.module) else {
            continue;
        };
        for module in imported_modules(&source.code) {
            let fine = !is_outer(module) || module == source.module || allowed.contains(&module);
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
    for source in sources().iter().filter(|source| source.module != "clock") {
        for call in ["Instant::now", "SystemTime::now", "Timestamp::now", "Zoned::now"] {
            assert!(
                !source.code.contains(call),
                "{}: {call} belongs in clock.rs",
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
    let sources = sources();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for source in &sources {
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
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    ["src", "tests"]
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
