//! The version that upgrades begin at, as `cargo xtask earlier` has it.

use crate::checkout::xtask;
use crate::prelude::*;

#[derive(Debug)]
pub struct Earlier {
    /// With `deploy`, `webhook` and `certs`.
    pub checkout: PathBuf,
    program: PathBuf,
}

impl Earlier {
    /// Builds it if it is not in the cache. `None`: this checkout does not have its commit, as a shallow clone.
    pub fn obtain() -> Result<Option<Self>> {
        let checkout = xtask("earlier")?;
        Ok(checkout.map(|checkout| Self {
            program: checkout.join("edgeward"),
            checkout,
        }))
    }

    pub fn program(&self) -> &Path {
        &self.program
    }
}
