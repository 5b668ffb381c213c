//! What a release publishes, made here from programs that stand in for the real ones.

use std::env;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::{Command, Stdio};

use edgeward_harness::checkout::{is_ci, xtask};
use edgeward_harness::prelude::*;

use crate::program::edgeward;

const PLATFORMS: [&str; 5] = [
    "linux/amd64",
    "linux/arm64",
    "linux/arm",
    "darwin/amd64",
    "darwin/arm64",
];

/// A release folder with a script as the program of each platform.
fn folder(platforms: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for platform in platforms {
        let programs = folder.path().join("programs").join(platform);
        fs::create_dir_all(&programs).unwrap();
        let program = programs.join("edgeward");
        fs::write(&program, format!("#!/bin/sh\necho {platform}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

fn output(command: &mut Command) -> String {
    let output = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

fn in_release(folder: &Path, args: &[&str]) -> String {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .arg("xtask")
        .args(args)
        .current_dir(workspace())
        .env("EDGEWARD_RELEASE", folder);
    output(command.env_remove("GITHUB_REPOSITORY"))
}

/// The tool that `cargo xtask NAME` prints. `None` where it is unavailable, which fails in continuous integration.
fn tool(name: &str) -> Option<PathBuf> {
    let tool = xtask(name).unwrap();
    assert!(tool.is_some() || !is_ci(), "there is no {name}");
    if tool.is_none() {
        eprintln!("skipped: there is no {name}");
    }
    tool
}

#[test]
fn release_has_same_bytes_twice_and_names_its_image() {
    let (Some(kubectl), Some(helm), Some(skopeo)) = (tool("kubectl"), tool("helm"), tool("skopeo")) else {
        return;
    };
    let (one, two) = (folder(&PLATFORMS), folder(&PLATFORMS));
    let [listed, again] = [&one, &two].map(|folder| in_release(folder.path(), &["release", "--dry-run"]));
    let lines = |listed: &str| {
        listed
            .lines()
            .map(str::to_owned)
            .filter(|line| !line.starts_with('/'))
            .collect()
    };
    let (lines, again): (Vec<_>, Vec<_>) = (lines(&listed), lines(&again));
    assert_eq!(lines, again);

    let files = one.path().join("files");
    let read = |name: &str| fs::read_to_string(files.join(name)).unwrap();
    let sums = read("SHA256SUMS");
    let named: Vec<_> = sums.lines().map(|line| line.split_once("  ").unwrap().1).collect();
    let expected = [
        "edgeward-0.1.0-darwin-amd64.tar.gz",
        "edgeward-0.1.0-darwin-arm64.tar.gz",
        "edgeward-0.1.0-image.tar",
        "edgeward-0.1.0-linux-amd64.cdx.json",
        "edgeward-0.1.0-linux-amd64.tar.gz",
        "edgeward-0.1.0-linux-arm.tar.gz",
        "edgeward-0.1.0-linux-arm64.cdx.json",
        "edgeward-0.1.0-linux-arm64.tar.gz",
        "edgeward-0.1.0.tgz",
        "install-cert-manager.yaml",
        "install.yaml",
        "krew.yaml",
    ];
    assert_eq!(named, expected);
    output(
        Command::new("sha256sum")
            .args(["--check", "SHA256SUMS"])
            .current_dir(&files),
    );

    let image = lines.iter().find_map(|line| line.strip_prefix("image ")).unwrap();
    assert!(image.starts_with("ghcr.io/owner/edgeward:0.1.0@sha256:"), "{image}");
    let mut template = Command::new(helm);
    template.args(["template", "edgeward", "--namespace", "edgeward-system"]);
    let chart = output(template.arg(files.join("edgeward-0.1.0.tgz")));
    let (_, digest) = image.split_once('@').unwrap();
    is_copied_whole(&skopeo, &files.join("edgeward-0.1.0-image.tar"), digest);
    page_installs(&kubectl, &files);
    for text in [&chart, &read("install.yaml"), &read("install-cert-manager.yaml")] {
        assert_eq!(deployed_image(text), image);
    }

    let archive = files.join("edgeward-0.1.0-linux-amd64.tar.gz");
    assert_eq!(
        output(Command::new("tar").arg("-tzf").arg(archive)),
        "edgeward\nkubectl-edgeward\nkubectl_complete-edgeward\nLICENSE\n"
    );

    let plugin: Value = serde_saphyr::from_str(&read("krew.yaml")).unwrap();
    for platform in plugin["spec"]["platforms"].as_array().unwrap() {
        let name = platform["uri"].as_str().unwrap().rsplit('/').next().unwrap();
        let sum = platform["sha256"].as_str().unwrap();
        assert!(sums.contains(&format!("{sum}  {name}\n")), "{platform}");
    }
    let notes = fs::read_to_string(one.path().join("notes.md")).unwrap();
    assert!(
        notes.contains("/blob/v0.1.0/docs/guide/") && !notes.contains("](docs/"),
        "{notes}"
    );
}

/// The kustomization of the page on installing takes the release's manifests and adds the cloud's endpoint.
fn page_installs(kubectl: &Path, files: &Path) {
    let page = fs::read_to_string(workspace().join("docs/guide/install.md")).unwrap();
    let (_, rest) = page.split_once("> mine/kustomization.yaml <<EOF\n").unwrap();
    let (kustomization, _) = rest.split_once("EOF\n").unwrap();
    fs::write(files.join("kustomization.yaml"), kustomization.replace("$RELEASE/", "")).unwrap();
    let made = output(Command::new(kubectl).arg("kustomize").arg(files));
    assert!(made.contains("cloudEndpoint: https://cloud.example.com:6443"), "{made}");
}

/// What `skopeo copy` of the release workflow publishes has the digest that the manifests name.
fn is_copied_whole(skopeo: &Path, archive: &Path, digest: &str) {
    let copy = tempfile::tempdir().unwrap();
    let (from, to) = (
        format!("oci-archive:{}", archive.display()),
        format!("dir:{}", copy.path().display()),
    );
    let options = ["--insecure-policy", "copy", "--all", "--preserve-digests", &from, &to];
    output(Command::new(skopeo).args(options));
    let manifest = copy.path().join("manifest.json");
    let copied = output(Command::new(skopeo).arg("manifest-digest").arg(manifest));
    assert_eq!(copied.trim(), digest);
}

fn deployed_image(manifests: &str) -> String {
    let objects: Vec<Value> = serde_saphyr::from_multiple(manifests).unwrap();
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
    let image = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
    image.as_str().unwrap().to_owned()
}

/// An image in an OCI layout: its files as (mode, owner, size) by path, and its configuration.
fn image(layout: &Path) -> (BTreeMap<String, [String; 3]>, Value) {
    let blob = |descriptor: &Value| {
        let (_, digest) = descriptor["digest"].as_str().unwrap().split_once(':').unwrap();
        layout.join("blobs/sha256").join(digest)
    };
    let json = |path: &Path| -> Value { serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap() };
    let mut manifest = json(&layout.join("index.json"));
    // From an index to its first image.
    while let Some(first) = manifest["manifests"].get(0) {
        manifest = json(&blob(first));
    }
    let mut files = BTreeMap::new();
    for layer in manifest["layers"].as_array().unwrap() {
        let mut list = Command::new("tar");
        for line in output(list.args(["--numeric-owner", "-tvzf"]).arg(blob(layer))).lines() {
            let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
            let [mode, owner, size, _, _, path] = words.try_into().unwrap();
            files.insert(path, [mode, owner, size]);
        }
    }
    let config = json(&blob(&manifest["config"]))["config"].take();
    (
        files,
        json!(["User", "Env", "ExposedPorts", "Entrypoint"].map(|field| config[field].clone())),
    )
}

#[test]
fn image_has_files_and_configuration_of_dockerfile() {
    let Some(buildah) = tool("buildah") else { return };
    let release = folder(&["linux/amd64"]);
    let (work, programs) = (release.path(), release.path().join("programs"));
    let archive = in_release(work, &["image"]);
    let (ours, theirs) = (work.join("ours"), work.join("theirs"));
    fs::create_dir(&ours).unwrap();
    output(
        Command::new("tar")
            .arg("-xf")
            .arg(archive.trim_end())
            .arg("-C")
            .arg(&ours),
    );

    let buildah = |args: &[&str]| {
        let mut command = Command::new(&buildah);
        command
            .args(["--storage-driver", "vfs", "--root"])
            .arg(work.join("storage"));
        command
            .arg("--runroot")
            .arg(work.join("run"))
            .args(args)
            .current_dir(workspace());
        command
    };
    let build = [
        "build",
        "--isolation",
        "chroot",
        "--platform",
        "linux/amd64",
        "--target",
        "prebuilt",
    ];
    output(
        buildah(&build)
            .args(["--tag", "edgeward", "--file", "Dockerfile"])
            .arg(&programs),
    );
    output(buildah(&["push", "edgeward"]).arg(format!("oci:{}", theirs.display())));
    let (files, config) = image(&ours);
    assert_eq!((files.clone(), config), image(&theirs));
    assert_eq!(files["usr/local/bin/edgeward"][..2], ["-rwxr-xr-x", "0/0"]);
    assert!(files["etc/ssl/certs/ca-certificates.crt"][2].parse::<u32>().unwrap() > 100_000);
}

#[test]
fn archive_is_kubectl_plugin_with_completion() {
    let Some(kubectl) = tool("kubectl") else { return };
    let folder = tempfile::tempdir().unwrap();
    symlink(edgeward().get_program(), folder.path().join("edgeward")).unwrap();
    for name in ["kubectl-edgeward", "kubectl_complete-edgeward"] {
        fs::copy(workspace().join("xtask/plugin").join(name), folder.path().join(name)).unwrap();
    }
    let path = format!("{}:{}", folder.path().display(), env::var("PATH").unwrap());
    let kubectl = |args: &[&str]| output(Command::new(&kubectl).args(args).env("PATH", &path));
    assert!(kubectl(&["edgeward", "--version"]).starts_with("edgeward "));
    let commands = kubectl(&["__complete", "edgeward", "c"]);
    assert!(
        commands.starts_with("check\ncrds\nconfig-schema\ncompletions\n:4\n"),
        "{commands}"
    );
    let options = kubectl(&["__complete", "edgeward", "why", "--deploy"]);
    assert!(options.starts_with("--deployment\n:4\n"), "{options}");
}

#[test]
fn workflows_call_commands_that_exist() {
    let help = in_release(workspace(), &["--help"]);
    let workflows = fs::read_dir(workspace().join(".github/workflows")).unwrap();
    let workflows = workflows.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    let texts: Vec<_> = workflows
        .chain([fs::read_to_string(workspace().join(".ci/run")).unwrap()])
        .collect();
    let called: BTreeSet<_> = texts
        .iter()
        .flat_map(|text| text.split("cargo xtask ").skip(1))
        .filter_map(|rest| rest.split(|c: char| !c.is_ascii_lowercase() && c != '-').next())
        .collect();
    assert!(called.len() > 5, "{called:?}");
    for command in called {
        let is_listed = help
            .lines()
            .any(|line| line.trim_start().starts_with(&format!("{command} ")));
        assert!(is_listed, "`cargo xtask {command}`");
    }
}
