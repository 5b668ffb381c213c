//! What a release says about edgeward: version, description, licence and address.

use std::env;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::shell::{cargo, output};

pub(crate) struct Project {
    pub(crate) version: String,
    pub(crate) description: String,
    pub(crate) license: String,
    /// The address of the repository. In a workflow, of the repository that it runs in.
    pub(crate) repository: String,
}

impl Project {
    pub(crate) fn read() -> Result<Self> {
        let metadata = output(&mut cargo(["metadata", "--no-deps", "--format-version", "1"]))?;
        let metadata: Value = serde_json::from_str(&metadata.context("there is no cargo")?)?;
        let packages = metadata["packages"].as_array().context("cargo metadata")?;
        let package = packages.iter().find(|package| package["name"] == "edgeward");
        let package = package.context("there is no package edgeward")?;
        let text = |field: &str| {
            package[field]
                .as_str()
                .map(str::to_owned)
                .with_context(|| field.to_owned())
        };
        let here = env::var("GITHUB_REPOSITORY").map(|name| format!("https://github.com/{name}"));
        Ok(Self {
            version: text("version")?,
            description: text("description")?,
            license: text("license")?,
            repository: here.or_else(|_| text("repository"))?,
        })
    }

    /// The image without tag, in GitHub's registry. Registries have names in lower case.
    pub(crate) fn image(&self) -> String {
        format!("ghcr.io/{}", self.name())
    }

    /// The folder of the registry that charts are pushed to.
    pub(crate) fn charts(&self) -> String {
        let name = self.name();
        let owner = name.split('/').next().unwrap_or(&name);
        format!("ghcr.io/{owner}/charts")
    }

    fn name(&self) -> String {
        self.repository.trim_start_matches("https://github.com/").to_lowercase()
    }
}
