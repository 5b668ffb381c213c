//! Mounts a Secret as kubelet would for a pod, where there is no kubelet.

use std::os::unix::fs::symlink;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::runtime::{WatchStreamExt as _, watcher};
use tokio::task::JoinHandle;

use crate::clients::client;
use crate::prelude::*;
use crate::volume::Volume;

/// A directory with the content of a Secret, updated while this value lives. Changes appear at once; kubelet takes up to two
/// minutes.
pub struct Mount {
    task: JoinHandle<()>,
}

impl Mount {
    /// Mounts a Secret at the new directory `directory`, and waits until the Secret exists.
    pub(crate) fn open(fixture: &Fixture<'_>, namespace: &str, secret: &str, directory: &PathBuf) -> Result<Self> {
        let mut volume = Volume::new()?;
        symlink(volume.path("."), directory)?;
        let secrets = Api::<Secret>::namespaced(fixture.runtime.block_on(client(fixture))?, namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={secret}"));
        let task = fixture.runtime.spawn(async move {
            let mut secrets = watcher(secrets, config).default_backoff().applied_objects().boxed();
            while let Some(found) = secrets.next().await {
                let Ok(found) = found else { continue };
                let data = found.data.unwrap_or_default();
                let data = data.iter().map(|(name, content)| (&**name, str::from_utf8(&content.0)));
                let files: Vec<_> = data
                    .map(|(name, content)| (name, content.unwrap_or_default()))
                    .collect();
                if let Err(error) = volume.swap(&files) {
                    eprintln!("cannot mount a Secret: {error}");
                }
            }
        });
        let mount = Self { task };
        eventually(&format!("the Secret {secret} is there"), BOUND, || {
            ensure!(directory.join("..data").exists(), "it is not mounted");
            Ok(())
        })?;
        Ok(mount)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        self.task.abort();
    }
}
