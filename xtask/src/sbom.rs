//! `cargo xtask sbom`: the bill of materials of the program in the image.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo_tools;
use crate::shell::{run, workspace};

const CARGO_CYCLONEDX: &str = "0.5.9";

/// The file that cargo-cyclonedx writes for the program, next to the manifest. It also writes one for each other package.
const WRITTEN: &str = "edgeward_bin.cdx.json";

/// Writes `target/sbom/edgeward.cdx.json` for the static program on amd64, and returns its path.
pub(crate) fn write() -> Result<PathBuf> {
    let path = folder()?.join("edgeward.cdx.json");
    fs::write(&path, of_target("x86_64-unknown-linux-musl")?)?;
    Ok(path)
}

fn folder() -> Result<PathBuf> {
    let folder = workspace().join("target/sbom");
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// The bill of materials (CycloneDX 1.5) of the program for this target of Rust. It lists each crate that is linked into it,
/// with version, licence, source and checksum. The same sources give the same bytes on every machine.
pub(crate) fn of_target(target: &str) -> Result<String> {
    let tool = cargo_tools::obtain("cargo-cyclonedx", CARGO_CYCLONEDX, None, &[])?;
    // cargo-cyclonedx writes next to the manifests, so runs take turns.
    let lock = File::create(folder()?.join("lock"))?;
    lock.lock()?;
    let result = run(Command::new(tool)
        .args([
            "cyclonedx",
            "--quiet",
            "--format",
            "json",
            "--spec-version",
            "1.5",
            "--describe",
            "binaries",
        ])
        .args(["--no-build-deps", "--target", target])
        // Leaves out the timestamp and the random serial number.
        .env("SOURCE_DATE_EPOCH", "0")
        .current_dir(workspace()));
    let written = workspace().join(WRITTEN);
    let found = fs::read_to_string(&written);
    for file in [WRITTEN, "xtask/xtask_bin.cdx.json"] {
        let _ = fs::remove_file(workspace().join(file));
    }
    result?;
    let mut found = found.with_context(|| written.display().to_string())?;
    for folder in [
        "",
        "/crates/cluster",
        "/crates/decision",
        "/crates/karmada",
        "/crates/kube",
        "/crates/peers",
        "/crates/profiles",
    ] {
        found = found.replace(&format!("path+file://{}{folder}#", workspace().display()), "");
    }
    check(&found)?;
    Ok(found)
}

/// Checks that the file names the program's crates, no test crates, and no paths of this machine.
fn check(sbom: &str) -> Result<()> {
    for name in ["edgeward-decision", "kube", "rustls"] {
        let is_named = sbom.contains(&format!("pkg:cargo/{name}@"));
        ensure!(is_named, "the bill of materials lacks {name}");
    }
    let has_tests = sbom.contains("pkg:cargo/edgeward-harness@");
    ensure!(!has_tests, "the tests are not linked into the program");
    let here = workspace().to_string_lossy();
    ensure!(!sbom.contains(&*here), "the bill of materials names {here}");
    Ok(())
}
