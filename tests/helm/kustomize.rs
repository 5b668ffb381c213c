//! Installed by Helm or by kustomize, the objects are the same.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use edgeward::config::Config;
use edgeward::observe::configuration::read;
use serde_json::{Value, json};

use crate::Tools;
use crate::rendered::{NAMESPACE, Objects, least, objects};

/// Stands for three PEM files: who renders does not read them.
const PEM: [(&str, &str); 3] = [
    ("ca", "-----BEGIN CERTIFICATE-----\nca\n"),
    ("certificate", "-----BEGIN CERTIFICATE-----\nleaf\n"),
    ("key", "-----BEGIN PRIVATE KEY-----\nkey\n"),
];

impl Tools {
    /// What kustomize makes of these folders of a checkout, with the image and domain of a trial.
    fn kustomized(&self, folders: &[&str], domain: &str) -> Result<Objects> {
        let dir = tempfile::tempdir_in(&self.dir)?;
        let (ours, mine) = (dir.path().join("edgeward"), dir.path().join("mine"));
        for folder in ["deploy", "webhook", "certs"] {
            copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &ours.join(folder))?;
        }
        for ((_, text), file) in PEM.iter().zip(["ca.crt", "tls.crt", "tls.key"]) {
            fs::write(ours.join("certs/files").join(file), text)?;
        }
        fs::create_dir(&mine)?;
        let resources: Vec<_> = folders.iter().map(|folder| format!("../edgeward/{folder}")).collect();
        let version = env!("CARGO_PKG_VERSION");
        let image = json!({"name": "edgeward", "newName": "registry.example/edgeward", "newTag": version});
        let kustomization = json!({"resources": resources, "images": [image]});
        fs::write(mine.join("kustomization.yaml"), kustomization.to_string())?;
        let output = Command::new(&self.kubectl).arg("kustomize").arg(mine).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        objects(&String::from_utf8(output.stdout)?.replace("example.io", domain))
    }

    /// What Helm makes of the chart, but for its hooks and its own labels.
    fn charted(&self, values: &Value) -> Result<Objects> {
        let mut objects = objects(&self.template(values)?)?;
        objects.retain(|_, object| object["metadata"]["annotations"].get("helm.sh/hook").is_none());
        for object in objects.values_mut() {
            let labels = object["metadata"]["labels"].as_object_mut().context("labels")?;
            for label in [
                "app.kubernetes.io/instance",
                "app.kubernetes.io/version",
                "app.kubernetes.io/managed-by",
                "helm.sh/chart",
            ] {
                labels.remove(label).with_context(|| label.to_owned())?;
            }
        }
        Ok(objects)
    }

    /// The configuration of a ConfigMap.
    fn config(&self, map: &Value) -> Result<Config> {
        let file = tempfile::NamedTempFile::with_suffix_in(".yaml", &self.dir)?;
        fs::write(&file, map.to_string())?;
        read(file.path())
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()? {
            kind if kind.is_symlink() => symlink(fs::read_link(entry.path())?, to)?,
            kind if kind.is_dir() => copy(&entry.path(), &to)?,
            _ => drop(fs::copy(entry.path(), to)?),
        }
    }
    Ok(())
}

fn ensure_same(by_helm: &Objects, by_kustomize: &Objects) -> Result<()> {
    let keys = |objects: &Objects| objects.keys().cloned().collect::<Vec<_>>();
    ensure!(
        keys(by_helm) == keys(by_kustomize),
        "{:#?}\nand not\n{:#?}",
        keys(by_helm),
        keys(by_kustomize)
    );
    for (key, object) in by_helm {
        let expected = &by_kustomize[key];
        ensure!(object == expected, "{key}: {object:#}\nand not\n{expected:#}");
    }
    Ok(())
}

/// The namespace is Helm's own to create, and the ConfigMap has only what is not the program's default.
pub(crate) fn the_same_as_by_kustomize(tools: &Tools) -> Result<()> {
    for domain in ["example.io", "acme.dev"] {
        for source in ["cert-manager", "self-managed", "files"] {
            let mut values = least();
            values["domain"] = json!(domain);
            values["certificates"]["source"] = json!(source);
            if source == "files" {
                values["certificates"]["files"] = PEM
                    .iter()
                    .map(|(name, text)| ((*name).to_owned(), json!(text)))
                    .collect();
            }
            let mut by_helm = tools.charted(&values)?;
            let mut by_kustomize = tools.kustomized(&[&format!("deploy/overlays/{source}")], domain)?;

            let namespace = by_kustomize.remove(&format!("Namespace /{NAMESPACE}"));
            ensure!(namespace.is_some(), "kustomize makes no namespace");
            let map = format!("ConfigMap {NAMESPACE}/edgeward-config");
            let mut taken = [&mut by_helm, &mut by_kustomize].map(|objects| objects.remove(&map).unwrap_or_default());
            ensure!(tools.config(&taken[0])? == tools.config(&taken[1])?, "{taken:?}");
            ensure!(tools.config(&taken[0])?.keys.domain == domain);
            for map in &mut taken {
                map["data"].take();
            }
            ensure!(taken[0] == taken[1], "{taken:?}");
            ensure_same(&by_helm, &by_kustomize)?;
        }
    }
    Ok(())
}

/// What is a folder more for kustomize is a value of the chart.
pub(crate) fn overlays_are_values(tools: &Tools) -> Result<()> {
    let plain = tools.charted(&least())?;
    let mut values = least();
    values["validation"]["deny"] = json!(true);
    values["config"]["backstop"]["recreate"] = json!(true);
    let mut by_helm = tools.charted(&values)?;
    by_helm.retain(|key, object| plain.get(key) != Some(object));
    by_helm
        .remove(&format!("ConfigMap {NAMESPACE}/edgeward-config"))
        .context("the configuration says so too")?;

    let mut by_kustomize = tools.kustomized(&["deploy/recreate", "webhook/overlays/deny"], "example.io")?;
    by_kustomize.retain(|key, object| {
        // The folder has no label of its own, which all objects of the chart have.
        if object["metadata"]["name"] == "edgeward-recreate" {
            object["metadata"]["labels"] = json!({"app.kubernetes.io/name": "edgeward"});
        }
        // Of the webhook, this overlay has no certificate.
        object["kind"] != "MutatingWebhookConfiguration" && plain.get(key) != Some(object)
    });
    ensure!(by_kustomize.len() == 3, "{by_kustomize:#?}");
    ensure_same(&by_helm, &by_kustomize)
}

/// Nothing of another namespace is left: who is called, who may do what, whose pods are left alone, and for which name the
/// certificate is.
pub(crate) fn in_another_namespace(tools: &Tools) -> Result<()> {
    let text = tools.template_of(crate::CHART, "placement", &least())?;
    ensure!(!text.contains(NAMESPACE), "{text}");
    ensure!(
        text.contains("edgeward.placement.svc") && text.contains("placement/edgeward-ca"),
        "{text}"
    );
    let objects = objects(&text)?;
    let leaf = &objects["Certificate placement/edgeward"]["spec"]["dnsNames"];
    ensure!(*leaf == json!(["edgeward.placement.svc"]), "{leaf}");
    Ok(())
}
