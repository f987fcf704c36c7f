//! A stream of messages both ways, for code that blocks.
//!
//! Whoever sends waits for the network, a few chunks at most are on their way; whoever does not receive
//! lets the other side wait. Both ends of a link are the same type, wherever the connection was made.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tonic::Status;

use crate::error::NetError;
use crate::frame::{Assembler, Frame, Limits, Message, frames};
use crate::peer::Traffic;
use crate::service::{Inbound, Outbound};

/// One end of a stream.
#[derive(Debug)]
pub struct Link {
    handle: Handle,
    outbound: Outbound,
    messages: mpsc::Receiver<Result<Message, NetError>>,
    traffic: Arc<Traffic>,
}

impl Link {
    /// A link over the two directions of a stream, whose messages are at most so large.
    pub fn over(
        handle: Handle,
        (mut inbound, outbound): (Inbound, Outbound),
        limits: Limits,
        traffic: Arc<Traffic>,
        explain: impl Fn(&Status) -> NetError + Send + 'static,
    ) -> Self {
        // One message waits while another one is worked on.
        let (send, messages) = mpsc::channel(1);
        let told = outbound.clone();
        handle.spawn(async move {
            let mut assembler = Assembler::new(limits);
            loop {
                let next = match inbound.message().await {
                    Ok(Some(frame)) => assembler.push(frame).map_err(NetError::from),
                    Ok(None) => Err(NetError::Lost("the other side ended it".to_owned())),
                    Err(status) => Err(explain(&status)),
                };
                let Some(next) = next.transpose() else { continue };
                if let Err(NetError::Frame(error)) = &next {
                    // The other side is told where the stream allows it: from a server.
                    let _gone = told.try_send(Err(Status::invalid_argument(error.to_string())));
                }
                let is_last = next.is_err();
                if send.send(next).await.is_err() || is_last {
                    return;
                }
            }
        });
        Self { handle, outbound, messages, traffic }
    }

    /// Sends a message; waits while the other side does not read.
    pub fn send(&self, message: Message) -> Result<(), NetError> {
        frames(message).try_for_each(|frame| self.send_frame(frame))
    }

    /// Sends one piece of a message; whoever sends pieces sees to it that they make one.
    pub fn send_frame(&self, frame: Frame) -> Result<(), NetError> {
        let sent = self.outbound.blocking_send(Ok(frame));
        sent.map_err(|_| NetError::Lost("the other side ended it".to_owned()))
    }

    /// The next message; waits for it as long as it takes, or for so long.
    pub fn receive(&mut self, within: Option<Duration>) -> Result<Message, NetError> {
        let received = match within {
            None => self.messages.blocking_recv(),
            Some(within) => {
                let waiting = async { tokio::time::timeout(within, self.messages.recv()).await };
                let late = |_| NetError::Late { seconds: within.as_secs() };
                self.handle.block_on(waiting).map_err(late)?
            }
        };
        received.unwrap_or_else(|| Err(NetError::Lost("the stream has ended".to_owned())))
    }

    /// Ends the stream with an error that the other side is told; only a server can.
    pub fn refuse(self, status: Status) {
        let _gone = self.outbound.blocking_send(Err(status));
    }

    /// What went over the connection.
    pub fn traffic(&self) -> &Traffic {
        &self.traffic
    }
}

/// A value as the JSON of a message.
pub(crate) fn to_meta<T: Serialize>(value: &T) -> bytes::Bytes {
    // Values that travel have string keys and finite numbers only, which JSON can write.
    serde_json::to_vec(value).unwrap_or_default().into()
}

/// The JSON of a message as a value.
pub(crate) fn from_meta<T: DeserializeOwned>(
    what: &'static str,
    message: &Message,
) -> Result<T, NetError> {
    serde_json::from_slice(&message.meta)
        .map_err(|error| NetError::Meaning { what, reason: error.to_string() })
}
