//! Files named on the command line.

use std::io::Read as _;
use std::path::Path;

use anyhow::Context as _;
use edgeward_core::config::Config;

use crate::sources::configuration;

/// The text of a file, or of standard input for `-`.
pub(super) fn text(path: &Path) -> anyhow::Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

/// A configuration in a file or directory, or the defaults without one.
pub(super) fn config(path: Option<&Path>) -> anyhow::Result<Config> {
    path.map_or_else(|| Ok(Config::default()), configuration::read)
}
