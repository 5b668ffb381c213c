//! Reads the configuration from a file, or from a directory with one file per key, such as a mounted ConfigMap.

use std::path::{Path, PathBuf};

use edgeward_decision::config::Config;

use crate::config::{Configuration, ReadConfig, read_document, read_keys};
use crate::platform::files::{Content, Watch};
use crate::platform::{files, hash, yaml};

/// A file or directory. Every change of it is a new version of the configuration.
#[derive(Debug)]
pub struct Files {
    path: PathBuf,
    watch: Watch,
    configuration: Configuration,
}

impl Files {
    /// Reads the first version.
    ///
    /// # Errors
    /// There is nothing to read, or the configuration has faults. The error names all faults.
    pub async fn open(path: PathBuf, mut configuration: Configuration) -> anyhow::Result<Self> {
        let (watch, contents) = Watch::open(vec![path.clone()]).await?;
        let outcome = configuration.offer(hash(&contents), || read_contents(&path, &contents));
        outcome.map_err(|faults| yaml::faulty(&path.display().to_string(), &faults))?;
        Ok(Self {
            path,
            watch,
            configuration,
        })
    }

    /// Accepts every valid version. Never returns. A refused version leaves the current one in use; its faults are
    /// logged and counted.
    pub async fn follow(mut self) {
        loop {
            match self.watch.changed().await {
                Ok(contents) => {
                    let outcome = || read_contents(&self.path, &contents);
                    if let Err(faults) = self.configuration.offer(hash(&contents), outcome) {
                        let error = yaml::faulty(&self.path.display().to_string(), &faults);
                        tracing::warn!(%error, "configuration refused; the last good one stays");
                    }
                }
                Err(error) => {
                    self.configuration.lost();
                    tracing::warn!(%error, "configuration cannot be read; the last good one stays");
                }
            }
        }
    }
}

/// Reads the configuration from a file or directory once.
///
/// # Errors
/// The errors of [`Files::open`].
pub fn read(path: &Path) -> anyhow::Result<Config> {
    let contents = files::read(&[path.to_owned()])?;
    let read = read_contents(path, &contents);
    let (config, _) = read.map_err(|faults| yaml::faulty(&path.display().to_string(), &faults))?;
    Ok(config)
}

/// Reads the contents at `path`. Bytes that are not UTF-8 are invalid in every setting, and the fault shows them.
fn read_contents(path: &Path, contents: &[Content]) -> ReadConfig {
    match contents {
        [file] if file.path == path => read_document(&String::from_utf8_lossy(&file.bytes)),
        files => {
            let name = |file: &Content| file.path.file_name().map(|name| name.to_string_lossy().into_owned());
            let text = |file: &Content| String::from_utf8_lossy(&file.bytes).into_owned();
            let keys = files.iter().filter_map(|file| Some((name(file)?, text(file))));
            read_keys(&keys.collect())
        }
    }
}
