//! A socket whose reader may be slow, but has to take a byte now and then.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Fails a write that nobody takes a byte of for too long.
#[derive(Debug)]
pub(super) struct Patient<S> {
    socket: S,
    patience: Duration,
    /// Until when the write that waits may wait.
    until: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    pub fn new(socket: S, patience: Duration) -> Self {
        Self { socket, patience, until: None }
    }

    /// What became of a write, or that it has waited for too long.
    fn judged<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.until = None;
            return written;
        }
        let patience = self.patience;
        let until = self.until.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        match until.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.judged(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.socket).poll_flush(context);
        self.judged(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = Pin::new(&mut self.socket).poll_shutdown(context);
        self.judged(context, ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[test]
    fn a_write_that_nobody_reads_fails_and_one_that_is_read_slowly_does_not() {
        let runtime = crate::Runtime::start().unwrap();
        let patience = Duration::from_millis(200);
        let (slow, deaf) = runtime
            .wait(async move {
                let (near, mut far) = tokio::io::duplex(4);
                let mut near = Patient::new(near, patience);
                let reader = tokio::spawn(async move {
                    let mut read = [0; 4];
                    for _ in 0..5 {
                        tokio::time::sleep(patience / 2).await;
                        far.read_exact(&mut read).await.unwrap();
                    }
                    far
                });
                // Longer than its patience all in all.
                let slow = near.write_all(&[7; 20]).await;
                let _open = reader.await;
                let (near, _never_read) = tokio::io::duplex(4);
                let deaf = Patient::new(near, patience).write_all(&[7; 20]).await;
                (slow, deaf)
            })
            .unwrap();
        slow.unwrap();
        assert_eq!(deaf.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
