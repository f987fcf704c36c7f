//! A node that is online, as a coordinator knows it: what it was sent, and what is to go to it next.

use std::sync::Arc;
use std::time::Instant;

use fedra_net::{Delivery, Message, Seated, Traffic, Urgency, urgency};

use crate::arrays::Arrays;
use crate::message_content::{MESSAGE_TYPE, MessageContent, Packed};
use crate::object::{Kind, OutgoingMessage};
use crate::proto::{Metadata, SUPERLINK};
use crate::record::Fields;
use crate::stock_client::{StockClient, StockReaction, TRAIN};

/// How long a message is good for: longer than any request may take.
const TTL: f64 = 30.0 * 24.0 * 3600.0;

/// A node that is online.
pub(crate) struct OnlineNode {
    /// When it came online; another moment means another process, or one that lost its way.
    pub(crate) activated: String,
    /// The clients that its key allows it to be; `None` where nobody says.
    pub(crate) names: Option<Arc<[String]>>,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) state: State,
    /// Who answered for it on a seat that it lost, where it is an app of Flower's own.
    pub(crate) freed: Option<Box<StockClient>>,
    /// Whether it was said that it takes part in another run.
    pub(crate) is_known_elsewhere: bool,
}

pub(crate) enum State {
    /// It is to be asked who it is.
    New(Instant),
    /// It was asked.
    Greeted(String),
    /// It has its seat.
    Seated(Box<NodeSession>),
    /// It is to be told why it cannot take part.
    Refusing(String),
    /// It is no part of this federation.
    Apart,
}

pub(crate) struct NodeSession {
    pub(crate) seated: Seated,
    pub(crate) queue: Vec<Message>,
    /// The message that is on its way.
    pub(crate) outstanding: Option<String>,
    /// Nothing comes after it.
    pub(crate) ends: bool,
    /// Who answers for it, where it is an app of Flower's own.
    pub(crate) stock: Option<Box<StockClient>>,
}

/// What is to go to a node.
pub(crate) enum Load {
    MessageContent(MessageContent),
    Train(Arrays, Fields),
}

impl NodeSession {
    /// A seat to which nothing was sent yet.
    pub(crate) const fn new(seated: Seated, stock: Option<Box<StockClient>>) -> Self {
        Self { seated, queue: Vec::new(), outstanding: None, ends: false, stock }
    }
}

impl OnlineNode {
    /// A node that has come online.
    pub(crate) fn new(activated: String, names: Option<Arc<[String]>>) -> Self {
        let (traffic, state) = (Arc::default(), State::New(Instant::now()));
        Self { activated, names, traffic, state, freed: None, is_known_elsewhere: false }
    }

    /// What is to go to it now, if anything.
    pub(crate) fn next(&mut self) -> Option<Load> {
        let greeting = || Some(Load::MessageContent(MessageContent::Greeting));
        match &mut self.state {
            State::New(when) => (*when <= Instant::now()).then(greeting).flatten(),
            State::Greeted(_) | State::Apart => None,
            State::Refusing(reason) => {
                Some(Load::MessageContent(MessageContent::Refusal(reason.clone())))
            }
            State::Seated(session) => {
                while let Some(delivery) = session.seated.next_delivery() {
                    match delivery {
                        Delivery::Message(message) => session.queue.push(message),
                        Delivery::Over => {
                            // Its seat is free already; it may have another one.
                            self.freed = session.stock.take();
                            self.state = State::New(Instant::now());
                            return greeting();
                        }
                        Delivery::Refused(reason) => {
                            self.state = State::Refusing(reason.clone());
                            return Some(Load::MessageContent(MessageContent::Refusal(reason)));
                        }
                    }
                }
                if session.outstanding.is_some() {
                    return None;
                }
                if session.stock.is_some() {
                    return session.next_of_stock();
                }
                if session.queue.iter().all(|it| urgency(it) == Urgency::CanWait) {
                    return None;
                }
                session.ends = session.queue.iter().any(|it| urgency(it) == Urgency::Last);
                Some(Load::MessageContent(MessageContent::Messages(std::mem::take(
                    &mut session.queue,
                ))))
            }
        }
    }

    /// The content is in the outbox, under this name.
    pub(crate) fn sent(&mut self, id: &str) {
        match &mut self.state {
            State::New(_) => self.state = State::Greeted(id.to_owned()),
            State::Refusing(_) => self.state = State::Apart,
            State::Seated(session) => session.outstanding = Some(id.to_owned()),
            State::Greeted(_) | State::Apart => {}
        }
    }

    /// The message whose reply is due.
    pub(crate) fn awaits(&self) -> Option<String> {
        match &self.state {
            State::Greeted(id) if !id.is_empty() => Some(id.clone()),
            State::Seated(session) => session.outstanding.clone(),
            State::Greeted(_) | State::New(_) | State::Refusing(_) | State::Apart => None,
        }
    }

    /// The reply has come; its content has not.
    pub(crate) fn arrived(&mut self) {
        match &mut self.state {
            State::Greeted(id) => id.clear(),
            State::Seated(session) => session.outstanding = None,
            State::New(_) | State::Refusing(_) | State::Apart => {}
        }
    }
}

impl NodeSession {
    /// Answers for an app of Flower's own, up to what only the app can do.
    fn next_of_stock(&mut self) -> Option<Load> {
        let client = self.stock.as_mut()?;
        for message in std::mem::take(&mut self.queue) {
            if urgency(&message) == Urgency::Last {
                // The app itself knows nothing of the run.
                self.seated.take_leave();
            }
            match client.hear(&message) {
                StockReaction::Nothing => {}
                StockReaction::Answer(answer) => {
                    let _taken = self.seated.answer(answer, None);
                }
                // One request is open at a time, so nothing that is answered comes after it.
                StockReaction::Train(arrays, config) => return Some(Load::Train(arrays, config)),
            }
        }
        None
    }
}

impl Load {
    /// The message with all that it consists of.
    pub(crate) fn message(
        &self,
        (run, node, now): (u64, u64, f64),
        packed: &mut Vec<Packed>,
    ) -> OutgoingMessage {
        let (message_type, (objects, content)) = match self {
            Self::MessageContent(content) => (MESSAGE_TYPE, content.pack_beside(packed)),
            Self::Train(arrays, config) => (TRAIN, arrays.content((config, Kind::ConfigRecord))),
        };
        let metadata = Metadata {
            run_id: run,
            src_node_id: SUPERLINK,
            dst_node_id: node,
            ttl: TTL,
            message_type: message_type.to_owned(),
            created_at: now,
            ..Metadata::default()
        };
        objects.seal(metadata, &content)
    }
}
