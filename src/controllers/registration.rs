//! Takes our registration with the API server away, when edgeward is uninstalled.

use anyhow::anyhow;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::api::DeleteParams;
use kube::{Api, Client};

use super::pod_patch::words;

/// Deletes the MutatingWebhookConfiguration of this name; `false` if there is none. Each API server takes a moment to
/// know, and what it has asked us before is still answered.
///
/// # Errors
/// The API server cannot be reached, or refuses.
pub async fn remove(client: &Client, name: &str) -> anyhow::Result<bool> {
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    match configurations.delete(name, &DeleteParams::default()).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(anyhow!(
            "cannot delete mutatingwebhookconfiguration {name}: {}",
            words(error)
        )),
    }
}

/// The domain of the pods that the MutatingWebhookConfiguration of this name is for, by the label of namespaces that it selects;
/// `None` if there is no such configuration, or it selects by none.
///
/// # Errors
/// The API server cannot be reached, or refuses.
pub async fn domain(client: &Client, name: &str) -> anyhow::Result<Option<String>> {
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let found = configurations.get_opt(name).await;
    let found = found.map_err(|error| anyhow!("cannot get mutatingwebhookconfiguration {name}: {}", words(error)))?;
    let webhooks = found.and_then(|found| found.webhooks).unwrap_or_default();
    let selectors = webhooks.into_iter().filter_map(|webhook| webhook.namespace_selector);
    let mut keys = selectors
        .flat_map(|selector| selector.match_expressions.unwrap_or_default())
        .map(|expression| expression.key);
    Ok(keys.find_map(|key| Some(key.strip_prefix("scheduling.")?.strip_suffix("/managed")?.to_owned())))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Method, Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// An API server with this answer.
    fn server(code: u16) -> Client {
        let answer = tower::service_fn(move |request: Request<Body>| async move {
            assert_eq!(request.method(), Method::DELETE);
            let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/zz-edgeward";
            assert_eq!(request.uri().path(), path);
            let (status, message) = if code < 400 {
                ("Success", "")
            } else {
                ("Failure", "said no")
            };
            let answer = json!({"kind": "Status", "status": status, "code": code, "message": message, "reason": ""});
            let answer = Response::builder()
                .status(code)
                .body(Body::from(answer.to_string().into_bytes()));
            Ok::<_, Infallible>(answer.unwrap())
        });
        Client::new(answer, "default")
    }

    #[tokio::test]
    async fn one_that_is_gone_is_no_fault_and_a_refusal_is() {
        assert!(remove(&server(200), "zz-edgeward").await.unwrap());
        assert!(!remove(&server(404), "zz-edgeward").await.unwrap());
        let error = remove(&server(403), "zz-edgeward").await.unwrap_err().to_string();
        assert_eq!(error, "cannot delete mutatingwebhookconfiguration zz-edgeward: said no");
    }
}
