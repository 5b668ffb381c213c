//! `cargo xtask release`: every file of a release, in a folder, from the programs of all platforms.
//!
//! The workflow `release` only signs and uploads them. cargo-dist has no image and no chart, and release-plz publishes crates.

mod chart;

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::archive::{Entry, gzip, sha256, tar};
use crate::control_plane;
use crate::image::{self, Image};
use crate::program::{self, PLATFORMS, Platform};
use crate::project::Project;
use crate::shell::{output, workspace};

/// The overlays that are published as one file each.
const INSTALLATIONS: [(&str, &str); 2] = [
    ("install.yaml", "self-managed"),
    ("install-cert-manager.yaml", "cert-manager"),
];

struct Release {
    project: Project,
    /// The release folder. Its `files` are attached to the release.
    folder: PathBuf,
    image: Image,
}

/// Writes the release of a tag, or with `--dry-run` what can be made of the programs that there are.
pub(crate) fn release(tag: &str) -> Result<()> {
    let (project, folder) = (Project::read()?, program::release_folder()?);
    let missing: Vec<_> = PLATFORMS
        .iter()
        .filter(|platform| !platform.program(&folder).is_file())
        .collect();
    if tag != "--dry-run" {
        let changelog = fs::read_to_string(workspace().join("CHANGELOG.md"))?;
        check(&project, tag, &changelog)?;
        ensure!(missing.is_empty(), "{} programs are missing", missing.len());
    }
    let files = folder.join("files");
    if files.exists() {
        fs::remove_dir_all(&files)?;
    }
    fs::create_dir_all(&files)?;
    let image = image::build(&project, &folder)?;
    let release = Release { project, folder, image };
    release.write()?;
    release.print(&missing)
}

/// Checks that the repository is ready for this tag.
fn check(project: &Project, tag: &str, changelog: &str) -> Result<()> {
    let version = &project.version;
    ensure!(
        tag == format!("v{version}"),
        "the version is {version}, and the tag {tag}"
    );
    ensure!(!project.repository.contains("OWNER"), "Cargo.toml has no repository");
    let is_dated = changelog.contains(&format!("\n## [{version}] - 2"));
    ensure!(is_dated, "CHANGELOG.md does not date the version");
    Ok(())
}

impl Release {
    fn write(&self) -> Result<()> {
        let mut plugin = self.filled(include_str!("../krew.yaml"));
        for platform in PLATFORMS {
            if let Some(archive) = self.write_program(&platform)? {
                plugin += &self.plugin_platform(&platform, &archive);
            }
        }
        self.write_file("krew.yaml", plugin)?;
        self.write_file(
            &format!("edgeward-{}-image.tar", self.project.version),
            fs::read(&self.image.archive)?,
        )?;
        for (name, overlay) in INSTALLATIONS {
            self.write_file(name, self.installation(overlay)?)?;
        }
        let chart = chart::package(&self.project, &self.tag(), &self.folder)?;
        self.write_file(&self.chart_name(), chart)?;
        let mut sums = String::new();
        for (name, bytes) in self.files()? {
            writeln!(sums, "{}  {name}", sha256(&bytes))?;
        }
        self.write_file("SHA256SUMS", sums)?;
        fs::write(self.folder.join("notes.md"), self.notes()?)?;
        Ok(fs::write(self.folder.join("outputs"), self.outputs())?)
    }

    fn write_file(&self, name: &str, bytes: impl AsRef<[u8]>) -> Result<()> {
        let path = self.folder.join("files").join(name);
        fs::write(&path, bytes).with_context(|| path.display().to_string())
    }

    /// Writes the archive of a platform and returns it. `None` if its program is missing.
    fn write_program(&self, platform: &Platform) -> Result<Option<Vec<u8>>> {
        let program = platform.program(&self.folder);
        if !program.is_file() {
            return Ok(None);
        }
        let name = self.program_name(platform);
        if let Some((_, bill)) = self.image.bills.iter().find(|(target, _)| *target == platform.target) {
            self.write_file(&name.replace("tar.gz", "cdx.json"), bill)?;
        }
        let archive = gzip(&tar(&[
            Entry::program("edgeward", fs::read(program)?),
            Entry::program("kubectl-edgeward", include_str!("../plugin/kubectl-edgeward")),
            Entry::program(
                "kubectl_complete-edgeward",
                include_str!("../plugin/kubectl_complete-edgeward"),
            ),
            Entry::file("LICENSE", fs::read(workspace().join("LICENSE"))?),
        ])?)?;
        self.write_file(&name, &archive)?;
        Ok(Some(archive))
    }

    fn program_name(&self, Platform { os, arch, .. }: &Platform) -> String {
        format!("edgeward-{}-{os}-{arch}.tar.gz", self.project.version)
    }

    fn chart_name(&self) -> String {
        format!("edgeward-{}.tgz", self.project.version)
    }

    fn filled(&self, template: &str) -> String {
        let Project {
            version, repository, ..
        } = &self.project;
        template.replace("VERSION", version).replace("REPOSITORY", repository)
    }

    fn plugin_platform(&self, platform: &Platform, archive: &[u8]) -> String {
        let Platform { os, arch, .. } = platform;
        let (name, sum) = (self.program_name(platform), sha256(archive));
        self.filled(&format!(
            "  - selector:\n      matchLabels:\n        os: {os}\n        arch: {arch}\n    \
             uri: REPOSITORY/releases/download/vVERSION/{name}\n    sha256: {sum}\n    bin: edgeward\n    \
             files:\n      - from: edgeward\n        to: .\n      - from: LICENSE\n        to: .\n"
        ))
    }

    /// Version and digest of the image, after its name.
    fn tag(&self) -> String {
        format!("{}@{}", self.project.version, self.image.digest)
    }

    /// The overlay as one file that names the image by its digest.
    fn installation(&self, overlay: &str) -> Result<String> {
        const IMAGE: &str = "image: edgeward\n";
        let folder = workspace().join("deploy/overlays").join(overlay);
        let objects = output(Command::new(control_plane::kubectl()?).arg("kustomize").arg(folder))?;
        let objects = objects.context("there is no kubectl")?;
        ensure!(
            objects.matches(IMAGE).count() == 1,
            "{overlay} names the image other than once"
        );
        let image = format!("image: {}:{}\n", self.project.image(), self.tag());
        let title = self.filled("# edgeward VERSION: REPOSITORY/blob/vVERSION/docs/guide/install.md\n");
        Ok(title + &objects.replace(IMAGE, &image) + "\n")
    }

    /// The files of the release, by name.
    fn files(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let entries = fs::read_dir(self.folder.join("files"))?;
        let mut files = entries
            .map(|entry| {
                let entry = entry?;
                Ok((
                    entry.file_name().to_string_lossy().into_owned(),
                    fs::read(entry.path())?,
                ))
            })
            .collect::<Result<Vec<_>>>()?;
        files.sort();
        Ok(files)
    }

    /// The version's section of the changelog. Its links lead to the files of the tag.
    fn notes(&self) -> Result<String> {
        let changelog = fs::read_to_string(workspace().join("CHANGELOG.md"))?;
        let heading = format!("\n## [{}]", self.project.version);
        let (_, section) = changelog
            .split_once(&heading)
            .context("CHANGELOG.md has no section of the version")?;
        let (_, section) = section.split_once('\n').context("the section is empty")?;
        let section = section.split("\n## [").next().unwrap_or(section);
        Ok(section
            .trim()
            .replace("](docs/", &self.filled("](REPOSITORY/blob/vVERSION/docs/"))
            + "\n")
    }

    /// What the steps of the workflow need, as outputs of a step.
    fn outputs(&self) -> String {
        let files = self.folder.join("files");
        [
            ("version", self.project.version.clone()),
            ("image", self.project.image()),
            ("digest", self.image.digest.clone()),
            ("archive", self.image.archive.display().to_string()),
            ("chart", files.join(self.chart_name()).display().to_string()),
            ("charts", self.project.charts()),
        ]
        .map(|(name, value)| format!("{name}={value}\n"))
        .concat()
    }

    /// Lists what a release publishes.
    fn print(&self, missing: &[&Platform]) -> Result<()> {
        println!("{:>10}  {:64}  file", "bytes", "SHA-256");
        for (name, bytes) in self.files()? {
            println!("{:>10}  {}  {name}", bytes.len(), sha256(&bytes));
        }
        println!("{:>10}  {:64}  notes.md", self.notes()?.len(), "");
        println!("image {}:{}", self.project.image(), self.tag());
        println!(
            "chart oci://{}/edgeward:{}",
            self.project.charts(),
            self.project.version
        );
        for platform in missing {
            println!("missing: {}/{}", platform.os, platform.arch);
        }
        println!("{}", self.folder.display());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_needs_its_version_a_repository_and_a_date() {
        let mut project = Project {
            version: "1.2.0".to_owned(),
            description: String::new(),
            license: String::new(),
            repository: "https://github.com/acme/edgeward".to_owned(),
        };
        let dated = "# Changelog\n\n## [1.2.0] - 2026-11-28\n";
        let fault = |project: &Project, tag: &str, changelog: &str| {
            check(project, tag, changelog).err().map(|error| error.to_string())
        };
        assert_eq!(fault(&project, "v1.2.0", dated), None);
        let other = fault(&project, "v1.2.1", dated).unwrap();
        assert_eq!(other, "the version is 1.2.0, and the tag v1.2.1");
        let undated = fault(&project, "v1.2.0", "# Changelog\n\n## [1.2.0] - not published\n").unwrap();
        assert_eq!(undated, "CHANGELOG.md does not date the version");
        project.repository = project.repository.replace("acme", "OWNER");
        assert_eq!(
            fault(&project, "v1.2.0", dated).unwrap(),
            "Cargo.toml has no repository"
        );
    }
}
