//! Reproducible archives: the same entries give the same bytes.

use std::io::Write as _;

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

/// A file of an archive, or a folder if its path ends with `/`.
#[derive(Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) path: String,
    pub(crate) mode: u32,
    pub(crate) bytes: Vec<u8>,
}

impl Entry {
    pub(crate) fn folder(path: &str) -> Self {
        Self::program(path, vec![])
    }

    pub(crate) fn file(path: &str, bytes: impl Into<Vec<u8>>) -> Self {
        let (path, bytes) = (path.to_owned(), bytes.into());
        let mode = 0o644;
        Self { path, mode, bytes }
    }

    pub(crate) fn program(path: &str, bytes: impl Into<Vec<u8>>) -> Self {
        let mode = 0o755;
        Self {
            mode,
            ..Self::file(path, bytes)
        }
    }
}

/// A tar archive of these entries in this order. They belong to root and are from 1970.
pub(crate) fn tar<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Result<Vec<u8>> {
    let mut tar = Builder::new(Vec::new());
    for Entry { path, mode, bytes } in entries {
        let mut header = Header::new_ustar();
        let is_folder = path.ends_with('/');
        header.set_entry_type(if is_folder {
            EntryType::Directory
        } else {
            EntryType::Regular
        });
        header.set_mode(*mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(bytes.len() as u64);
        tar.append_data(&mut header, path, &**bytes)?;
    }
    Ok(tar.into_inner()?)
}

pub(crate) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

/// The SHA-256 in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
