//! Which module imports which, read from the text: a path through a re-export counts as one to where the item is.

use std::collections::{BTreeMap, BTreeSet};

use super::{CORE, HARNESS, OUTER, Source, sources};

/// The crates with a table in the page of the architecture, in the order of the tables, and what every module may import of
/// which no table says it.
const TABLES: [(&str, &[&str]); 2] = [
    (
        CORE,
        &["document", "excerpt", "heap", "keys", "resources", "units", "words"],
    ),
    (OUTER, &["api", "instruments", "platform"]),
];

/// A module by its names from the root of its crate; the root is the empty one.
type Path = Vec<String>;

/// The modules of a crate.
struct Modules<'s> {
    /// Each module's file and code without comments.
    code: BTreeMap<Path, (&'s Source, String)>,
    /// What each module re-exports: by the name that it has there, its path as it is written.
    reexports: BTreeMap<Path, BTreeMap<String, String>>,
}

impl<'s> Modules<'s> {
    /// Of this root, its tests apart.
    fn of(sources: &'s [Source], root: &str) -> Self {
        let sources = sources.iter().filter(|source| source.root == root);
        let code: BTreeMap<_, _> = sources
            .filter(|source| !source.code.is_empty() && source.module != "main")
            .map(|source| (path(source), (source, without_comments(&source.code))))
            .collect();
        let reexports = code.iter().map(|(module, (_, code))| {
            let names = uses(code).filter(|(is_public, _)| *is_public);
            let names = names.flat_map(|(_, tree)| leaves(tree));
            (module.clone(), names.map(|(path, name)| (name, path)).collect())
        });
        Self {
            reexports: reexports.collect(),
            code,
        }
    }

    /// The modules of this crate that a module names.
    fn imports(&self, module: &Path) -> BTreeSet<Path> {
        let (_, code) = &self.code[module];
        let used = uses(code).flat_map(|(_, tree)| leaves(tree)).map(|(path, _)| path);
        let named = ["crate::", "super::", "self::"].into_iter().flat_map(|start| {
            code.match_indices(start).filter_map(move |(at, _)| {
                let is_whole = !code[..at].ends_with(|c: char| c.is_alphanumeric() || "_:".contains(c));
                let rest = &code[at..];
                let end = rest.find(|c: char| !c.is_alphanumeric() && !"_:".contains(c));
                is_whole.then(|| rest[..end.unwrap_or(rest.len())].to_owned())
            })
        });
        used.chain(named)
            .filter_map(|path| self.resolve(module, &path))
            .collect()
    }

    /// The module that has what is written as this path in that one; `None` if it is of another crate.
    fn resolve(&self, from: &Path, path: &str) -> Option<Path> {
        let mut at = from.clone();
        let mut is_ours = false;
        let mut segments = path.split("::").filter(|segment| !segment.is_empty()).peekable();
        while let Some(start) = segments.next_if(|segment| ["crate", "super", "self"].contains(segment)) {
            is_ours = true;
            match start {
                "crate" => at.clear(),
                "super" => drop(at.pop()),
                _ => {}
            }
        }
        for segment in segments {
            let below: Path = at.iter().cloned().chain([segment.to_owned()]).collect();
            let reexport = self.reexports.get(&at).and_then(|names| names.get(segment));
            if self.code.contains_key(&below) {
                at = below;
            } else if let Some(target) = reexport.filter(|target| *target != path) {
                return self.resolve(&at, target).or(Some(at));
            } else {
                break;
            }
            is_ours = true;
        }
        is_ours.then_some(at)
    }

    /// Who imports whom of the modules of one folder, each with what is below it, where that comes back to where it began; by
    /// folder, with the files. What a module and its own parent have of each other does not count.
    fn circles(&self) -> Vec<String> {
        let mut folders = BTreeMap::<&[String], BTreeMap<(&str, &str), &Source>>::new();
        let imports: Vec<_> = self.code.keys().map(|module| (module, self.imports(module))).collect();
        for (module, imports) in &imports {
            for imported in imports {
                let common = module.iter().zip(imported).take_while(|(one, other)| one == other);
                let common = common.count();
                if let (Some(one), Some(other)) = (module.get(common), imported.get(common)) {
                    let folder = folders.entry(&module[..common]).or_default();
                    folder.insert((one, other), self.code[*module].0);
                }
            }
        }
        let circles = folders.values_mut().flat_map(|edges| {
            // Who imports nobody, or is imported by nobody, is in no circle.
            loop {
                let before = edges.len();
                let importing: BTreeSet<_> = edges.keys().map(|(one, _)| *one).collect();
                let imported: BTreeSet<_> = edges.keys().map(|(_, other)| *other).collect();
                edges.retain(|(one, other), _| imported.contains(one) && importing.contains(other));
                if edges.len() == before {
                    break;
                }
            }
            let words =
                |((_, other), source): (&(_, &str), &&Source)| format!("{} uses {other}", source.path.display());
            edges.iter().map(words).collect::<Vec<_>>()
        });
        circles.collect()
    }
}

/// `tls::pair` for `src/tls/pair.rs`.
fn path(source: &Source) -> Path {
    let path = source.path.with_extension("");
    let names = path.iter().map(|name| name.to_str().unwrap().to_owned());
    names.filter(|name| !["lib", "main"].contains(&&**name)).collect()
}

fn without_comments(code: &str) -> String {
    let lines = code.lines().map(|line| line.split("//").next().unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

/// The tree of each `use`, and whether others may use it too.
fn uses(code: &str) -> impl Iterator<Item = (bool, &str)> {
    code.split(';').filter_map(|statement| {
        let (before, tree) = match statement.rsplit_once("use ") {
            Some((before, tree)) => (before.rsplit('\n').next().unwrap().trim(), tree),
            None => return None,
        };
        let is_public = before.starts_with("pub");
        (before.is_empty() || is_public && !before.contains(' ')).then_some((is_public, tree.trim()))
    })
}

/// The paths of a `use` tree, each with the name that its item has here: `a::{b, c as d}` has `a::b` as `b` and `a::c` as `d`.
fn leaves(tree: &str) -> Vec<(String, String)> {
    let Some((stem, rest)) = tree.split_once('{') else {
        let (path, alias) = match tree.split_once(" as ") {
            Some((path, alias)) => (path, Some(alias)),
            None => (tree, None),
        };
        let path = path.trim().trim_end_matches("::self");
        let name = alias.unwrap_or_else(|| path.rsplit("::").next().unwrap());
        return vec![(path.to_owned(), name.trim().to_owned())];
    };
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for c in rest.trim_end().strip_suffix('}').unwrap().chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        match (c, depth) {
            (',', 0) => parts.push(String::new()),
            _ => parts.last_mut().unwrap().push(c),
        }
    }
    let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    parts.flat_map(|part| leaves(&format!("{stem}{part}"))).collect()
}

/// What each module may import of the others, by the table of the page with this number.
fn may_import(table: usize) -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let page = include_str!("../../../docs/architecture.md");
    let table = page.split("| module | may import |").nth(table + 1).expect("the table");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let edges = rows.flat_map(|row| {
        let mut cells = row.split('|').skip(1);
        let (modules, imports) = (cells.next().unwrap(), cells.next().unwrap());
        let words = |cell: &'static str| cell.split('`').skip(1).step_by(2);
        words(modules).map(move |module| (module, words(imports).collect()))
    });
    edges.collect()
}

#[test]
fn modules_meet_only_where_they_may() {
    let sources = sources();
    for (table, (root, for_all)) in TABLES.into_iter().enumerate() {
        let (modules, edges) = (Modules::of(&sources, root), may_import(table));
        for (module, (source, _)) in &modules.code {
            let Some(top) = module.first() else { continue };
            let Some(allowed) = edges.get(&**top) else {
                panic!("docs/architecture.md does not say what `{top}` may import");
            };
            let is_for_all = !for_all.contains(&&**top);
            let imports = modules.imports(module);
            for imported in imports.iter().filter_map(|imported| imported.first()) {
                let name = &**imported;
                let fine = imported == top || allowed.contains(name) || (is_for_all && for_all.contains(&name));
                assert!(fine, "{root}/{}: {top} may not use {name}", source.path.display());
            }
        }
    }
}

#[test]
fn no_modules_of_a_folder_import_each_other_in_a_circle() {
    let sources = sources();
    for root in [OUTER, CORE, HARNESS] {
        let circles = Modules::of(&sources, root).circles();
        assert!(circles.is_empty(), "in {root}:\n{}", circles.join("\n"));
    }
}

#[test]
fn a_circle_is_found_by_whatever_path_it_comes_back() {
    let circles = |a: &str, b: &str| {
        let files = [
            (
                "lib.rs",
                "pub mod a;\nmod b;\n\npub use b::{self, deep::Deep as Reached};\n",
            ),
            ("a.rs", a),
            ("a/inner.rs", "use super::Own;\n"),
            ("b.rs", b),
            ("b/deep.rs", "pub struct Deep;\n"),
        ];
        let sources = files.map(|(path, code)| Source::new(OUTER, path.into(), code));
        Modules::of(&sources, OUTER).circles()
    };
    let uses_a = "use std::{fmt, io};\nuse super::{\n    a::{Own, inner as within},\n};\n";
    for uses_b in [
        "use crate::b::deep;\n",
        "pub(crate) use super::b;\n",
        "use crate::{b::{deep::Deep}};\n",
        "use crate::Reached;\n",
        "fn f() {\n    self::super::b::f();\n}\n",
    ] {
        assert_eq!(circles(uses_b, uses_a), ["a.rs uses b", "b.rs uses a"], "{uses_b}");
    }
    for none in [
        "use self::inner;\n",
        "// crate::b::deep\n",
        "use b::deep;\n",
        "#[cfg(test)]\nmod tests {\n    use crate::b;\n}\n",
    ] {
        assert_eq!(circles(none, uses_a), [""; 0], "{none}");
    }
}
