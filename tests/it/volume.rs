//! A directory that changes the way a mounted Secret does.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A mounted Secret or ConfigMap.
pub(crate) struct Volume {
    directory: tempfile::TempDir,
    generation: u32,
}

impl Volume {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().expect("tempdir"),
            generation: 0,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Publishes these files and no others at once, as kubelet does: a new directory and the new names, then one rename
    /// of the `..data` symlink, then the old names are removed.
    pub(crate) fn swap(&mut self, files: &[(&str, &str)]) {
        self.generation += 1;
        let root = self.directory.path();
        let data = root.join(format!("..generation_{}", self.generation));
        fs::create_dir(&data).expect("create generation");
        for (name, content) in files {
            fs::write(data.join(name), content).expect("write");
            if fs::symlink_metadata(root.join(name)).is_err() {
                symlink(Path::new("..data").join(name), root.join(name)).expect("symlink");
            }
        }
        symlink(data.file_name().expect("a name"), root.join("..data_tmp")).expect("symlink");
        fs::rename(root.join("..data_tmp"), root.join("..data")).expect("swap");
        for name in fs::read_dir(root)
            .expect("listed")
            .map(|entry| entry.expect("an entry").file_name())
        {
            let is_wanted = files.iter().any(|(wanted, _)| *wanted == name);
            if !is_wanted && !name.as_encoded_bytes().starts_with(b"..") {
                fs::remove_file(root.join(name)).expect("removed");
            }
        }
    }
}
