//! What a coordinator has on its way: who is online, what was sent to whom, and which replies came.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fedra_net::{Peer, Reception, Room};

use crate::arrays::Arrays;
use crate::error::FlowerError;
use crate::exchange::{ANNOUNCED, next_look};
use crate::message_content::{MessageContent, Opened, records};
use crate::node::ELSEWHERE;
use crate::node_keys::NodeKeys;
use crate::object::OutgoingMessage;
use crate::online_node::{Load, NodeSession, OnlineNode, State};
use crate::proto::{self, NodeInfo};
use crate::runtime_api::RuntimeApi;
use crate::stock_client::StockClients;

/// How often it is asked who is online.
const LOOK: Duration = Duration::from_secs(1);
/// It is asked for replies again after a part of the time for which there was none, within bounds.
const PART_OF_IDLE: u32 = 8;
const FIRST_POLL: Duration = Duration::from_millis(50);
const LONGEST_POLL: Duration = Duration::from_secs(1);
/// How long a node that failed is left alone.
const PAUSE: Duration = Duration::from_secs(3);
/// How long a node is left alone that did not say who it is: to be asked costs a stock node a process.
const AGAIN: Duration = Duration::from_mins(1);

/// How long a node is left alone that takes part in another run.
const ELSEWHERE_AGAIN: Duration = Duration::from_secs(10);

/// Who may take part.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    /// Clients that are apps of Flower's own.
    pub stock: Option<StockClients>,
    /// The keys of the others; absent: a node is who it claims to be.
    pub keys: Option<NodeKeys>,
}

/// Carries messages between a fleet and the nodes of a run.
pub(crate) struct MessagePump {
    pub(crate) api: RuntimeApi,
    pub(crate) reception: Reception,
    nodes: BTreeMap<u64, OnlineNode>,
    /// Letters that the SuperLink has not taken yet, by the node that they go to.
    outbox: Vec<(u64, OutgoingMessage)>,
    /// Replies whose objects are not here yet.
    inbox: VecDeque<Arrived>,
    look: Instant,
    /// When replies are asked for next, and since when there was none.
    poll: (Instant, Instant),
    /// Clients that are apps of Flower's own, and for which no node stands yet.
    admission: Admission,
}

/// A reply on its way in.
struct Arrived {
    node: u64,
    id: String,
    opened: Option<Opened>,
    /// When it came, and when it is looked at next: its objects may come after it.
    since: Instant,
    look: Instant,
}

impl MessagePump {
    pub(crate) fn new(api: RuntimeApi, reception: Reception, admission: Admission) -> Self {
        let now = Instant::now();
        Self {
            api,
            reception,
            nodes: BTreeMap::new(),
            outbox: Vec::new(),
            inbox: VecDeque::new(),
            look: now,
            poll: (now, now),
            admission,
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

    /// Nobody can be reached any more.
    pub(crate) fn sever(&mut self, error: &FlowerError) {
        self.nodes.clear();
        let why = if error.is_unauthenticated() || error.is_run_over() {
            self.api.kept.remove();
            format!("the run was stopped at the SuperLink, or the SuperLink lost it: {error}")
        } else {
            error.to_string()
        };
        self.reception.sever(&why);
    }

    /// Takes note of who is online.
    fn meet(&mut self, nodes: Vec<NodeInfo>) {
        let online: BTreeMap<u64, NodeInfo> =
            nodes.into_iter().map(|node| (node.node_id, node)).collect();
        let known: Vec<u64> = self.nodes.keys().copied().collect();
        for id in known {
            let reason = match (online.get(&id), self.nodes.get(&id)) {
                (Some(node), Some(member)) if node.last_activated_at == member.activated => {
                    continue;
                }
                (Some(_), _) => "it was started again",
                (None, _) => "the SuperLink gets no messages from it",
            };
            self.drop_guest(id, reason);
        }
        for (id, node) in online {
            let names =
                self.admission.keys.as_ref().map(|keys| keys.names(&node.public_key).into());
            self.nodes.entry(id).or_insert_with(|| OnlineNode::new(node.last_activated_at, names));
        }
    }

    fn drop_guest(&mut self, id: u64, reason: &str) {
        self.outbox.retain(|(node, _)| *node != id);
        self.inbox.retain(|arrived| arrived.node != id);
        if let Some(OnlineNode { state: State::Seated(session), .. }) = self.nodes.remove(&id) {
            self.release(*session, reason);
        }
    }

    /// Frees a seat; whoever answered for an app of Flower's own may do so for another node.
    fn release(&mut self, session: NodeSession, reason: &str) {
        session.seated.leave(reason);
        if let (Some(stock), Some(client)) = (&mut self.admission.stock, session.stock) {
            stock.give_back(*client);
        }
    }

    /// Sends what is to go out.
    fn send(&mut self) -> Result<(), FlowerError> {
        if self.outbox.is_empty() {
            let (run, now, mut packed) = (self.api.run, self.api.link.clock.now(), Vec::new());
            for (node, member) in &mut self.nodes {
                let load = member.next();
                if let (Some(stock), Some(client)) =
                    (&mut self.admission.stock, member.freed.take())
                {
                    stock.give_back(*client);
                }
                if let Some(load) = load {
                    if matches!(load, Load::MessageContent(MessageContent::Greeting)) {
                        // What it said before is no answer to this.
                        self.inbox.retain(|arrived| arrived.node != *node);
                    }
                    let message = load.message((run, *node, now), &mut packed);
                    member.sent(&message.tree.object_id);
                    self.outbox.push((*node, message));
                }
            }
        }
        if self.outbox.is_empty() {
            return Ok(());
        }
        let messages: Vec<OutgoingMessage> =
            self.outbox.iter().map(|(_, message)| message.clone()).collect();
        let costs = self.api.push(&messages)?;
        self.poll = (Instant::now() + FIRST_POLL, Instant::now());
        let sent: Vec<(u64, Option<usize>)> =
            self.outbox.drain(..).map(|(node, _)| node).zip(costs).collect();
        for (node, cost) in sent {
            match (cost, self.nodes.get(&node)) {
                (Some(bytes), Some(member)) => member.traffic.add_sent(bytes),
                (None, _) => self.drop_guest(node, "the SuperLink accepted no message for it"),
                (Some(_), None) => {}
            }
        }
        Ok(())
    }

    /// Takes in what has come.
    fn receive(&mut self) -> Result<(), FlowerError> {
        self.unpack()?;
        let due: BTreeMap<String, u64> = self
            .nodes
            .iter()
            .filter_map(|(node, member)| Some((member.awaits()?, *node)))
            .collect();
        let (when, mut idle) = self.poll;
        if due.is_empty() || Instant::now() < when {
            return Ok(());
        }
        let replies = match self.api.pull(due.keys().cloned().collect()) {
            Err(error) if is_confused(&error) => return self.look_one_by_one(&due),
            other => other?,
        };
        if !replies.is_empty() {
            idle = Instant::now();
        }
        let wait = (idle.elapsed() / PART_OF_IDLE).clamp(FIRST_POLL, LONGEST_POLL);
        self.poll = (Instant::now() + wait, idle);
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
                    self.fail(*node, "the SuperLink lost the request");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take(&mut self, reply: proto::Message, due: &BTreeMap<String, u64>) {
        let Some(metadata) = reply.metadata else { return };
        let Some(node) = due.get(&metadata.reply_to_message_id) else { return };
        if let Some(error) = reply.error {
            let reason: String = error.reason.chars().take(300).collect();
            if error.code == ELSEWHERE {
                return self.leave_alone(*node, &reason);
            }
            return self.fail(*node, &reason);
        }
        if let Some(member) = self.nodes.get_mut(node) {
            member.arrived();
        }
        let (id, now) = (metadata.message_id, Instant::now());
        let arrived = Arrived { node: *node, id, opened: None, since: now, look: now };
        self.inbox.push_back(arrived);
    }

    /// Fetches the objects of replies, as far as there is room for them.
    fn unpack(&mut self) -> Result<(), FlowerError> {
        let mut left = VecDeque::new();
        while let Some(mut arrived) = self.inbox.pop_front() {
            if Instant::now() < arrived.look {
                left.push_back(arrived);
                continue;
            }
            let is_opened = if self.is_stock(arrived.node) {
                self.open_stock(&arrived).map(|()| true)
            } else {
                self.open(&mut arrived)
            };
            match is_opened {
                Ok(true) => {}
                Ok(false) => left.push_back(arrived),
                Err(FlowerError::Unfinished { .. }) if arrived.since.elapsed() < ANNOUNCED => {
                    arrived.look = Instant::now() + next_look(arrived.since);
                    left.push_back(Arrived { opened: None, ..arrived });
                }
                Err(error) if error.is_of_connection() || error.is_unauthenticated() => {
                    left.push_back(Arrived { opened: None, ..arrived });
                    left.append(&mut self.inbox);
                    self.inbox = left;
                    return Err(error);
                }
                Err(error) => self.fail(arrived.node, &error.to_string()),
            }
        }
        self.inbox = left;
        Ok(())
    }

    /// Takes the reply of a node of ours; `false` where there is no room for it yet.
    fn open(&mut self, arrived: &mut Arrived) -> Result<bool, FlowerError> {
        let (run, limits) = (self.api.run, self.reception.limits);
        let opened = if let Some(opened) = arrived.opened.take() {
            opened
        } else {
            let records = records(&mut self.api, run, &arrived.id)?;
            let opened = Opened::read(&mut self.api, run, (&records, limits))?;
            let reason = "found a reply that is none of a node of fedra";
            opened.ok_or_else(|| FlowerError::object(&arrived.id, reason))?
        };
        let declared = opened.declared;
        let Some(room) = self.reception.room(declared) else {
            arrived.opened = Some(opened);
            return Ok(false);
        };
        let content = opened.finish(&mut self.api, run)?;
        if let Some(member) = self.nodes.get(&arrived.node) {
            member.traffic.add_received(declared as usize);
        }
        self.api.confirm(&arrived.id)?;
        self.hear(arrived.node, content, room);
        Ok(true)
    }

    fn is_stock(&self, node: u64) -> bool {
        let state = self.nodes.get(&node).map(|member| &member.state);
        matches!(state, Some(State::Seated(session)) if session.stock.is_some())
    }

    /// Takes the reply of an app of Flower's own; an error is one after which to try again.
    fn open_stock(&mut self, arrived: &Arrived) -> Result<(), FlowerError> {
        let run = self.api.run;
        let Some(OnlineNode { state: State::Seated(session), traffic, .. }) =
            self.nodes.get_mut(&arrived.node)
        else {
            return Ok(());
        };
        let Some(client) = &mut session.stock else { return Ok(()) };
        let (layout, names) = client.shape();
        let fetched = Arrays::fetch_all(&mut self.api, run, (&arrived.id, layout, names));
        let fetched = match fetched {
            Err(error @ FlowerError::Unfinished { .. }) => return Err(error),
            Err(error) if error.is_of_connection() || error.is_unauthenticated() => {
                return Err(error);
            }
            other => other.map_err(|error| error.to_string()),
        };
        self.api.confirm(&arrived.id)?;
        if let Some(answer) = client.reply(fetched) {
            traffic.add_received(answer.payload_bytes() as usize);
            // It is the one that is due: nothing else was asked.
            let _taken = session.seated.answer(answer, None);
        }
        Ok(())
    }

    /// What a node says.
    fn hear(&mut self, node: u64, content: MessageContent, room: Room) {
        let Some(member) = self.nodes.get_mut(&node) else { return };
        let MessageContent::Messages(messages) = content else {
            return self.fail(node, "found a message of a coordinator, expected a node's");
        };
        match std::mem::replace(&mut member.state, State::Apart) {
            State::Greeted(_) => {
                let [hello] = &messages[..] else {
                    return self.fail(node, "found no hello, expected one");
                };
                let traffic = Arc::clone(&member.traffic);
                let names = member.names.clone();
                let peer = Peer { address: format!("node {node}"), names, traffic };
                member.state = match self.reception.admit(hello, &peer) {
                    Ok(seated) => State::Seated(Box::new(NodeSession::new(seated, None))),
                    Err(status) => State::Refusing(status.message().to_owned()),
                };
            }
            State::Seated(session) => {
                let mut room = Some(room);
                for message in messages {
                    if let Err(reason) = session.seated.answer(message, room.take()) {
                        session.seated.leave(&reason);
                        member.state = State::Refusing(reason);
                        return;
                    }
                }
                if session.ends {
                    session.seated.take_leave();
                    session.seated.leave("it left");
                } else {
                    member.state = State::Seated(session);
                }
            }
            other @ (State::New(_) | State::Refusing(_) | State::Apart) => member.state = other,
        }
    }

    /// A node did not answer as it should.
    fn fail(&mut self, node: u64, reason: &str) {
        let Some(member) = self.nodes.get_mut(&node) else { return };
        match std::mem::replace(&mut member.state, State::New(Instant::now() + PAUSE)) {
            // An app of Flower's own that could not train answers all the same.
            State::Seated(mut session) if session.stock.is_some() => {
                session.outstanding = None;
                let answer = session.stock.as_mut().and_then(|it| it.reply(Err(reason.to_owned())));
                if let Some(answer) = answer {
                    let _taken = session.seated.answer(answer, None);
                }
                member.state = State::Seated(session);
            }
            State::Seated(session) => self.release(*session, reason),
            State::Greeted(_) | State::Apart => {
                // It may be a node of another app, or one of ours whose reply got lost.
                member.state = State::New(Instant::now() + AGAIN);
                if !self.seat_stock(node) {
                    self.reception.turn_away(&format!("node {node}"), reason);
                }
            }
            State::New(_) => {}
            State::Refusing(refusal) => member.state = State::Refusing(refusal),
        }
    }

    /// A node takes part in another run, which may end before this one.
    fn leave_alone(&mut self, node: u64, reason: &str) {
        let Some(member) = self.nodes.get_mut(&node) else { return };
        let later = State::New(Instant::now() + ELSEWHERE_AGAIN);
        match std::mem::replace(&mut member.state, later) {
            State::Seated(session) => self.release(*session, reason),
            State::New(_) | State::Greeted(_) | State::Refusing(_) | State::Apart => {
                if !std::mem::replace(&mut member.is_known_elsewhere, true) {
                    self.reception.turn_away(&format!("node {node}"), reason);
                }
            }
        }
    }

    /// Gives a node that is none of ours the seat of an app of Flower's own; says whether there was one.
    fn seat_stock(&mut self, node: u64) -> bool {
        let Some(member) = self.nodes.get_mut(&node) else { return false };
        let keys = self.admission.keys.as_ref().zip(member.names.as_deref());
        let client = self.admission.stock.as_mut().and_then(|stock| stock.next(keys));
        let Some(client) = client else { return false };
        let hello = self.reception.vouch(&client.name, client.examples);
        let (address, traffic) = (format!("node {node}"), Arc::clone(&member.traffic));
        let admitted = self.reception.admit(&hello, &Peer { address, names: None, traffic });
        if let Ok(seated) = admitted {
            let session = NodeSession::new(seated, Some(Box::new(client)));
            member.state = State::Seated(Box::new(session));
        }
        true
    }
}

/// Whether the SuperLink failed over a message that it does not know.
fn is_confused(error: &FlowerError) -> bool {
    matches!(error, FlowerError::Denied { status: 500 | 400 | 404, .. })
}
