//! The protobuf messages of a SuperLink's Fleet and Runtime APIs, as far as they are used here.
//!
//! Derived by hand from field numbers: fields that nobody here reads are left out, and a reader of
//! protobuf skips what it does not know.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message as Derive;

/// The SuperLink's own number among nodes.
pub(crate) const SUPERLINK: u64 = 1;

#[derive(Clone, Copy, PartialEq, Eq, Derive)]
pub(crate) struct Node {
    #[prost(uint64, tag = "1")]
    pub(crate) node_id: u64,
}

#[derive(Clone, PartialEq, Eq, Derive)]
pub(crate) struct ObjectTree {
    #[prost(string, tag = "1")]
    pub(crate) object_id: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) children: Vec<ObjectTree>,
}

#[derive(Clone, PartialEq, Eq, Derive)]
pub(crate) struct Error {
    #[prost(sint64, tag = "1")]
    pub(crate) code: i64,
    #[prost(string, tag = "2")]
    pub(crate) reason: String,
}

/// Content travels as objects: what is in a message of the wire is empty.
#[derive(Clone, Copy, PartialEq, Eq, Derive)]
pub(crate) struct NoContent {}

#[derive(Clone, PartialEq, Derive)]
pub(crate) struct Message {
    #[prost(message, optional, tag = "1")]
    pub(crate) metadata: Option<Metadata>,
    #[prost(message, optional, tag = "2")]
    pub(crate) content: Option<NoContent>,
    #[prost(message, optional, tag = "3")]
    pub(crate) error: Option<Error>,
}

#[derive(Clone, PartialEq, Derive)]
pub(crate) struct Metadata {
    #[prost(uint64, tag = "1")]
    pub(crate) run_id: u64,
    #[prost(string, tag = "2")]
    pub(crate) message_id: String,
    #[prost(uint64, tag = "3")]
    pub(crate) src_node_id: u64,
    #[prost(uint64, tag = "4")]
    pub(crate) dst_node_id: u64,
    #[prost(string, tag = "5")]
    pub(crate) reply_to_message_id: String,
    #[prost(string, tag = "6")]
    pub(crate) group_id: String,
    #[prost(double, tag = "7")]
    pub(crate) ttl: f64,
    #[prost(string, tag = "8")]
    pub(crate) message_type: String,
    #[prost(double, tag = "9")]
    pub(crate) created_at: f64,
    #[prost(uint64, optional, tag = "10")]
    pub(crate) src_task_id: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    pub(crate) dst_task_id: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Derive)]
pub(crate) struct Nothing {}

// Fleet.

#[derive(Clone, PartialEq, Eq, Derive)]
pub(crate) struct RegisterNode {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) public_key: Vec<u8>,
}

#[derive(Clone, PartialEq, Derive)]
pub(crate) struct ActivateNode {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) public_key: Vec<u8>,
    #[prost(double, tag = "2")]
    pub(crate) heartbeat_interval: f64,
}

#[derive(Clone, PartialEq, Derive)]
pub(crate) struct NodeHeartbeat {
    #[prost(message, optional, tag = "1")]
    pub(crate) node: Option<Node>,
    #[prost(double, tag = "2")]
    pub(crate) heartbeat_interval: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Derive)]
pub(crate) struct Success {
    #[prost(bool, tag = "1")]
    pub(crate) success: bool,
}

#[derive(Clone, PartialEq, Eq, Derive)]
pub(crate) struct PullMessages {
    #[prost(message, optional, tag = "1")]
    pub(crate) node: Option<Node>,
}

#[derive(Clone, PartialEq, Derive)]
pub(crate) struct PulledMessages {
    #[prost(message, repeated, tag = "2")]
    pub(crate) messages: Vec<Message>,
}

#[derive(Clone, PartialEq, Derive)]
pub(crate) struct PushMessages {
    #[prost(message, optional, tag = "1")]
    pub(crate) node: Option<Node>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) messages: Vec<Message>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) trees: Vec<ObjectTree>,
    #[prost(double, repeated, tag = "4")]
    pub(crate) runtimes: Vec<f64>,
}

#[derive(Clone, PartialEq, Eq, Derive)]
pub(crate) struct PushedMessages {
    #[prost(string, repeated, tag = "3")]
    pub(crate) objects_to_push: Vec<String>,
    #[prost(string, tag = "4")]
    pub(crate) session_id: String,
}

#[derive(Clone, PartialEq, Eq, Derive)]
pub(crate) struct PullObject {
    #[prost(message, optional, tag = "1")]
    pub(crate) node: Option<Node>,
    #[prost(uint64, tag = "2")]
    pub(crate) run_id: u64,
    #[prost(string, tag = "3")]
    pub(crate) object_id: String,
}

#[derive(Clone, PartialEq, Eq, Derive)]
pub(crate) struct PulledObject {
    #[prost(bool, tag = "1")]
    pub(crate) found: bool,
    #[prost(bool, tag = "2")]
    pub(crate) available: bool,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) content: Bytes,
}

#[derive(Clone, PartialEq, Eq, Derive)]
pub(crate) struct PushObject {
    #[prost(message, optional, tag = "1")]
    pub(crate) node: Option<Node>,
    #[prost(uint64, tag = "2")]
    pub(crate) run_id: u64,
    #[prost(string, tag = "3")]
    pub(crate) object_id: String,
    #[prost(string, tag = "5")]
    pub(crate) session_id: String,
}

impl PushObject {
    /// The field of the content, which is written apart: it is large, and in pieces.
    pub(crate) const CONTENT: u32 = 4;
}

#[derive(Clone, Copy, PartialEq, Eq, Derive)]
pub(crate) struct PushedObject {
    #[prost(bool, tag = "1")]
    pub(crate) stored: bool,
}

#[derive(Clone, PartialEq, Eq, Derive)]
pub(crate) struct ConfirmMessage {
    #[prost(message, optional, tag = "1")]
    pub(crate) node: Option<Node>,
    #[prost(uint64, tag = "2")]
    pub(crate) run_id: u64,
    #[prost(string, tag = "3")]
    pub(crate) message_id: String,
}

/// What is asked of a run; the answer is not looked at, because there is one only for a run that is on.
#[derive(Clone, PartialEq, Eq, Derive)]
pub(crate) struct GetRun {
    #[prost(message, optional, tag = "1")]
    pub(crate) node: Option<Node>,
    #[prost(uint64, tag = "2")]
    pub(crate) run_id: u64,
}

// Runtime.

#[derive(Clone, PartialEq, Eq, Derive)]
pub(crate) struct AcquireTask {
    #[prost(string, repeated, tag = "1")]
    pub(crate) types: Vec<String>,
    /// Hashes of apps whose tasks are taken whatever their type is.
    #[prost(string, repeated, tag = "2")]
    pub(crate) app_hashes: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Derive)]
pub(crate) struct ListRuns {
    #[prost(uint64, optional, tag = "2")]
    pub(crate) limit: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Derive)]
pub(crate) struct Runs {
    #[prost(btree_map = "uint64, message", tag = "1")]
    pub(crate) runs: BTreeMap<u64, RunInfo>,
}

#[derive(Clone, PartialEq, Eq, Derive)]
pub(crate) struct RunStatus {
    #[prost(string, tag = "1")]
    pub(crate) status: String,
}

#[derive(Clone, PartialEq, Eq, Derive)]
pub(crate) struct AcquiredTask {
    #[prost(message, optional, tag = "1")]
    pub(crate) task: Option<TaskInfo>,
    #[prost(string, tag = "2")]
    pub(crate) token: String,
}

#[derive(Clone, PartialEq, Eq, Derive)]
pub(crate) struct TaskInfo {
    #[prost(uint64, tag = "1")]
    pub(crate) task_id: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) run_id: u64,
}

#[derive(Clone, PartialEq, Eq, Derive)]
pub(crate) struct TaskInput {
    #[prost(message, optional, tag = "2")]
    pub(crate) run: Option<RunInfo>,
}

#[derive(Clone, PartialEq, Eq, Derive)]
pub(crate) struct RunInfo {
    #[prost(uint64, tag = "1")]
    pub(crate) run_id: u64,
    #[prost(string, tag = "2")]
    pub(crate) fab_id: String,
    #[prost(string, tag = "5")]
    pub(crate) fab_hash: String,
    #[prost(message, optional, tag = "10")]
    pub(crate) status: Option<RunStatus>,
}

#[derive(Clone, PartialEq, Eq, Derive)]
pub(crate) struct TaskOutput {
    #[prost(string, tag = "2")]
    pub(crate) sub_status: String,
    #[prost(string, tag = "3")]
    pub(crate) details: String,
}

#[derive(Clone, PartialEq, Eq, Derive)]
pub(crate) struct Nodes {
    #[prost(message, repeated, tag = "1")]
    pub(crate) nodes: Vec<NodeInfo>,
}

#[derive(Clone, PartialEq, Eq, Derive)]
pub(crate) struct NodeInfo {
    #[prost(uint64, tag = "1")]
    pub(crate) node_id: u64,
    /// Changes whenever the node is activated.
    #[prost(string, tag = "6")]
    pub(crate) last_activated_at: String,
    #[prost(bytes = "vec", tag = "11")]
    pub(crate) public_key: Vec<u8>,
}

#[derive(Clone, PartialEq, Derive)]
pub(crate) struct PushAppMessages {
    #[prost(message, repeated, tag = "2")]
    pub(crate) messages: Vec<Message>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) trees: Vec<ObjectTree>,
}

#[derive(Clone, PartialEq, Eq, Derive)]
pub(crate) struct PushedAppMessages {
    #[prost(string, repeated, tag = "1")]
    pub(crate) message_ids: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(crate) objects_to_push: Vec<String>,
    #[prost(string, tag = "3")]
    pub(crate) session_id: String,
}

#[derive(Clone, PartialEq, Eq, Derive)]
pub(crate) struct PullAppMessages {
    #[prost(string, repeated, tag = "2")]
    pub(crate) message_ids: Vec<String>,
}

#[derive(Clone, PartialEq, Derive)]
pub(crate) struct PulledAppMessages {
    #[prost(message, repeated, tag = "1")]
    pub(crate) messages: Vec<Message>,
}

#[derive(Clone, PartialEq, Eq, Derive)]
pub(crate) struct PushLogs {
    #[prost(message, optional, tag = "1")]
    pub(crate) node: Option<Node>,
    #[prost(uint64, tag = "2")]
    pub(crate) run_id: u64,
    #[prost(string, repeated, tag = "3")]
    pub(crate) logs: Vec<String>,
}

// Records.

#[derive(Clone, PartialEq, Derive)]
pub(crate) struct Record {
    #[prost(message, repeated, tag = "1")]
    pub(crate) items: Vec<Item>,
}

#[derive(Clone, PartialEq, Derive)]
pub(crate) struct Item {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) value: Option<Value>,
}

#[derive(Clone, PartialEq, Derive)]
pub(crate) struct Value {
    #[prost(oneof = "Scalar", tags = "1, 2, 3, 4, 5, 6, 26")]
    pub(crate) scalar: Option<Scalar>,
}

/// What a record may hold, of metrics and of configuration alike; lists of numbers are not read here.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Scalar {
    #[prost(double, tag = "1")]
    Double(f64),
    #[prost(sint64, tag = "2")]
    Sint(i64),
    #[prost(uint64, tag = "3")]
    Uint(u64),
    #[prost(bool, tag = "4")]
    Bool(bool),
    #[prost(string, tag = "5")]
    Text(String),
    #[prost(bytes = "bytes", tag = "6")]
    Bytes(Bytes),
    #[prost(message, tag = "26")]
    BytesList(BytesList),
}

#[derive(Clone, PartialEq, Eq, Derive)]
pub(crate) struct BytesList {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub(crate) vals: Vec<Bytes>,
}
