//! The server's side of joining: who comes in, what goes out, and that each answer is the one that is due.
//!
//! Our own gRPC streams and carriers of other networks bring sites in through the same door, so they cannot
//! differ in whom they let in or in which answer they take.
//!
//! Large answers share a budget of memory: the head of a message declares what will come, and its chunks
//! are read once there is room for it. Until then the site waits, by the flow control of its stream.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fedra_plan::Digest;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{Semaphore, mpsc};
use tonic::Status;

use crate::error::{Fault, NetError, Standing, said_in};
use crate::frame::{Assembler, Limits, Message, frames};
use crate::journal::Comparison;
use crate::link::{first_words, from_meta};
use crate::peer::Peer;
use crate::protocol::{
    Counts, DataDigest, HeldModel, Hello, PROTOCOL, StateVersion, check_protocol,
};
use crate::registry::{Event, Outgoing, Registry, Room};
use crate::service::{Inbound, Outbound};
use crate::site::fresh_number;

/// The next piece of a message that has begun is due within this time.
const STALL: Duration = Duration::from_mins(1);
/// Memory is shared out in such pieces.
const PIECE: u64 = 64 << 10;

/// Where a carrier brings sites in; what all connections share.
#[derive(Debug)]
pub struct Host {
    roster: Mutex<Registry>,
    events: mpsc::UnboundedSender<Event>,
    /// What a message may weigh.
    pub limits: Limits,
    /// Pieces of memory for answers that are coming in.
    room: Arc<Semaphore>,
    pieces: u32,
}

impl Host {
    pub(crate) fn new(
        roster: Registry,
        events: mpsc::UnboundedSender<Event>,
        (limits, memory): (Limits, u64),
    ) -> Self {
        // The largest message has to fit in.
        let pieces = memory.max(limits.bytes).div_ceil(PIECE);
        let pieces = u32::try_from(pieces).unwrap_or(u32::MAX);
        let room = Arc::new(Semaphore::new(pieces as usize));
        Self { roster: Mutex::new(roster), events, limits, room, pieces }
    }

    /// Memory for an answer of so many bytes, if there is room for it now.
    pub fn room(&self, bytes: u64) -> Option<Room> {
        Arc::clone(&self.room).try_acquire_many_owned(self.pieces_of(bytes)).ok()
    }

    fn pieces_of(&self, bytes: u64) -> u32 {
        bytes.div_ceil(PIECE).min(u64::from(self.pieces)) as u32
    }

    pub(crate) fn roster(&self) -> MutexGuard<'_, Registry> {
        // What is changed under the lock is changed by assignments: a panic leaves no half of it.
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fleet hears that somebody did not get in.
    pub fn turn_away(&self, who: &str, reason: &str) {
        let (who, reason) = (who.to_owned(), reason.to_owned());
        let _fleet_is_gone = self.events.send(Event::Refused { who, reason });
    }

    /// The fleet hears something about the network that a person should know.
    pub fn tell(&self, line: &str) {
        let _fleet_is_gone = self.events.send(Event::Said { line: line.to_owned() });
    }

    /// The fleet hears that nobody can be reached any more, and why.
    pub fn sever(&self, reason: &str) {
        let _fleet_is_gone = self.events.send(Event::Severed { reason: reason.to_owned() });
    }

    /// A hello for a client that cannot say one itself, as of one that agrees to everything and keeps
    /// nothing: whoever runs the federation answers for it.
    pub fn vouch(&self, client: &str, examples: u64) -> Message {
        let digest = Digest::of(client.as_bytes());
        let hello = Hello {
            protocol: PROTOCOL,
            client: client.to_owned(),
            agreement: self.roster().agreement.clone(),
            counts: Counts { train: examples, ..Counts::default() },
            data: DataDigest { secret: digest, examples: digest },
            model: HeldModel::First,
            run: None,
            kept: Vec::new(),
            // A node that answers for a client again is as good as another one.
            process: fresh_number(),
        };
        Message::of(0, &hello)
    }

    /// Gives whoever says this hello its seat, or says why not; the fleet is told of it either way.
    pub fn admit(self: &Arc<Self>, hello: &Message, peer: &Peer) -> Result<Seated, Status> {
        let mut who = peer.address.clone();
        let admitted = self.let_in(hello, peer, &mut who);
        admitted.inspect_err(|status| self.turn_away(&who, status.message()))
    }

    fn let_in(
        self: &Arc<Self>,
        message: &Message,
        peer: &Peer,
        who: &mut String,
    ) -> Result<Seated, Status> {
        let hello = read_hello(message)?;
        *who = format!("{} at {}", hello.client, peer.address);
        let mut roster = self.roster();
        let comparison = roster.journal.comparison(&hello);
        let (seat, number, outgoing) = roster.admit(&hello, peer)?;
        let kept = roster.journal.label(&hello.client);
        let is_there = |label: &StateVersion| {
            hello.run == Some(roster.journal.run) && hello.kept.contains(label)
        };
        let lost = match kept.filter(|label| !is_there(label)) {
            Some(_) => "; its client state is lost",
            None => "",
        };
        let unknown = match comparison {
            Comparison::OtherSecret => {
                "; its state folder is new, so the server cannot tell whether its examples have changed"
            }
            Comparison::None | Comparison::Same | Comparison::Other => "",
        };
        drop(roster);
        let about = format!("{} training examples{lost}{unknown}", hello.counts.train);
        let _fleet_is_gone = self.events.send(Event::Joined { seat, about });
        Ok(Seated { host: Arc::clone(self), place: (seat, number), outgoing })
    }

    /// Hands over an answer if it is the one that is due; says whether the fleet still listens.
    fn take(
        &self,
        (seat, number): (usize, u64),
        message: Message,
        room: Option<Room>,
    ) -> Result<bool, String> {
        self.roster().take_answer(seat, number, message.id)?;
        Ok(self.events.send(Event::Answer { seat, message, _room: room }).is_ok())
    }

    /// A site is gone.
    fn release(&self, (seat, number): (usize, u64), reason: &str) {
        if self.roster().leave(seat, number, reason) {
            let reason = reason.to_owned();
            let _fleet_is_gone = self.events.send(Event::Lost { seat, reason });
        }
    }

    /// One site, from its hello to its end.
    pub(crate) async fn serve(self: Arc<Self>, peer: Peer, mut inbound: Inbound, out: Outbound) {
        let hello = first_words(&mut inbound, self.limits.meta).await;
        let hello = hello.inspect_err(|status| self.turn_away(&peer.address, &said_in(status)));
        let ended = match hello.and_then(|hello| self.admit(&hello, &peer)) {
            Err(status) => Err(status),
            Ok(Seated { place, outgoing, .. }) => {
                let ended = tokio::select! {
                    ended = self.read(place, inbound) => ended,
                    ended = write(outgoing, out.clone()) => ended,
                };
                let reason = ended.as_ref().map_or_else(Status::message, String::as_str);
                self.release(place, reason);
                ended
            }
        };
        if let Err(status) = ended {
            let _site_is_gone = out.send(Err(status)).await;
        }
    }

    /// Reads answers until the stream ends; a status is what the site is told about a broken rule.
    async fn read(&self, place: (usize, u64), mut inbound: Inbound) -> Result<String, Status> {
        let mut assembler = Assembler::new(self.limits);
        let mut room: Option<Room> = None;
        loop {
            let next = inbound.message();
            // Between messages a site may be silent for hours: it trains.
            let frame = if assembler.is_open() {
                tokio::time::timeout(STALL, next).await.map_err(|_| {
                    let seconds = STALL.as_secs();
                    Status::deadline_exceeded(format!("an answer stalled for {seconds} s"))
                })?
            } else {
                next.await
            };
            let frame = match frame {
                Ok(Some(frame)) => frame,
                Ok(None) => {
                    self.roster().took_leave(place.0, place.1);
                    return Ok("it left".to_owned());
                }
                Err(status) if status.code() == tonic::Code::OutOfRange => return Err(status),
                Err(status) => return Ok(format!("the connection was lost: {}", said_in(&status))),
            };
            let pushed = assembler.push(frame);
            let pushed = pushed.map_err(|error| Status::invalid_argument(error.to_string()))?;
            if let Some(message) = pushed {
                let taken = self.take(place, message, room.take());
                if !taken.map_err(Status::invalid_argument)? {
                    return Ok("the server has finished".to_owned());
                }
            } else if room.is_none() {
                let pieces = self.pieces_of(assembler.declared());
                let taken = Arc::clone(&self.room).acquire_many_owned(pieces).await;
                room = Some(taken.map_err(|_| Status::cancelled("the server has finished"))?);
            }
        }
    }
}

/// A site that was let in.
#[derive(Debug)]
pub struct Seated {
    host: Arc<Host>,
    /// The seat, and which connection of it this is.
    place: (usize, u64),
    outgoing: mpsc::UnboundedReceiver<Outgoing>,
}

/// What is to go to a site next.
#[derive(Debug)]
pub enum Delivery {
    /// A message.
    Message(Message),
    /// It is to come in again, if it wants to.
    Over,
    /// It is told why it cannot take part.
    Refused(String),
}

impl Seated {
    /// The next thing that is to go to the site, if there is one now.
    pub fn next_delivery(&mut self) -> Option<Delivery> {
        match self.outgoing.try_recv() {
            Ok(Outgoing::Message(message)) => Some(Delivery::Message(message)),
            Ok(Outgoing::Refuse(status)) => {
                // Whether it may come again.
                Some(match NetError::of_status(&status).fault(Standing::Welcomed) {
                    Fault::Lost => Delivery::Over,
                    Fault::Refused => Delivery::Refused(status.message().to_owned()),
                })
            }
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Delivery::Over),
        }
    }

    /// Hands over an answer if it is the one that is due, or says why it is not.
    pub fn answer(&self, message: Message, room: Option<Room>) -> Result<(), String> {
        self.host.take(self.place, message, room).map(drop)
    }

    /// The site needs to be told nothing more: it has heard that the run has finished.
    pub fn take_leave(&self) {
        self.host.roster().took_leave(self.place.0, self.place.1);
    }

    /// The site is gone.
    pub fn leave(self, reason: &str) {
        self.host.release(self.place, reason);
    }
}

/// Sends what is to go out until the connection ends or is to end.
async fn write(
    mut outgoing: mpsc::UnboundedReceiver<Outgoing>,
    out: Outbound,
) -> Result<String, Status> {
    while let Some(next) = outgoing.recv().await {
        match next {
            Outgoing::Message(message) => {
                for frame in frames(message) {
                    if out.send(Ok(frame)).await.is_err() {
                        return Ok("the connection was lost".to_owned());
                    }
                }
            }
            Outgoing::Refuse(status) => return Err(status),
        }
    }
    Err(Status::unavailable("the server closed the connection"))
}

/// A hello of this version; one of another version need not have the same fields.
fn read_hello(message: &Message) -> Result<Hello, Status> {
    #[derive(serde::Deserialize)]
    struct Version {
        protocol: u32,
    }
    let unread = |error: NetError| Status::failed_precondition(error.to_string());
    let version: Version = from_meta("a hello", message).map_err(unread)?;
    check_protocol(version.protocol)?;
    from_meta("a hello", message).map_err(unread)
}
