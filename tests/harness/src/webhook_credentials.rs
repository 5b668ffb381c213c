//! The certificate that the API server presents to webhooks.

use std::net::TcpListener;

use crate::documentation::documented;
use crate::prelude::*;

pub const NAME: &str = "edgeward.edgeward-system.svc";

const FOLDER: &str = "/etc/kubernetes/pki/edgeward";

/// The Service to which the run's API server presents its certificate. It belongs to the test about this feature.
pub const SERVICE: &str = "edgeward.client-without-certificate-is-refused.svc";

/// The API server's client certificates for webhooks: one for [`SERVICE`], whose files the test creates, and none for other
/// webhooks.
pub struct WebhookCredentials {
    /// Used instead of [`FOLDER`].
    folder: PathBuf,
    /// The port of the Service. It is reserved from the start, because the API server must know it then.
    listener: TcpListener,
}

impl WebhookCredentials {
    pub(crate) fn write(dir: &Path) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let folder = dir.join("webhook-credentials");
        fs::create_dir(&folder)?;
        let here = |text: &str| text.replace(FOLDER, &folder.display().to_string());
        let configuration = documented("yaml", "kind: AdmissionConfiguration")?;
        fs::write(folder.join("admission.yaml"), here(configuration))?;
        let known = documented("yaml", "kind: Config\n")?;
        let service = format!("- name: {SERVICE}:{}\n", listener.local_addr()?.port());
        let ours = known.replace(&format!("- name: {NAME}\n"), &service);
        ensure!(ours != known, "{known}");
        fs::write(folder.join("webhooks.kubeconfig"), here(&ours))?;
        Ok(Self { folder, listener })
    }

    /// The file for `--admission-control-config-file`.
    pub(crate) fn configuration(&self) -> PathBuf {
        self.folder.join("admission.yaml")
    }

    /// Makes the API server present `client.crt` of this directory, with its `client.key`, from now on.
    pub fn set(&self, dir: &Path) -> Result<()> {
        for file in ["client.crt", "client.key"] {
            fs::copy(dir.join(file), self.folder.join(file))?;
        }
        Ok(())
    }

    pub fn listener(&self) -> Result<TcpListener> {
        Ok(self.listener.try_clone()?)
    }
}
