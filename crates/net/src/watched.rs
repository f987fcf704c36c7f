//! A socket that counts its bytes and remembers why it broke.
//!
//! What TLS or the system said about a broken connection is lost on its way through HTTP/2 and gRPC. It
//! is kept here, so that the party that sees it gets a sentence.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::peer::Traffic;

/// What a socket's last error was.
#[derive(Clone, Debug, Default)]
pub struct Failure(Arc<Mutex<Option<io::Error>>>);

impl Failure {
    /// Takes the error, if there was one.
    pub fn take(&self) -> Option<io::Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn note(&self, error: io::Error) -> io::Error {
        let again = io::Error::new(error.kind(), error.to_string());
        // What came first is the cause of what came after it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        again
    }
}

/// The first byte that a side may send, where that tells what it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstByte {
    /// Whatever it is.
    Any,
    /// A frame of HTTP/2 from a server begins with the upper byte of its length, which is zero.
    OfHttp2,
}

/// A socket under watch.
#[derive(Debug)]
pub struct Watched<S> {
    socket: S,
    traffic: Option<Arc<Traffic>>,
    pub failure: Failure,
    first: FirstByte,
}

impl<S> Watched<S> {
    /// A socket whose bytes are counted.
    pub fn counted(socket: S, traffic: Arc<Traffic>) -> Self {
        let (traffic, failure) = (Some(traffic), Failure::default());
        Self { socket, traffic, failure, first: FirstByte::Any }
    }

    /// A connection whose failure is kept, and which may be of a kind that was not expected.
    pub fn expecting(socket: S, first: FirstByte) -> Self {
        Self { socket, traffic: None, failure: Failure::default(), first }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.socket).poll_read(context, buffer));
        if let Err(error) = read {
            return Poll::Ready(Err(self.failure.note(error)));
        }
        let new = &buffer.filled()[before..];
        if let Some(traffic) = &self.traffic {
            traffic.add_received(new.len());
        }
        if self.first == FirstByte::OfHttp2
            && let Some(first) = new.first()
        {
            self.first = FirstByte::Any;
            if *first != 0 {
                let told = "the server does not speak plain gRPC here: expected a port without TLS";
                let error = io::Error::new(io::ErrorKind::InvalidData, told);
                return Poll::Ready(Err(self.failure.note(error)));
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match ready!(Pin::new(&mut self.socket).poll_write(context, bytes)) {
            Ok(count) => {
                if let Some(traffic) = &self.traffic {
                    traffic.add_sent(count);
                }
                Poll::Ready(Ok(count))
            }
            Err(error) => Poll::Ready(Err(self.failure.note(error))),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
