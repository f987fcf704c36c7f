//! The stream of a cut decoder that writes: one row there and one back for each token.
//!
//! ```text
//! client                                        server
//!   DecodeHello  who, which session, which cut  ->   the certificate has to say the same
//!           <-  DecodeWelcome  where the session is
//!   rows from that position on                  ->   SharedSessions: steps of many sessions together
//!           <-  their answers
//! ```
//! A session is no connection: it outlives one that is lost, and whoever connects again learns at
//! which position the server is. It belongs to the name in the certificate; another's session is
//! answered like one that does not exist. It ends when its owner closes it or lets it rest too long.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fedra_client::ClientError;
use fedra_client::generate::{
    Answer, DecodePeer, DecodeStep, SessionError, SessionKey, SharedSessions,
};
use fedra_wire::{ExpectedFrame, FRAME_HEADER, FrameKind, HiddenFrame, RowEncoding, WireError};
use serde::{Deserialize, Serialize};
use tonic::Status;

use crate::dialer::Dialer;
use crate::error::{Fault, NetError, Standing};
use crate::frame::{Limits, Message};
use crate::link::{Link, from_meta};
use crate::listener::{Listener, rest};
use crate::newest::NewestStreams;
use crate::peer::Peer;
use crate::protocol::PROTOCOL;
use crate::runtime::Runtime;
use crate::service::Routes;
use crate::site::fresh_number;

/// The method under which a cut decoder writes.
pub const DECODE: &str = "/fedra.v1.Fedra/Decode";

/// Most rows of one step: a prompt comes in pieces.
const MOST_ROWS: usize = 4096;
/// How long a stream may say nothing before it is ended; the session may outlive it.
const REST: Duration = Duration::from_hours(1);
/// How long a client tries to reach its session again, and the first wait between two tries.
const PATIENCE: Duration = Duration::from_mins(1);
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// The first thing that a client says on such a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecodeHello {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// Who; its certificate has to say the same.
    pub client: String,
    /// A number of the client's choice.
    pub session: u64,
    /// Whether the session may be there already.
    pub resumes: bool,
    /// The blocks that the client wants the server to run.
    pub blocks: (usize, usize),
    /// What both sides' model is, as a digest of its structure.
    pub model: String,
    /// How rows are written.
    pub encoding: RowEncoding,
}

impl DecodeHello {
    fn key(&self) -> SessionKey {
        SessionKey { owner: self.client.clone(), id: self.session }
    }
}

/// The server's answer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecodeWelcome {
    /// Rows that the session has.
    pub position: usize,
}

/// What a server offers to cut decoders.
#[derive(Debug)]
pub struct DecodeHost {
    /// The sessions.
    pub sessions: SharedSessions,
    /// The blocks that they run through.
    pub blocks: (usize, usize),
    /// Elements of a row.
    pub width: usize,
    /// What the model is, as a digest of its structure.
    pub model: String,
}

fn limits(width: usize) -> Limits {
    let rows = MOST_ROWS.saturating_mul(width.saturating_mul(4).saturating_add(4));
    Limits::of_bytes((FRAME_HEADER + rows) as u64)
}

/// A server's routes with one to its sessions.
#[must_use]
pub fn with_sessions(routes: Routes, host: &Arc<DecodeHost>) -> Routes {
    let host = Arc::clone(host);
    let streams = Arc::<NewestStreams<SessionKey>>::default();
    routes.with(DECODE, move |peer, inbound, outbound| {
        let (greeting, host) = (Arc::clone(&host), Arc::clone(&host));
        let limits = limits(host.width);
        let greet = move |peer: &Peer, hello: &Message| {
            let hello = greeted(peer, hello, &greeting)?;
            Ok((hello.key(), hello))
        };
        let answer = move |link, hello: DecodeHello| serve(link, &hello, &host);
        Arc::clone(&streams).serve((peer, inbound, outbound), limits, greet, answer)
    })
}

fn serve(mut link: Link, hello: &DecodeHello, host: &DecodeHost) {
    let (key, encoding) = (hello.key(), hello.encoding);
    let position = match position(hello, &key, host) {
        Ok(position) => position,
        Err(error) => return link.refuse(refusal(&error)),
    };
    if link.send(Message::of(0, &DecodeWelcome { position })).is_err() {
        return;
    }
    while let Ok(Message { id, payloads, .. }) = link.receive(Some(REST)) {
        let answered = match &payloads[..] {
            // Without rows it says goodbye.
            [] => {
                let _closed_before = host.sessions.close(key.clone());
                let goodbye = Message { id, ..Message::default() };
                let _gone = link.send(goodbye);
                return;
            }
            [frame] => step(host, (&key, encoding), frame),
            more => {
                Err(Refusal::Step(format!("found {} payloads, expected one frame", more.len())))
            }
        };
        let sent = match answered {
            Ok(frame) => link.send(Message::of_payload(id, frame)),
            // The client comes again and begins anew, from its own rows.
            Err(Refusal::Session(reason)) => return link.refuse(Status::aborted(reason)),
            // A refused step leaves the session as it was, and the stream open.
            Err(Refusal::Step(reason)) => link.send(Message::of(id, &reason)),
        };
        if sent.is_err() {
            return;
        }
    }
}

/// What is wanted, if this server has it.
fn greeted(peer: &Peer, message: &Message, host: &DecodeHost) -> Result<DecodeHello, Status> {
    let hello: DecodeHello = from_meta("the hello of a decoder", message)
        .map_err(|error| Status::failed_precondition(error.to_string()))?;
    let refuse = |what: &str, found: String, expected: String| {
        Err(Status::failed_precondition(format!("{what}: found {found}, expected {expected}")))
    };
    peer.check((hello.protocol, &hello.client))?;
    if hello.model != host.model {
        let (found, expected) = (hello.model, format!("the server's, {}", host.model));
        return refuse("model", found, expected);
    }
    if hello.blocks != host.blocks {
        let shown = |(start, end): (usize, usize)| format!("blocks {start}..{end}");
        return refuse("cut", shown(hello.blocks), format!("{} at the server", shown(host.blocks)));
    }
    Ok(hello)
}

/// Where the session is, once it is there.
fn position(
    hello: &DecodeHello,
    key: &SessionKey,
    host: &DecodeHost,
) -> Result<usize, SessionError> {
    match host.sessions.position(key.clone()) {
        // A server that was started again has lost it: the client begins anew, from its own rows.
        Err(SessionError::Unknown { .. }) => host.sessions.open(key.clone()).map(|()| 0),
        Ok(_) if !hello.resumes => Err(SessionError::open(key.id)),
        found => found,
    }
}

/// Whether a client that is refused may come again.
fn refusal(error: &SessionError) -> Status {
    let told = error.to_string();
    match error {
        SessionError::ShutDown => Status::unavailable(told),
        SessionError::Busy(_) => Status::resource_exhausted(told),
        SessionError::Unknown { .. } | SessionError::Refused { .. } => {
            Status::failed_precondition(told)
        }
    }
}

fn step(
    host: &DecodeHost,
    (key, encoding): (&SessionKey, RowEncoding),
    bytes: &[u8],
) -> Result<Vec<u8>, Refusal> {
    let wrong = |error: WireError| Refusal::Step(error.to_string());
    let expected = ExpectedFrame {
        kinds: &[FrameKind::Decode, FrameKind::DecodeLast],
        encoding,
        step: None,
        width: host.width,
        rows: None,
        most_rows: MOST_ROWS,
        longest: MOST_ROWS,
    };
    let frame = HiddenFrame::decode(bytes, &expected).map_err(wrong)?;
    let answer = if frame.kind == FrameKind::DecodeLast { Answer::Last } else { Answer::All };
    let position = frame.step as usize;
    let asked = DecodeStep { key: key.clone(), position, rows: frame.rows.into_f32(), answer };
    let rows = host.sessions.decode(asked).map_err(|error| {
        let is_over = matches!(error, SessionError::Unknown { .. } | SessionError::ShutDown);
        let refusal = if is_over { Refusal::Session } else { Refusal::Step };
        refusal(error.to_string())
    })?;
    let answer = HiddenFrame::of_rows(FrameKind::Hidden, frame.step, (host.width, rows));
    answer.encode(encoding).map_err(wrong)
}

/// Why a step has no answer.
enum Refusal {
    /// It is wrong; the next one may be right.
    Step(String),
    /// The session has expired, or the server ends.
    Session(String),
}

/// A client's way to a session at a server.
#[derive(Clone)]
pub struct DecodeDialer {
    runtime: Arc<Runtime>,
    dialer: Dialer,
    hello: DecodeHello,
    width: usize,
    /// Who is told of lost connections and may give up.
    pub listener: Option<Arc<dyn Listener + Send + Sync>>,
}

impl DecodeDialer {
    /// For the named client; `blocks` are those that the server is to run.
    pub fn new(
        (runtime, dialer): (Arc<Runtime>, Dialer),
        client: impl Into<String>,
        (model, width): (String, usize),
        (blocks, encoding): ((usize, usize), RowEncoding),
    ) -> Self {
        let (client, session) = (client.into(), fresh_number());
        let (protocol, resumes) = (PROTOCOL, false);
        let hello = DecodeHello { protocol, client, session, resumes, blocks, model, encoding };
        Self { runtime, dialer, hello, width, listener: None }
    }

    /// Opens a new session.
    pub fn open(mut self) -> Result<NetDecodePeer, NetError> {
        let (link, position) = self.connect()?;
        self.hello.resumes = true;
        Ok(NetDecodePeer { dialer: self, link: Some(link), position, sent: 0, traffic: (0, 0) })
    }

    fn connect(&self) -> Result<(Link, usize), NetError> {
        let mut link = self.dialer.open(&self.runtime, DECODE, limits(self.width))?;
        link.send(Message::of(0, &self.hello))?;
        let welcome: DecodeWelcome = from_meta("a welcome", &link.receive(None)?)?;
        Ok((link, welcome.position))
    }
}

/// The middle of a cut decoder at a server.
pub struct NetDecodePeer {
    dialer: DecodeDialer,
    link: Option<Link>,
    /// Where the session was when the connection was made.
    position: usize,
    sent: u64,
    /// Bytes of frames there and back.
    pub traffic: (u64, u64),
}

impl NetDecodePeer {
    /// The connection, made again if it was lost: with growing waits, as long as it may come back.
    fn link(&mut self) -> Result<&mut Link, ClientError> {
        if self.link.is_none() {
            let (until, mut wait) = (Instant::now() + PATIENCE, FIRST_WAIT);
            let (link, position) = loop {
                match self.dialer.connect() {
                    Ok(made) => break made,
                    Err(error)
                        if error.fault(Standing::Welcomed) == Fault::Lost
                            && Instant::now() + wait < until =>
                    {
                        let seconds = wait.as_secs_f64();
                        let listener = self.dialer.listener.as_deref();
                        if let Some(listener) = listener {
                            listener.told(&format!("{error}; trying again in {seconds:.1} s"));
                        }
                        if !rest(wait, || listener.is_some_and(Listener::stops)) {
                            let reason = "told to stop while the connection was lost";
                            return Err(ClientError::Peer { reason: reason.to_owned() });
                        }
                        wait = (2 * wait).min(Duration::from_secs(5));
                    }
                    Err(error) => return Err(failed(error)),
                }
            };
            self.position = position;
            self.link = Some(link);
        }
        self.link.as_mut().ok_or_else(|| unexpected("no connection"))
    }
}

impl DecodePeer for NetDecodePeer {
    fn decode(
        &mut self,
        position: usize,
        rows: &[f32],
        answer: Answer,
    ) -> Result<Vec<f32>, ClientError> {
        let (kind, count) = match answer {
            Answer::All => (FrameKind::Decode, rows.len() / self.dialer.width.max(1)),
            Answer::Last => (FrameKind::DecodeLast, 1),
        };
        let step = u32::try_from(position).map_err(|_| unexpected("a position past 2^32"))?;
        let frame = HiddenFrame::of_rows(kind, step, (self.dialer.width, rows.to_vec()));
        let bytes = frame.encode(self.dialer.hello.encoding)?;
        self.sent += 1;
        let (length, message) = (bytes.len() as u64, Message::of_payload(self.sent, bytes));
        let link = self.link()?;
        let answered = link.send(message).and_then(|()| link.receive(None));
        self.traffic.0 += length;
        let answered = answered.map_err(|error| {
            // Whoever continues asks first where the server is.
            self.link = None;
            failed(error)
        })?;
        self.traffic.1 += answered.payload_bytes();
        let [frame] = &answered.payloads[..] else {
            let reason = from_meta::<String>("a refusal", &answered).map_err(failed)?;
            return Err(ClientError::Peer { reason });
        };
        let expected = ExpectedFrame {
            kinds: &[FrameKind::Hidden],
            encoding: self.dialer.hello.encoding,
            step: Some(step),
            width: self.dialer.width,
            rows: Some(count),
            most_rows: 0,
            longest: 0,
        };
        Ok(HiddenFrame::decode(frame, &expected)?.rows.into_f32())
    }

    fn position(&mut self) -> Result<usize, ClientError> {
        // A connection that is made again says where the session is.
        self.link = None;
        self.link()?;
        Ok(self.position)
    }
}

impl Drop for NetDecodePeer {
    fn drop(&mut self) {
        if let Some(link) = &mut self.link {
            // The answer is waited for, so that the stream is not gone before it was read.
            let _closed = link.send(Message::default());
            let _heard = link.receive(Some(Duration::from_secs(1)));
        }
    }
}

fn failed(error: NetError) -> ClientError {
    ClientError::Unreachable(Box::new(error))
}

fn unexpected(found: &str) -> ClientError {
    ClientError::Peer { reason: format!("found {found}, expected a session at the server") }
}
