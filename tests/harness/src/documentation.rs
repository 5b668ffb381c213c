//! Commands and files from `docs/guide/install.md` and `docs/guide/operate.md`.

use anyhow::{Context as _, Result};

const PAGES: [&str; 2] = [
    include_str!("../../../docs/guide/install.md"),
    include_str!("../../../docs/guide/operate.md"),
];

/// The first block in this language that contains these words.
pub fn documented(language: &str, words: &str) -> Result<&'static str> {
    documented_under("", language, words)
}

/// The first block in this language after a heading that contains these words.
pub fn documented_under(heading: &str, language: &str, words: &str) -> Result<&'static str> {
    let from_heading = |page: &'static str| page.find(heading).map_or("", |start| &page[start..]);
    let mut blocks = PAGES.into_iter().map(from_heading).flat_map(|page| {
        page.split("\n```").filter_map(|block| {
            let (first, block) = block.split_once('\n')?;
            (first == language).then_some(block)
        })
    });
    let block = blocks.find(|block| block.contains(words));
    block.with_context(|| format!("docs/guide does not show {words:?}"))
}
