//! Handles for existing network namespaces.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::thread;

use anyhow::{Context as _, Result, anyhow};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace. It exists at least as long as this handle.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    file: File,
}

impl Namespace {
    /// Opens a namespace that `ip netns add` created. Fails if there is none of this name.
    pub fn named(name: &str) -> Result<Self> {
        let path = Path::new("/run/netns").join(name);
        let file = File::open(&path).with_context(|| format!("no network namespace {name}: {}", path.display()))?;
        Ok(Self {
            name: name.to_owned(),
            file,
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `inside` on a thread of its own in the namespace and waits for it.
    ///
    /// A socket stays in the namespace where it was created, even if other threads use it later. Threads and processes that
    /// `inside` starts inherit the namespace. Fails if the namespace may not be entered, and where `inside` fails.
    pub fn enter<T: Send>(&self, inside: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let body = || {
            move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))
                .with_context(|| format!("cannot enter the network namespace {}", self.name))?;
            inside()
        };
        thread::scope(|scope| scope.spawn(body).join())
            .unwrap_or_else(|_| Err(anyhow!("a thread panicked in the network namespace {}", self.name)))
    }
}
