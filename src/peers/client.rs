//! Asks peers.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use arc_swap::ArcSwap;
use edgeward_decision::model::report::Report;
use edgeward_kube::units::Micros;
use edgeward_peers::message::MAX_BYTES;
use edgeward_peers::{ClusterId, Settings};
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout_at};

use super::server::{EXCHANGE, MAX_REPORT, REPORT};
use crate::platform::clock::Clock;
use crate::tls::{Member, member};
use crate::wan;

/// Timeout of everything that is asked over one connection.
const TIMEOUT: Duration = Duration::from_secs(5);

/// What a peer answered.
pub(super) struct Answer {
    pub(super) id: ClusterId,
    /// The time of the TCP handshake.
    pub(super) rtt: Micros,
    pub(super) reply: Bytes,
    /// `None` without a report. A peer whose report cannot be read is a peer all the same.
    pub(super) report: anyhow::Result<Option<Report>>,
}

/// Asks peers, each time over a new connection, whose TCP handshake is timed.
pub(super) struct Client {
    pub(super) member: Arc<ArcSwap<Member>>,
    pub(super) settings: Arc<Settings>,
    pub(super) port: u16,
    pub(super) clock: Clock,
}

/// A connection to a verified peer.
struct Peer {
    id: ClusterId,
    rtt: Micros,
    sender: SendRequest<Full<Bytes>>,
    /// Drives the connection, until it is dropped.
    _connection: tokio::task::JoinSet<()>,
}

impl Client {
    /// Sends this request, and reads the report of the peer.
    pub(super) async fn ask(&self, address: IpAddr, request: Vec<u8>) -> anyhow::Result<Answer> {
        let asking = async {
            let mut peer = self.connect(address).await?;
            let reply = peer.send(Method::POST, EXCHANGE, request.into()).await?;
            let (status, reply) = (reply.status(), read(reply, MAX_BYTES).await?);
            ensure!(status == StatusCode::OK, "it answered with {status}");
            Ok((peer, reply))
        };
        let end = Instant::now() + TIMEOUT;
        let (mut peer, reply) = timeout_at(end, asking).await??;
        let report = timeout_at(end, peer.report()).await;
        Ok(Answer {
            id: peer.id,
            rtt: peer.rtt,
            reply,
            report: report.map_err(Into::into).flatten(),
        })
    }

    /// Reads the report of this peer. `None` if it has none.
    pub(super) async fn report(&self, address: IpAddr, id: &ClusterId) -> anyhow::Result<Option<Report>> {
        let asking = async {
            let mut peer = self.connect(address).await?;
            ensure!(peer.id == *id, "{} is at {address} now", peer.id.as_str());
            peer.report().await
        };
        tokio::time::timeout(TIMEOUT, asking).await?
    }

    /// Connects, and verifies the peer before anything is sent.
    async fn connect(&self, address: IpAddr) -> anyhow::Result<Peer> {
        let (stream, rtt) = wan::connect(SocketAddr::new(address, self.port), self.clock).await?;
        stream.set_nodelay(true)?;
        let client = self.member.load().client.clone();
        let stream = client.connect(address.into(), stream).await?;
        let uri = member(stream.get_ref().1.peer_certificates());
        let id = uri.as_deref().and_then(|uri| self.settings.identify(uri));
        let id = id.with_context(|| format!("{uri:?} is not the name of a peer"))?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut driver = tokio::task::JoinSet::new();
        driver.spawn(async move { drop(connection.await) });
        Ok(Peer {
            id,
            rtt,
            sender,
            _connection: driver,
        })
    }
}

impl Peer {
    async fn send(&mut self, method: Method, path: &str, body: Bytes) -> anyhow::Result<Response<Incoming>> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, "peer")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))?;
        // After an answer the connection needs a moment.
        self.sender.ready().await?;
        Ok(self.sender.send_request(request).await?)
    }

    async fn report(&mut self) -> anyhow::Result<Option<Report>> {
        let answer = self.send(Method::GET, REPORT, Bytes::new()).await?;
        if answer.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        ensure!(
            answer.status() == StatusCode::OK,
            "it answered with {}",
            answer.status()
        );
        let report: Report = serde_json::from_slice(&read(answer, MAX_REPORT).await?).context("the report")?;
        Ok(report.within_limits())
    }
}

/// Reads a body of at most so many bytes.
async fn read(answer: Response<Incoming>, most: usize) -> anyhow::Result<Bytes> {
    let body = Limited::new(answer.into_body(), most).collect().await;
    body.map(|body| body.to_bytes()).map_err(anyhow::Error::from_boxed)
}
