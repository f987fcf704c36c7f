//! What a coordinator has on its way: who is online, what was sent to whom, and which replies came.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fedra_net::{Delivery, Message, Peer, Reception, Room, Seated, Traffic, Urgency, urgency};

use crate::envelope::{Envelope, MESSAGE_TYPE, Opened, records};
use crate::error::FlowerError;
use crate::object::Letter;
use crate::proto::{self, Metadata, NodeInfo, SUPERLINK};
use crate::runtime_api::{Outcome, RuntimeApi};

/// How often it is asked who is online.
const LOOK: Duration = Duration::from_secs(1);
/// The waits before it is asked for replies again: the first, and the longest to which they grow.
const FIRST_POLL: Duration = Duration::from_millis(20);
const LONGEST_POLL: Duration = Duration::from_millis(500);
/// How long a message is good for: longer than any request may take.
const TTL: f64 = 30.0 * 24.0 * 3600.0;
/// How long a node that failed is left alone.
const PAUSE: Duration = Duration::from_secs(3);

/// Carries messages between a fleet and the nodes of a run.
pub(crate) struct Courier {
    api: RuntimeApi,
    reception: Reception,
    guests: BTreeMap<u64, Guest>,
    /// Letters that the SuperLink has not taken yet, by the node that they go to.
    outbox: Vec<(u64, Letter)>,
    /// Replies whose objects are not here yet.
    inbox: VecDeque<Arrived>,
    look: Instant,
    poll: (Instant, Duration),
}

/// A node that is online.
struct Guest {
    /// When it came online; another moment means another process, or one that lost its way.
    activated: String,
    traffic: Arc<Traffic>,
    state: State,
}

enum State {
    /// It is to be asked who it is.
    New(Instant),
    /// It was asked.
    Greeted(String),
    /// It has its seat.
    Seated(Box<Sitting>),
    /// It is to be told why it cannot take part.
    Refusing(String),
    /// It is no part of this federation.
    Apart,
}

struct Sitting {
    seated: Seated,
    queue: Vec<Message>,
    /// The message that is on its way.
    outstanding: Option<String>,
    /// Nothing comes after it.
    ends: bool,
}

struct Arrived {
    node: u64,
    id: String,
    opened: Option<Opened>,
}

impl Courier {
    pub(crate) fn new(api: RuntimeApi, reception: Reception) -> Self {
        let now = Instant::now();
        Self {
            api,
            reception,
            guests: BTreeMap::new(),
            outbox: Vec::new(),
            inbox: VecDeque::new(),
            look: now,
            poll: (now, FIRST_POLL),
        }
    }

    /// Does what is to be done now. After a temporary error the same is tried again.
    pub(crate) fn work(&mut self) -> Result<(), FlowerError> {
        if Instant::now() >= self.look {
            let nodes = self.api.nodes()?;
            self.meet(nodes);
            self.look = Instant::now() + LOOK;
        }
        self.send()?;
        self.receive()
    }

    /// Says something about the network to the fleet.
    pub(crate) fn tell(&self, line: &str) {
        self.reception.tell(line);
    }

    /// Nobody can be reached any more.
    pub(crate) fn sever(&mut self, error: &FlowerError) {
        self.guests.clear();
        let why = if error.is_unauthenticated() || error.is_run_over() {
            format!("the run was stopped at the SuperLink, or it has forgotten it: {error}")
        } else {
            error.to_string()
        };
        self.reception.sever(&why);
    }

    /// Ends the task.
    pub(crate) fn finish(self, outcome: Outcome, reason: &str) {
        self.api.finish(outcome, reason);
    }

    /// Takes note of who is online.
    fn meet(&mut self, nodes: Vec<NodeInfo>) {
        let online: BTreeMap<u64, String> =
            nodes.into_iter().map(|node| (node.node_id, node.last_activated_at)).collect();
        let known: Vec<u64> = self.guests.keys().copied().collect();
        for id in known {
            let reason = match (online.get(&id), self.guests.get(&id)) {
                (Some(activated), Some(guest)) if *activated == guest.activated => continue,
                (Some(_), _) => "it was started again",
                (None, _) => "the SuperLink does not hear from it",
            };
            self.drop_guest(id, reason);
        }
        for (id, activated) in online {
            self.guests.entry(id).or_insert_with(|| Guest {
                activated,
                traffic: Arc::default(),
                state: State::New(Instant::now()),
            });
        }
    }

    fn drop_guest(&mut self, id: u64, reason: &str) {
        self.outbox.retain(|(node, _)| *node != id);
        self.inbox.retain(|arrived| arrived.node != id);
        if let Some(Guest { state: State::Seated(sitting), .. }) = self.guests.remove(&id) {
            sitting.seated.leave(reason);
        }
    }

    /// Sends what is to go out.
    fn send(&mut self) -> Result<(), FlowerError> {
        if self.outbox.is_empty() {
            let (run, now) = (self.api.run(), self.api.now());
            for (node, guest) in &mut self.guests {
                if let Some(envelope) = guest.next() {
                    let letter = letter(&envelope, (run, *node, now));
                    guest.sent(letter.id());
                    self.outbox.push((*node, letter));
                }
            }
        }
        if self.outbox.is_empty() {
            return Ok(());
        }
        let letters: Vec<Letter> = self.outbox.iter().map(|(_, letter)| letter.clone()).collect();
        let costs = self.api.push(&letters)?;
        self.poll = (Instant::now(), FIRST_POLL);
        let sent: Vec<(u64, Option<usize>)> =
            self.outbox.drain(..).map(|(node, _)| node).zip(costs).collect();
        for (node, cost) in sent {
            match (cost, self.guests.get(&node)) {
                (Some(bytes), Some(guest)) => guest.traffic.add_sent(bytes),
                (None, _) => self.drop_guest(node, "the SuperLink took no message for it"),
                (Some(_), None) => {}
            }
        }
        Ok(())
    }

    /// Takes in what has come.
    fn receive(&mut self) -> Result<(), FlowerError> {
        self.unpack()?;
        let due: BTreeMap<String, u64> =
            self.guests.iter().filter_map(|(node, guest)| Some((guest.awaits()?, *node))).collect();
        let (when, wait) = self.poll;
        if due.is_empty() || Instant::now() < when {
            return Ok(());
        }
        let replies = match self.api.pull(due.keys().cloned().collect()) {
            Err(error) if is_confused(&error) => return self.look_one_by_one(&due),
            other => other?,
        };
        let wait = if replies.is_empty() { wait.mul_f64(1.3).min(LONGEST_POLL) } else { FIRST_POLL };
        self.poll = (Instant::now() + wait, wait);
        for reply in replies {
            self.take(reply, &due);
        }
        self.unpack()
    }

    /// The SuperLink has forgotten one of the messages, and cannot answer about any together with it.
    fn look_one_by_one(&mut self, due: &BTreeMap<String, u64>) -> Result<(), FlowerError> {
        for (id, node) in due {
            match self.api.pull(vec![id.clone()]) {
                Ok(replies) => replies.into_iter().for_each(|reply| self.take(reply, due)),
                Err(error) if is_confused(&error) => {
                    self.fail(*node, "the SuperLink has forgotten what it was asked");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take(&mut self, reply: proto::Message, due: &BTreeMap<String, u64>) {
        let Some(metadata) = reply.metadata else { return };
        let Some(node) = due.get(&metadata.reply_to_message_id) else { return };
        match reply.error {
            Some(error) => {
                let reason: String = error.reason.chars().take(300).collect();
                self.fail(*node, &reason);
            }
            None => {
                if let Some(guest) = self.guests.get_mut(node) {
                    guest.arrived();
                }
                self.inbox.push_back(Arrived { node: *node, id: metadata.message_id, opened: None });
            }
        }
    }

    /// Fetches the objects of replies, as far as there is room for them.
    fn unpack(&mut self) -> Result<(), FlowerError> {
        let mut left = VecDeque::new();
        while let Some(mut arrived) = self.inbox.pop_front() {
            match self.open(&mut arrived) {
                Ok(Some((envelope, room))) => self.hear(arrived.node, envelope, room),
                // There is no room for it yet.
                Ok(None) => left.push_back(arrived),
                Err(error) if error.is_temporary() => {
                    left.push_back(Arrived { opened: None, ..arrived });
                    left.append(&mut self.inbox);
                    self.inbox = left;
                    return Err(error);
                }
                Err(error) if error.is_unauthenticated() => return Err(error),
                Err(error) => self.fail(arrived.node, &error.to_string()),
            }
        }
        self.inbox = left;
        Ok(())
    }

    fn open(
        &mut self,
        arrived: &mut Arrived,
    ) -> Result<Option<(Envelope, Option<Room>)>, FlowerError> {
        let (run, limits) = (self.api.run(), self.reception.limits());
        let opened = match arrived.opened.take() {
            Some(opened) => opened,
            None => {
                let records = records(&mut self.api, run, &arrived.id)?;
                let opened = Opened::read(&mut self.api, run, (&records, limits))?;
                opened.ok_or_else(|| FlowerError::Object {
                    id: arrived.id.chars().take(16).collect(),
                    reason: "found a reply that is none of a node of fedra".to_owned(),
                })?
            }
        };
        let declared = opened.declared;
        let room = self.reception.room(declared);
        if room.is_none() {
            arrived.opened = Some(opened);
            return Ok(None);
        }
        let envelope = opened.finish(&mut self.api, run)?;
        if let Some(guest) = self.guests.get(&arrived.node) {
            guest.traffic.add_received(declared as usize);
        }
        self.api.confirm(&arrived.id)?;
        Ok(Some((envelope, room)))
    }

    /// What a node says.
    fn hear(&mut self, node: u64, envelope: Envelope, room: Option<Room>) {
        let Some(guest) = self.guests.get_mut(&node) else { return };
        let Envelope::Messages(messages) = envelope else {
            return self.fail(node, "found an envelope of a coordinator, expected a node's");
        };
        match std::mem::replace(&mut guest.state, State::Apart) {
            State::Greeted(_) => {
                let [hello] = &messages[..] else {
                    return self.fail(node, "found no hello, expected one");
                };
                let traffic = Arc::clone(&guest.traffic);
                let peer = Peer { address: format!("node {node}"), names: None, traffic };
                guest.state = match self.reception.admit(hello, &peer) {
                    Ok(seated) => {
                        let queue = Vec::new();
                        let sitting = Sitting { seated, queue, outstanding: None, ends: false };
                        State::Seated(Box::new(sitting))
                    }
                    Err(reason) => State::Refusing(reason),
                };
            }
            State::Seated(sitting) => {
                let mut room = room;
                for message in messages {
                    if let Err(reason) = sitting.seated.answer(message, room.take()) {
                        sitting.seated.leave(&reason);
                        guest.state = State::Refusing(reason);
                        return;
                    }
                }
                if sitting.ends {
                    sitting.seated.leave("it left");
                } else {
                    guest.state = State::Seated(sitting);
                }
            }
            other @ (State::New(_) | State::Refusing(_) | State::Apart) => guest.state = other,
        }
    }

    /// A node did not answer as it should.
    fn fail(&mut self, node: u64, reason: &str) {
        let Some(guest) = self.guests.get_mut(&node) else { return };
        match std::mem::replace(&mut guest.state, State::New(Instant::now() + PAUSE)) {
            State::Seated(sitting) => sitting.seated.leave(reason),
            State::Greeted(_) | State::Apart => {
                guest.state = State::Apart;
                self.reception.turn_away(&format!("node {node}"), reason);
            }
            State::New(_) => {}
            State::Refusing(refusal) => guest.state = State::Refusing(refusal),
        }
    }
}

impl Guest {
    /// What is to go to it now, if anything.
    fn next(&mut self) -> Option<Envelope> {
        match &mut self.state {
            State::New(when) => (*when <= Instant::now()).then_some(Envelope::Greeting),
            State::Greeted(_) | State::Apart => None,
            State::Refusing(reason) => Some(Envelope::Refusal(reason.clone())),
            State::Seated(sitting) => {
                while let Some(delivery) = sitting.seated.next() {
                    match delivery {
                        Delivery::Message(message) => sitting.queue.push(message),
                        Delivery::Over(_) => {
                            // Its seat is free already; it may have another one.
                            self.state = State::New(Instant::now());
                            return Some(Envelope::Greeting);
                        }
                        Delivery::Refused(reason) => {
                            self.state = State::Refusing(reason.clone());
                            return Some(Envelope::Refusal(reason));
                        }
                    }
                }
                let urgencies = sitting.queue.iter().map(urgency);
                let now = urgencies.filter(|urgency| *urgency != Urgency::CanWait).count();
                if sitting.outstanding.is_some() || now == 0 {
                    return None;
                }
                sitting.ends = sitting.queue.iter().any(|it| urgency(it) == Urgency::Last);
                Some(Envelope::Messages(std::mem::take(&mut sitting.queue)))
            }
        }
    }

    /// The envelope is in the outbox, under this name.
    fn sent(&mut self, id: &str) {
        match &mut self.state {
            State::New(_) => self.state = State::Greeted(id.to_owned()),
            State::Refusing(_) => self.state = State::Apart,
            State::Seated(sitting) => sitting.outstanding = Some(id.to_owned()),
            State::Greeted(_) | State::Apart => {}
        }
    }

    /// The message whose reply is due.
    fn awaits(&self) -> Option<String> {
        match &self.state {
            State::Greeted(id) if !id.is_empty() => Some(id.clone()),
            State::Seated(sitting) => sitting.outstanding.clone(),
            State::Greeted(_) | State::New(_) | State::Refusing(_) | State::Apart => None,
        }
    }

    /// The reply has come; its content has not.
    fn arrived(&mut self) {
        match &mut self.state {
            State::Greeted(id) => id.clear(),
            State::Seated(sitting) => sitting.outstanding = None,
            State::New(_) | State::Refusing(_) | State::Apart => {}
        }
    }
}

/// Whether the SuperLink failed over a message that it does not know.
fn is_confused(error: &FlowerError) -> bool {
    matches!(error, FlowerError::Denied { status: 500 | 400 | 404, .. })
}

fn letter(envelope: &Envelope, (run, node, now): (u64, u64, f64)) -> Letter {
    let (parcel, content) = envelope.pack();
    let metadata = Metadata {
        run_id: run,
        message_id: String::new(),
        src_node_id: SUPERLINK,
        dst_node_id: node,
        reply_to_message_id: String::new(),
        group_id: String::new(),
        ttl: TTL,
        message_type: MESSAGE_TYPE.to_owned(),
        created_at: now,
        src_task_id: None,
        dst_task_id: None,
    };
    parcel.seal(metadata, &content)
}
