//! What a release publishes, made here from programs that stand in for the real ones.

use std::env;
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::{Command, Stdio};

use edgeward_harness::checkout::{is_ci, xtask};
use edgeward_harness::prelude::*;
use edgeward_harness::process::free_addresses;

use crate::program::{edgeward, is_recorded};

const VERSION: &str = env!("CARGO_PKG_VERSION");

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
    let tools = ["kubectl", "helm", "skopeo", "registry"].map(tool);
    let [Some(kubectl), Some(helm), Some(skopeo), Some(registry)] = tools else {
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
        "edgeward-VERSION-darwin-amd64.tar.gz",
        "edgeward-VERSION-darwin-arm64.tar.gz",
        "edgeward-VERSION-image.tar",
        "edgeward-VERSION-linux-amd64.cdx.json",
        "edgeward-VERSION-linux-amd64.tar.gz",
        "edgeward-VERSION-linux-arm.tar.gz",
        "edgeward-VERSION-linux-arm64.cdx.json",
        "edgeward-VERSION-linux-arm64.tar.gz",
        "edgeward-VERSION.tgz",
        "install-cert-manager.yaml",
        "install.yaml",
        "krew.yaml",
    ]
    .map(|name| name.replace("VERSION", VERSION));
    assert_eq!(named, expected);
    output(
        Command::new("sha256sum")
            .args(["--check", "SHA256SUMS"])
            .current_dir(&files),
    );

    let image = lines.iter().find_map(|line| line.strip_prefix("image ")).unwrap();
    let repository = env!("CARGO_PKG_REPOSITORY")
        .replace("https://github.com", "ghcr.io")
        .to_lowercase();
    assert!(image.starts_with(&format!("{repository}:{VERSION}@sha256:")), "{image}");
    let mut template = Command::new(&helm);
    template.args(["template", "edgeward", "--namespace", "edgeward-system"]);
    let chart = output(template.arg(files.join(format!("edgeward-{VERSION}.tgz"))));
    is_published(one.path(), image, [&helm, &skopeo, &registry]);
    page_installs(&kubectl, &files);
    for text in [&chart, &read("install.yaml"), &read("install-cert-manager.yaml")] {
        assert_eq!(deployed_image(text), image);
    }

    let archive = files.join(format!("edgeward-{VERSION}-linux-amd64.tar.gz"));
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
        notes.contains(&format!("/blob/v{VERSION}/docs/guide/")) && !notes.contains("](docs/"),
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

/// Functions in place of programs that need an account, which write down their arguments, and of the switches for a registry
/// without TLS.
const STAND_INS: &str = r#"
cosign() { echo "cosign $*" >> calls; }
gh() { echo "gh $*" >> calls; }
helm() { "$HELM" "$@" --plain-http; }
skopeo() { "$SKOPEO" --insecure-policy "$1" --dest-tls-verify=false "${@:2}"; }
"#;

/// Runs the steps of the release workflow that publish `image`, against a registry of this test.
fn is_published(folder: &Path, image: &str, [helm, skopeo, registry]: [&Path; 3]) {
    let work = tempfile::tempdir().unwrap();
    let here = work.path();
    let [address] = free_addresses().unwrap();
    let config = format!(
        "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {}/images}}}}\nhttp: {{addr: '{address}'}}\n",
        here.display()
    );
    fs::write(here.join("registry.yaml"), config).unwrap();
    let args = ["serve".to_owned(), here.join("registry.yaml").display().to_string()];
    let _registry = Process::start("registry", registry, &args, here).unwrap();
    eventually("the registry listens", BOUND, || Ok(TcpStream::connect(address)?)).unwrap();

    fs::create_dir(here.join("target")).unwrap();
    symlink(folder, here.join("target/publish")).unwrap();
    let outputs = fs::read_to_string(folder.join("outputs")).unwrap();
    let outputs: BTreeMap<_, _> = outputs.lines().filter_map(|line| line.split_once('=')).collect();
    let workflow = fs::read_to_string(workspace().join(".github/workflows/release.yaml")).unwrap();
    let workflow: Value = serde_saphyr::from_str(&workflow).unwrap();
    let tag = format!("v{VERSION}");
    for name in ["image", "chart", "release"] {
        let mut steps = workflow["jobs"]["publish"]["steps"].as_array().unwrap().iter();
        let step = steps.find(|step| step["name"] == name).unwrap();
        let mut bash = Command::new("bash");
        bash.arg("-e");
        if step["shell"] == "bash" {
            bash.args(["-o", "pipefail"]);
        }
        bash.arg("-c").arg(STAND_INS.to_owned() + step["run"].as_str().unwrap());
        for (variable, value) in step["env"].as_object().unwrap() {
            let output = value.as_str().unwrap().strip_prefix("${{ steps.made.outputs.");
            let output = output.map_or("a token", |output| outputs[output.trim_end_matches(" }}")]);
            bash.env(variable, output.replace("ghcr.io", &address.to_string()));
        }
        bash.envs([("HELM", helm), ("SKOPEO", skopeo)])
            .env("GITHUB_REF_NAME", &tag);
        output(bash.current_dir(here));
    }

    let [image, charts] = [image, outputs["charts"]].map(|name| name.replace("ghcr.io", &address.to_string()));
    let (name, digest) = image.split_once('@').unwrap();
    let digest_of = |published: &str| {
        let inspect = ["inspect", "--tls-verify=false", "--raw", published];
        fs::write(here.join("manifest.json"), output(Command::new(skopeo).args(inspect))).unwrap();
        let digest = output(
            Command::new(skopeo)
                .arg("manifest-digest")
                .arg(here.join("manifest.json")),
        );
        digest.trim().to_owned()
    };
    assert_eq!(digest_of(&format!("docker://{name}")), digest);
    let pull = [
        "pull",
        "--plain-http",
        "--version",
        VERSION,
        &format!("oci://{charts}/edgeward"),
    ];
    output(Command::new(helm).args(pull).current_dir(here));
    let chart = format!("edgeward-{VERSION}.tgz");
    let files = folder.join("files");
    assert_eq!(
        fs::read(here.join(&chart)).unwrap(),
        fs::read(files.join(chart)).unwrap()
    );

    let calls = fs::read_to_string(here.join("calls")).unwrap();
    let calls: Vec<_> = calls.lines().collect();
    let [signed, of_chart, of_sums, release] = calls.try_into().unwrap();
    let (name, _) = name.rsplit_once(':').unwrap();
    assert_eq!(signed, format!("cosign sign --yes {name}@{digest}"));
    let digest = digest_of(&format!("docker://{charts}/edgeward:{VERSION}"));
    assert_eq!(of_chart, format!("cosign sign --yes {charts}/edgeward@{digest}"));
    let sums = "target/publish/files/SHA256SUMS";
    assert_eq!(
        of_sums,
        format!("cosign sign-blob --yes --bundle {sums}.sigstore.json {sums}")
    );
    assert!(
        release.starts_with(&format!("gh release create {tag} --verify-tag ")),
        "{release}"
    );
    for file in fs::read_dir(files).unwrap() {
        let file = format!(" target/publish/files/{}", file.unwrap().file_name().display());
        assert!(release.contains(&file), "{release}");
    }
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
    let released = folder(&["linux/amd64"]);
    let program = format!("#!/bin/sh\nexec {} \"$@\"\n", edgeward().get_program().display());
    fs::write(released.path().join("programs/linux/amd64/edgeward"), program).unwrap();
    in_release(released.path(), &["release", "--dry-run"]);
    let archive = released
        .path()
        .join(format!("files/edgeward-{VERSION}-linux-amd64.tar.gz"));
    let unpacked = tempfile::tempdir().unwrap();
    let mut tar = Command::new("tar");
    output(tar.arg("-xzf").arg(archive).arg("-C").arg(unpacked.path()));
    let path = format!("{}:{}", unpacked.path().display(), env::var("PATH").unwrap());
    let kubectl = |args: &[&str]| output(Command::new(&kubectl).args(args).env("PATH", &path));
    assert!(kubectl(&["edgeward", "--version"]).starts_with("edgeward "));
    let commands = kubectl(&["__complete", "edgeward", "c"]);
    assert!(
        commands.starts_with("check\ncost-map\ncrds\nconfig-schema\ncompletions\n:4\n"),
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

/// Cargo.toml has the address of the repository. `EDGEWARD_BLESS=1` writes it to the files that cannot refer to it.
#[test]
fn every_file_has_the_repository_of_the_workspace() {
    const FILES: [&str; 5] = [
        ".github/CODEOWNERS",
        "Cargo.toml",
        "docs/guide/install.md",
        "fuzz/Cargo.toml",
        "python/Cargo.toml",
    ];
    let name = env!("CARGO_PKG_REPOSITORY").trim_start_matches("https://github.com/");
    let (owner, _) = name.split_once('/').unwrap();
    let read = |file: &str| fs::read_to_string(workspace().join(file)).unwrap();
    let owners = read(FILES[0]);
    let (_, before) = owners.rsplit_once('@').unwrap();
    let (before, _) = before.split_once('/').unwrap();
    for file in FILES.into_iter().filter(|file| *file != "Cargo.toml") {
        let mut text = read(file);
        for place in ["github.com/", "@", "--repo ", "ghcr.io/"] {
            let now = if place == "ghcr.io/" {
                owner.to_lowercase()
            } else {
                owner.to_owned()
            };
            for before in [before.to_owned(), before.to_lowercase()] {
                text = text.replace(&format!("{place}{before}/"), &format!("{place}{now}/"));
            }
        }
        let path = workspace().join(file);
        assert!(
            is_recorded(&path, &text),
            "{file} lags Cargo.toml; EDGEWARD_BLESS=1 writes it again"
        );
    }
    let list = [
        "grep",
        "-lE",
        &format!("(github.com/|@|ghcr.io/)({owner}|{})/", owner.to_lowercase()),
    ];
    let found = output(Command::new("git").args(list).current_dir(workspace()));
    assert_eq!(found.lines().collect::<Vec<_>>(), FILES);
    let page = fs::read_to_string(workspace().join("docs/guide/install.md")).unwrap();
    assert!(page.contains(&format!("ghcr.io/{} --digests", name.to_lowercase())));
}
