//! edgeward installed with kubectl, as the guide describes it.

use std::env;

use crate::real_node::{ADDRESS, RealNode};
use edgeward_harness::prelude::*;
use edgeward_harness::wait::TIMEOUT;

/// A kustomization that is applied. Dropping the value deletes its objects.
pub(crate) struct Installed {
    kubectl: Kubectl,
    folder: String,
}

/// The variable that names the folder with what a release publishes.
pub(crate) const RELEASE: &str = "EDGEWARD_RELEASE";

/// A file that a release publishes.
pub(crate) fn published(name: &str) -> Result<PathBuf> {
    let folder = env::var_os(RELEASE).context(RELEASE)?;
    Ok(Path::new(&folder).join("files").join(name))
}

/// The archive with the image.
pub(crate) fn archive() -> Result<PathBuf> {
    published(&format!("edgeward-{}-image.tar", env!("CARGO_PKG_VERSION")))
}

/// The image's name in its archive, and its tag.
pub(crate) fn image() -> (String, &'static str) {
    let repository = env!("CARGO_PKG_REPOSITORY").trim_start_matches("https://github.com/");
    (
        format!("ghcr.io/{}", repository.to_lowercase()),
        env!("CARGO_PKG_VERSION"),
    )
}

impl Installed {
    /// Applies these manifests of the release, and waits until they are rolled out.
    pub(crate) fn release(node: &RealNode, manifests: &str) -> Result<Self> {
        let folder = node.dir().join("release");
        fs::create_dir_all(&folder)?;
        fs::copy(published(manifests)?, folder.join(manifests))?;
        Self::apply_to(node, &folder, json!({"resources": [manifests]}))
    }

    /// Applies an overlay of `deploy/overlays` with these components, and waits until it is rolled out.
    pub(crate) fn apply(node: &RealNode, overlay: &str, components: &[&str]) -> Result<Self> {
        let folder = node.dir().join(overlay);
        fs::create_dir_all(&folder)?;
        let checkout = folder.join("edgeward");
        if !checkout.exists() {
            std::os::unix::fs::symlink(workspace(), &checkout)?;
        }
        let (name, tag) = image();
        let components: Vec<_> = components
            .iter()
            .map(|name| format!("edgeward/deploy/{name}"))
            .collect();
        let kustomization = json!({
            "resources": [format!("edgeward/deploy/overlays/{overlay}")],
            "components": components,
            "images": [{"name": "edgeward", "newName": name, "newTag": tag}],
        });
        Self::apply_to(node, &folder, kustomization)
    }

    /// Applies the kustomization in this folder, with the address that edgeward probes.
    fn apply_to(node: &RealNode, folder: &Path, mut kustomization: Value) -> Result<Self> {
        // As the guide on installing says.
        let endpoint = json!([{"op": "add", "path": "/data/cloudEndpoint", "value": format!("icmp://{ADDRESS}")}]);
        kustomization["patches"] = json!([{
            "target": {"kind": "ConfigMap", "labelSelector": "app.kubernetes.io/component=configuration"},
            "patch": endpoint.to_string(),
        }]);
        fs::write(folder.join("kustomization.yaml"), kustomization.to_string())?;
        let installed = Self {
            kubectl: node.kubectl(NAMESPACE),
            folder: folder.display().to_string(),
        };
        installed.kubectl.run(&["apply", "-k", &installed.folder], "")?;
        rolled_out(&installed.kubectl)?;
        Ok(installed)
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let args = ["delete", "--ignore-not-found", TIMEOUT, "-k", &self.folder];
        if let Err(error) = self.kubectl.run(&args, "") {
            eprintln!("{error:#}");
        }
    }
}

/// Waits until every replica of the newest version is ready.
pub(crate) fn rolled_out(kubectl: &Kubectl) -> Result<()> {
    kubectl
        .run(&["rollout", "status", "deployment", "edgeward", TIMEOUT], "")
        .map(drop)
}
