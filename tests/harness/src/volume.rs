//! A directory that changes the way a mounted Secret does.

use std::io;
use std::os::unix::fs::symlink;

use crate::prelude::*;

/// A mounted Secret or ConfigMap.
pub struct Volume {
    directory: tempfile::TempDir,
    generation: u32,
}

impl Volume {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            directory: tempfile::tempdir()?,
            generation: 0,
        })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Replaces all files at once, as kubelet does. It creates a new directory and the new names, renames the `..data` symlink
    /// once, and then removes the old names.
    pub fn swap(&mut self, files: &[(&str, &str)]) -> io::Result<()> {
        self.generation += 1;
        let root = self.directory.path();
        let generation = format!("..generation_{}", self.generation);
        let data = root.join(&generation);
        fs::create_dir(&data)?;
        for (name, content) in files {
            fs::write(data.join(name), content)?;
            if fs::symlink_metadata(root.join(name)).is_err() {
                symlink(Path::new("..data").join(name), root.join(name))?;
            }
        }
        symlink(generation, root.join("..data_tmp"))?;
        fs::rename(root.join("..data_tmp"), root.join("..data"))?;
        for entry in fs::read_dir(root)? {
            let name = entry?.file_name();
            let is_wanted = files.iter().any(|(wanted, _)| *wanted == name);
            if !is_wanted && !name.as_encoded_bytes().starts_with(b"..") {
                fs::remove_file(root.join(name))?;
            }
        }
        Ok(())
    }
}
