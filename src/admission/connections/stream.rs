//! A stream that can be closed from outside.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Closes the [`Closable`] that shares it.
#[derive(Debug, Default)]
pub(super) struct Closing {
    is_due: AtomicBool,
    waker: AtomicWaker,
}

impl Closing {
    pub(super) fn is_due(&self) -> bool {
        self.is_due.load(Ordering::Acquire)
    }

    /// The stream fails the next time that it would wait.
    pub(super) fn close(&self) {
        self.is_due.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// A connection's stream. What can be read or written at once still is, so an answer that is due leaves.
#[derive(Debug)]
pub(crate) struct Closable {
    inner: TcpStream,
    closing: Arc<Closing>,
}

impl Closable {
    pub(super) fn new(inner: TcpStream, closing: Arc<Closing>) -> Self {
        Self { inner, closing }
    }

    fn unless_closed<T>(&self, polled: Poll<io::Result<T>>, cx: &Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_pending() {
            self.closing.waker.register(cx.waker());
            if self.closing.is_due() {
                return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
            }
        }
        polled
    }
}

impl AsyncRead for Closable {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_read(cx, buffer);
        self.unless_closed(polled, cx)
    }
}

impl AsyncWrite for Closable {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.unless_closed(polled, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
