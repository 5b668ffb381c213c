//! Reads or patches one version of a pod.

use std::time::Duration;

use edgeward_cluster::queue::PatchResult;
use json_patch::PatchOperation;
use k8s_openapi::api::core::v1::Pod as PodObject;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};

use crate::watch::raw::{Gvr, Raw};

/// Timeout for reading a pod.
const READING: Duration = Duration::from_secs(10);

/// Sends a patch that starts with a test for this version of the pod. The watch delivers the new state of the pod.
pub(super) async fn patch(
    client: &Client,
    [namespace, name]: [&str; 2],
    version: &str,
    operations: &[PatchOperation],
) -> PatchResult {
    let pods = Api::<PodObject>::namespaced(client.clone(), namespace);
    let patch = Patch::Json::<()>(json_patch::Patch(operations.to_vec()));
    let error = match pods.patch_metadata(name, &PatchParams::apply("edgeward"), &patch).await {
        Ok(_) => return PatchResult::Changed,
        Err(error) => error,
    };
    // A failed test looks like an invalid pod, and a webhook may refuse the patch with any of these codes. If the API
    // server does not answer, the version counts as current.
    if matches!(&error, kube::Error::Api(status) if matches!(status.code, 404 | 409 | 422))
        && let Ok(found) = pods.get_metadata_opt(name).await
        && found.and_then(|found| found.metadata.resource_version).as_deref() != Some(version)
    {
        return PatchResult::Outdated;
    }
    not_taken(error)
}

fn not_taken(error: kube::Error) -> PatchResult {
    match &error {
        kube::Error::Api(status) if (400..500).contains(&status.code) && !matches!(status.code, 408 | 429) => {
            PatchResult::Refused(words(error))
        }
        _ => PatchResult::Unavailable(words(error)),
    }
}

/// Reads a pod.
///
/// # Errors
/// Why there is no pod. This is never [`PatchResult::Changed`].
pub(super) async fn read(client: &Client, namespace: &str, name: &str) -> Result<Raw, PatchResult> {
    let pods = Api::namespaced_with(client.clone(), namespace, &Gvr::PODS);
    match tokio::time::timeout(READING, pods.get_opt(name)).await {
        Ok(Ok(pod)) => pod.ok_or(PatchResult::Outdated),
        Ok(Err(error)) => Err(not_taken(error)),
        Err(_) => Err(PatchResult::Unavailable("it cannot be read: no answer".to_owned())),
    }
}

/// The API server's message, or the error that prevented an answer.
pub(super) fn words(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message,
        error => format!("{:#}", anyhow::Error::from(error)),
    }
}
