//! `cargo xtask docs`: the documentation as a site.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::cargo_tools;
use crate::shell::{run_beside, workspace};

/// The variable that tells the tests where the site is.
pub(crate) const BOOK: &str = "EDGEWARD_BOOK";

const MDBOOK: &str = "0.5.4";

/// Builds the site of `docs/`, with a search, into `target/book`. Returns that directory.
pub(crate) fn build() -> Result<PathBuf> {
    let options = ["--no-default-features", "--features", "search"];
    let program = cargo_tools::obtain("mdbook", MDBOOK, None, &options)?;
    let site = workspace().join("target/book");
    let mut build = Command::new(program);
    build.args(["build", "--dest-dir"]).arg(&site).current_dir(workspace());
    run_beside("docs", build)?;
    Ok(site)
}
