//! The version that upgrades begin at, as `cargo xtask earlier` has it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::checkout::xtask;

/// A checkout of what is installed of it, and its program.
#[derive(Debug)]
pub struct Earlier {
    /// With `deploy`, `webhook` and `certs`.
    pub checkout: PathBuf,
    program: PathBuf,
}

impl Earlier {
    /// Built if need be.
    pub fn obtain() -> Result<Self> {
        let checkout = xtask("earlier")?.context("`cargo xtask earlier` needs no tool that may be missing")?;
        let program = checkout.join("edgeward");
        Ok(Self { checkout, program })
    }

    /// The program.
    pub fn program(&self) -> &Path {
        &self.program
    }
}
