//! A stream of messages both ways, for code that blocks.
//!
//! Whoever sends waits for the network, a few chunks at most are on their way; whoever does not receive
//! lets the other side wait. Both ends of a link are the same type, wherever the connection was made.
//! A link that is dropped ends its stream, and whoever holds its [`HangUp`] can end it from outside.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tonic::Status;

use crate::error::NetError;
use crate::frame::{Assembler, Frame, Limits, Message, frames};
use crate::listener::GLANCE;
use crate::peer::Traffic;
use crate::service::{Inbound, Outbound};

/// How long the first message of a stream may take.
const HELLO: Duration = Duration::from_secs(10);
/// How long a stream that was ended here is listened to, so that the other side hears the last words.
const FAREWELL: Duration = Duration::from_secs(1);

/// One end of a stream.
#[derive(Debug)]
pub struct Link {
    handle: Handle,
    outbound: Outbound,
    messages: mpsc::Receiver<Result<Message, NetError>>,
    /// What went over the connection.
    pub traffic: Arc<Traffic>,
    ended: watch::Sender<bool>,
    /// Ends once the other side has ended its direction too.
    reader: Option<JoinHandle<()>>,
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
        // The other side is told what it did wrong where the stream allows it: from a server.
        let told = outbound.clone();
        let (ended, mut ends) = watch::channel(false);
        let reader = handle.spawn(async move {
            let mut assembler = Assembler::new(limits);
            loop {
                let received = tokio::select! {
                    received = inbound.message() => received,
                    _told_or_dropped = ends.wait_for(|ended| *ended) => break,
                };
                let next = match received {
                    Ok(Some(frame)) => assembler.push(frame).map_err(NetError::from),
                    Ok(None) => Err(NetError::Lost("the other side closed it".to_owned())),
                    Err(status) => {
                        let _gone = told.try_send(Err(status.clone()));
                        Err(explain(&status))
                    }
                };
                let Some(next) = next.transpose() else { continue };
                if let Err(NetError::Frame(error)) = &next {
                    let _gone = told.try_send(Err(Status::invalid_argument(error.to_string())));
                }
                let is_last = next.is_err();
                if send.send(next).await.is_err() {
                    break;
                }
                if is_last {
                    return;
                }
            }
            // Without a sender this direction ends, and then the other side ends its own.
            drop((told, send));
            let rest = async { while let Ok(Some(_)) = inbound.message().await {} };
            let _heard_or_late = tokio::time::timeout(FAREWELL, rest).await;
        });
        Self { handle, outbound, messages, traffic, ended, reader: Some(reader) }
    }

    /// Ends the stream, and waits a moment until the other side has heard so: a process that ended at once might
    /// break the connection instead.
    pub(crate) fn take_leave(&mut self) {
        // Nothing more is sent from here: without its senders this direction ends.
        self.outbound = mpsc::channel(1).0;
        self.messages.close();
        self.ended.send_replace(true);
        if let Some(reader) = self.reader.take() {
            let ending = async { tokio::time::timeout(FAREWELL, reader).await };
            let _heard_or_late = self.handle.block_on(ending);
        }
    }

    /// Sends a message; waits while the other side does not read.
    pub fn send(&self, message: Message) -> Result<(), NetError> {
        frames(message).try_for_each(|frame| self.send_frame(frame))
    }

    /// Sends one piece of a message; whoever sends pieces sees to it that they make one.
    pub fn send_frame(&self, frame: Frame) -> Result<(), NetError> {
        if self.push(Ok(frame)) {
            return Ok(());
        }
        Err(NetError::Lost("the other side closed it".to_owned()))
    }

    /// Whether it could be sent before the stream ended.
    fn push(&self, frame: Result<Frame, Status>) -> bool {
        let mut ends = self.ended.subscribe();
        self.handle.block_on(async {
            tokio::select! {
                sent = self.outbound.send(frame) => sent.is_ok(),
                _told = ends.wait_for(|ended| *ended) => false,
            }
        })
    }

    /// Ends the stream from elsewhere.
    pub(crate) fn hang_up_handle(&self) -> HangUp {
        HangUp { outbound: self.outbound.downgrade(), ended: self.ended.clone() }
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

    /// The next message, as long as it takes; `None` when somebody wants to stop instead.
    pub(crate) fn receive_unless(
        &mut self,
        stops: impl Fn() -> bool,
    ) -> Result<Option<Message>, NetError> {
        loop {
            match self.receive(Some(GLANCE)) {
                Err(NetError::Late { .. }) if stops() => return Ok(None),
                Err(NetError::Late { .. }) => {}
                other => return other.map(Some),
            }
        }
    }

    /// Ends the stream with an error that the other side is told; only a server can.
    pub fn refuse(self, status: Status) {
        let _gone = self.push(Err(status));
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.ended.send_replace(true);
    }
}

/// Ends a stream that somebody else holds.
#[derive(Clone, Debug)]
pub(crate) struct HangUp {
    outbound: mpsc::WeakSender<Result<Frame, Status>>,
    pub(crate) ended: watch::Sender<bool>,
}

impl HangUp {
    /// Ends the stream; the other side is told why if it reads.
    pub fn hang_up(self, status: Status) {
        if let Some(outbound) = self.outbound.upgrade() {
            let _full_or_gone = outbound.try_send(Err(status));
        }
        self.ended.send_replace(true);
    }
}

/// The first message of a stream, which is so many bytes of words at most and comes soon; nothing else is
/// waited for, and no thread is given to whoever says nothing.
pub(crate) async fn first_words(inbound: &mut Inbound, most: usize) -> Result<Message, Status> {
    let late =
        |_| Status::deadline_exceeded(format!("found no hello within {} s", HELLO.as_secs()));
    let frame = tokio::time::timeout(HELLO, inbound.message()).await.map_err(late)??;
    let frame = frame.ok_or_else(|| Status::cancelled("it left without a message"))?;
    let limits = Limits { meta: most, payloads: 0, bytes: 0 };
    let message = Assembler::new(limits).push(frame);
    let message = message.map_err(|error| Status::invalid_argument(error.to_string()))?;
    message.ok_or_else(|| Status::invalid_argument("found payloads, expected none"))
}

/// The JSON of a message as a value.
pub(crate) fn from_meta<T: DeserializeOwned>(
    what: &'static str,
    message: &Message,
) -> Result<T, NetError> {
    serde_json::from_slice(&message.meta).map_err(|error| NetError::meaning(what, error))
}
