//! A stand-in for a SuperLink, in this process and under TLS: what a coordinator and its nodes need of one, so
//! that the suite runs where there is no Python, and over a network that damages what it carries.
//!
//! It hands out every message and every reply once, as a real one does: what is lost on its way then is lost.
//! Whether it is a good likeness is for `at_a_superlink` to say, where a real one is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use fedra_flower::{Admission, Apps, Endpoint, Membership, Task, join};
use fedra_net::certs::{Authority, Days};
use fedra_net::{Carrier, ClientNode, FleetOptions, NetFleet, Routes, Runtime};

use crate::deployment::{Clients, Deployment, Opened};
use crate::https::{Answer, listen_with};
use crate::proto::{
    AcquiredTask, ActivateNode, ConfirmMessage, Error, Message, Metadata, Node, NodeInfo, Nodes,
    Nothing, ObjectTree, PullAppMessages, PullMessages, PullObject, PulledAppMessages,
    PulledMessages, PulledObject, PushMessages, PushObject, PushedAppMessages, PushedMessages,
    PushedObject, RegisterNode, Success, TaskInfo,
};
use crate::proxy::{FaultPlan, InjectedFault, Proxy};
use crate::sites::{Join, Sites};
use crate::superlink::kept_key;
use crate::world::Told;

/// The one run that there is.
const RUN: u64 = 1;
/// "This node cannot be activated."
const NOT_ACTIVATED: u32 = 2004;
/// The code of a reply to a message that is not there any more.
const GONE: i64 = 1;

/// A SuperLink that forgets nothing and is never restarted, and the way to it.
pub struct StandIn {
    faults: FaultPlan,
}

impl StandIn {
    /// Reached over a network of this kind.
    pub const fn over(faults: FaultPlan) -> Self {
        Self { faults }
    }
}

impl Deployment for StandIn {
    fn loses_clients(&self) -> bool {
        true
    }

    fn open<'c>(&'c self, clients: &'c Clients) -> Box<dyn Opened + 'c> {
        let listen = |folder: &Path, options: FleetOptions, told: &Told| {
            let authority = Authority::generate().unwrap();
            let ca = folder.join("ca.pem");
            std::fs::write(&ca, authority.signed(Days(1)).unwrap().certificate).unwrap();
            let link = Arc::new(Mutex::new(Link::default()));
            let answer = move |path: &str, body: &[u8]| link.lock().unwrap().answer(path, body);
            let proxy = Proxy::start(&listen_with(&authority, answer), self.faults);
            let url = format!("https://{}", proxy.address);
            let endpoint = Endpoint::new(&url, Some(&ca)).unwrap();
            let task = Task::acquire(&endpoint, (Apps::Any, folder), told).unwrap().unwrap();
            let federated = clients.world.federated(Routes::default());
            let start = |reception, _routes, _runtime: &Runtime| {
                Ok(Box::new(task.start(reception, Admission::default())?) as Box<dyn Carrier>)
            };
            let (listener, central) = (Box::new(told.clone()), clients.world.central());
            let fleet = NetFleet::over(federated, (folder, options), (listener, central), start);
            let way: Join = Arc::new(move |site: &mut ClientNode, folder: &Path, told: &Told| {
                let (endpoint, folder) = (endpoint.clone(), folder.to_owned());
                let key = kept_key(&folder);
                let give_up_after = None;
                let membership = Membership { endpoint, key, folder, stock: None, give_up_after };
                join(site, membership, told).map_err(|error| error.to_string())
            });
            (fleet.unwrap(), way, proxy)
        };
        let mut proxy = None;
        let opened = Sites::open(clients, |folder, options, told| {
            let (fleet, way, between) = listen(folder, options, told);
            proxy = Some(between);
            (fleet, way)
        });
        Box::new(Stormy {
            sites: Some(Box::new(opened)),
            faults: self.faults,
            proxy: proxy.unwrap(),
        })
    }
}

/// Sites behind a network that has to have been as bad as it was meant to be.
struct Stormy<'c> {
    sites: Option<Box<Sites<'c>>>,
    faults: FaultPlan,
    proxy: Proxy,
}

impl<'c> Stormy<'c> {
    fn sites(&mut self) -> &mut Sites<'c> {
        self.sites.as_mut().unwrap()
    }
}

impl Opened for Stormy<'_> {
    fn fleet(&mut self) -> &mut dyn fedra_engine::Fleet {
        self.sites().fleet()
    }

    fn leave(&mut self, client: fedra_wire::ClientId) {
        self.sites().leave(client);
    }

    fn come_back(&mut self, client: fedra_wire::ClientId) {
        self.sites().come_back(client);
    }

    fn folder(&self, client: fedra_wire::ClientId) -> Option<std::path::PathBuf> {
        self.sites.as_ref().unwrap().folder(client)
    }

    fn finish(mut self: Box<Self>) {
        let happened = self.proxy.happened();
        if self.faults.count > 0 {
            for fault in InjectedFault::ALL {
                assert!(happened.contains(&fault), "{fault:?} never happened: {happened:?}");
            }
        }
        self.sites.take().unwrap().finish();
    }
}

/// What it knows.
#[derive(Default)]
struct Link {
    nodes: BTreeMap<Vec<u8>, Registered>,
    /// How often a node came online.
    activations: u64,
    /// Objects that were announced, and those that are here.
    objects: BTreeMap<String, Option<Bytes>>,
    /// Messages that wait for a node, and those that it has not answered.
    waiting: BTreeMap<u64, VecDeque<Message>>,
    unanswered: BTreeSet<String>,
    /// Replies that wait for the coordinator, by what they answer.
    replies: BTreeMap<String, Message>,
    task: TaskState,
}

struct Registered {
    id: u64,
    /// When it came online, if it is.
    activated: Option<u64>,
}

/// A task that nobody has begun is handed out again: whoever got it may never have heard so.
#[derive(Default, PartialEq, Eq)]
enum TaskState {
    #[default]
    Waiting,
    Begun,
    Over,
}

/// The content of an object, which is written apart where it is sent.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct Content {
    #[prost(bytes = "bytes", tag = "4")]
    content: Bytes,
}

impl Link {
    fn answer(&mut self, path: &str, body: &[u8]) -> Answer {
        match path {
            "/openapi.json" => (200, br#"{"info": {"version": "1.42.0"}}"#.to_vec()),
            "/v1/fleet/register-node" => self.register(&read(body)),
            "/v1/fleet/activate-node" => self.activate(&read(body)),
            "/v1/fleet/deactivate-node" => self.deactivate(read(body)),
            "/v1/fleet/pull-messages" => self.hand_out(&read(body)),
            "/v1/fleet/push-messages" => self.take_replies(read(body)),
            "/v1/fleet/get-run" if self.task == TaskState::Over => denied(403, 2007),
            "/v1/fleet/send-node-heartbeat" | "/v1/runtime/send-task-heartbeat" => {
                well(&Success { success: true })
            }
            "/v1/fleet/pull-object" | "/v1/runtime/pull-object" => self.object(&read(body)),
            "/v1/fleet/push-object" | "/v1/runtime/push-object" => self.store(body),
            "/v1/runtime/acquire-task" => self.acquire(),
            "/v1/runtime/pull-task-input" => {
                self.task = TaskState::Begun;
                well(&Nothing {})
            }
            "/v1/runtime/push-task-output" => {
                self.task = TaskState::Over;
                well(&Nothing {})
            }
            "/v1/runtime/get-nodes" => self.online(),
            "/v1/runtime/push-messages" => self.take_messages(read(body)),
            "/v1/runtime/pull-messages" => self.hand_back(&read(body)),
            "/v1/fleet/confirm-message-received" | "/v1/runtime/confirm-message-received" => {
                let ConfirmMessage { .. } = read(body);
                well(&Nothing {})
            }
            "/v1/fleet/get-run" | "/v1/runtime/push-logs" => well(&Nothing {}),
            other => panic!("nobody has thought of {other}"),
        }
    }

    fn register(&mut self, request: &RegisterNode) -> Answer {
        let id = 100 + self.nodes.len() as u64;
        let new = || Registered { id, activated: None };
        let node = self.nodes.entry(request.public_key.clone()).or_insert_with(new);
        well(&Node { node_id: node.id })
    }

    fn activate(&mut self, request: &ActivateNode) -> Answer {
        self.activations += 1;
        match self.nodes.get_mut(&request.public_key) {
            Some(node) if node.activated.is_none() => {
                node.activated = Some(self.activations);
                well(&Node { node_id: node.id })
            }
            // Nobody is activated twice.
            Some(_) | None => denied(400, NOT_ACTIVATED),
        }
    }

    fn deactivate(&mut self, Node { node_id }: Node) -> Answer {
        for node in self.nodes.values_mut().filter(|node| node.id == node_id) {
            node.activated = None;
        }
        well(&Nothing {})
    }

    fn online(&self) -> Answer {
        let info = |(key, node): (&Vec<u8>, &Registered)| {
            Some(NodeInfo {
                node_id: node.id,
                last_activated_at: node.activated?.to_string(),
                public_key: key.clone(),
            })
        };
        well(&Nodes { nodes: self.nodes.iter().filter_map(info).collect() })
    }

    fn acquire(&self) -> Answer {
        let task = (self.task == TaskState::Waiting).then_some(TaskInfo { run_id: RUN });
        well(&AcquiredTask { task, token: "token".to_owned() })
    }

    /// The next message for a node, once.
    fn hand_out(&mut self, request: &PullMessages) -> Answer {
        let node = request.node.map_or(0, |node| node.node_id);
        let next = self.waiting.get_mut(&node).and_then(VecDeque::pop_front);
        well(&PulledMessages { messages: next.into_iter().collect() })
    }

    /// The replies to some messages, once; of a message that is not here any more it is told so.
    fn hand_back(&mut self, request: &PullAppMessages) -> Answer {
        let mut messages = Vec::new();
        for id in &request.message_ids {
            if !self.unanswered.contains(id) {
                let metadata = Metadata { reply_to_message_id: id.clone(), ..Metadata::default() };
                let error = Error { code: GONE, reason: "the message is unavailable".to_owned() };
                messages.push(Message {
                    metadata: Some(metadata),
                    content: None,
                    error: Some(error),
                });
            } else if let Some(reply) = self.replies.remove(id) {
                self.unanswered.remove(id);
                messages.push(reply);
            }
        }
        well(&PulledAppMessages { messages })
    }

    fn take_messages(&mut self, request: PushMessages) -> Answer {
        let mut message_ids = Vec::new();
        let mut objects_to_push = Vec::new();
        for (message, tree) in request.messages.into_iter().zip(&request.trees) {
            let node = message.metadata.as_ref().map_or(0, |metadata| metadata.dst_node_id);
            if self.unanswered.insert(tree.object_id.clone()) {
                self.waiting.entry(node).or_default().push_back(message);
            }
            message_ids.push(tree.object_id.clone());
            self.announce(tree, &mut objects_to_push);
        }
        let session_id = "session".to_owned();
        well(&PushedAppMessages { message_ids, objects_to_push, session_id })
    }

    fn take_replies(&mut self, request: PushMessages) -> Answer {
        let mut objects_to_push = Vec::new();
        for (message, tree) in request.messages.into_iter().zip(&request.trees) {
            let to = message.metadata.as_ref().map(|metadata| metadata.reply_to_message_id.clone());
            let to = to.unwrap_or_default();
            if !self.unanswered.contains(&to) || self.replies.contains_key(&to) {
                return denied(400, 0);
            }
            self.replies.insert(to, message);
            self.announce(tree, &mut objects_to_push);
        }
        well(&PushedMessages { objects_to_push, session_id: "session".to_owned() })
    }

    /// Notes the objects of a tree; those that are not here are to be brought.
    fn announce(&mut self, tree: &ObjectTree, lacking: &mut Vec<String>) {
        for child in &tree.children {
            self.announce(child, lacking);
        }
        let kept = self.objects.entry(tree.object_id.clone()).or_default();
        if kept.is_none() && !lacking.contains(&tree.object_id) {
            lacking.push(tree.object_id.clone());
        }
    }

    fn object(&self, request: &PullObject) -> Answer {
        let kept = self.objects.get(&request.object_id);
        let content = kept.and_then(Clone::clone);
        let (found, available) = (kept.is_some(), content.is_some());
        well(&PulledObject { found, available, content: content.unwrap_or_default() })
    }

    fn store(&mut self, body: &[u8]) -> Answer {
        let (PushObject { object_id, .. }, Content { content }) = (read(body), read(body));
        let Some(place) = self.objects.get_mut(&object_id) else { return denied(404, 0) };
        *place = Some(content);
        well(&PushedObject { stored: true })
    }
}

/// A request: what reaches it came through TLS, so it is as it was sent.
fn read<M: prost::Message + Default>(body: &[u8]) -> M {
    M::decode(body).unwrap()
}

fn well(reply: &impl prost::Message) -> Answer {
    (200, reply.encode_to_vec())
}

fn denied(status: u16, code: u32) -> Answer {
    (status, format!("{{\"code\": {code}, \"detail\": \"no\"}}").into_bytes())
}
