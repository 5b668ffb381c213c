//! A cache for tools that take minutes to build. Runs and checkouts share it.

use std::env;
use std::fs::{self, File, Metadata};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use anyhow::{Context, Result};
use sha2::{Digest as _, Sha256};

/// `$EDGEWARD_CACHE`, or `edgeward` in the user's cache directory.
pub(crate) fn root() -> Result<PathBuf> {
    set("EDGEWARD_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|dir| dir.join("edgeward")))
        .or_else(|| set("HOME").map(|dir| dir.join(".cache/edgeward")))
        .context("no place for the cache: set EDGEWARD_CACHE, XDG_CACHE_HOME or HOME")
}

fn set(variable: &str) -> Option<PathBuf> {
    let value = env::var_os(variable).filter(|value| !value.is_empty());
    value.map(PathBuf::from)
}

/// The path in this environment variable, which replaces a built directory or program.
pub(crate) fn ready_made(variable: &str) -> Result<Option<PathBuf>> {
    let Some(path) = set(variable) else { return Ok(None) };
    let found = fs::canonicalize(&path).with_context(|| format!("{variable}={}", path.display()))?;
    Ok(Some(found))
}

pub(crate) fn key(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hash.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the directory `dir`, which `build` fills once.
///
/// `build` gets a temporary directory, which is renamed to `dir` only when it is complete. Of two simultaneous runs, the second
/// waits for the first. The lock ends with the process. Messages on stderr begin with `name`.
pub(crate) fn once(name: &str, dir: &Path, build: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if dir.is_dir() {
        note_use(dir);
        return Ok(());
    }
    let parent = dir.parent().context("a cache entry has a parent directory")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;

    let lock_path = beside(dir, "lock");
    let lock = File::create(&lock_path).with_context(|| format!("cannot create {}", lock_path.display()))?;
    if lock.try_lock().is_err() {
        eprintln!("{name} | waiting for another build of {}", dir.display());
        lock.lock()
            .with_context(|| format!("cannot lock {}", lock_path.display()))?;
    }
    if dir.is_dir() {
        return Ok(());
    }

    let partial = beside(dir, "partial");
    if partial.exists() {
        fs::remove_dir_all(&partial).with_context(|| format!("cannot clear {}", partial.display()))?;
    }
    fs::create_dir(&partial).with_context(|| format!("cannot create {}", partial.display()))?;
    let started = Instant::now();
    build(&partial)?;
    fs::rename(&partial, dir).with_context(|| format!("cannot move {} into place", dir.display()))?;
    eprintln!("{name} | in the cache after {:.1} s", started.elapsed().as_secs_f64());
    note_use(dir);
    remove_disused(name, parent);
    Ok(())
}

/// Sets the directory's time to now, as its last use. A read-only cache keeps the old time.
fn note_use(dir: &Path) {
    let _ = File::open(dir).and_then(|dir| dir.set_modified(SystemTime::now()));
}

/// Removes all but the most recently used entries. Keeps enough for several branches in parallel.
fn remove_disused(name: &str, parent: &Path) {
    const KEPT: usize = 3;
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let mut built: Vec<_> = entries
        .filter(|entry| !entry.file_name().to_string_lossy().ends_with(".partial"))
        .filter_map(|entry| {
            Some((
                entry.metadata().ok().filter(Metadata::is_dir)?.modified().ok()?,
                entry.path(),
            ))
        })
        .collect();
    built.sort();
    for (_, disused) in built.iter().rev().skip(KEPT) {
        eprintln!("{name} | removing {}, not used lately", disused.display());
        let _ = fs::remove_dir_all(disused);
    }
}

fn beside(dir: &Path, what: &str) -> PathBuf {
    let mut name = dir.as_os_str().to_owned();
    name.push(".");
    name.push(what);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anyhow::bail;

    use super::*;

    #[test]
    fn failed_build_leaves_no_entry_and_next_build_starts_clean() {
        let cache = tempfile::tempdir().unwrap();
        let dir = cache.path().join("tools/0123");

        once("tool", &dir, |partial| {
            fs::write(partial.join("half"), "")?;
            bail!("disk full")
        })
        .unwrap_err();
        assert!(!dir.exists());

        once("tool", &dir, |partial| Ok(fs::write(partial.join("whole"), "")?)).unwrap();
        assert!(dir.join("whole").exists());
        assert!(!dir.join("half").exists());

        once("tool", &dir, |_| bail!("built twice")).unwrap();
    }

    #[test]
    fn three_most_recent_entries_are_kept() {
        let cache = tempfile::tempdir().unwrap();
        let dir = |name: &str| cache.path().join(name);
        let long_ago = |name: &str, seconds: u64| {
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            File::open(dir(name)).unwrap().set_modified(at).unwrap();
        };
        for (name, at) in [("a", 1), ("b", 2), ("c", 3)] {
            once("tool", &dir(name), |_| Ok(())).unwrap();
            long_ago(name, at);
        }
        fs::create_dir(dir("x.partial")).unwrap();
        long_ago("x.partial", 0);

        once("tool", &dir("a"), |_| bail!("built twice")).unwrap();
        once("tool", &dir("d"), |_| Ok(())).unwrap();
        let kept = ["a", "b", "c", "d", "x.partial"].map(|name| dir(name).is_dir());
        assert_eq!(kept, [true, false, true, true, true]);
    }
}
