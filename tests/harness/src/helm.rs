//! Helm, built by `cargo xtask helm`.

use std::fmt;
use std::process::{Command, Stdio};

use crate::checkout::xtask;
use crate::prelude::*;
use crate::process::on_loopback;

/// The program, with a home directory of its own. It touches none of the user's files.
#[derive(Debug, Clone)]
pub struct Helm {
    program: PathBuf,
    home: PathBuf,
}

#[derive(Debug)]
pub struct NoHelm;

impl fmt::Display for NoHelm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no Go to build Helm with and EDGEWARD_HELM is not set")
    }
}

impl std::error::Error for NoHelm {}

impl Helm {
    /// Builds Helm if needed. Its home is in this directory. Fails with [`NoHelm`].
    pub fn obtain(home: &Path) -> Result<Self> {
        let program = xtask("helm")?.context(NoHelm)?;
        let home = home.to_owned();
        Ok(Self { program, home })
    }

    /// The command `helm ARGS`.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        on_loopback(&mut command).args(args).stdin(Stdio::null());
        for (variable, folder) in ["CACHE", "CONFIG", "DATA"].map(|name| (format!("HELM_{name}_HOME"), name)) {
            command.env(variable, self.home.join("helm").join(folder));
        }
        command
    }

    /// Runs `helm ARGS` and returns its output. The error contains Helm's message.
    pub fn run(&self, args: &[&str]) -> Result<String> {
        let output = self.command(args).output().context("cannot start helm")?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim_end());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    pub fn folder(&self) -> &Path {
        self.program.parent().unwrap_or(&self.program)
    }
}
