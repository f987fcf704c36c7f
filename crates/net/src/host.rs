//! The server's end of a join stream: who comes in, what goes out, and that each answer is the one that
//! is due.
//!
//! Large answers share a budget of memory: the head of a message declares what will come, and its chunks
//! are read once there is room for it. Until then the site waits, by the flow control of its stream.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tonic::Status;

use crate::frame::{Assembler, Limits, Message, frames};
use crate::journal::Comparison;
use crate::link::from_meta;
use crate::peer::Peer;
use crate::protocol::{Hello, PROTOCOL};
use crate::roster::{Admitted, Event, Outgoing, Roster, wrong_protocol};
use crate::service::{Inbound, Outbound};

/// A site that says nothing after it has connected is not waited for.
const HELLO: Duration = Duration::from_secs(10);
/// The next piece of a message that has begun is due within this time.
const STALL: Duration = Duration::from_mins(1);
/// Memory is shared out in such pieces.
const PIECE: u64 = 64 << 10;

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Host {
    roster: Mutex<Roster>,
    events: mpsc::UnboundedSender<Event>,
    limits: Limits,
    /// Pieces of memory for answers that are coming in.
    room: Arc<Semaphore>,
    pieces: u32,
}

impl Host {
    pub(crate) fn new(
        roster: Roster,
        events: mpsc::UnboundedSender<Event>,
        (limits, memory): (Limits, u64),
    ) -> Self {
        // The largest message has to fit in.
        let pieces = memory.max(limits.bytes).div_ceil(PIECE);
        let pieces = u32::try_from(pieces).unwrap_or(u32::MAX);
        let room = Arc::new(Semaphore::new(pieces as usize));
        Self { roster: Mutex::new(roster), events, limits, room, pieces }
    }

    /// What a message may weigh.
    pub(crate) const fn limits(&self) -> Limits {
        self.limits
    }

    /// Lets the fleet hear something; says whether it still listens.
    pub(crate) fn tell(&self, event: Event) -> bool {
        self.events.send(event).is_ok()
    }

    /// Memory for an answer of so many bytes, if there is room for it now.
    pub(crate) fn room_now(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let pieces = bytes.div_ceil(PIECE).min(u64::from(self.pieces));
        Arc::clone(&self.room).try_acquire_many_owned(pieces as u32).ok()
    }

    pub(crate) fn roster(&self) -> MutexGuard<'_, Roster> {
        // What is changed under the lock is changed by assignments: a panic leaves no half of it.
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One site, from its hello to its end.
    pub(crate) async fn serve(self: Arc<Self>, peer: Peer, mut inbound: Inbound, out: Outbound) {
        let mut who = peer.address.clone();
        match self.admit(&peer, &mut inbound, &mut who).await {
            Ok(admitted) => self.talk(admitted, inbound, out).await,
            Err(status) => {
                let reason = status.message().to_owned();
                let _fleet_is_gone = self.events.send(Event::Refused { who, reason });
                let _site_is_gone = out.send(Err(status)).await;
            }
        }
    }

    async fn admit(
        &self,
        peer: &Peer,
        inbound: &mut Inbound,
        who: &mut String,
    ) -> Result<Admitted, Status> {
        let reading = async {
            let mut assembler = Assembler::new(Limits { bytes: 0, payloads: 0, ..self.limits });
            loop {
                let frame = inbound.message().await?;
                let frame = frame.ok_or_else(|| Status::cancelled("it left without a word"))?;
                let pushed = assembler.push(frame);
                let pushed = pushed.map_err(|error| Status::invalid_argument(error.to_string()))?;
                if let Some(message) = pushed {
                    return Ok::<Message, Status>(message);
                }
            }
        };
        let message = tokio::time::timeout(HELLO, reading).await.map_err(|_| {
            Status::deadline_exceeded(format!("found no hello within {} s", HELLO.as_secs()))
        })??;
        self.let_in(&message, peer, who)
    }

    /// Gives whoever says this hello its seat, or says why not.
    pub(crate) fn let_in(
        &self,
        message: &Message,
        peer: &Peer,
        who: &mut String,
    ) -> Result<Admitted, Status> {
        let hello = read_hello(message).map_err(Status::failed_precondition)?;
        *who = format!("{} at {}", hello.client, peer.address);
        let (admitted, about) = {
            let mut roster = self.roster();
            let comparison = roster.journal.comparison(&hello);
            let admitted = roster.admit(&hello, peer)?;
            let kept = roster.journal.label(&hello.client);
            let lost = kept.filter(|label| {
                hello.run != Some(roster.journal.run) || !hello.kept.contains(label)
            });
            let lost = lost.map_or("", |_| "; it has lost the state that it kept");
            let unknown = match comparison {
                Comparison::OtherSecret => {
                    "; its state folder is new, so nobody can tell whether its examples are those of \
                     before"
                }
                Comparison::None | Comparison::Same | Comparison::Other => "",
            };
            (admitted, format!("{} training examples{lost}{unknown}", hello.counts.train))
        };
        let _fleet_is_gone = self.events.send(Event::Joined { seat: admitted.seat, about });
        Ok(admitted)
    }

    async fn talk(self: Arc<Self>, admitted: Admitted, inbound: Inbound, out: Outbound) {
        let Admitted { seat, number, outgoing } = admitted;
        let writing = write(outgoing, out.clone());
        let reason = tokio::select! {
            reason = self.read((seat, number), inbound) => reason,
            reason = writing => reason,
        };
        let (told, reason) = match reason {
            Ok(reason) => (None, reason),
            Err(status) => (Some(status.clone()), status.message().to_owned()),
        };
        if let Some(status) = told {
            let _site_is_gone = out.send(Err(status)).await;
        }
        if self.roster().leave(seat, number, &reason) {
            let _fleet_is_gone = self.events.send(Event::Lost { seat, reason });
        }
    }

    /// Reads answers until the stream ends; a status is what the site is told about a broken rule.
    async fn read(
        &self,
        (seat, number): (usize, u64),
        mut inbound: Inbound,
    ) -> Result<String, Status> {
        let mut assembler = Assembler::new(self.limits);
        let mut room: Option<OwnedSemaphorePermit> = None;
        loop {
            let next = inbound.message();
            // Between messages a site may be silent for hours: it trains.
            let frame = if assembler.is_open() {
                tokio::time::timeout(STALL, next).await.map_err(|_| {
                    let seconds = STALL.as_secs();
                    Status::deadline_exceeded(format!("an answer stopped coming for {seconds} s"))
                })?
            } else {
                next.await
            };
            let frame = match frame {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok("it left".to_owned()),
                Err(status) if status.code() == tonic::Code::OutOfRange => return Err(status),
                Err(status) => return Ok(format!("the connection was lost: {}", status.message())),
            };
            let pushed = assembler.push(frame);
            let pushed = pushed.map_err(|error| Status::invalid_argument(error.to_string()))?;
            if let Some(message) = pushed {
                let taken = self.roster().take_answer(seat, number, message.id);
                taken.map_err(Status::invalid_argument)?;
                let event = Event::Answer { seat, message, _room: room.take() };
                if self.events.send(event).is_err() {
                    return Ok("the server is done".to_owned());
                }
            } else if room.is_none() {
                let pieces = assembler.declared().div_ceil(PIECE).min(u64::from(self.pieces));
                let taken = Arc::clone(&self.room).acquire_many_owned(pieces as u32).await;
                room = Some(taken.map_err(|_| Status::cancelled("the server is done"))?);
            }
        }
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
    Err(Status::unavailable("the server ended the connection"))
}

/// A hello of this version; one of another version need not have the same fields.
fn read_hello(message: &Message) -> Result<Hello, String> {
    #[derive(serde::Deserialize)]
    struct Version {
        protocol: u32,
    }
    let version: Version = from_meta("a hello", message).map_err(|error| error.to_string())?;
    if version.protocol != PROTOCOL {
        return Err(wrong_protocol(version.protocol));
    }
    from_meta("a hello", message).map_err(|error| error.to_string())
}
