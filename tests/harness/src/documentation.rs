//! Commands and files from the pages of `docs/guide`.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

const PAGES: [(&str, &str); 8] = [
    ("decide.md", include_str!("../../../docs/guide/decide.md")),
    ("install.md", include_str!("../../../docs/guide/install.md")),
    ("operate.md", include_str!("../../../docs/guide/operate.md")),
    ("clouds.md", include_str!("../../../docs/guide/clouds.md")),
    ("troubleshoot.md", include_str!("../../../docs/guide/troubleshoot.md")),
    ("simulate.md", include_str!("../../../docs/guide/simulate.md")),
    ("extender.md", include_str!("../../../docs/guide/extender.md")),
    ("learn.md", include_str!("../../../docs/guide/learn.md")),
];

/// The fenced blocks of a page, indented or not, each with its language.
pub fn blocks(page: &str) -> impl Iterator<Item = (&str, &str)> {
    let blocks = page.split("```").skip(1).step_by(2);
    blocks.filter_map(|block| {
        let (language, text) = block.split_once('\n')?;
        Some((language, text.trim_end()))
    })
}

/// The first block in this language that contains these words.
pub fn documented(language: &str, words: &str) -> Result<&'static str> {
    documented_under("", language, words)
}

/// The first block in this language after a heading that contains these words.
pub fn documented_under(heading: &str, language: &str, words: &str) -> Result<&'static str> {
    let from_heading = |page: &'static str| page.find(heading).map_or("", |start| &page[start..]);
    let mut found = PAGES.into_iter().flat_map(|(_, page)| blocks(from_heading(page)));
    let block = found.find(|(of, block)| *of == language && block.contains(words));
    Ok(block.with_context(|| format!("docs/guide does not show {words:?}"))?.1)
}

/// The only shell block of this page that starts with these words, apart from white space.
pub fn script(page: &str, words: &str) -> Result<&'static str> {
    let (_, text) = PAGES
        .into_iter()
        .find(|(name, _)| *name == page)
        .context("no such page")?;
    let is_meant = |block: &str| {
        block
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .starts_with(words)
    };
    let mut found = blocks(text).filter(|(language, block)| *language == "sh" && is_meant(block));
    let (_, block) = found
        .next()
        .with_context(|| format!("{page} does not show {words:?}"))?;
    ensure!(found.next().is_none(), "{page} shows {words:?} twice");
    Ok(block.trim_start())
}

/// Keys of a JSON document that a page does not name. Keys of resources, annotations and labels do not count.
pub fn unnamed_keys(page: &str, document: &Value) -> BTreeSet<String> {
    match document {
        Value::Array(items) => items.iter().flat_map(|item| unnamed_keys(page, item)).collect(),
        Value::Object(fields) => {
            let is_data = |key: &str| key.contains(['/', '-']) || ["cpu", "memory", "pods"].contains(&key);
            let forms = |key: &str| [format!("`{key}`"), format!("`{key}:"), format!("\"{key}\":")];
            let is_named = |key: &str| forms(key).iter().any(|form| page.contains(form));
            let unnamed = fields.keys().filter(|key| !is_data(key) && !is_named(key)).cloned();
            let inner = fields.values().flat_map(|value| unnamed_keys(page, value));
            unnamed.chain(inner).collect()
        }
        _ => BTreeSet::new(),
    }
}
