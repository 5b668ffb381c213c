//! Answers of the API server in Kubernetes' protobuf.

use std::io;

use edgeward_core::wire::protobuf;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderValue, Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::core::Status;
use kube::{Client, Error};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// What is asked for; JSON where there is no protobuf.
const FORMS: HeaderValue = HeaderValue::from_static("application/vnd.kubernetes.protobuf, application/json");

/// The JSON text of an object, with those of its fields that edgeward reads.
///
/// # Errors
/// There is none, the API server cannot be reached, or refuses to say.
pub(crate) async fn object(client: &Client, path: &str) -> kube::Result<String> {
    let request = Request::get(path).header(ACCEPT, FORMS).body(Body::empty());
    let response = send(client, request.map_err(Error::HttpError)?).await?;
    let is_protobuf = is_protobuf(&response);
    let body = response.into_body().collect().await?.to_bytes();
    if is_protobuf {
        return protobuf::to_json(&body).map_err(unreadable);
    }
    String::from_utf8(body.into()).map_err(Error::FromUtf8)
}

/// Sends a request.
///
/// # Errors
/// It is refused, in words of JSON or protobuf, or the API server cannot be reached.
pub(crate) async fn send(client: &Client, request: Request<Body>) -> kube::Result<Response<Body>> {
    let response = client.send(request).await?;
    let code = response.status();
    if code.is_success() {
        return Ok(response);
    }
    let is_protobuf = is_protobuf(&response);
    let body = response.into_body().collect().await?.to_bytes();
    let text = match is_protobuf {
        true => protobuf::to_json(&body).unwrap_or_else(|_| "an answer that cannot be read".to_owned()),
        false => String::from_utf8_lossy(&body).into_owned(),
    };
    let status = serde_json::from_str(&text)
        .unwrap_or_else(|_| Status::failure(text.trim(), "Failed to parse error data").with_code(code.as_u16()));
    Err(Error::Api(status.boxed()))
}

/// Whether this is the form of an answer.
pub(crate) fn is_protobuf(response: &Response<Body>) -> bool {
    let form = response.headers().get(CONTENT_TYPE);
    form.is_some_and(|form| form.as_bytes().starts_with(PROTOBUF.as_bytes()))
}

/// What cannot be read of an answer.
pub(crate) fn unreadable(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::ReadEvents(io::Error::other(error))
}

#[cfg(test)]
mod tests {
    use edgeward_core::testkit::protobuf::{field, numeric, object};

    use super::*;

    /// An API server that gives this answer, in this form.
    fn client(code: u16, form: &'static str, answer: Vec<u8>) -> Client {
        let service = tower::service_fn(move |request: Request<Body>| {
            assert_eq!(request.headers()[ACCEPT], FORMS);
            let response = Response::builder().status(code).header(CONTENT_TYPE, form);
            std::future::ready(response.body(Body::from(answer.clone())))
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn a_refusal_is_told_in_the_words_of_the_api_server() {
        let refusal = async |client| match object_of(client).await {
            Err(Error::Api(status)) => (status.message, status.code),
            other => panic!("{other:?}"),
        };
        let raw = [field(2, b"Failure"), field(3, b"pods is forbidden"), numeric(6, 403)].concat();
        let in_protobuf = client(403, PROTOBUF, object("v1", "Status", &raw));
        assert_eq!(refusal(in_protobuf).await, ("pods is forbidden".to_owned(), 403));
        let unread = client(500, PROTOBUF, vec![0, 1, 2]);
        assert_eq!(refusal(unread).await, ("an answer that cannot be read".to_owned(), 500));
        let json = br#"{"kind": "Status", "status": "Failure", "message": "no", "reason": "", "code": 409}"#;
        let in_json = client(409, "application/json", json.to_vec());
        assert_eq!(refusal(in_json).await, ("no".to_owned(), 409));
        // What a proxy says.
        let in_text = client(502, "text/plain", b"no upstream\xff".to_vec());
        assert_eq!(refusal(in_text).await, ("no upstream\u{fffd}".to_owned(), 502));
    }

    async fn object_of(client: Client) -> kube::Result<String> {
        super::object(&client, "/api/v1/namespaces/a/pods/b").await
    }

    #[tokio::test]
    async fn an_object_is_the_fields_that_are_read() {
        let pod = object("v1", "Pod", &field(1, &field(1, b"b")));
        let json = object_of(client(200, PROTOBUF, pod)).await.unwrap();
        assert_eq!(json, r#"{"metadata":{"name":"b"}}"#);
        let json = r#"{"metadata": {"name": "b"}, "spec": {}}"#;
        let in_json = client(200, "application/json", json.into());
        assert_eq!(object_of(in_json).await.unwrap(), json);
    }
}
