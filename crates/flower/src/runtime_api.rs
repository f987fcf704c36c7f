//! What a coordinator asks of a SuperLink: it takes the task of a run's server app.

use std::time::Duration;

use fedra_net::RunEnd;

use crate::app::{APP, Apps};
use crate::error::{FlowerError, shortened};
use crate::exchange::Store;
use crate::heartbeat::Heartbeat;
use crate::kept_task::{KeptTask, TakenTask};
use crate::object::OutgoingMessage;
use crate::object_store::ObjectStore;
use crate::proto::{
    AcquireTask, AcquiredTask, ConfirmMessage, ListRuns, Message, Node, NodeInfo, Nodes, Nothing,
    PullAppMessages, PulledAppMessages, PulledObject, PushLogs, PushMessages, PushedAppMessages,
    RunInfo, Runs, SUPERLINK, Success, TaskInfo, TaskOutput,
};
use crate::superlink::{Caller, SuperLink};

/// What a coordinator does.
const SERVER_APP: &str = "flwr-serverapp";
/// A run whose task nobody has taken yet.
const PENDING: &str = "pending";
/// The newest runs that are looked at for one.
const MOST_RUNS: u64 = 100;
/// How often a task's heartbeat is sent; it is given up after a minute without.
const EVERY: Duration = Duration::from_secs(10);
/// A push session that has ended is begun again so many times.
const PUSHES: usize = 3;
/// The SuperLink as a node.
const SELF: Node = Node { node_id: SUPERLINK };

/// A task that this process has taken.
pub(crate) struct RuntimeApi {
    pub(crate) link: SuperLink,
    store: ObjectStore,
    pub(crate) run: u64,
    pub(crate) kept: KeptTask,
    /// Ends with the task.
    _heartbeat: Heartbeat,
}

/// What came of looking for a task.
pub(crate) enum Sought {
    /// One was taken.
    Taken(RuntimeApi),
    /// There is none; what a person may want to know about it.
    None(SuperLink, Option<String>),
}

impl RuntimeApi {
    /// Takes a task that waits, if there is one.
    pub(crate) fn acquire(
        mut link: SuperLink,
        apps: Apps,
        kept: &KeptTask,
    ) -> Result<Sought, FlowerError> {
        let (request, told) = match apps {
            Apps::Any => (AcquireTask::of_any(), None),
            Apps::Ours => {
                match link.call("/v1/control/list-runs", &ListRuns { limit: Some(MOST_RUNS) }) {
                    Ok(runs) => AcquireTask::of_ours(runs),
                    // Whoever has no account there cannot look, and takes what comes.
                    Err(FlowerError::Denied { .. }) => (AcquireTask::of_any(), None),
                    Err(error) => return Err(error),
                }
            }
        };
        if request == AcquireTask::default() {
            return Ok(Sought::None(link, told));
        }
        let acquired: AcquiredTask = link.call("/v1/runtime/acquire-task", &request)?;
        let AcquiredTask { task: Some(TaskInfo { run_id: run }), token } = acquired else {
            return Ok(Sought::None(link, told));
        };
        let superlink = link.http.endpoint.authority.clone();
        kept.write(&TakenTask { superlink, run, token: token.clone() })?;
        link.caller = Caller::Task(token);
        link.call::<Nothing>("/v1/runtime/pull-task-input", &Nothing {})?;
        Ok(Sought::Taken(Self::of(link, run, kept)))
    }

    /// Takes up a task that another process of this coordinator had, if it is still its own.
    pub(crate) fn resume(
        mut link: SuperLink,
        taken: TakenTask,
        kept: &KeptTask,
    ) -> Result<Sought, FlowerError> {
        let TakenTask { run, token, .. } = taken;
        link.caller = Caller::Task(token);
        let alive = match link.call::<Success>("/v1/runtime/send-task-heartbeat", &Nothing {}) {
            Ok(Success { success }) => success,
            Err(FlowerError::Denied { .. }) => false,
            Err(error) => return Err(error),
        };
        if !alive {
            kept.remove();
            link.caller = Caller::Anybody;
            let told = format!("run {run} has ended at the SuperLink, or the SuperLink lost it");
            return Ok(Sought::None(link, Some(told)));
        }
        // It is refused where the task had begun, and has to be made where it had not.
        match link.call::<Nothing>("/v1/runtime/pull-task-input", &Nothing {}) {
            Ok(_) | Err(FlowerError::Denied { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(Sought::Taken(Self::of(link, run, kept)))
    }

    /// A task that has begun.
    fn of(link: SuperLink, run: u64, kept: &KeptTask) -> Self {
        let heartbeat = link.heartbeat(EVERY, "/v1/runtime/send-task-heartbeat", Nothing {});
        let store =
            ObjectStore::new(&link, SELF, ("/v1/runtime/pull-object", "/v1/runtime/push-object"));
        Self { link, store, run, kept: kept.clone(), _heartbeat: heartbeat }
    }

    /// The nodes that are online.
    pub(crate) fn nodes(&mut self) -> Result<Vec<NodeInfo>, FlowerError> {
        let nodes: Nodes = self.link.call("/v1/runtime/get-nodes", &Nothing {})?;
        Ok(nodes.nodes)
    }

    /// Sends messages with all of their objects; objects that they share are sent once. Says which were
    /// taken, and how many bytes each of them cost.
    pub(crate) fn push(
        &mut self,
        messages: &[OutgoingMessage],
    ) -> Result<Vec<Option<usize>>, FlowerError> {
        const CALL: &str = "/v1/runtime/push-messages";
        for _ in 0..PUSHES {
            let request = PushMessages {
                messages: messages.iter().map(|message| message.message.clone()).collect(),
                trees: messages.iter().map(|message| message.tree.clone()).collect(),
                ..PushMessages::default()
            };
            let pushed: PushedAppMessages = self.link.call(CALL, &request)?;
            let PushedAppMessages { message_ids, mut objects_to_push, session_id } = pushed;
            if message_ids.len() != messages.len() {
                let (found, expected) = (message_ids.len(), messages.len());
                let reason = format!("found {found} names, expected {expected}");
                return Err(FlowerError::Reply { call: CALL, reason });
            }
            let (mut costs, mut is_over) = (Vec::with_capacity(messages.len()), false);
            for (message, id) in messages.iter().zip(&message_ids) {
                if id.is_empty() {
                    costs.push(None);
                    continue;
                }
                let sent = self.store.upload((self.run, &session_id), message, &objects_to_push)?;
                is_over = sent.is_none();
                if is_over {
                    break;
                }
                objects_to_push.retain(|id| !message.objects.iter().any(|it| it.id == *id));
                costs.push(sent);
            }
            if !is_over {
                return Ok(costs);
            }
        }
        Err(FlowerError::unpushed(CALL, PUSHES))
    }

    /// Replies to some of these messages. After an error nobody knows which were handed out.
    pub(crate) fn pull(&mut self, message_ids: Vec<String>) -> Result<Vec<Message>, FlowerError> {
        let request = PullAppMessages { message_ids };
        let pulled: PulledAppMessages = self.link.call("/v1/runtime/pull-messages", &request)?;
        Ok(pulled.messages)
    }

    /// Everything of a reply is here. Where nobody hears it, the SuperLink keeps its copy for longer.
    pub(crate) fn confirm(&mut self, message_id: &str) -> Result<(), FlowerError> {
        const CALL: &str = "/v1/runtime/confirm-message-received";
        let (run_id, message_id) = (self.run, message_id.to_owned());
        let request = ConfirmMessage { node: Some(SELF), run_id, message_id };
        match self.link.call::<Nothing>(CALL, &request) {
            Err(error) if !error.is_of_connection() => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Lets whoever follows the run with `flwr` read a line.
    pub(crate) fn log(&mut self, line: &str) {
        let logs = vec![format!("{line}\n")];
        let request = PushLogs { node: Some(SELF), run_id: self.run, logs };
        let _heard_or_not = self.link.call::<Nothing>("/v1/runtime/push-logs", &request);
    }

    /// Ends the task.
    pub(crate) fn finish(mut self, how: RunEnd, details: &str) {
        let sub_status = match how {
            RunEnd::Complete => "completed",
            RunEnd::GaveUp => "failed",
        };
        let request = TaskOutput { sub_status: sub_status.to_owned(), details: details.to_owned() };
        let _heard_or_gone = self.link.call::<Nothing>("/v1/runtime/push-task-output", &request);
        self.kept.remove();
    }
}

impl AcquireTask {
    /// Any task of a server app.
    fn of_any() -> Self {
        Self { types: vec![SERVER_APP.to_owned()], app_hashes: Vec::new() }
    }

    /// A task of our own app among these runs: a task has no name, and is asked for by its app's hash.
    /// What is left for others is told.
    fn of_ours(Runs { runs }: Runs) -> (Self, Option<String>) {
        let is_pending = |run: &RunInfo| run.status.as_ref().is_some_and(|it| it.status == PENDING);
        let (ours, others): (Vec<RunInfo>, Vec<RunInfo>) =
            runs.into_values().filter(is_pending).partition(|run| run.fab_id == APP);
        let told = others.first().map(|RunInfo { run_id, fab_id, .. }| {
            let found: String = fab_id.chars().take(80).collect();
            format!("run {run_id} is ignored: found the app {found}, expected {APP}")
        });
        let app_hashes = ours.into_iter().map(|run| run.fab_hash).filter(|hash| !hash.is_empty());
        (Self { types: Vec::new(), app_hashes: app_hashes.collect() }, told)
    }
}

impl Store for RuntimeApi {
    fn pull_objects(&mut self, run: u64, ids: &[&str]) -> Result<Vec<PulledObject>, FlowerError> {
        self.store.pull_objects(run, ids)
    }

    /// Others have answered too: nobody waits for one who stopped in the middle of an answer.
    fn pause(&mut self, _wait: Duration, id: &str) -> Result<(), FlowerError> {
        Err(FlowerError::Unfinished { id: shortened(id) })
    }
}
