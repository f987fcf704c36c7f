//! Requests in flight: sent, sent again to a site that came back, answered or given up.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use fedra_client::HeldUp;
use fedra_engine::{EngineError, layout_of};
use fedra_plan::Scope;
use fedra_wire::{ClientId, Encoding, Header, Kind, ParamValues, encode, narrowed};
use tonic::Status;

use super::{FleetOptions, NetFleet, failure};
use crate::frame::Message;
use crate::link::from_meta;
use crate::listener::GLANCE;
use crate::protocol::{Answer, Asked, HeldModel, Request, StateVersion};
use crate::registry::Event;

/// A request that waits for its answer.
pub(super) struct Open {
    message: Message,
    /// Until when it is waited for, but for the time in which the site itself has to wait.
    deadline: Instant,
    /// How long the site had been held up when it was asked.
    held: Duration,
    /// What of the shared model it brings itself.
    brings: Scope,
}

/// An answer and its payloads, or why there is none.
pub(super) type Outcome = Result<(Answer, Vec<Bytes>), String>;

/// What became of a request to the site on a seat.
pub(super) type Answered = (usize, Outcome);

impl NetFleet {
    /// The next thing that happens before a moment.
    pub(super) fn event(&mut self, until: Instant) -> Option<Event> {
        let (handle, events) = (&self.runtime.handle, &mut self.events);
        let waiting = async { tokio::time::timeout_at(until.into(), events.recv()).await };
        handle.block_on(waiting).ok().flatten()
    }

    /// Hears what happens next, soon and before a moment; an error when nobody can be reached any more.
    pub(super) fn glance(&mut self, until: Option<Instant>) -> Result<(), String> {
        let soon = Instant::now() + GLANCE;
        let event = self.event(until.map_or(soon, |until| until.min(soon)));
        if let Some(event) = &event {
            self.note(event);
        }
        match event {
            Some(Event::Severed { reason }) => Err(reason),
            Some(_) | None => Ok(()),
        }
    }

    /// Takes note of who came and went.
    pub(super) fn note(&mut self, event: &Event) {
        self.log_event(event);
        match event {
            Event::Joined { seat, about } => {
                self.count();
                // With which folder it came is known before it is asked; a disk that fails now fails again
                // when answers are noted, and is told then.
                let _told_later = self.save_journal();
                let name = &self.infos[*seat].name;
                self.listener.told(&format!("{name} joined: {about}"));
            }
            Event::Lost { seat, reason } => {
                let name = &self.infos[*seat].name;
                self.listener.told(&format!("{name} left: {reason}"));
            }
            Event::Refused { who, reason } => {
                self.listener.told(&format!("{who} was refused: {reason}"));
            }
            Event::Said { line } => self.listener.told(line),
            Event::Answer { .. } | Event::Severed { .. } => {}
        }
    }

    /// Makes a request to a site; it is open from now on, whether the site is there or not.
    pub(super) fn ask(
        &mut self,
        seat: usize,
        (request, payloads): (&Request, Vec<Bytes>),
        brings: Scope,
    ) -> Result<Open, EngineError> {
        self.requests += 1;
        let asked = Asked { base: self.base(seat), request: request.clone() };
        let message = asked
            .message(self.requests, payloads)
            .map_err(|error| failure("send a request to a client", &error))?;
        let deadline = Instant::now() + self.options.deadline;
        let open = Open { message, deadline, held: self.held_up(seat).time, brings };
        self.deliver(seat, &open)?;
        self.publication.asked.insert(seat, Instant::now());
        Ok(open)
    }

    /// Sends a request to whoever sits there, after what its memory lacks.
    fn deliver(&self, seat: usize, Open { message, brings, .. }: &Open) -> Result<(), EngineError> {
        let base = self.base(seat);
        let mut roster = self.host.roster();
        let Some(connection) = &roster.seats[seat].connection else { return Ok(()) };
        let delivery = Some((connection.number, message.id));
        if roster.seats[seat].delivered == delivery {
            return Ok(());
        }
        roster.seats[seat].delivered = delivery;
        let current = HeldModel::Of { session: roster.session };
        if roster.seats[seat].held != Some(current) {
            let lacks = match roster.seats[seat].held {
                Some(HeldModel::First) => self.changed.clone(),
                Some(HeldModel::Of { .. }) | None => Scope::everything(&self.layout),
            };
            let lacks = lacks - brings;
            if !lacks.is_empty() {
                roster.send(seat, self.catching_up(seat, &lacks, base)?);
            }
            roster.seats[seat].held = Some(current);
        }
        roster.seats[seat].open = Some(message.id);
        roster.send(seat, message.clone());
        Ok(())
    }

    /// A part of the shared model as clients hold it, exactly.
    fn catching_up(
        &self,
        seat: usize,
        part: &Scope,
        base: Option<StateVersion>,
    ) -> Result<Message, EngineError> {
        let header = Header::download(Kind::Values, Encoding::F32, self.round);
        let (name, shared) = (&self.infos[seat].name, self.shared.subset(part));
        let payload = match layout_of(&self.ranks, name, &self.layout) {
            Cow::Borrowed(layout) => encode(layout, &header, &shared, None)?,
            Cow::Owned(own) => {
                let mut held = narrowed(shared, (&self.layout, &own));
                let known = self.ranks.get(name).and_then(|rank| self.narrow.get(rank));
                held.absorb(known.map_or_else(ParamValues::new, |known| known.subset(part)));
                encode(&own, &header, &held, None)?
            }
        };
        let request = Request::Sync { round: self.round, encoding: Encoding::F32 };
        let message = Asked { base, request }.message(0, vec![payload.into()]);
        message.map_err(|error| failure("synchronise a client", &error))
    }

    /// The next of the open requests that is answered or given up; `None` when none is left.
    pub(super) fn next(
        &mut self,
        asked: &mut BTreeMap<usize, Open>,
    ) -> Result<Option<Answered>, EngineError> {
        loop {
            if asked.is_empty() {
                return Ok(None);
            }
            if self.observer.stops() {
                // Clients that wait for each other at the cut are let go.
                self.middle.iter().for_each(|middle| middle.close());
                return Err(EngineError::Stopped);
            }
            let now = Instant::now();
            let mut earliest = now + self.options.deadline;
            let mut given_up = None;
            for (seat, open) in &*asked {
                let (until, reason) = self.patience(*seat, open, now);
                if until <= now {
                    given_up = Some((*seat, reason));
                    break;
                }
                earliest = earliest.min(until);
            }
            if let Some((seat, reason)) = given_up {
                asked.remove(&seat);
                self.publication.asked.remove(&seat);
                self.host.roster().hang_up(seat, Status::aborted(reason.clone()));
                return Ok(Some((seat, Err(reason))));
            }
            self.publish_in_time();
            // Nobody tells when a site is no longer held up, or when somebody wants to stop.
            let Some(event) = self.event(earliest.min(now + GLANCE)) else {
                continue;
            };
            self.note(&event);
            match event {
                Event::Joined { seat, .. } => {
                    if let Some(open) = asked.get(&seat) {
                        self.deliver(seat, open)?;
                    }
                }
                Event::Answer { seat, message, _room } => {
                    if asked.remove(&seat).is_some() {
                        self.publication.asked.remove(&seat);
                        let answer = from_meta("an answer", &message);
                        let answer = answer.map(|answer| (answer, message.payloads));
                        return Ok(Some((seat, answer.map_err(|error| error.to_string()))));
                    }
                }
                Event::Severed { reason } => {
                    return Err(EngineError::Fleet { doing: "reach the clients", reason });
                }
                Event::Lost { .. } | Event::Refused { .. } | Event::Said { .. } => {}
            }
        }
    }

    /// Until when a site is waited for, and what it comes to then.
    fn patience(&self, seat: usize, open: &Open, now: Instant) -> (Instant, String) {
        let FleetOptions { deadline, grace, .. } = self.options;
        let late = || format!("did not answer within {} s", deadline.as_secs_f64());
        // Whoever waits for others is not late, and the time in which it did is no time of its own.
        let held = self.held_up(seat);
        let until = if held.is_waiting {
            now + deadline
        } else {
            open.deadline + held.time.saturating_sub(open.held)
        };
        let roster = self.host.roster();
        let place = &roster.seats[seat];
        match (&place.connection, &place.lost) {
            (Some(_), _) => (until, late()),
            (None, Some((when, reason))) => {
                (until.min(*when + grace), format!("is not connected: {reason}"))
            }
            (None, None) => (now, "has not joined".to_owned()),
        }
    }

    /// How long a site has been waiting for the server's half of a cut model.
    fn held_up(&self, seat: usize) -> HeldUp {
        let middle = self.middle.as_ref();
        middle.map_or_else(HeldUp::default, |middle| middle.held_up(ClientId(seat as u32)))
    }

    /// Asks several sites, and hears each once.
    pub(super) fn ask_all(
        &mut self,
        requests: Vec<(usize, Request, Vec<Bytes>)>,
        brings: impl Fn(usize) -> Scope,
    ) -> Result<BTreeMap<usize, Outcome>, EngineError> {
        let mut asked = BTreeMap::new();
        for (seat, request, payloads) in requests {
            asked.insert(seat, self.ask(seat, (&request, payloads), brings(seat))?);
        }
        let mut answers = BTreeMap::new();
        while let Some((seat, answer)) = self.next(&mut asked)? {
            answers.insert(seat, answer);
            self.end_work();
        }
        Ok(answers)
    }

    /// The last answer of a site that counts.
    fn base(&self, seat: usize) -> Option<StateVersion> {
        self.host.roster().journal.label(&self.infos[seat].name)
    }

    /// Tells a site something that it does not answer.
    pub(super) fn tell(&self, seat: usize, request: &Request) {
        let asked = Asked { base: self.base(seat), request: request.clone() };
        if let Ok(message) = asked.message(0, Vec::new()) {
            // Who is away is told where it stands when it comes back.
            let _is_there = self.host.roster().send(seat, message);
        }
    }

    pub(super) fn tell_all(&self, request: &Request) {
        (0..self.infos.len()).for_each(|seat| self.tell(seat, request));
    }
}
