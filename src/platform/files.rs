//! Files that may change while the process runs: certificates, the fleet, the configuration.
//!
//! A mounted Secret or ConfigMap is a directory of symlinks through `..data`, and an update swaps that one symlink. So
//! the contents are compared periodically, and file metadata is not used.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use tokio::time::{Interval, MissedTickBehavior};

use super::blocking::blocking;
use super::hash;

/// Interval between two comparisons of the contents.
const POLL: Duration = Duration::from_secs(1);

/// One file and its contents.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Content {
    /// Path of the file.
    pub path: PathBuf,
    /// The contents.
    pub bytes: Vec<u8>,
}

/// Every file of a [`Watch`], in the order of the given paths. The files of a directory are sorted by name.
pub type Contents = Vec<Content>;

/// Returns the files in a directory, sorted by name. Subdirectories are left out, and so are the names starting with
/// `..` of a mounted volume.
///
/// # Errors
/// The directory cannot be read.
pub fn list(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes().starts_with(b"..") && !entry.path().is_dir() {
            files.push(entry.path());
        }
    }
    files.sort_unstable();
    Ok(files)
}

/// A set of files that belong together and are read together, such as a certificate and its key.
///
/// Only hashes are kept, so that a private key does not stay in memory.
#[derive(Debug)]
pub struct Watch {
    paths: Vec<PathBuf>,
    /// Hash of the contents returned last; `None` if that was an error.
    seen: Option<u64>,
    poll: Interval,
    /// Whether the poll has ticked and the files have not been read since.
    is_due: bool,
}

impl Watch {
    /// Reads `paths` once, in this order, and watches them from then on. A directory stands for the files that it
    /// contains at the time of each read.
    ///
    /// # Errors
    /// The text names the first file that cannot be read now.
    pub async fn open(paths: Vec<PathBuf>) -> anyhow::Result<(Self, Contents)> {
        let mut poll = tokio::time::interval(POLL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        poll.reset();
        let mut watch = Self {
            paths,
            seen: None,
            poll,
            is_due: false,
        };
        let contents = watch.read().await?;
        watch.seen = Some(hash(&contents));
        Ok((watch, contents))
    }

    /// Waits until the files differ from what was last returned, and returns all of them.
    ///
    /// Files that are replaced one by one may be seen in between, and again after the last replacement.
    ///
    /// Cancel-safe: a caller may drop the future and call again without losing a change.
    ///
    /// # Errors
    /// Once, when files can no longer be read. The caller keeps its current contents. The next call
    /// waits until the files are readable again, and then returns them even if they are unchanged.
    pub async fn changed(&mut self) -> anyhow::Result<Contents> {
        loop {
            if !self.is_due {
                self.poll.tick().await;
                self.is_due = true;
            }
            let read = self.read().await;
            self.is_due = false;
            match read {
                Ok(contents) => {
                    let hash = hash(&contents);
                    if self.seen.replace(hash) != Some(hash) {
                        return Ok(contents);
                    }
                }
                Err(unreadable) if self.seen.take().is_some() => return Err(unreadable),
                Err(_) => {}
            }
        }
    }

    async fn read(&self) -> anyhow::Result<Contents> {
        let paths = self.paths.clone();
        blocking(move || read(&paths)).await
    }
}

/// Reads these files once. A directory stands for the files that it contains.
///
/// # Errors
/// The text names the first file that cannot be read.
pub fn read(paths: &[PathBuf]) -> anyhow::Result<Contents> {
    let unreadable = |path: &Path, error: io::Error| anyhow!("{}: {error}", path.display());
    let mut contents = Vec::new();
    for path in paths {
        let files = if path.is_dir() {
            list(path).map_err(|error| unreadable(path, error))?
        } else {
            vec![path.clone()]
        };
        for path in files {
            let bytes = std::fs::read(&path).map_err(|error| unreadable(&path, error))?;
            contents.push(Content { path, bytes });
        }
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Timeout of operations that are expected to finish; no test depends on its length.
    const TIMEOUT: Duration = Duration::from_secs(60);
    /// Publishes `files` the way kubelet does: a new directory, then one rename of the `..data` symlink.
    fn publish(volume: &Path, generation: u32, files: &[(&str, &str)]) {
        let data = volume.join(format!("..generation_{generation}"));
        fs::create_dir(&data).expect("create generation");
        for (name, content) in files {
            fs::write(data.join(name), content).expect("write");
        }
        symlink(data.file_name().expect("a name"), volume.join("..data_tmp")).expect("symlink");
        fs::rename(volume.join("..data_tmp"), volume.join("..data")).expect("swap");
        for (name, _) in files {
            let link = volume.join(name);
            if fs::symlink_metadata(&link).is_err() {
                symlink(Path::new("..data").join(name), link).expect("symlink");
            }
        }
    }

    fn text(contents: Contents) -> Vec<String> {
        contents
            .into_iter()
            .map(|content| String::from_utf8(content.bytes).expect("UTF-8"))
            .collect()
    }

    #[tokio::test]
    async fn directory_watch_follows_added_and_removed_files() {
        let volume = tempfile::tempdir().expect("tempdir");
        publish(volume.path(), 1, &[("b", "b1"), ("a", "a1")]);
        fs::create_dir(volume.path().join("lost+found")).expect("create");
        let (mut watch, contents) = Watch::open(vec![volume.path().to_owned()]).await.expect("readable");
        assert_eq!(contents[0].path, volume.path().join("a"));
        assert_eq!(text(contents), ["a1", "b1"]);

        publish(volume.path(), 2, &[("a", "a1"), ("b", "b1"), ("c", "c2")]);
        let changed = tokio::time::timeout(TIMEOUT, watch.changed()).await.expect("seen");
        assert_eq!(text(changed.expect("readable")), ["a1", "b1", "c2"]);

        // A swap that removes a file leaves its dangling link for a moment.
        publish(volume.path(), 3, &[("a", "a3"), ("c", "c2")]);
        let dangling = tokio::time::timeout(TIMEOUT, watch.changed()).await.expect("seen");
        let error = dangling.expect_err("b is gone").to_string();
        assert!(
            error.starts_with(&volume.path().join("b").display().to_string()),
            "{error}"
        );
        fs::remove_file(volume.path().join("b")).expect("unlink");
        let changed = tokio::time::timeout(TIMEOUT, watch.changed()).await.expect("seen");
        assert_eq!(text(changed.expect("readable")), ["a3", "c2"]);
    }

    #[tokio::test]
    async fn dropped_change_future_loses_no_change() {
        let volume = tempfile::tempdir().expect("tempdir");
        publish(volume.path(), 1, &[("a", "a1"), ("b", "b1")]);
        let paths = vec![volume.path().join("a"), volume.path().join("b")];
        let (mut watch, _) = Watch::open(paths).await.expect("readable");
        for generation in 2..4 {
            let (a, b) = (format!("a{generation}"), format!("b{generation}"));
            publish(volume.path(), generation, &[("a", &a), ("b", &b)]);
            // Drops the future repeatedly, before the poll ticks.
            let glimpses = async {
                loop {
                    if let Ok(changed) = tokio::time::timeout(Duration::from_millis(50), watch.changed()).await {
                        return text(changed.expect("readable"));
                    }
                }
            };
            let seen = tokio::time::timeout(TIMEOUT, glimpses).await.expect("seen");
            assert_eq!(seen, [a, b]);
        }
    }

    #[tokio::test]
    async fn vanished_file_is_reported_and_returned_when_back() {
        let directory = tempfile::tempdir().expect("tempdir");
        let path = directory.path().join("fleet.yaml");
        fs::write(&path, "one").expect("write");
        let (mut watch, _) = Watch::open(vec![path.clone()]).await.expect("readable");
        fs::remove_file(&path).expect("remove");
        let error = watch.changed().await.expect_err("gone").to_string();
        assert!(error.starts_with(&path.display().to_string()), "{error}");
        fs::write(directory.path().join("new"), "one").expect("write");
        fs::rename(directory.path().join("new"), &path).expect("rename");
        assert_eq!(text(watch.changed().await.expect("back")), ["one"]);
    }

    #[tokio::test]
    async fn missing_file_at_start_is_named() {
        let directory = tempfile::tempdir().expect("tempdir");
        let path = directory.path().join("tls.crt");
        let error = Watch::open(vec![path.clone()]).await.expect_err("missing");
        assert!(error.to_string().starts_with(&path.display().to_string()), "{error}");
    }
}
