//! One version of a pod: read or patched.

use std::time::Duration;

use json_patch::PatchOperation;
use k8s_openapi::api::core::v1::Pod as PodObject;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};

use crate::sources::raw::{Gvr, Raw};

/// How long reading a pod may take.
const READING: Duration = Duration::from_secs(10);

/// What came of a patch.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The pod is changed.
    Changed,
    /// The pod is another by now, or gone.
    Outdated,
    /// The API server does not take it, nor would it a moment later.
    Refused(String),
    /// The API server does not answer, or asks to wait.
    Unavailable(String),
}

impl Outcome {
    /// As metrics name it.
    pub(super) const fn as_str(&self) -> &'static str {
        match self {
            Self::Changed => "changed",
            Self::Outdated => "outdated",
            Self::Refused(_) | Self::Unavailable(_) => "refused",
        }
    }
}

/// The version of a pod that a patch is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Version<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) resource_version: &'a str,
}

impl Version<'_> {
    /// The pod, perhaps in another version.
    ///
    /// # Errors
    /// What else came of it: never [`Outcome::Changed`].
    pub(super) async fn read(self, client: &Client) -> Result<Raw, Outcome> {
        let reading = tokio::time::timeout(READING, read(client, self.namespace, self.name));
        let pod = match reading.await {
            Ok(read) => read.map_err(not_taken)?,
            Err(_) => return Err(Outcome::Unavailable("it cannot be read: no answer".to_owned())),
        };
        pod.ok_or(Outcome::Outdated)
    }

    /// Sends a patch that begins by testing that the pod still is this version. What became of the pod, the watch says.
    pub(super) async fn patch(self, client: &Client, operations: &[PatchOperation]) -> Outcome {
        let pods = Api::<PodObject>::namespaced(client.clone(), self.namespace);
        let patch = Patch::Json::<()>(json_patch::Patch(operations.to_vec()));
        let error = match pods
            .patch_metadata(self.name, &PatchParams::apply("edgeward"), &patch)
            .await
        {
            Ok(_) => return Outcome::Changed,
            Err(error) => error,
        };
        match &error {
            // A test that fails looks like a pod that is not valid, and the refusal of a webhook may look like anything.
            kube::Error::Api(status) if matches!(status.code, 404 | 409 | 422) && !self.is_current(client).await => {
                Outcome::Outdated
            }
            _ => not_taken(error),
        }
    }

    /// Whether the pod is still there in this version, as far as can be told.
    async fn is_current(self, client: &Client) -> bool {
        let pods: Api<PodObject> = Api::namespaced(client.clone(), self.namespace);
        match pods.get_metadata_opt(self.name).await {
            Ok(Some(found)) => found.metadata.resource_version.as_deref() == Some(self.resource_version),
            Ok(None) => false,
            Err(kube::Error::Api(status)) if status.code == 404 => false,
            Err(_) => true,
        }
    }
}

fn not_taken(error: kube::Error) -> Outcome {
    match &error {
        kube::Error::Api(status) if (400..500).contains(&status.code) && !matches!(status.code, 408 | 429) => {
            Outcome::Refused(words(error))
        }
        _ => Outcome::Unavailable(words(error)),
    }
}

/// A pod; `None` if there is none of that name.
///
/// # Errors
/// The API server cannot be reached, or refuses to say.
pub(super) async fn read(client: &Client, namespace: &str, name: &str) -> kube::Result<Option<Raw>> {
    let pods = Api::namespaced_with(client.clone(), namespace, &Gvr::PODS);
    match pods.get(name).await {
        Ok(pod) => Ok(Some(pod)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// What the API server said, or what kept it from saying anything.
pub(super) fn words(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message,
        error => format!("{:#}", anyhow::Error::from(error)),
    }
}
