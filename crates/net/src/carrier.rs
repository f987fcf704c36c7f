//! What a fleet needs of a network, and what a network needs of a fleet.
//!
//! Who is there, what counts and what is asked are the fleet's. How messages travel is the carrier's: our
//! own server with its gRPC streams, or a SuperLink with its queues. Both bring sites in through the same
//! [`Reception`], so the two networks cannot differ in whom they let in or in which answer they take.

use std::sync::Arc;

use fedra_plan::Digest;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::mpsc::error::TryRecvError;
use tonic::Status;

use crate::error::{Fault, NetError, Standing};
use crate::frame::{Limits, Message};
use crate::host::Host;
use crate::link::{from_meta, to_meta};
use crate::peer::Peer;
use crate::protocol::{Asked, Counts, DataDigest, HeldModel, Hello, PROTOCOL, Request, RunEnd};
use crate::roster::{Event, Outgoing};
use crate::site::fresh_number;

/// Carries messages between a fleet and its sites until it is dropped.
pub trait Carrier: Send {
    /// Where sites find it, for people.
    fn place(&self) -> String;

    /// The run is over and those who were there have had the time to hear it.
    fn close(&mut self, how: RunEnd, reason: &str);
}

/// Where a carrier brings sites in.
#[derive(Clone, Debug)]
pub struct Reception {
    host: Arc<Host>,
}

impl Reception {
    pub(crate) const fn new(host: Arc<Host>) -> Self {
        Self { host }
    }

    pub(crate) fn host(&self) -> Arc<Host> {
        Arc::clone(&self.host)
    }

    /// What a message may weigh.
    pub fn limits(&self) -> Limits {
        self.host.limits()
    }

    /// Gives a site its seat, or says why not; the fleet hears of it either way.
    pub fn admit(&self, hello: &Message, peer: &Peer) -> Result<Seated, String> {
        let mut who = peer.address.clone();
        match self.host.let_in(hello, peer, &mut who) {
            Ok(admitted) => {
                let place = (admitted.seat, admitted.number);
                Ok(Seated { host: self.host(), place, outgoing: admitted.outgoing })
            }
            Err(status) => {
                self.turn_away(&who, status.message());
                Err(status.message().to_owned())
            }
        }
    }

    /// A hello for a client that cannot say one itself, as of one that agrees to everything and keeps
    /// nothing: whoever runs the federation answers for it.
    pub fn vouch(&self, client: &str, examples: u64) -> Message {
        let digest = Digest::of(client.as_bytes());
        let hello = Hello {
            protocol: PROTOCOL,
            client: client.to_owned(),
            agreement: self.host.roster().agreement.clone(),
            counts: Counts { train: examples, ..Counts::default() },
            data: DataDigest { secret: digest, examples: digest },
            model: HeldModel::First,
            run: None,
            kept: Vec::new(),
            // A node that answers for a client again is as good as another one.
            process: fresh_number(),
        };
        Message { id: 0, meta: to_meta(&hello), payloads: Vec::new() }
    }

    /// The fleet hears that somebody did not get in.
    pub fn turn_away(&self, who: &str, reason: &str) {
        let (who, reason) = (who.to_owned(), reason.to_owned());
        let _fleet_is_gone = self.host.tell(Event::Refused { who, reason });
    }

    /// The fleet hears something about the network that a person should know.
    pub fn tell(&self, line: &str) {
        let _fleet_is_gone = self.host.tell(Event::Said { line: line.to_owned() });
    }

    /// The fleet hears that nobody can be reached any more, and why.
    pub fn sever(&self, reason: &str) {
        let _fleet_is_gone = self.host.tell(Event::Severed { reason: reason.to_owned() });
    }

    /// Memory for an answer of so many bytes, if there is room for it now.
    pub fn room(&self, bytes: u64) -> Option<Room> {
        self.host.room_now(bytes).map(Room)
    }
}

/// Memory that an answer may take until the fleet is done with it.
#[derive(Debug)]
pub struct Room(OwnedSemaphorePermit);

/// A site that was let in.
#[derive(Debug)]
pub struct Seated {
    host: Arc<Host>,
    /// The seat, and which connection of it this is.
    place: (usize, u64),
    outgoing: UnboundedReceiver<Outgoing>,
}

/// What is to go to a site next.
#[derive(Debug)]
pub enum Delivery {
    /// A message.
    Message(Message),
    /// It is to come in again, if it wants to.
    Over(String),
    /// It is told why it cannot take part.
    Refused(String),
}

impl Seated {
    /// The next thing that is to go to the site, if there is one now.
    pub fn next_delivery(&mut self) -> Option<Delivery> {
        match self.outgoing.try_recv() {
            Ok(Outgoing::Message(message)) => Some(Delivery::Message(message)),
            Ok(Outgoing::Refuse(status)) => Some(over(&status)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                Some(Delivery::Over("the server ended the connection".to_owned()))
            }
        }
    }

    /// Hands over an answer if it is the one that is due, or says why it is not.
    pub fn answer(&self, message: Message, room: Option<Room>) -> Result<(), String> {
        let (seat, number) = self.place;
        self.host.roster().take_answer(seat, number, message.id)?;
        let room = room.map(|Room(permit)| permit);
        let _fleet_is_gone = self.host.tell(Event::Answer { seat, message, _room: room });
        Ok(())
    }

    /// The site is gone.
    pub fn leave(self, reason: &str) {
        let (seat, number) = self.place;
        if self.host.roster().leave(seat, number, reason) {
            let reason = reason.to_owned();
            let _fleet_is_gone = self.host.tell(Event::Lost { seat, reason });
        }
    }
}

/// When a message has to reach a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Whenever something else goes there: every request says again what it says.
    CanWait,
    /// Now.
    Now,
    /// Now, and nothing comes after it.
    Last,
}

/// When a message of the fleet has to reach its site, for a carrier to which each delivery is costly.
pub fn urgency(message: &Message) -> Urgency {
    match from_meta::<Asked>("a request", message) {
        Ok(Asked { request, .. }) => match request {
            Request::Settle | Request::Forget(_) => Urgency::CanWait,
            Request::End { .. } => Urgency::Last,
            // What a site lacks goes before a request, with it.
            Request::Sync { .. } if message.id == 0 => Urgency::CanWait,
            Request::Sync { .. }
            | Request::Probe { .. }
            | Request::CompareAttention { .. }
            | Request::Train { .. }
            | Request::Evaluate { .. } => Urgency::Now,
        },
        // A welcome.
        Err(_) => Urgency::Now,
    }
}

/// Whether a site that was hung up on may come again.
fn over(status: &Status) -> Delivery {
    let reason = status.message().to_owned();
    match NetError::of_status(status).fault(Standing::Welcomed) {
        Fault::Lost => Delivery::Over(reason),
        Fault::Refused => Delivery::Refused(reason),
    }
}
