//! Programs that are built from Go modules of this checkout, once, into the cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::cache::{self, key};
use crate::shell::{follow, output};
use crate::tools::NoTool;

pub(crate) struct Module {
    pub(crate) name: &'static str,
    /// The environment variable that names a ready-made build.
    pub(crate) variable: &'static str,
    pub(crate) folder: PathBuf,
    pub(crate) cache: &'static str,
}

impl Module {
    /// Returns the directory that `build` has filled, now or before. Its key is the recipe and the module's files.
    pub(crate) fn built(&self, recipe: &[&str], build: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
        let files = ["main.go", "go.mod", "go.sum"].map(|name| fs::read_to_string(self.folder.join(name)).ok());
        let parts: Vec<_> = recipe
            .iter()
            .copied()
            .chain(files.iter().flatten().map(String::as_str))
            .collect();
        let dir = cache::root()?.join(self.cache).join(key(&parts));
        if !dir.is_dir() {
            self.ensure_go()?;
        }
        cache::once(self.name, &dir, |partial| {
            eprintln!("{} | building from its Go module into {}", self.name, dir.display());
            build(partial)
        })?;
        Ok(dir)
    }

    /// Fails with [`NoTool`] unless there is a Go that can read this module.
    fn ensure_go(&self) -> Result<()> {
        let why = match output(&mut self.go(&["list", "-m"])) {
            Ok(Some(_)) => return Ok(()),
            Ok(None) => "Go is not installed".to_owned(),
            Err(error) => format!("{error:#}"),
        };
        let variable = self.variable;
        Err(NoTool(format!("{why}: install Go from https://go.dev/dl, or set {variable}")).into())
    }

    fn go(&self, args: &[&str]) -> Command {
        let mut go = Command::new("go");
        go.args(args).current_dir(&self.folder);
        go
    }

    /// What `go list -m` knows of a module that this one requires: `Dir` or `Version`.
    pub(crate) fn required(&self, module: &str, what: &str) -> Result<String> {
        let mut list = self.go(&["list", "-m", "-f", &format!("{{{{.{what}}}}}"), module]);
        output(&mut list)?.context("go has gone")
    }

    /// Builds a package, or all tools of the module, into a file or a folder. Says every quarter of a minute how far it is.
    pub(crate) fn build(&self, package: &str, ldflags: &str, into: &Path) -> Result<()> {
        const REPORT_EVERY: Duration = Duration::from_secs(15);
        let mut go = self.go(&["build", "-v", "-trimpath", "-ldflags", &format!("-s -w{ldflags}"), "-o"]);
        go.arg(into).arg(package);
        let (started, mut packages, mut reported) = (Instant::now(), 0, Instant::now());
        let status = follow(go, |line| {
            match line {
                Some(line) if line.starts_with("go: downloading ") => {}
                // `-v` prints the package that it works on.
                Some(line) if !line.contains(char::is_whitespace) => packages += 1,
                Some(line) => eprintln!("{} | {line}", self.name),
                None => {}
            }
            if reported.elapsed() >= REPORT_EVERY {
                reported = Instant::now();
                eprintln!(
                    "{} | {} s, {packages} packages compiled",
                    self.name,
                    started.elapsed().as_secs()
                );
            }
        })?;
        ensure!(status.success(), "`go build`: {status}");
        Ok(())
    }
}

/// Makes this directory, with these files of Go's module cache in it.
pub(crate) fn copy_out(files: &[PathBuf], into: &Path) -> Result<()> {
    fs::create_dir(into)?;
    for file in files {
        // Not fs::copy: it would keep the module cache's read-only mode.
        let text = fs::read(file).with_context(|| file.display().to_string())?;
        fs::write(into.join(file.file_name().context("a file has a name")?), text)?;
    }
    Ok(())
}
