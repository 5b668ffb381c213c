//! Commands and files as `docs/operations.md` shows them.

use anyhow::{Context as _, Result};

pub fn documented(language: &str, words: &str) -> Result<&'static str> {
    documented_under("", language, words)
}

pub fn documented_under(heading: &str, language: &str, words: &str) -> Result<&'static str> {
    let page = include_str!("../../../docs/operations.md");
    let page = page.find(heading).map_or("", |start| &page[start..]);
    let mut blocks = page.split("\n```").filter_map(|block| {
        let (first, block) = block.split_once('\n')?;
        (first == language).then_some(block)
    });
    let block = blocks.find(|block| block.contains(words));
    block.with_context(|| format!("docs/operations.md does not show {words:?}"))
}
