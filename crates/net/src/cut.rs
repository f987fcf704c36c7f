//! The stream of a cut model: hidden states and gradients between a client's ends and the server's
//! middle.
//!
//! ```text
//! client                                     server
//!   CutHello  who, for which round, what for  ->   the certificate has to say the same
//!   frame                                     ->   ServerSegment
//!           <-                          frame      until the client ends the stream
//! ```
//! A frame is one message with one payload and no words. The middle decides who waits for whom, so a
//! stream may be silent for long. A client has one stream for each purpose: with another one it begins
//! its round again where nobody has learnt with it, and the older stream ends.

use std::sync::Arc;

use fedra_client::{
    ClientError, Connect, LocalPeer, MOST_ROWS_CROSSING, Observer, Peer as FarHalf, Purpose,
    ServerSegment,
};
use fedra_plan::Round;
use fedra_wire::{ClientId, FRAME_HEADER, RowEncoding};
use serde::{Deserialize, Serialize};
use tonic::Status;

use crate::dialer::Dialer;
use crate::error::{Fault, NetError, Standing};
use crate::frame::{Limits, Message};
use crate::link::{Link, from_meta};
use crate::newest::NewestStreams;
use crate::peer::Peer;
use crate::processes::Processes;
use crate::protocol::PROTOCOL;
use crate::runtime::Runtime;
use crate::service::Routes;

/// The method under which rows cross a cut.
pub const CUT: &str = "/fedra.v1.Fedra/Cut";

/// The first thing that a client says on such a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CutHello {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// Who.
    pub client: String,
    /// The round that is on, or the number of rounds that are complete.
    pub round: Round,
    /// Whether something is learnt from the rows.
    pub trains: bool,
    /// The number of the process: one whose place another has taken does not get it back here either.
    pub process: u64,
}

/// What a frame of rows of this width may weigh.
pub fn row_limits(width: usize) -> Limits {
    let rows = RowEncoding::F32.bytes(MOST_ROWS_CROSSING, width);
    // A length for each row, where every sequence is one token.
    Limits::of_bytes((FRAME_HEADER + 4 * MOST_ROWS_CROSSING).saturating_add(rows) as u64)
}

/// A server's routes with one to its half of a cut model; clients are numbered in the order of names.
#[must_use]
pub fn with_middle(mut routes: Routes, middle: &Arc<ServerSegment>, names: &[String]) -> Routes {
    let (middle, names) = (Arc::clone(middle), Arc::<[String]>::from(names));
    let streams = Arc::<NewestStreams<(ClientId, bool)>>::default();
    let (traffic, processes) = (Arc::clone(&routes.traffic), Arc::clone(&routes.processes));
    routes.middle = Some(Arc::clone(&middle));
    routes.with(CUT, move |peer, inbound, outbound| {
        let (middle, names) = (Arc::clone(&middle), Arc::clone(&names));
        let (traffic, processes) = (Arc::clone(&traffic), Arc::clone(&processes));
        let limits = row_limits(middle.model.width());
        let greet = move |peer: &Peer, hello: &Message| {
            let (client, purpose) = greeted(peer, hello, (&names, &processes))?;
            traffic.follow(&names[client.0 as usize], &peer.traffic);
            Ok(((client, matches!(purpose, Purpose::Train(_))), (client, purpose)))
        };
        let answer = move |link, (client, purpose)| serve(link, middle.peer(client, purpose));
        Arc::clone(&streams).serve((peer, inbound, outbound), limits, greet, answer)
    })
}

fn serve(mut link: Link, mut half: LocalPeer<'_>) {
    while let Ok(message) = link.receive(None) {
        let Message { id, mut payloads, .. } = message;
        let (Some(frame), true) = (payloads.pop(), payloads.is_empty()) else {
            let told = "found a message with another number of payloads, expected one frame";
            return link.refuse(Status::invalid_argument(told));
        };
        let answer = match half.exchange(frame.into()) {
            Ok(answer) => answer,
            Err(error) => return link.refuse(Status::failed_precondition(error.to_string())),
        };
        if link.send(Message::of_payload(id, answer)).is_err() {
            return;
        }
    }
}

/// Who is there and what for.
fn greeted(
    peer: &Peer,
    message: &Message,
    (names, processes): (&[String], &Processes),
) -> Result<(ClientId, Purpose), Status> {
    let hello: CutHello = from_meta("the hello of a cut", message)
        .map_err(|error| Status::failed_precondition(error.to_string()))?;
    peer.check((hello.protocol, &hello.client))?;
    let Some(number) = names.iter().position(|name| *name == hello.client) else {
        let told = format!("found the client {:?}, expected one of this run", hello.client);
        return Err(Status::permission_denied(told));
    };
    processes.check(&hello.client, hello.process)?;
    let purpose =
        if hello.trains { Purpose::Train(hello.round) } else { Purpose::Score(hello.round) };
    Ok((ClientId(number as u32), purpose))
}

/// A client's way to the server's half.
#[derive(Clone)]
pub struct CutDialer {
    runtime: Arc<Runtime>,
    dialer: Dialer,
    client: String,
    limits: Limits,
    /// Once it wants to stop, no answer is waited for.
    pub observer: Option<Arc<dyn Observer>>,
}

impl CutDialer {
    /// For the named client, whose model has rows of this width.
    pub fn new(
        (runtime, dialer): (Arc<Runtime>, Dialer),
        client: impl Into<String>,
        width: usize,
    ) -> Self {
        let limits = row_limits(width);
        Self { runtime, dialer, client: client.into(), limits, observer: None }
    }
}

impl Connect for CutDialer {
    fn connect(
        &self,
        _client: ClientId,
        purpose: Purpose,
    ) -> Result<Box<dyn FarHalf + '_>, ClientError> {
        let (round, trains) = match purpose {
            Purpose::Train(round) => (round, true),
            Purpose::Score(round) | Purpose::Probe(round) => (round, false),
        };
        let (client, process) = (self.client.clone(), self.dialer.process);
        let hello = CutHello { protocol: PROTOCOL, client, round, trains, process };
        let link = self.dialer.open(&self.runtime, CUT, self.limits).map_err(lost)?;
        link.send(Message::of(0, &hello)).map_err(lost)?;
        Ok(Box::new(CutLink { link, sent: 0, stops: self.observer.clone() }))
    }
}

/// One stream, at the client.
struct CutLink {
    link: Link,
    sent: u64,
    stops: Option<Arc<dyn Observer>>,
}

impl FarHalf for CutLink {
    fn exchange(&mut self, frame: Vec<u8>) -> Result<Vec<u8>, ClientError> {
        self.sent += 1;
        let message = Message::of_payload(self.sent, frame);
        // Why a stream ended is told to whoever reads from it.
        let sent = self.link.send(message);
        let stops = || self.stops.as_ref().is_some_and(|observer| observer.stops());
        // It may wait for others for long.
        let answer = self.link.receive_unless(stops).map_err(lost)?.ok_or(ClientError::Stopped)?;
        sent.map_err(lost)?;
        let Message { id, mut payloads, .. } = answer;
        if let (Some(frame), true) = (payloads.pop(), id == self.sent && payloads.is_empty()) {
            return Ok(frame.into());
        }
        let reason = format!("the server's half answered frame {id}, expected {}", self.sent);
        Err(ClientError::Peer { reason })
    }
}

/// What may be there again is told from what was refused.
fn lost(error: NetError) -> ClientError {
    // Nobody is asked to work on a cut model before it was welcome.
    match error.fault(Standing::Welcomed) {
        Fault::Lost => ClientError::Unreachable(Box::new(error)),
        Fault::Refused => {
            ClientError::Peer { reason: format!("the server's half of the model: {error}") }
        }
    }
}
