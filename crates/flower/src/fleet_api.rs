//! What a node asks of a SuperLink.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{FlowerError, shortened};
use crate::exchange::Store;
use crate::heartbeat::Heartbeat;
use crate::key::NodeKey;
use crate::object::OutgoingMessage;
use crate::object_store::ObjectStore;
use crate::proto::{
    ActivateNode, ConfirmMessage, GetRun, Message, Node, NodeHeartbeat, Nothing, PullMessages,
    PulledMessages, PulledObject, PushMessages, PushedMessages, RegisterNode,
};
use crate::superlink::SuperLink;

/// Seconds between heartbeats as they are promised; a node is given up after twice as long. The
/// SuperLink takes no less, and a shorter promise is a death that is noticed earlier.
const PROMISED: f64 = 10.0;
/// How often a heartbeat is sent.
const EVERY: Duration = Duration::from_secs(5);
/// A push session that has ended is begun again so many times.
const PUSHES: usize = 3;

/// A node that is online.
pub(crate) struct FleetApi {
    pub(crate) link: SuperLink,
    store: ObjectStore,
    pub(crate) node: Node,
    /// The run of the message that was handed out last.
    run: u64,
    /// Messages that came before that one was complete.
    newer: VecDeque<Message>,
    /// Ends with the node.
    _heartbeat: Heartbeat,
}

impl FleetApi {
    /// Registers the node where nodes may do so themselves, and brings it online. `before` is its number
    /// of another time, if it may still be online as such.
    pub(crate) fn activate(
        mut link: SuperLink,
        key: &Arc<NodeKey>,
        before: Option<u64>,
    ) -> Result<Self, FlowerError> {
        let public_key = key.public_pem().into_bytes();
        if let Some(node_id) = before {
            // A process that was killed is online for a while yet, and nobody is activated twice.
            match link.call::<Nothing>("/v1/fleet/deactivate-node", &Node { node_id }) {
                Ok(_) | Err(FlowerError::Denied { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let request = ActivateNode { public_key: public_key.clone(), heartbeat_interval: PROMISED };
        let path = "/v1/fleet/activate-node";
        let node = match link.call::<Node>(path, &request) {
            Err(error) if error.is_not_activated() => {
                match link.call::<Node>("/v1/fleet/register-node", &RegisterNode { public_key }) {
                    Ok(_) => link.call::<Node>(path, &request)?,
                    Err(away @ FlowerError::Unreachable { .. }) => return Err(away),
                    // It is registered, or nobody may register: the activation says what is wrong.
                    Err(_) => return Err(error),
                }
            }
            other => other?,
        };
        let beat = NodeHeartbeat { node: Some(node), heartbeat_interval: PROMISED };
        let heartbeat = link.heartbeat(EVERY, "/v1/fleet/send-node-heartbeat", beat);
        let store =
            ObjectStore::new(&link, node, ("/v1/fleet/pull-object", "/v1/fleet/push-object"));
        Ok(Self { link, store, node, run: 0, newer: VecDeque::new(), _heartbeat: heartbeat })
    }

    /// The next message, if there is one. After an error nobody knows whether it was handed out.
    pub(crate) fn next_message(&mut self) -> Result<Option<Message>, FlowerError> {
        let next = match self.newer.pop_front() {
            Some(newer) => Some(newer),
            None => self.pull()?,
        };
        self.run = next.as_ref().map_or(0, run_of);
        Ok(next)
    }

    fn pull(&mut self) -> Result<Option<Message>, FlowerError> {
        let request = PullMessages { node: Some(self.node) };
        let pulled: PulledMessages = self.link.call("/v1/fleet/pull-messages", &request)?;
        Ok(pulled.messages.into_iter().next())
    }

    /// Whether a run is on.
    pub(crate) fn is_on(&mut self, run_id: u64) -> Result<bool, FlowerError> {
        let request = GetRun { node: Some(self.node), run_id };
        match self.link.call::<Nothing>("/v1/fleet/get-run", &request) {
            Ok(_) => Ok(true),
            // It has ended, or the SuperLink has forgotten it.
            Err(error @ FlowerError::Denied { .. }) if !error.is_unauthenticated() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Everything of a message is here.
    pub(crate) fn confirm(&mut self, run_id: u64, message_id: &str) -> Result<(), FlowerError> {
        let message_id = message_id.to_owned();
        let request = ConfirmMessage { node: Some(self.node), run_id, message_id };
        self.link.call::<Nothing>("/v1/fleet/confirm-message-received", &request).map(drop)
    }

    /// Sends a reply with all of its objects.
    pub(crate) fn push(
        &mut self,
        message: &OutgoingMessage,
        runtime: f64,
    ) -> Result<(), FlowerError> {
        const CALL: &str = "/v1/fleet/push-messages";
        let run = run_of(&message.message);
        for _ in 0..PUSHES {
            let request = PushMessages {
                node: Some(self.node),
                messages: vec![message.message.clone()],
                trees: vec![message.tree.clone()],
                runtimes: vec![runtime],
            };
            let pushed: PushedMessages = self.link.call(CALL, &request)?;
            let PushedMessages { objects_to_push, session_id } = pushed;
            if self.store.upload((run, &session_id), message, &objects_to_push)?.is_some() {
                return Ok(());
            }
        }
        Err(FlowerError::unpushed(CALL, PUSHES))
    }

    /// Goes offline.
    pub(crate) fn deactivate(mut self) {
        let node_id = self.node.node_id;
        let _offline_or_gone =
            self.link.call::<Nothing>("/v1/fleet/deactivate-node", &Node { node_id });
    }
}

impl Store for FleetApi {
    fn pull_objects(&mut self, run: u64, ids: &[&str]) -> Result<Vec<PulledObject>, FlowerError> {
        self.store.pull_objects(run, ids)
    }

    /// A coordinator sends one message at a time: if another one of the same run comes, the rest of this
    /// one never will.
    fn pause(&mut self, wait: Duration, id: &str) -> Result<(), FlowerError> {
        std::thread::sleep(wait);
        let Some(message) = self.pull()? else { return Ok(()) };
        let is_of_run = run_of(&message) == self.run;
        self.newer.push_back(message);
        if is_of_run { Err(FlowerError::Unfinished { id: shortened(id) }) } else { Ok(()) }
    }
}

/// The run that a message is of.
fn run_of(message: &Message) -> u64 {
    message.metadata.as_ref().map_or(0, |metadata| metadata.run_id)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use bytes::Bytes;
    use prost::Message as _;

    use super::*;
    use crate::exchange::fetch;
    use crate::http::Endpoint;
    use crate::message_content::MessageContent;
    use crate::proto::{Metadata, PushedObject, Success};
    use crate::scripted::{Scene, described, serve, well};
    use crate::superlink::Caller;

    const NODE: Node = Node { node_id: 7 };

    fn online(endpoint: &Endpoint) -> Result<FleetApi, FlowerError> {
        let key = Arc::new(NodeKey::read(&NodeKey::generate()?).unwrap());
        let link = SuperLink::reach(endpoint, Caller::Node(Arc::clone(&key)), &|_| ())?;
        FleetApi::activate(link, &key, None)
    }

    /// A SuperLink that lets everybody in, and says something of its own to all other calls.
    fn open(mut other: impl FnMut(&str, &[u8]) -> Scene + Send + 'static) -> Endpoint {
        serve(move |path, body| match path {
            "/openapi.json" => described("1.42.0"),
            "/v1/fleet/activate-node" => well(&NODE),
            "/v1/fleet/send-node-heartbeat" => well(&Success { success: true }),
            path => other(path, body),
        })
    }

    #[test]
    fn a_superlink_of_another_version_is_tried_and_what_does_not_answer_is_refused() {
        let told = |scene: Scene| {
            let endpoint = serve(move |_, _| scene.clone());
            online(&endpoint).err().unwrap().to_string()
        };
        assert_eq!(
            told(described("1.39.1")),
            "the SuperLink of version 1.39.1 does not support /v1/fleet/activate-node, \
             expected 1.40 to 1.42"
        );
        for (version, warnings) in [("1.42.0", 0), ("1.43.0", 1), ("2.0.0", 1)] {
            let answered = AtomicBool::new(false);
            let endpoint = serve(move |path, _| match path {
                "/openapi.json" => described(version),
                _ if answered.swap(true, Ordering::Relaxed) => (404, Vec::new()),
                _ => well(&NODE),
            });
            let told = AtomicUsize::new(0);
            let tell = |line: &str| {
                assert!(line.contains(version) && line.contains("1.40 to 1.42"), "{line}");
                told.fetch_add(1, Ordering::Relaxed);
            };
            let mut link = SuperLink::reach(&endpoint, Caller::Anybody, &tell).unwrap();
            assert_eq!(told.into_inner(), warnings);
            assert_eq!(link.call::<Node>("/v1/fleet/activate-node", &NODE).unwrap(), NODE);
            let later = link.call::<Node>("/v1/fleet/activate-node", &NODE).unwrap_err();
            assert!(matches!(later, FlowerError::Denied { status: 404, .. }), "{later}");
        }
        for none in [(404, b"not here".to_vec()), (200, b"{}".to_vec()), (200, vec![0xff])] {
            let said = told(none);
            assert!(said.contains("that does not describe itself"), "{said}");
        }
        assert!(told((503, Vec::new())).contains("not available"));
    }

    #[test]
    fn a_push_session_that_is_over_is_begun_anew_and_not_for_ever() {
        for (expired, expected) in [(0, 1), (2, 3), (usize::MAX, PUSHES)] {
            let sessions = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&sessions);
            let endpoint = open(move |path, body| {
                if path != "/v1/fleet/push-messages" {
                    let stored = counted.load(Ordering::Relaxed) > expired;
                    return well(&PushedObject { stored });
                }
                counted.fetch_add(1, Ordering::Relaxed);
                let tree = PushMessages::decode(body).unwrap().trees.remove(0);
                let objects_to_push = vec![tree.object_id];
                well(&PushedMessages { objects_to_push, session_id: "s".to_owned() })
            });
            let (objects, content) = MessageContent::Greeting.pack();
            let message = objects.seal(Metadata::default(), &content);
            let pushed = online(&endpoint).unwrap().push(&message, 0.0);
            assert_eq!(pushed.is_ok(), expired < PUSHES, "{pushed:?}");
            assert_eq!(sessions.load(Ordering::Relaxed), expected);
        }
    }

    #[test]
    fn replies_that_break_the_rules_are_errors() {
        let endpoint = open(|path, _| match path {
            "/v1/fleet/pull-messages" => (200, vec![0x12, 0xff, 0xff, 0xff, 0xff, 0x7f]),
            "/v1/fleet/pull-object" => {
                let content = Bytes::from_static(b"ArrayChunk  1\0x");
                well(&PulledObject { found: true, available: true, content })
            }
            "/v1/fleet/confirm-message-received" => {
                (403, b"{\"code\": 2007, \"detail\": \"not running\"}".to_vec())
            }
            _ => (500, b"<html>".to_vec()),
        });
        let mut api = online(&endpoint).unwrap();
        assert!(matches!(api.next_message(), Err(FlowerError::Reply { .. })));
        let other = fetch(&mut api, 1, &"0".repeat(64)).unwrap_err().to_string();
        assert!(other.contains("content of another name"), "{other}");
        let stopped = api.confirm(1, "m").unwrap_err();
        assert!(stopped.is_run_over() && stopped.to_string().contains("not running"), "{stopped}");
        let (objects, content) = MessageContent::Greeting.pack();
        let pushed = api.push(&objects.seal(Metadata::default(), &content), 0.0);
        assert!(matches!(pushed, Err(FlowerError::Denied { status: 500, .. })), "{pushed:?}");
    }
}
