//! One connection: its stream, which ends where it takes too long, and its service, which tells the stream where it is.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Request, Response};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use tower::Service;

use crate::admission::connections::seats;
use crate::admission::connections::seats::{Eviction, Seat, Stage};

/// A stream that fails when its [`Stage`] lasts too long, or when it has to make room.
#[derive(Debug)]
pub(crate) struct Guarded<S> {
    inner: S,
    seat: Arc<Seat>,
    eviction: Eviction,
    /// What the timer was set for.
    timed: Stage,
    timer: Pin<Box<Sleep>>,
}

impl<S> Guarded<S> {
    pub(super) fn new(inner: S, seat: Arc<Seat>, eviction: Eviction) -> Self {
        let timed = seat.stage();
        let timer = tokio::time::sleep(seat.limit(timed).unwrap_or_default());
        Self {
            inner,
            seat,
            eviction,
            timed,
            timer: Box::pin(timer),
        }
    }

    /// Fails when it is over; else the task is woken when it will be.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let stage = self.seat.stage();
        if self.seat.is_stranger() && self.eviction.poll(cx).is_ready() {
            return Err(seats::evicted());
        }
        let Some(limit) = self.seat.limit(stage) else {
            self.timed = stage;
            return Ok(());
        };
        if self.timed != stage {
            self.timed = stage;
            self.timer.set(tokio::time::sleep(limit));
        }
        match self.timer.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        let begins = matches!(self.seat.stage(), Stage::New | Stage::Idle);
        if begins && buffer.filled().len() > before {
            self.seat.enter(Stage::Head);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        ready!(Pin::new(&mut self.inner).poll_flush(cx))?;
        if self.seat.stage() == Stage::Answer {
            self.seat.enter(Stage::Idle);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// The service of one connection.
#[derive(Debug, Clone)]
pub(crate) struct Attended<S> {
    inner: S,
    seat: Arc<Seat>,
}

impl<S> Attended<S> {
    pub(super) fn new(inner: S, seat: Arc<Seat>) -> Self {
        Self { inner, seat }
    }
}

impl<S, Q, B> Service<Request<Q>> for Attended<S>
where
    S: Service<Request<Q>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        self.seat.enter(Stage::Request);
        let answering = self.inner.call(request);
        let seat = Arc::clone(&self.seat);
        Box::pin(async move {
            let mut answer = answering.await?;
            let stays = !answer.status().is_success() || seat.is_no_stranger();
            if !stays || seat.is_old() {
                answer
                    .headers_mut()
                    .insert(CONNECTION, HeaderValue::from_static("close"));
            }
            seat.enter(Stage::Answer);
            Ok(answer)
        })
    }
}
