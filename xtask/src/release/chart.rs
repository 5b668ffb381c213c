//! The chart of a release, which names the image by its digest.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;

use crate::archive::{self, Entry, gzip};
use crate::go_programs;
use crate::project::Project;
use crate::shell::{run, workspace};

/// The chart as an archive. Helm makes it; it is packed again, because Helm writes the time into it.
pub(super) fn package(project: &Project, tag: &str, folder: &Path) -> Result<Vec<u8>> {
    let work = folder.join("chart");
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    fs::create_dir_all(&work)?;
    let chart = work.join("edgeward");
    // Copies what the links of the chart lead to.
    run(Command::new("cp")
        .arg("-rL")
        .arg(workspace().join("deploy/helm/edgeward"))
        .arg(&chart))?;
    let (image, repository) = (project.image(), &project.repository);
    replace(
        &chart.join("values.yaml"),
        "repository: \"\"\n",
        &format!("repository: {image}\n"),
    )?;
    replace(&chart.join("values.yaml"), "tag: \"\"\n", &format!("tag: {tag}\n"))?;
    let address = format!("home: {repository}\nsources: [{repository}]\ntype: application\n");
    replace(&chart.join("Chart.yaml"), "type: application\n", &address)?;
    let readme = fs::read_to_string(chart.join("README.md"))?;
    let here = format!("]({repository}/blob/v{}/", project.version);
    fs::write(chart.join("README.md"), readme.replace("](../../../", &here))?;
    let mut helm = Command::new(go_programs::helm()?);
    // stdout is for what the release has.
    run(helm
        .arg("package")
        .arg(&chart)
        .arg("--destination")
        .arg(&work)
        .stdout(std::io::stderr()))?;
    let packed = fs::read(work.join(format!("edgeward-{}.tgz", project.version)))?;
    packed_again(&packed)
}

fn replace(file: &Path, text: &str, with: &str) -> Result<()> {
    let content = fs::read_to_string(file)?;
    let found = content.matches(text).count();
    ensure!(found == 1, "{} has {text:?} {found} times", file.display());
    Ok(fs::write(file, content.replace(text, with))?)
}

fn packed_again(packed: &[u8]) -> Result<Vec<u8>> {
    let mut archive = tar::Archive::new(GzDecoder::new(packed));
    let mut entries = vec![];
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.to_str().context("a path")?.to_owned();
        let mut bytes = vec![];
        entry.read_to_end(&mut bytes)?;
        entries.push(Entry::file(&path, bytes));
    }
    gzip(&archive::tar(&entries)?)
}
