//! edgeward installed with kubectl, as the guide describes it.

use crate::real_node::{ADDRESS, RealNode};
use edgeward_harness::prelude::*;
use edgeward_harness::wait::TIMEOUT;

/// A kustomization that is applied. Dropping the value deletes its objects.
pub(crate) struct Installed {
    kubectl: Kubectl,
    folder: String,
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
    /// Applies an overlay of `deploy/overlays` with these components, and waits until it is rolled out.
    pub(crate) fn apply(node: &RealNode, overlay: &str, components: &[&str]) -> Result<Self> {
        let folder = node.dir().join(overlay);
        fs::create_dir_all(&folder)?;
        let checkout = folder.join("edgeward");
        if !checkout.exists() {
            std::os::unix::fs::symlink(workspace(), &checkout)?;
        }
        let (name, tag) = image();
        let endpoint = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "edgeward-config", "namespace": NAMESPACE},
            "data": {"cloudEndpoint": format!("icmp://{ADDRESS}")},
        });
        let components: Vec<_> = components
            .iter()
            .map(|name| format!("edgeward/deploy/{name}"))
            .collect();
        let kustomization = json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [format!("edgeward/deploy/overlays/{overlay}")],
            "components": components,
            "images": [{"name": "edgeward", "newName": name, "newTag": tag}],
            "patches": [{"patch": endpoint.to_string()}],
        });
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
