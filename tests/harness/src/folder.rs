//! Folders of the checkout, for tests that change them.

use std::os::unix::fs::symlink;

use crate::prelude::*;

pub fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()? {
            kind if kind.is_symlink() => symlink(fs::read_link(entry.path())?, to)?,
            kind if kind.is_dir() => copy(&entry.path(), &to)?,
            _ => drop(fs::copy(entry.path(), to)?),
        }
    }
    Ok(())
}
