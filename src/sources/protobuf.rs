//! Watches of Kubernetes' own kinds, in protobuf: an API server encodes an event in protobuf once for all who watch it, and
//! in JSON for each of them.

use std::io;

use edgeward_core::wire::protobuf::{self, Event};
use futures::io::AsyncBufReadExt as _;
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use http::HeaderValue;
use http::header::{ACCEPT, ACCEPT_ENCODING};
use http_body_util::BodyExt as _;
use kube::api::{TypeMeta, WatchEvent, WatchParams};
use kube::client::Body;
use kube::core::Request;
use kube::core::watch::{Bookmark, BookmarkMeta};
use kube::{Api, Error, Resource};
use serde::Deserialize;
use tokio_util::bytes::BytesMut;
use tokio_util::codec::{Decoder, FramedRead, LengthDelimitedCodec};
use tokio_util::io::StreamReader;

use crate::api::protobuf::{is_protobuf, send, unreadable};
use crate::sources::raw::Raw;

/// What is asked for; JSON where there is no protobuf.
const FORMS: HeaderValue =
    HeaderValue::from_static("application/vnd.kubernetes.protobuf;stream=watch, application/json");

/// The longest event: longer than any object, of which etcd takes 1.5 MiB.
const LONGEST_FRAME: usize = 16 * 1024 * 1024;

/// Opens a watch. One that breaks off ends, as one does whose time is over.
///
/// # Errors
/// It is refused, or the API server cannot be reached.
pub(super) async fn watch<K>(
    api: Api<Raw<K>>,
    params: WatchParams,
    version: String,
) -> kube::Result<BoxStream<'static, kube::Result<WatchEvent<Raw<K>>>>>
where
    K: Resource + 'static,
{
    let request = Request::new(api.resource_url()).watch(&params, &version);
    let mut request = request.map_err(Error::BuildRequest)?.map(Body::from);
    request.headers_mut().insert(ACCEPT, FORMS);
    // As kube asks for it: API servers of 1.37 compress each event by itself.
    let identity = HeaderValue::from_static("identity");
    request.headers_mut().insert(ACCEPT_ENCODING, identity);
    let response = send(&api.into_client(), request).await?;
    let is_protobuf = is_protobuf(&response);
    let body = response.into_body().into_data_stream().map_err(io::Error::other);
    if !is_protobuf {
        let lines = body.into_async_read().lines().map_err(Error::ReadEvents);
        let lines = lines.try_filter(|line| std::future::ready(!line.is_empty()));
        let events = lines.map(|line| {
            let line = line?;
            serde_json::from_str(&line).map_err(Error::SerdeError)
        });
        return Ok(events.take_while(goes_on).boxed());
    }
    let frames = LengthDelimitedCodec::builder()
        .max_frame_length(LONGEST_FRAME)
        .new_codec();
    let events = FramedRead::new(StreamReader::new(body), Frames(frames)).map(|frame| {
        let frame = frame.map_err(Error::ReadEvents)?;
        event(&frame)
    });
    Ok(events.take_while(goes_on).boxed())
}

/// Each after four bytes that are its length. One of which there is a part alone is left out.
struct Frames(LengthDelimitedCodec);

impl Decoder for Frames {
    type Item = BytesMut;
    type Error = io::Error;

    fn decode(&mut self, bytes: &mut BytesMut) -> io::Result<Option<BytesMut>> {
        self.0.decode(bytes)
    }

    fn decode_eof(&mut self, bytes: &mut BytesMut) -> io::Result<Option<BytesMut>> {
        self.0.decode(bytes)
    }
}

/// Whether a stream has not broken off here.
fn goes_on<T>(event: &kube::Result<T>) -> std::future::Ready<bool> {
    let is_broken = match event {
        Err(Error::ReadEvents(error)) => is_broken_off(error),
        Err(Error::SerdeError(error)) => error.is_eof(),
        _ => false,
    };
    std::future::ready(!is_broken)
}

/// Whether the connection was lost, or was silent for too long.
fn is_broken_off(error: &io::Error) -> bool {
    use io::ErrorKind::{TimedOut, UnexpectedEof};
    if matches!(error.kind(), TimedOut | UnexpectedEof) {
        return true;
    }
    // What an error of I/O is made of is not its source.
    let mut cause = error.get_ref().map(|error| error as &(dyn std::error::Error + 'static));
    while let Some(error) = cause {
        if error.downcast_ref().is_some_and(is_broken_off) {
            return true;
        }
        cause = error.source();
    }
    false
}

fn event<K>(frame: &[u8]) -> kube::Result<WatchEvent<Raw<K>>> {
    let Event { kind, object } = Event::decode(frame).map_err(unreadable)?;
    let json = protobuf::to_json(object).map_err(unreadable)?;
    let read = |json: String| Raw::from_json(json.into());
    match kind {
        b"ADDED" => read(json).map(WatchEvent::Added),
        b"MODIFIED" => read(json).map(WatchEvent::Modified),
        b"DELETED" => read(json).map(WatchEvent::Deleted),
        b"BOOKMARK" => bookmark(&json).map(WatchEvent::Bookmark),
        b"ERROR" => serde_json::from_str(&json).map(WatchEvent::Error),
        _ => return Err(unreadable(format!("an event of type {}", kind.escape_ascii()))),
    }
    .map_err(Error::SerdeError)
}

fn bookmark(json: &str) -> serde_json::Result<Bookmark> {
    #[derive(Deserialize)]
    struct Object {
        metadata: BookmarkMeta,
    }
    let Object { metadata } = serde_json::from_str(json)?;
    Ok(Bookmark {
        types: TypeMeta::default(),
        metadata,
    })
}

#[cfg(test)]
mod tests {
    use edgeward_core::testkit::protobuf::{event as event_of, field, numeric, object};
    use http::header::CONTENT_TYPE;
    use http::{Request, Response};
    use k8s_openapi::api::core::v1::Pod;
    use kube::Client;
    use tokio_util::bytes::Bytes;

    use super::*;

    /// A pod of this name and resource version.
    fn pod(name: &str, version: &str) -> Vec<u8> {
        let metadata = [field(1, name.as_bytes()), field(6, version.as_bytes())].concat();
        object("v1", "Pod", &field(1, &metadata))
    }

    /// The Status of a failure.
    fn status(message: &str, code: usize) -> Vec<u8> {
        let raw = [field(2, b"Failure"), field(3, message.as_bytes()), numeric(6, code)].concat();
        object("v1", "Status", &raw)
    }

    fn frame(kind: &str, object: &[u8]) -> Vec<u8> {
        let event = event_of(kind, object);
        let length = u32::try_from(event.len()).unwrap();
        [&length.to_be_bytes()[..], &event].concat()
    }

    /// An API server that gives this answer, in the form that is asked for first.
    fn client(answer: Vec<u8>) -> Client {
        let service = tower::service_fn(move |request: Request<Body>| {
            let form = request.headers()[ACCEPT].to_str().unwrap().split(", ").next().unwrap();
            let response = Response::builder().header(CONTENT_TYPE, form);
            std::future::ready(response.body(Body::from(answer.clone())))
        });
        Client::new(service, "default")
    }

    /// What is received, in a few words.
    async fn watched(answer: Vec<u8>) -> Vec<String> {
        let pods = Api::<Raw<Pod>>::all(client(answer));
        let events = watch(pods, WatchParams::default(), "0".to_owned()).await.unwrap();
        let words = events.map(|event| match event {
            Ok(WatchEvent::Added(pod)) => format!("added {}", pod.json()),
            Ok(WatchEvent::Modified(pod)) => format!("modified {}", pod.meta().name.as_deref().unwrap()),
            Ok(WatchEvent::Deleted(pod)) => format!("deleted {}", pod.meta().name.as_deref().unwrap()),
            Ok(WatchEvent::Bookmark(bookmark)) => format!("at {}", bookmark.metadata.resource_version),
            Ok(WatchEvent::Error(status)) => format!("{} {}", status.code, status.message),
            Err(error) => format!("{:#}", anyhow::Error::from(error)),
        });
        words.collect().await
    }

    #[tokio::test]
    async fn a_watch_tells_what_became_of_objects() {
        let mostly_unread = object("v1", "Pod", &[field(1, &[]), field(15, &[b'x'; 100])].concat());
        let frames = [
            frame("ADDED", &pod("a", "7")),
            frame("ADDED", &mostly_unread),
            frame("MODIFIED", &pod("b", "8")),
            frame("DELETED", &pod("c", "9")),
            frame("BOOKMARK", &pod("", "10")),
            frame("ERROR", &status("too old", 410)),
        ];
        assert_eq!(
            watched(frames.concat()).await,
            [
                r#"added {"metadata":{"name":"a","resourceVersion":"7"}}"#,
                r#"added {"metadata":{}}"#,
                "modified b",
                "deleted c",
                "at 10",
                "410 too old",
            ]
        );
    }

    #[tokio::test]
    async fn what_follows_an_object_that_cannot_be_read_is_read() {
        let frames = [
            frame("ADDED", &object("v1", "Secret", &[])),
            frame("MODIFIED", &pod("a", "7")),
        ];
        let words = watched(frames.concat()).await;
        assert!(words[0].contains("Secret of v1 is not read in protobuf"), "{words:?}");
        assert_eq!(words[1..], ["modified a"]);
    }

    #[tokio::test]
    async fn a_watch_that_breaks_off_ends() {
        let lost = || io::Error::new(io::ErrorKind::UnexpectedEof, "the connection is lost");
        let pieces = [Ok(Bytes::from(frame("MODIFIED", &pod("a", "7")))), Err(lost())];
        let answer = std::sync::Mutex::new(Some(http_body_util::StreamBody::new(futures::stream::iter(
            pieces.map(|piece| piece.map(http_body::Frame::data)),
        ))));
        let service = tower::service_fn(move |request: Request<Body>| {
            let form = request.headers()[ACCEPT].clone();
            let body = answer.lock().unwrap().take().unwrap();
            let response = Response::builder().header(CONTENT_TYPE, form);
            std::future::ready(response.body(body))
        });
        let pods = Api::<Raw<Pod>>::all(Client::new(service, "default"));
        let events = watch(pods, WatchParams::default(), "0".to_owned()).await.unwrap();
        let events: Vec<_> = events.collect().await;
        assert!(matches!(&events[..], [Ok(WatchEvent::Modified(_))]), "{events:?}");
        // Its end comes in the middle of an event.
        let frames = [frame("MODIFIED", &pod("a", "7")), frame("MODIFIED", &pod("b", "8"))].concat();
        assert_eq!(watched(frames[..frames.len() - 1].to_vec()).await, ["modified a"]);
        assert!(!is_broken_off(&io::Error::other("it cannot be read")));
        assert!(is_broken_off(&io::Error::other(lost())));
    }
}
