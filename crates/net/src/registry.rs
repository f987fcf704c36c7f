//! Who is there: one seat for each client of the experiment, and who sits on it.
//!
//! The asynchronous side lets sites in and reads their answers; the fleet, which blocks, asks. They meet
//! here, under one lock, so that what a site is told when it comes in (which of its answers counts) and
//! what it is sent afterwards are one story.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use fedra_wire::ClientId;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tonic::Status;

use crate::frame::Message;
use crate::journal::{Comparison, Journal};
use crate::peer::{ClientTraffic, Peer};
use crate::processes::{Processes, replaced};
use crate::protocol::{Asked, ConfigFingerprint, HeldModel, Hello, Request, Welcome, disagreement};

/// Everybody.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    pub(crate) names: Vec<String>,
    pub(crate) agreement: ConfigFingerprint,
    pub(crate) session: u64,
    pub(crate) journal: Journal,
    pub(crate) seats: Vec<Slot>,
    /// Whether rounds have begun: before that, whoever joins waits.
    pub(crate) opened: bool,
    /// What went over each client's connections, rows across a cut included.
    pub(crate) traffic: Arc<ClientTraffic>,
    /// Which process speaks for each client.
    pub(crate) processes: Arc<Processes>,
    /// How the run ended, once it has: whoever joins then is told so.
    pub(crate) ended: Option<Request>,
    /// Who has heard so: it has left on its own since.
    pub(crate) informed: BTreeSet<usize>,
    connections: u64,
}

/// One client's place.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(crate) connection: Option<Connection>,
    /// When the last connection was lost, and why.
    pub(crate) lost: Option<(Instant, String)>,
    /// The request that an answer is due to.
    pub(crate) open: Option<u64>,
    /// The connection over which a request was sent last, and which request.
    pub(crate) delivered: Option<(u64, u64)>,
    /// The shared model that the site holds.
    pub(crate) held: Option<HeldModel>,
}

/// A connection to a site.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) number: u64,
    pub(crate) process: u64,
    pub(crate) outgoing: mpsc::UnboundedSender<Outgoing>,
}

/// What goes to a site.
#[derive(Debug)]
pub(crate) enum Outgoing {
    Message(Message),
    /// The end of the connection, and what it is told.
    Refuse(Status),
}

/// Memory that an answer may take until it is dropped.
pub type Room = OwnedSemaphorePermit;

/// What the fleet hears.
#[derive(Debug)]
pub(crate) enum Event {
    /// A site has come in.
    Joined { seat: usize, about: String },
    /// The answer to the request that was open.
    Answer { seat: usize, message: Message, _room: Option<Room> },
    /// A site is gone.
    Lost { seat: usize, reason: String },
    /// Somebody was turned away.
    Refused { who: String, reason: String },
    /// Something about the network.
    Said { line: String },
    /// What carries messages is gone for good.
    Severed { reason: String },
}

/// A seat, the number of the connection that has it, and what is to be sent over it.
pub(crate) type Admitted = (usize, u64, mpsc::UnboundedReceiver<Outgoing>);

impl Registry {
    pub(crate) fn new(
        names: Vec<String>,
        agreement: ConfigFingerprint,
        (session, journal): (u64, Journal),
        (traffic, processes): (Arc<ClientTraffic>, Arc<Processes>),
    ) -> Self {
        let seats = names.iter().map(|_| Slot::default()).collect();
        for (name, entry) in &journal.sites {
            processes.restore(name, &entry.processes);
        }
        Self { names, agreement, session, journal, seats, traffic, processes, ..Self::default() }
    }

    /// Lets a site in, or says why not. A site that is there already is replaced: its certificate says
    /// that it is the same party, and an old connection may be dead without anybody having noticed. A
    /// process that was replaced does not come back.
    pub(crate) fn admit(&mut self, hello: &Hello, peer: &Peer) -> Result<Admitted, Status> {
        let seat = self.seat_of(hello, peer)?;
        self.processes.check(&hello.client, hello.process)?;
        if let Err(reason) = self.check(hello) {
            let slot = &mut self.seats[seat];
            if slot.connection.is_none() {
                let since = slot.lost.as_ref().map_or_else(Instant::now, |(since, _)| *since);
                slot.lost = Some((since, format!("it was refused: {reason}")));
            }
            return Err(Status::failed_precondition(reason));
        }
        let entry = self.journal.sites.entry(hello.client.clone()).or_default();
        (entry.counts, entry.data) = (hello.counts, Some(hello.data));
        entry.processes = self.processes.enter(&hello.client, hello.process);
        self.connections += 1;
        let number = self.connections;
        let (send, outgoing) = mpsc::unbounded_channel();
        let connection = Connection { number, process: hello.process, outgoing: send };
        let place = &mut self.seats[seat];
        if let Some(older) = place.connection.replace(connection) {
            let told = if older.process == hello.process {
                Status::cancelled("replaced by a newer connection of the same process")
            } else {
                replaced(&hello.client)
            };
            // It may be gone without anybody having noticed.
            let _gone = older.outgoing.send(Outgoing::Refuse(told));
        }
        (place.held, place.lost) = (Some(hello.model), None);
        self.traffic.follow(&hello.client, &peer.traffic);
        if let Some(end) = &self.ended {
            let asked = Asked { base: None, request: end.clone() };
            self.send(seat, Message::of(0, &asked));
        } else if self.opened {
            self.welcome(seat);
        }
        Ok((seat, number, outgoing))
    }

    /// The seat of the client that somebody rightly says to be.
    fn seat_of(&self, hello: &Hello, peer: &Peer) -> Result<usize, Status> {
        peer.check((hello.protocol, &hello.client))?;
        self.names.iter().position(|name| *name == hello.client).ok_or_else(|| {
            let names = self.names.len();
            Status::failed_precondition(format!(
                "found the client {:?}, expected one of the experiment's {names}",
                hello.client
            ))
        })
    }

    /// Whether a client has the same experiment, and what it had before.
    fn check(&self, hello: &Hello) -> Result<(), String> {
        let (site, server) =
            ((&hello.agreement, "at the client"), (&self.agreement, "at the server"));
        if let Some(difference) = disagreement(site, server) {
            return Err(format!("the experiments differ: {difference}"));
        }
        if hello.counts.train == 0 {
            return Err("found no training example, expected at least one".to_owned());
        }
        if let Some(entry) = self.journal.sites.get(&hello.client)
            && !entry.labels.is_empty()
            && entry.counts != hello.counts
        {
            return Err(format!(
                "found {} training examples, expected the number with which {} took part before: {}",
                hello.counts.train, hello.client, entry.counts.train
            ));
        }
        if self.journal.comparison(hello) == Comparison::Other {
            return Err(format!(
                "the examples of {} have changed since it took part: there are as many as before, but a text, a \
                 label or their order differs",
                hello.client
            ));
        }
        let is_private = self.agreement.keys().any(|key| key.starts_with("privacy."));
        if is_private && self.journal.has_new_folder(hello) {
            return Err(format!(
                "the state folder is new, but {} took part before: in a private run that folder has its ledger \
                 and its noise key, and without them its earlier releases are unknown; restore it, or leave the \
                 client out",
                hello.client
            ));
        }
        Ok(())
    }

    /// Tells a site where it stands.
    fn welcome(&mut self, seat: usize) {
        let welcome = Welcome {
            run: self.journal.run,
            session: self.session,
            client: ClientId(seat as u32),
            label: self.journal.label(&self.names[seat]),
            forgets: self.journal.forgets.clone(),
        };
        self.send(seat, Message::of(0, &welcome));
    }

    /// Begins: whoever is there is told where it stands.
    pub(crate) fn open(&mut self) {
        (self.opened, self.journal.begun) = (true, true);
        for seat in 0..self.seats.len() {
            self.welcome(seat);
        }
    }

    /// Sends a message to whoever sits there; says whether somebody does.
    pub(crate) fn send(&self, seat: usize, message: Message) -> bool {
        let connection = self.seats[seat].connection.as_ref();
        connection
            .is_some_and(|connection| connection.outgoing.send(Outgoing::Message(message)).is_ok())
    }

    /// Takes an answer if it is the one that is due, or says why not.
    pub(crate) fn take_answer(&mut self, seat: usize, number: u64, id: u64) -> Result<(), String> {
        let seat = &mut self.seats[seat];
        if seat.connection.as_ref().is_none_or(|connection| connection.number != number) {
            return Err("the connection was replaced".to_owned());
        }
        match seat.open {
            Some(open) if open == id => {
                seat.open = None;
                Ok(())
            }
            Some(open) => Err(format!("found an answer to request {id}, expected one to {open}")),
            None => Err(format!("found an answer to request {id}, expected none")),
        }
    }

    /// Notes that the site behind a connection has heard all that was said to it, and goes.
    pub(crate) fn took_leave(&mut self, seat: usize, number: u64) {
        let connection = self.seats[seat].connection.as_ref();
        if self.ended.is_some() && connection.is_some_and(|it| it.number == number) {
            self.informed.insert(seat);
        }
    }

    /// Notes that a connection has ended; says whether it was the seat's.
    pub(crate) fn leave(&mut self, seat: usize, number: u64, reason: &str) -> bool {
        let seat = &mut self.seats[seat];
        if seat.connection.as_ref().is_none_or(|connection| connection.number != number) {
            return false;
        }
        seat.connection = None;
        seat.lost = Some((Instant::now(), reason.to_owned()));
        true
    }

    /// Ends a connection from this side.
    pub(crate) fn hang_up(&mut self, seat: usize, status: Status) {
        let reason = status.message().to_owned();
        let seat = &mut self.seats[seat];
        seat.open = None;
        if let Some(connection) = seat.connection.take() {
            let _gone = connection.outgoing.send(Outgoing::Refuse(status));
            seat.lost = Some((Instant::now(), reason));
        }
    }
}
