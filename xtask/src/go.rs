//! Programs built once into the cache from Go modules of this checkout.

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
    /// Returns the directory that `build` fills, unless it is cached. The cache key is the recipe and the module's files.
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

    /// Fails with [`NoTool`] unless a Go that can read this module is installed.
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

    /// The output of `go list -m` for a required module; `what` is `Dir` or `Version`.
    pub(crate) fn required(&self, module: &str, what: &str) -> Result<String> {
        let mut list = self.go(&["list", "-m", "-f", &format!("{{{{.{what}}}}}"), module]);
        output(&mut list)?.context("go is no longer installed")
    }

    /// Downloads a required module and returns its folder.
    pub(crate) fn downloaded(&self, module: &str) -> Result<String> {
        output(&mut self.go(&["mod", "download", module]))?;
        self.required(module, "Dir")
    }

    /// Builds these packages, or all tools of the module, into a file or a folder. Reports progress every 15 s.
    pub(crate) fn build(&self, packages: &[&str], ldflags: &str, into: &Path) -> Result<()> {
        const REPORT_EVERY: Duration = Duration::from_secs(15);
        let mut go = self.go(&["build", "-v", "-trimpath", "-ldflags", &format!("-s -w{ldflags}"), "-o"]);
        go.arg(into).args(packages);
        let (started, mut compiled, mut reported) = (Instant::now(), 0, Instant::now());
        let status = follow(go, |line| {
            match line {
                Some(line) if line.starts_with("go: downloading ") => {}
                // `-v` prints each package that it compiles.
                Some(line) if !line.contains(char::is_whitespace) => compiled += 1,
                Some(line) => eprintln!("{} | {line}", self.name),
                None => {}
            }
            if reported.elapsed() >= REPORT_EVERY {
                reported = Instant::now();
                eprintln!(
                    "{} | {} s, {compiled} packages compiled",
                    self.name,
                    started.elapsed().as_secs()
                );
            }
        })?;
        ensure!(status.success(), "`go build`: {status}");
        Ok(())
    }
}

/// Creates the directory `into` with copies of these files of Go's module cache.
pub(crate) fn copy_out(files: &[PathBuf], into: &Path) -> Result<()> {
    fs::create_dir(into)?;
    for file in files {
        // `fs::copy` would keep the module cache's read-only mode.
        let text = fs::read(file).with_context(|| file.display().to_string())?;
        fs::write(into.join(file.file_name().context("a file has a name")?), text)?;
    }
    Ok(())
}
