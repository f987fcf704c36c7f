//! The stream of a cut model: hidden states and gradients between a client's ends and the server's
//! middle.
//!
//! ```text
//! client                                     server
//!   CutHello  who, for which round, what for  ->   the certificate has to say the same
//!   frame                                     ->   Middle
//!           <-                          frame      until the client ends the stream
//! ```
//! A frame is one message with one payload and no words. The middle decides who waits for whom, so a
//! stream may be silent for long. A client has one stream for each purpose: with another one it begins
//! its round again where nobody has learnt with it, and the older stream ends.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fedra_client::{
    ClientError, Connect, LocalPeer, MOST_ROWS_CROSSING, Middle, Observer, Peer as FarHalf, Purpose,
};
use fedra_plan::Round;
use fedra_wire::{ClientId, FRAME_HEADER, RowEncoding};
use serde::{Deserialize, Serialize};
use tonic::Status;

use crate::dialer::Dialer;
use crate::error::{Fault, NetError, Standing};
use crate::frame::{Limits, Message};
use crate::link::{Link, first_words, from_meta, to_meta};
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
pub fn with_middle(routes: Routes, middle: &Arc<Middle>, names: &[String]) -> Routes {
    let (middle, names) = (Arc::clone(middle), Arc::<[String]>::from(names));
    let streams = Arc::<NewestStreams<(ClientId, bool)>>::default();
    let (traffic, processes) = (Arc::clone(routes.traffic()), Arc::clone(routes.processes()));
    let routes = routes.before_middle(&middle);
    routes.with(CUT, move |peer, mut inbound, outbound| {
        let (middle, names) = (Arc::clone(&middle), Arc::clone(&names));
        let (streams, traffic) = (Arc::clone(&streams), Arc::clone(&traffic));
        let processes = Arc::clone(&processes);
        async move {
            let hello = first_words(&mut inbound).await;
            let (client, purpose) =
                match hello.and_then(|hello| greeted(&peer, &hello, (&names, &processes))) {
                    Ok(greeted) => greeted,
                    Err(status) => {
                        let _gone = outbound.send(Err(status)).await;
                        return;
                    }
                };
            traffic.follow(&names[client.0 as usize], &peer.traffic);
            let handle = tokio::runtime::Handle::current();
            let (both, limits) = ((inbound, outbound), row_limits(middle.width()));
            let link = Link::over(handle.clone(), both, limits, peer.traffic, NetError::of_status);
            let entered = streams.enter((client, matches!(purpose, Purpose::Train(_))), &link);
            // Whoever waits for its turn waits on a thread of its own.
            let serving = handle.spawn_blocking(move || {
                serve(link, middle.peer(client, purpose));
                drop(entered);
            });
            let _ended = serving.await;
        }
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
        let answer = Message { id, meta: Bytes::new(), payloads: vec![answer.into()] };
        if link.send(answer).is_err() {
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
    if hello.protocol != PROTOCOL {
        let told = format!("found protocol {}, expected {PROTOCOL}", hello.protocol);
        return Err(Status::failed_precondition(told));
    }
    peer.check_name(&hello.client).map_err(Status::permission_denied)?;
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
#[derive(Clone, Debug)]
pub struct CutDialer {
    runtime: Arc<Runtime>,
    dialer: Dialer,
    client: String,
    limits: Limits,
    stops: Option<Stops>,
}

/// Whether a client was asked to stop.
#[derive(Clone)]
struct Stops(Arc<dyn Observer>);

impl std::fmt::Debug for Stops {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Stops")
    }
}

/// How often it is asked while an answer is waited for.
const GLANCE: Duration = Duration::from_millis(100);

impl CutDialer {
    /// For the named client, whose model has rows of this width.
    pub fn new(
        (runtime, dialer): (Arc<Runtime>, Dialer),
        client: impl Into<String>,
        width: usize,
    ) -> Self {
        let limits = row_limits(width);
        Self { runtime, dialer, client: client.into(), limits, stops: None }
    }

    /// The same, which waits for no answer once the observer wants to stop.
    #[must_use]
    pub fn with_observer(self, observer: Arc<dyn Observer>) -> Self {
        Self { stops: Some(Stops(observer)), ..self }
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
        let (client, process) = (self.client.clone(), self.dialer.process());
        let hello = CutHello { protocol: PROTOCOL, client, round, trains, process };
        let link = self.dialer.open(&self.runtime, CUT, self.limits).map_err(lost)?;
        let hello = Message { id: 0, meta: to_meta(&hello), payloads: Vec::new() };
        link.send(hello).map_err(lost)?;
        Ok(Box::new(CutLink { link, sent: 0, stops: self.stops.clone() }))
    }
}

/// One stream, at the client.
#[derive(Debug)]
struct CutLink {
    link: Link,
    sent: u64,
    stops: Option<Stops>,
}

impl FarHalf for CutLink {
    fn exchange(&mut self, frame: Vec<u8>) -> Result<Vec<u8>, ClientError> {
        self.sent += 1;
        let message = Message { id: self.sent, meta: Bytes::new(), payloads: vec![frame.into()] };
        // Why a stream ended is told to whoever reads from it.
        let sent = self.link.send(message);
        let answer = self.answer()?;
        sent.map_err(lost)?;
        let Message { id, mut payloads, .. } = answer;
        match (id == self.sent, payloads.pop()) {
            (true, Some(frame)) if payloads.is_empty() => Ok(frame.into()),
            (true | false, _) => {
                let reason =
                    format!("the server's half answered frame {id}, expected {}", self.sent);
                Err(ClientError::Peer { reason })
            }
        }
    }
}

impl CutLink {
    /// The answer, which may wait for others for long.
    fn answer(&mut self) -> Result<Message, ClientError> {
        let Some(Stops(observer)) = &self.stops else {
            return self.link.receive(None).map_err(lost);
        };
        loop {
            match self.link.receive(Some(GLANCE)) {
                Err(NetError::Late { .. }) if observer.stops() => return Err(ClientError::Stopped),
                Err(NetError::Late { .. }) => {}
                other => return other.map_err(lost),
            }
        }
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
