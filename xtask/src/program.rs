//! `cargo xtask program`: the program of a release for this machine.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::cache::ready_made;
use crate::shell::{run, workspace};
use crate::static_program;

/// A platform in the words of Go, which images and Krew use too, and Rust's target.
pub(crate) struct Platform {
    pub(crate) os: &'static str,
    pub(crate) arch: &'static str,
    pub(crate) target: &'static str,
}

/// The platforms of a release. The program uses Unix signals, so Windows is not among them.
pub(crate) const PLATFORMS: [Platform; 4] = [
    platform("linux", "amd64", "x86_64-unknown-linux-musl"),
    platform("linux", "arm64", "aarch64-unknown-linux-musl"),
    platform("darwin", "amd64", "x86_64-apple-darwin"),
    platform("darwin", "arm64", "aarch64-apple-darwin"),
];

const fn platform(os: &'static str, arch: &'static str, target: &'static str) -> Platform {
    Platform { os, arch, target }
}

impl Platform {
    /// Where the release folder has its program, once that is built.
    pub(crate) fn program(&self, release: &Path) -> PathBuf {
        [PROGRAMS, self.os, self.arch, "edgeward"]
            .iter()
            .fold(release.to_owned(), |path, part| path.join(part))
    }

    pub(crate) fn is_this_machine(&self) -> bool {
        let os = env::consts::OS.replace("macos", "darwin");
        os == self.os && self.target.starts_with(env::consts::ARCH)
    }
}

/// Subfolder of the release folder: programs by platform. It is the build context of the Dockerfile's target `prebuilt`.
pub(crate) const PROGRAMS: &str = "programs";

/// The folder that `program`, `image` and `release` share: `$EDGEWARD_RELEASE` or `target/publish`.
pub(crate) fn release_folder() -> Result<PathBuf> {
    Ok(ready_made("EDGEWARD_RELEASE")?.unwrap_or_else(|| workspace().join("target/publish")))
}

/// Builds the program for this machine into the release folder and returns its path there.
pub(crate) fn build() -> Result<PathBuf> {
    let platform = PLATFORMS.iter().find(|platform| platform.is_this_machine());
    let platform = platform.context("a release has no program for this machine")?;
    let built = if platform.os == "linux" {
        static_program::build()?
    } else {
        run(&mut static_program::distributed(platform.target))?;
        static_program::target_folder()
            .join(platform.target)
            .join("dist/edgeward")
    };
    let program = platform.program(&release_folder()?);
    fs::create_dir_all(program.parent().context("a file has a folder")?)?;
    fs::copy(built, &program)?;
    Ok(program)
}
