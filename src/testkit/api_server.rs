use http::{Method, Request, Response, Uri};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

/// A client of an API server that answers each request, with its body, by a status code and an object.
pub(crate) fn api_server<F>(answer: impl Fn(Method, Uri, Value) -> F + Clone + Send + 'static) -> Client
where
    F: Future<Output = (u16, Value)> + Send + 'static,
{
    let service = tower::service_fn(move |request: Request<Body>| {
        let answer = answer.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = serde_json::from_slice(&body.collect().await?.to_bytes()).unwrap_or_default();
            let (code, object) = answer(head.method, head.uri, body).await;
            let object = object.to_string().into_bytes();
            anyhow::Ok(Response::builder().status(code).body(Body::from(object))?)
        })
    });
    Client::new(service, "default")
}

/// A failure as the API server answers it.
pub(crate) fn failure(code: u16, message: &str) -> (u16, Value) {
    // kube recognises a missing object by the reason.
    let reason = if code == 404 { "NotFound" } else { "" };
    let status = json!({"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code});
    (code, status)
}
