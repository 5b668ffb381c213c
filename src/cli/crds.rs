//! `edgeward crds`: the definitions of our custom resources.

use anyhow::Context as _;
use clap::Args;

use super::print;
use crate::api;

/// Print the definitions of the custom resources Site, SloPolicy and PerformanceProfile, for `kubectl apply --server-side -f -`.
///
/// They are optional: without them, sites come from the configuration and SLOs from annotations alone, and no site is preferred.
#[derive(Debug, Args)]
pub(super) struct Crds {}

impl Crds {
    pub(super) fn run(self) -> anyhow::Result<()> {
        for definition in api::definitions() {
            let yaml = serde_saphyr::to_string(&definition).context("a definition cannot be written as YAML")?;
            print(&format!("---\n{yaml}"))?;
        }
        Ok(())
    }
}
