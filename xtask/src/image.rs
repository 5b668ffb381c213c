//! `cargo xtask image`: the image as an OCI archive, made from the programs without a container engine.
//!
//! It has the files and the configuration of the Dockerfile's image. The same programs give the same bytes.

mod layout;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oci_spec::image::{ANNOTATION_REF_NAME, Config, ConfigBuilder};
use webpki_root_certs::TLS_SERVER_ROOT_CERTS;

use self::layout::{Annotations, Layout, annotations};
use crate::archive::Entry;
use crate::cache::ready_made;
use crate::program::{self, PLATFORMS, PROGRAMS, Platform};
use crate::project::Project;
use crate::sbom;

const CERTIFICATES: &str = "ca-certificates.crt";

/// What builders of a Dockerfile add to an empty image.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub(crate) struct Image {
    pub(crate) archive: PathBuf,
    /// Digest of the index of all platforms, with its algorithm.
    pub(crate) digest: String,
    /// Bills of materials of the programs in it, by the target of Rust.
    pub(crate) bills: Vec<(&'static str, String)>,
}

/// Writes the image for the programs in the release folder, and prints its digest on stderr. Builds this machine's program
/// first, unless `EDGEWARD_RELEASE` names a ready-made folder.
pub(crate) fn write() -> Result<PathBuf> {
    let folder = program::release_folder()?;
    if ready_made("EDGEWARD_RELEASE")?.is_none() {
        program::build(None)?;
    }
    let image = build(&Project::read()?, &folder)?;
    eprintln!("{}, {} bytes", image.digest, fs::metadata(&image.archive)?.len());
    Ok(image.archive)
}

fn is_in_image(platform: &Platform, folder: &Path) -> bool {
    let has_image = platform.os == "linux" && ["amd64", "arm64"].contains(&platform.arch);
    has_image && platform.program(folder).is_file()
}

pub(crate) fn build(project: &Project, folder: &Path) -> Result<Image> {
    let platforms = PLATFORMS.iter().filter(|platform| is_in_image(platform, folder));
    let platforms: Vec<_> = platforms.collect();
    ensure!(
        !platforms.is_empty(),
        "{} has no program for Linux: run `cargo xtask program` first",
        folder.display()
    );
    let certificates = certificates();
    // The Dockerfile's target `prebuilt` copies it.
    fs::write(folder.join(PROGRAMS).join(CERTIFICATES), &certificates)?;
    let (mut layout, mut manifests, mut bills) = (Layout::default(), vec![], vec![]);
    for platform in platforms {
        let program = fs::read(platform.program(folder))?;
        let image = layout.add_image(platform.arch, &files(&certificates, program), config(project)?)?;
        let bill = sbom::of_target(platform.target)?;
        let attestation = layout.add_bill_of_materials(&image, &bill)?;
        manifests.extend([image, attestation]);
        bills.push((platform.target, bill));
    }
    let mut index = layout.add_index(manifests, labels(project))?;
    let digest = index.digest().to_string();
    let version = &project.version;
    index.set_annotations(Some(name(&project.image(), version)));
    let archive = folder.join(format!("edgeward-{version}-image.tar"));
    fs::write(&archive, layout.archive(index)?)?;
    Ok(Image { archive, digest, bills })
}

/// An archive with an image for this machine that has one program, for tests.
pub(crate) fn of_program(repository: &str, tag: &str, path: &str, program: Vec<u8>) -> Result<Vec<u8>> {
    let platform = PLATFORMS.iter().find(|platform| platform.is_this_machine());
    let platform = platform.context("there is no image for this machine")?;
    let config = ConfigBuilder::default().entrypoint(vec![format!("/{path}")]).build()?;
    let mut layout = Layout::default();
    let mut image = layout.add_image(platform.arch, &[Entry::program(path, program)], config)?;
    image.set_annotations(Some(name(repository, tag)));
    layout.archive(image)
}

fn name(repository: &str, tag: &str) -> Annotations {
    annotations(&[
        (ANNOTATION_REF_NAME, tag.to_owned()),
        // What `ctr images import` calls the image.
        ("io.containerd.image.name", format!("{repository}:{tag}")),
    ])
}

/// Mozilla's root certificates as PEM. Cargo.lock states their version.
fn certificates() -> String {
    let mut text = String::new();
    for certificate in TLS_SERVER_ROOT_CERTS {
        text += "-----BEGIN CERTIFICATE-----\n";
        for line in STANDARD.encode(certificate).as_bytes().chunks(64) {
            text += &String::from_utf8_lossy(line);
            text += "\n";
        }
        text += "-----END CERTIFICATE-----\n";
    }
    text
}

fn files(certificates: &str, program: Vec<u8>) -> [Entry; 8] {
    [
        Entry::folder("etc/"),
        Entry::folder("etc/ssl/"),
        Entry::folder("etc/ssl/certs/"),
        Entry::file(&format!("etc/ssl/certs/{CERTIFICATES}"), certificates),
        Entry::folder("usr/"),
        Entry::folder("usr/local/"),
        Entry::folder("usr/local/bin/"),
        Entry::program("usr/local/bin/edgeward", program),
    ]
}

/// The configuration of the Dockerfile's image, with labels.
fn config(project: &Project) -> Result<Config> {
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    Ok(ConfigBuilder::default()
        .user("65532:65532")
        .env(words(&[PATH, "MIMALLOC_ALLOW_THP=0", "MIMALLOC_PURGE_DELAY=0"]))
        .exposed_ports(words(&["8443/tcp", "8080/tcp"]))
        .entrypoint(words(&["/usr/local/bin/edgeward"]))
        .labels(labels(project))
        .build()?)
}

fn labels(project: &Project) -> Annotations {
    let labels = [
        ("title", "edgeward"),
        ("description", &project.description),
        ("licenses", &project.license),
        ("source", &project.repository),
        ("url", &project.repository),
        ("version", &project.version),
    ];
    annotations(&labels.map(|(name, value)| (format!("org.opencontainers.image.{name}"), value)))
}
