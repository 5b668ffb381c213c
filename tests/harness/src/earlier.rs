//! The version that upgrades start from, built by `cargo xtask earlier`.

use crate::checkout::xtask;
use crate::prelude::*;

#[derive(Debug)]
pub struct Earlier {
    /// A folder with `deploy`, `webhook` and `certs`.
    pub checkout: PathBuf,
    program: PathBuf,
}

impl Earlier {
    /// Builds the version unless it is cached. `None` if this checkout lacks its commit, for example a shallow clone.
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
