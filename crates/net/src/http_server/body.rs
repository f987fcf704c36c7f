//! Bodies: what comes in, in time and within its size, and what goes out, at once or as it is made.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::sync::mpsc;

/// A piece of a body that is made as it goes.
#[derive(Debug)]
pub(super) enum Piece {
    /// More of it.
    Data(Bytes),
    /// It is whole.
    End,
}

/// The body of an answer.
#[derive(Debug)]
pub(super) enum Answer {
    /// All of it, until it was taken.
    Whole(Option<Bytes>),
    /// Pieces; a body without its end is told from one with it.
    Pieces(mpsc::UnboundedReceiver<Piece>),
}

impl Body for Answer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Pieces(pieces) => pieces.poll_recv(context).map(|piece| match piece {
                Some(Piece::Data(bytes)) => Some(Ok(Frame::data(bytes))),
                Some(Piece::End) => None,
                None => Some(Err(io::Error::other("the answer was broken off"))),
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Pieces(_) => SizeHint::default(),
        }
    }
}

/// Why a body was not read to its end.
#[derive(Debug)]
pub(super) enum Unread {
    /// It has more bytes than it may have.
    TooLong,
    /// The client went away, or sent what is no body.
    Broken,
}

/// A whole body of at most so many bytes.
pub(super) async fn read(body: &mut Incoming, most: usize) -> Result<Vec<u8>, Unread> {
    let mut read = Vec::new();
    while let Some(piece) = next(body).await {
        let piece = piece?;
        if read.len() + piece.len() > most {
            return Err(Unread::TooLong);
        }
        read.extend_from_slice(&piece);
    }
    Ok(read)
}

/// Reads what nobody wants, up to so many bytes: a client that is still writing does not look for an answer.
pub(super) async fn discard(body: &mut Incoming, most: u64) {
    let mut left = most;
    while let Some(Ok(piece)) = next(body).await {
        left = left.saturating_sub(piece.len() as u64);
        if left == 0 {
            return;
        }
    }
}

async fn next(body: &mut Incoming) -> Option<Result<Bytes, Unread>> {
    loop {
        let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await?;
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => return Some(Ok(data)),
            // Trailers say nothing here.
            Ok(Err(_)) => {}
            Err(_) => return Some(Err(Unread::Broken)),
        }
    }
}
