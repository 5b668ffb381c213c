//! `edgeward crds`: the definitions of our custom resources.

use anyhow::Context as _;

use super::print;
use crate::api;

pub(super) fn run() -> anyhow::Result<()> {
    for definition in api::definitions() {
        let yaml = serde_saphyr::to_string(&definition).context("a definition cannot be written as YAML")?;
        print(&format!("---\n{yaml}"))?;
    }
    Ok(())
}
