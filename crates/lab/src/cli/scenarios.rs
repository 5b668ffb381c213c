//! `edgeward-lab scenarios`, and the folders that it writes.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use edgeward_lab::scenario;
use sha2::{Digest as _, Sha256};

use super::{read, whole};

/// Draws random scenarios for `train --env placement`
#[derive(Debug, clap::Args)]
pub(super) struct Scenarios {
    /// Number of scenarios
    #[arg(long, value_parser = whole(1..=10_000), allow_negative_numbers = true)]
    count: u64,
    /// Seed of the draws
    #[arg(long, default_value_t = 1, value_parser = whole(0..=u64::MAX), allow_negative_numbers = true)]
    seed: u64,
    /// Number of clouds of each; by default 1 to 6
    #[arg(long, value_parser = whole(1..=128), allow_negative_numbers = true)]
    clouds: Option<u64>,
    /// Folder for the scenarios
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

impl Scenarios {
    pub(super) fn run(self) -> Result<()> {
        std::fs::create_dir_all(&self.out).with_context(|| self.out.display().to_string())?;
        for number in 1..=self.count {
            let scenario = scenario::random(self.seed, number, self.clouds.map(|clouds| clouds as usize));
            let path = self.out.join(format!("{number:04}.json"));
            std::fs::write(&path, format!("{scenario:#}\n")).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }
}

/// The scenarios of a folder, by name.
pub(super) struct Folder {
    pub(super) read: Vec<scenario::Scenario>,
    /// SHA-256 of each file, in hexadecimal.
    pub(super) hashes: Vec<String>,
}

impl Folder {
    /// Reads the YAML and JSON files of a folder.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let shown = folder.display();
        let entries = std::fs::read_dir(folder).with_context(|| shown.to_string())?;
        let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        let is_scenario = |path: &PathBuf| path.extension().is_some_and(|of| of == "yaml" || of == "json");
        let mut paths: Vec<_> = paths.into_iter().filter(is_scenario).collect();
        paths.sort();
        ensure!(!paths.is_empty(), "--scenarios {shown}: has no file *.yaml or *.json");
        let hash = |path: &PathBuf| {
            let hash = Sha256::digest(std::fs::read(path)?);
            Ok(hash.iter().map(|byte| format!("{byte:02x}")).collect())
        };
        Ok(Self {
            read: paths.iter().map(|path| read(path, None)).collect::<Result<_>>()?,
            hashes: paths.iter().map(hash).collect::<Result<_>>()?,
        })
    }
}
