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

/// A socket under watch.
#[derive(Debug)]
pub struct Watched<S> {
    socket: S,
    traffic: Arc<Traffic>,
    pub failure: Failure,
    /// Whether its first byte has to be that of a server's HTTP/2: the upper byte of a frame's length,
    /// which is zero.
    pub expects_http2: bool,
}

impl<S> Watched<S> {
    /// A socket whose bytes are counted and whose failure is kept.
    pub fn new(socket: S, traffic: Arc<Traffic>) -> Self {
        Self { socket, traffic, failure: Failure::default(), expects_http2: false }
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
        self.traffic.add_received(new.len());
        if self.expects_http2
            && let Some(first) = new.first()
        {
            self.expects_http2 = false;
            if *first != 0 {
                let told = "the server does not speak plain gRPC here, expected a port without TLS";
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
                self.traffic.add_sent(count);
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
