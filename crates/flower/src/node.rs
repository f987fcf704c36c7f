//! A site as a node of a SuperLink: it is online, takes one message at a time, and answers it.
//!
//! After an error nobody knows whether a message was handed out and lost on its way. So the node goes
//! offline and online again, which the coordinator sees: it asks again whatever was not answered, and an
//! answer that is ready is sent again, not worked out again.
//!
//! Several federations may meet at one SuperLink. A node takes part in the run that greeted it first, for as
//! long as that one is on; others are told so. A coordinator that does not want it is of another federation,
//! as likely as not, so the node says why and waits for another run.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fedra_net::{
    ClientNode, Conversation, Fault, Heard, Left, Limits, Listener, Message, NetError, Outage,
    Standing, limits, rest,
};
use fedra_plan::Digest;
use fedra_seed::Seed;

use crate::arrays::Arrays;
use crate::error::FlowerError;
use crate::fleet_api::FleetApi;
use crate::http::Endpoint;
use crate::key::NodeKey;
use crate::message_content::{MESSAGE_TYPE, MessageContent, Opened, records};
use crate::object::{Kind, Objects};
use crate::proto::{self, Metadata, ObjectTree};
use crate::stock::StockRun;
use crate::stock_client::TRAIN;
use crate::superlink::{Caller, SuperLink};

/// A node that was online for so long did not go offline at once.
const USEFUL: Duration = Duration::from_secs(5);
/// It is asked for messages again after a part of the time for which there was none, within bounds: so a
/// message waits for a sixth of that time at most, and a node that is idle for long costs little: each
/// question takes the SuperLink some 5 ms. Nothing is urgent before a coordinator has greeted it.
const PART_OF_IDLE: u32 = 6;
const FIRST_POLL: Duration = Duration::from_millis(60);
const LONGEST_POLL: Duration = Duration::from_secs(3);
const UNSEATED_POLL: Duration = Duration::from_secs(1);
/// How long a node that cannot be activated tries: one that was killed counts as online for less.
const ACTIVATION: Duration = Duration::from_secs(40);
/// The code of a reply whose work failed.
const FAILED: i64 = 2;
/// The code of a reply of a node that takes part in another run.
pub(crate) const ELSEWHERE: i64 = 6;
/// The file with the node's number.
const NODE_FILE: &str = "node.id";

/// As what a site is a node.
pub struct Membership {
    /// The SuperLink.
    pub endpoint: Endpoint,
    /// The key.
    pub key: NodeKey,
    /// The folder with the site's state, where the node's number is kept.
    pub folder: PathBuf,
    /// How it takes part in a run that is none of ours; absent: not at all.
    pub stock: Option<StockRun>,
    /// How long nobody may want it before it leaves: no SuperLink answers, or no run asks for it. Absent:
    /// for ever.
    pub give_up_after: Option<Duration>,
}

/// Takes part until the run has finished, whatever happens to the connection. An error is one that would
/// come again.
pub fn join(
    site: &mut ClientNode,
    membership: Membership,
    listener: &dyn Listener,
) -> Result<Left, FlowerError> {
    let Membership { endpoint, key, folder, stock, give_up_after } = membership;
    if stock.is_some() {
        StockRun::begin(site)?;
    }
    let limits = limits(&site.client.layout);
    // What a site lacks and what it is asked travel together.
    let limits = Limits { bytes: limits.bytes.saturating_mul(2), ..limits };
    let (key, file) = (Arc::new(key), folder.join(NODE_FILE));
    let conversation = Conversation { site, listener, is_welcomed: false };
    let (wanted, run, declined) = (Instant::now(), None, None);
    let mut node = Node { conversation, limits, stock, give_up_after, wanted, run, declined };
    let mut outage = Outage::new(listener, give_up_after, Seed(secret_of(&key)));
    let (mut standing, mut inactive): (_, Option<Instant>) = (Standing::Stranger, None);
    loop {
        if listener.stops() {
            return Ok(Left::Stopped);
        }
        let before = std::fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok());
        let online = online((&endpoint, &key), before, listener);
        let ended = online.and_then(|api| {
            (standing, inactive) = (Standing::Welcomed, None);
            let kept = std::fs::write(&file, format!("{}\n", api.node.node_id));
            kept.map_err(|error| FlowerError::file(file.display(), error))?;
            let (begun, served) = (Instant::now(), node.serve(api));
            outage.was_there();
            if begun.elapsed() > USEFUL {
                outage.was_useful();
            }
            served
        });
        let error = match ended {
            Ok(left) => return Ok(left),
            Err(error) => error,
        };
        // A SuperLink that was started anew knows nobody until they come online again.
        let is_inactive = error.is_not_activated() || error.is_unauthenticated();
        if is_inactive && inactive.get_or_insert_with(Instant::now).elapsed() > ACTIVATION {
            let is_known = error.is_unauthenticated();
            return Err(if is_known { error } else { FlowerError::NotRegistered });
        }
        if error.fault(standing) == Fault::Refused && !is_inactive {
            return Err(error);
        }
        let why = if error.is_not_activated() {
            "the SuperLink refuses this node: its key is not registered there, or another process uses it"
                .to_owned()
        } else {
            error.to_string()
        };
        if let Some(left) = outage.rest(&why) {
            return Ok(left);
        }
    }
}

/// A number of this node's own from which waits are drawn, so that nodes do not all come back at once.
fn secret_of(key: &NodeKey) -> u64 {
    let digest = Digest::of(key.public_pem().as_bytes());
    let first = digest.as_bytes().first_chunk::<8>();
    first.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Brings the node online.
fn online(
    (endpoint, key): (&Endpoint, &Arc<NodeKey>),
    before: Option<u64>,
    listener: &dyn Listener,
) -> Result<FleetApi, FlowerError> {
    let caller = Caller::Node(Arc::clone(key));
    let link = SuperLink::reach(endpoint, caller, &|line| listener.told(line))?;
    let api = FleetApi::activate(link, key, before)?;
    listener.told(&format!("online at {} as node {}", endpoint.authority, api.node.node_id));
    Ok(api)
}

struct Node<'a> {
    conversation: Conversation<'a>,
    limits: Limits,
    stock: Option<StockRun>,
    give_up_after: Option<Duration>,
    /// When somebody last wanted something of it.
    wanted: Instant,
    /// The run in which it takes part.
    run: Option<u64>,
    /// The run that was last told so.
    declined: Option<u64>,
}

/// What a reply is made over.
type Content = (Objects, ObjectTree);

/// How all ended, if it has.
type Ended = Option<Result<Left, FlowerError>>;

/// What a message comes to.
enum Reaction {
    /// It is answered.
    Reply(Content, Ended),
    /// It cannot be answered.
    Failure(proto::Error, Ended),
    /// It is left unanswered: the site was asked to stop while it worked on it.
    Stopped,
}

impl Node<'_> {
    /// Takes messages until the run has finished.
    fn serve(&mut self, mut api: FleetApi) -> Result<Left, FlowerError> {
        let mut idle = Instant::now();
        loop {
            let Some(message) = api.next_message()? else {
                if let Some(left) = self.alone(&mut api)? {
                    api.deactivate();
                    return Ok(left);
                }
                let first = if self.conversation.is_welcomed { FIRST_POLL } else { UNSEATED_POLL };
                let poll = (idle.elapsed() / PART_OF_IDLE).clamp(first, LONGEST_POLL);
                if !rest(poll, || self.conversation.listener.stops()) {
                    api.deactivate();
                    return Ok(Left::Stopped);
                }
                continue;
            };
            match self.answer(&mut api, message) {
                Ok(None) => {}
                Ok(Some(ended)) => {
                    api.deactivate();
                    return ended;
                }
                // Nobody waits for an answer any more; another run may begin.
                Err(FlowerError::Unfinished { .. }) => {
                    self.tell(
                        "the coordinator left a message unfinished; continuing with the next",
                    );
                }
                Err(error) if error.is_run_over() => {
                    self.tell("the run was stopped at the SuperLink; waiting for another one");
                }
                Err(error) => return Err(error),
            }
            (idle, self.wanted) = (Instant::now(), Instant::now());
        }
    }

    /// How it leaves, if no run has wanted it for as long as it waits. One that it takes part in, and that is
    /// on, may be silent for hours: others work.
    fn alone(&self, api: &mut FleetApi) -> Result<Option<Left>, FlowerError> {
        let is_up = |patience: &Duration| self.wanted.elapsed() >= *patience;
        let Some(patience) = self.give_up_after.filter(is_up) else { return Ok(None) };
        if let Some(run) = self.run
            && api.is_on(run)?
        {
            return Ok(None);
        }
        let seconds = patience.as_secs();
        Ok(Some(Left::Alone(format!(
            "no run at the SuperLink selected this client for {seconds} s"
        ))))
    }

    fn tell(&self, line: &str) {
        self.conversation.listener.told(line);
    }

    /// A message that cannot be answered, while others may be.
    fn failed(&self, reason: String) -> Reaction {
        self.tell(&format!("warning: {reason}"));
        Reaction::Failure(proto::Error { code: FAILED, reason }, None)
    }

    /// Answers one message.
    fn answer(
        &mut self,
        api: &mut FleetApi,
        message: proto::Message,
    ) -> Result<Ended, FlowerError> {
        let Some(metadata) = message.metadata else { return Ok(None) };
        let begun = Instant::now();
        let taken = match &self.stock {
            Some(_) => self.take_stock(api, &metadata),
            None => self.take(api, &metadata),
        };
        let reaction = match taken {
            Ok(reaction) => reaction,
            Err(error @ FlowerError::Object { .. }) => self.failed(error.to_string()),
            Err(error) => return Err(error),
        };
        let reply = reply_to(&metadata, api.link.clock.now());
        let (message, ended) = match reaction {
            Reaction::Reply((objects, content), ended) => (objects.seal(reply, &content), ended),
            Reaction::Failure(error, ended) => (Objects::failure(reply, error), ended),
            Reaction::Stopped => return Ok(Some(Ok(Left::Stopped))),
        };
        match api.push(&message, begun.elapsed().as_secs_f64()) {
            Ok(()) => Ok(ended),
            // It ends all the same.
            Err(_) if ended.is_some() => Ok(ended),
            Err(error) => Err(error),
        }
    }

    /// Fetches a message of our coordinator, and does what it says.
    fn take(&mut self, api: &mut FleetApi, metadata: &Metadata) -> Result<Reaction, FlowerError> {
        let (run, id) = (metadata.run_id, &metadata.message_id);
        if metadata.message_type != MESSAGE_TYPE {
            return Ok(self.failed(unknown(metadata, "one of a coordinator of fedra")));
        }
        if let Some(own) = self.run.filter(|own| *own != run) {
            if api.is_on(own)? {
                if self.declined.replace(run) != Some(run) {
                    self.tell(&format!(
                        "run {run} requested this node, which takes part in run {own}"
                    ));
                }
                let reason = format!("it takes part in run {own}");
                return Ok(Reaction::Failure(proto::Error { code: ELSEWHERE, reason }, None));
            }
            self.run = None;
        }
        let records = records(api, run, id)?;
        let Some(opened) = Opened::read(api, run, (&records, self.limits))? else {
            return Ok(self.failed(unknown(metadata, "a message of fedra")));
        };
        self.conversation.site.expect(&opened.numbers());
        let content = opened.finish(api, run)?;
        api.confirm(run, id)?;
        Ok(self.react(run, content))
    }

    /// Fetches a message of an app of Flower's own, and does what it says.
    fn take_stock(
        &mut self,
        api: &mut FleetApi,
        metadata: &Metadata,
    ) -> Result<Reaction, FlowerError> {
        let (run, id) = (metadata.run_id, &metadata.message_id);
        let asked = metadata.message_type.as_str();
        let (Some(stock), TRAIN | "evaluate") = (&self.stock, asked) else {
            return Ok(self.failed(unknown(metadata, "train or evaluate")));
        };
        let layout = self.conversation.site.client.layout.clone();
        let (arrays, config) = Arrays::fetch_all(api, run, (id, &layout, &stock.names))?;
        api.confirm(run, id)?;
        let site = &mut *self.conversation.site;
        let done = if asked == TRAIN {
            stock.train(site, (arrays, &config))
        } else {
            stock.evaluate(site, (&arrays, &config)).map(|metrics| (Arrays::default(), metrics))
        };
        let (news, stops) = (site.news.take(), site.client.observer.stops());
        if let Some(news) = news {
            self.conversation.listener.told(&news);
        }
        Ok(match done {
            Ok((arrays, metrics)) => {
                Reaction::Reply(arrays.content((&metrics, Kind::MetricRecord)), None)
            }
            Err(_) if stops => Reaction::Stopped,
            Err(reason) => self.failed(reason),
        })
    }

    fn react(&mut self, run: u64, content: MessageContent) -> Reaction {
        let messages = match content {
            MessageContent::Greeting => {
                self.run = Some(run);
                let hello = self.conversation.hello();
                return answered(vec![hello], None);
            }
            MessageContent::Refusal(reason) => {
                self.run = None;
                self.tell(&format!(
                    "warning: the coordinator of run {run} refused: {reason}; waiting for another run"
                ));
                return answered(Vec::new(), None);
            }
            MessageContent::Messages(messages) => messages,
        };
        let mut answers: Vec<Message> = Vec::new();
        for message in messages {
            match self.conversation.hear(&message) {
                Ok(Heard::Nothing) => {}
                Ok(Heard::Answer(answer)) => answers.push(answer),
                Ok(Heard::Breakdown(answer, broken)) => {
                    answers.extend(answer);
                    return answered(answers, Some(Err(broken.into())));
                }
                Ok(Heard::Left(left)) => return answered(answers, Some(Ok(left))),
                // What another coordinator said before, or this one to a process before this one.
                Err(NetError::Meaning { .. }) if !self.conversation.is_welcomed => {
                    let reason = "found a message for a process of this client before this one, expected a \
                                  welcome; it is left unanswered";
                    return self.failed(reason.to_owned());
                }
                Err(NetError::Stopped) => return Reaction::Stopped,
                Err(error) => {
                    let failed = proto::Error { code: FAILED, reason: error.to_string() };
                    return Reaction::Failure(failed, Some(Err(error.into())));
                }
            }
        }
        answered(answers, None)
    }
}

fn answered(answers: Vec<Message>, ended: Ended) -> Reaction {
    Reaction::Reply(MessageContent::Messages(answers).pack(), ended)
}

/// What is said of a message that is for somebody else.
fn unknown(metadata: &Metadata, expected: &str) -> String {
    let found: String = metadata.message_type.chars().take(40).collect();
    format!("found a message of type {found:?}, expected {expected}")
}

/// What a reply says of itself: the SuperLink takes no other.
fn reply_to(message: &Metadata, now: f64) -> Metadata {
    Metadata {
        run_id: message.run_id,
        src_node_id: message.dst_node_id,
        dst_node_id: message.src_node_id,
        reply_to_message_id: message.message_id.clone(),
        group_id: message.group_id.clone(),
        ttl: message.created_at + message.ttl - now,
        message_type: message.message_type.clone(),
        created_at: now,
        src_task_id: message.dst_task_id,
        dst_task_id: message.src_task_id,
        ..Metadata::default()
    }
}
