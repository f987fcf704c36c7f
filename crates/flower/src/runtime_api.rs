//! What a coordinator asks of a SuperLink: it takes the task of a run's server app.

use std::time::Duration;

use crate::error::FlowerError;
use crate::exchange::{Shelf, Store, upload};
use crate::heartbeat::Heartbeat;
use crate::object::{Letter, Object};
use crate::proto::{
    AcquireTask, AcquiredTask, ConfirmMessage, Message, Node, NodeInfo, Nodes, Nothing,
    PullAppMessages, PulledAppMessages, PulledObject, PushAppMessages, PushLogs, PushedAppMessages,
    SUPERLINK, Success, TaskInfo, TaskInput, TaskOutput,
};
use crate::superlink::{BEAT, Caller, SuperLink};

/// What a coordinator does.
const SERVER_APP: &str = "flwr-serverapp";
/// How often a task's heartbeat is sent; it is given up after a minute without.
const EVERY: Duration = Duration::from_secs(10);
/// A push session that is over is begun anew so many times.
const PUSHES: usize = 3;
/// The SuperLink as a node.
const SELF: Node = Node { node_id: SUPERLINK };

/// A task that this process has taken.
pub(crate) struct RuntimeApi {
    link: SuperLink,
    shelf: Shelf,
    run: u64,
    app: String,
    /// Ends with the task.
    _heartbeat: Heartbeat,
}

/// How a task ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Completed,
    Failed,
}

impl RuntimeApi {
    /// Takes a task that waits, if there is one; the link is handed back otherwise.
    pub(crate) fn acquire(mut link: SuperLink) -> Result<Result<Self, SuperLink>, FlowerError> {
        let request = AcquireTask { types: vec![SERVER_APP.to_owned()] };
        let acquired: AcquiredTask = link.call("/v1/runtime/acquire-task", &request)?;
        let AcquiredTask { task: Some(TaskInfo { run_id, .. }), token } = acquired else {
            return Ok(Err(link));
        };
        link.become_caller(Caller::Task(token));
        let input: TaskInput = link.call("/v1/runtime/pull-task-input", &Nothing {})?;
        let app = input.run.unwrap_or_default().fab_id.chars().take(80).collect();
        let mut beating = link.beside(BEAT);
        let heartbeat = Heartbeat::start(EVERY, move || {
            // What is wrong shows in the next call that matters.
            let _heard = beating
                .call::<Success>("/v1/runtime/send-task-heartbeat", &Nothing {})
                .map(|it| it.success);
        });
        let shelf = Shelf::new(&link, SELF, ("/v1/runtime/pull-object", "/v1/runtime/push-object"));
        Ok(Ok(Self { link, shelf, run: run_id, app, _heartbeat: heartbeat }))
    }

    pub(crate) const fn run(&self) -> u64 {
        self.run
    }

    /// The app that the run was made from.
    pub(crate) fn app(&self) -> &str {
        &self.app
    }

    /// Where the SuperLink is.
    pub(crate) fn place(&self) -> String {
        self.link.endpoint().authority()
    }

    /// Seconds since 1970, as the SuperLink counts them.
    pub(crate) fn now(&self) -> f64 {
        self.link.clock().now()
    }

    /// The nodes that are online.
    pub(crate) fn nodes(&mut self) -> Result<Vec<NodeInfo>, FlowerError> {
        let nodes: Nodes = self.link.call("/v1/runtime/get-nodes", &Nothing {})?;
        Ok(nodes.nodes)
    }

    /// Sends messages with all of their objects; objects that they share are sent once. Says which were
    /// taken, and how many bytes each of them cost.
    pub(crate) fn push(&mut self, letters: &[Letter]) -> Result<Vec<Option<usize>>, FlowerError> {
        const CALL: &str = "/v1/runtime/push-messages";
        for _ in 0..PUSHES {
            let request = PushAppMessages {
                messages: letters.iter().map(|letter| letter.message.clone()).collect(),
                trees: letters.iter().map(|letter| letter.tree.clone()).collect(),
            };
            let pushed: PushedAppMessages = self.link.call(CALL, &request)?;
            let PushedAppMessages { message_ids, mut objects_to_push, session_id } = pushed;
            if message_ids.len() != letters.len() {
                let (found, expected) = (message_ids.len(), letters.len());
                let reason = format!("found {found} names, expected {expected}");
                return Err(FlowerError::Reply { call: CALL, reason });
            }
            let (run, mut costs, mut is_over) =
                (self.run, Vec::with_capacity(letters.len()), false);
            for (letter, id) in letters.iter().zip(&message_ids) {
                if id.is_empty() {
                    costs.push(None);
                    continue;
                }
                let mut sent = 0;
                let lacking = (&objects_to_push[..], &mut sent);
                if !upload(self, (run, &session_id), letter, lacking)? {
                    is_over = true;
                    break;
                }
                objects_to_push.retain(|id| !letter.objects.iter().any(|it| it.id == *id));
                costs.push(Some(sent));
            }
            if !is_over {
                return Ok(costs);
            }
        }
        let reason = format!("found {PUSHES} sessions that ended before all objects were there");
        Err(FlowerError::Reply { call: CALL, reason })
    }

    /// Replies to some of these messages. After an error nobody knows which were handed out.
    pub(crate) fn pull(&mut self, message_ids: Vec<String>) -> Result<Vec<Message>, FlowerError> {
        let request = PullAppMessages { message_ids };
        let pulled: PulledAppMessages = self.link.call("/v1/runtime/pull-messages", &request)?;
        Ok(pulled.messages)
    }

    /// Everything of a reply is here.
    pub(crate) fn confirm(&mut self, message_id: &str) -> Result<(), FlowerError> {
        let (run_id, message_id) = (self.run, message_id.to_owned());
        let request = ConfirmMessage { node: Some(SELF), run_id, message_id };
        self.link.call::<Nothing>("/v1/runtime/confirm-message-received", &request).map(drop)
    }

    /// Lets whoever follows the run with `flwr` read a line.
    pub(crate) fn log(&mut self, line: &str) {
        let logs = vec![format!("{line}\n")];
        let request = PushLogs { node: Some(SELF), run_id: self.run, logs };
        let _heard_or_not = self.link.call::<Nothing>("/v1/runtime/push-logs", &request);
    }

    /// Ends the task.
    pub(crate) fn finish(mut self, outcome: Outcome, details: &str) {
        let sub_status = match outcome {
            Outcome::Completed => "completed",
            Outcome::Failed => "failed",
        };
        let request = TaskOutput { sub_status: sub_status.to_owned(), details: details.to_owned() };
        let _heard_or_gone = self.link.call::<Nothing>("/v1/runtime/push-task-output", &request);
    }
}

impl Store for RuntimeApi {
    fn pull_objects(&mut self, run: u64, ids: &[&str]) -> Result<Vec<PulledObject>, FlowerError> {
        self.shelf.pull_objects(run, ids)
    }

    fn push_objects(
        &mut self,
        run: u64,
        objects: &[&Object],
        session: &str,
    ) -> Result<bool, FlowerError> {
        self.shelf.push_objects(run, objects, session)
    }
}
