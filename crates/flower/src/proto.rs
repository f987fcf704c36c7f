//! The protobuf messages of a SuperLink's Fleet and Runtime APIs, as far as they are used here.
//!
//! Derived by hand from field numbers: fields that nobody here reads are left out, and a reader of
//! protobuf skips what it does not know.

use std::collections::BTreeMap;

use bytes::Bytes;

/// The SuperLink's own number among nodes.
pub(crate) const SUPERLINK: u64 = 1;

/// Messages as a file of protobuf lists them: each field has its type, its name and its number.
macro_rules! messages {
    ($($(#[$doc:meta])* $name:ident {
        $($(#[$about:meta])* [$($kind:tt)+] $field:ident: $type:ty = $number:tt;)*
    })+) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, prost::Message)]
        pub(crate) struct $name {
            $($(#[$about])* #[prost($($kind)+, tag = $number)] pub(crate) $field: $type,)*
        }
    )+};
}

messages! {
    /// No field, or none that is looked at.
    Nothing {}

    #[derive(Copy)]
    Node {
        [uint64] node_id: u64 = 1;
    }

    ObjectTree {
        [string] object_id: String = 1;
        [message, repeated] children: Vec<ObjectTree> = 2;
    }

    Error {
        [sint64] code: i64 = 1;
        [string] reason: String = 2;
    }

    Message {
        [message, optional] metadata: Option<Metadata> = 1;
        /// Content travels as objects: what is in a message of the wire is empty.
        [message, optional] content: Option<Nothing> = 2;
        [message, optional] error: Option<Error> = 3;
    }

    Metadata {
        [uint64] run_id: u64 = 1;
        [string] message_id: String = 2;
        [uint64] src_node_id: u64 = 3;
        [uint64] dst_node_id: u64 = 4;
        [string] reply_to_message_id: String = 5;
        [string] group_id: String = 6;
        [double] ttl: f64 = 7;
        [string] message_type: String = 8;
        [double] created_at: f64 = 9;
        [uint64, optional] src_task_id: Option<u64> = 10;
        [uint64, optional] dst_task_id: Option<u64> = 11;
    }
}

// Fleet.
messages! {
    RegisterNode {
        [bytes = "vec"] public_key: Vec<u8> = 1;
    }

    ActivateNode {
        [bytes = "vec"] public_key: Vec<u8> = 1;
        [double] heartbeat_interval: f64 = 2;
    }

    NodeHeartbeat {
        [message, optional] node: Option<Node> = 1;
        [double] heartbeat_interval: f64 = 2;
    }

    Success {
        [bool] success: bool = 1;
    }

    PullMessages {
        [message, optional] node: Option<Node> = 1;
    }

    PulledMessages {
        [message, repeated] messages: Vec<Message> = 2;
    }

    /// A server app pushes the same without a node and runtimes.
    PushMessages {
        [message, optional] node: Option<Node> = 1;
        [message, repeated] messages: Vec<Message> = 2;
        [message, repeated] trees: Vec<ObjectTree> = 3;
        [double, repeated] runtimes: Vec<f64> = 4;
    }

    PushedMessages {
        [string, repeated] objects_to_push: Vec<String> = 3;
        [string] session_id: String = 4;
    }

    PullObject {
        [message, optional] node: Option<Node> = 1;
        [uint64] run_id: u64 = 2;
        [string] object_id: String = 3;
    }

    PulledObject {
        [bool] found: bool = 1;
        [bool] available: bool = 2;
        [bytes = "bytes"] content: Bytes = 3;
    }

    /// The content is written apart: it is large, and in pieces.
    PushObject {
        [message, optional] node: Option<Node> = 1;
        [uint64] run_id: u64 = 2;
        [string] object_id: String = 3;
        [string] session_id: String = 5;
    }

    PushedObject {
        [bool] stored: bool = 1;
    }

    ConfirmMessage {
        [message, optional] node: Option<Node> = 1;
        [uint64] run_id: u64 = 2;
        [string] message_id: String = 3;
    }

    /// The answer is not looked at, because there is one only for a run that is on.
    GetRun {
        [message, optional] node: Option<Node> = 1;
        [uint64] run_id: u64 = 2;
    }
}

impl PushObject {
    /// The field of the content.
    pub(crate) const CONTENT: u32 = 4;
}

// Runtime.
messages! {
    AcquireTask {
        [string, repeated] types: Vec<String> = 1;
        /// Hashes of apps whose tasks are taken whatever their type is.
        [string, repeated] app_hashes: Vec<String> = 2;
    }

    ListRuns {
        [uint64, optional] limit: Option<u64> = 2;
    }

    Runs {
        [btree_map = "uint64, message"] runs: BTreeMap<u64, RunInfo> = 1;
    }

    RunInfo {
        [uint64] run_id: u64 = 1;
        [string] fab_id: String = 2;
        [string] fab_hash: String = 5;
        [message, optional] status: Option<RunStatus> = 10;
    }

    RunStatus {
        [string] status: String = 1;
    }

    AcquiredTask {
        [message, optional] task: Option<TaskInfo> = 1;
        [string] token: String = 2;
    }

    TaskInfo {
        [uint64] run_id: u64 = 3;
    }

    TaskOutput {
        [string] sub_status: String = 2;
        [string] details: String = 3;
    }

    Nodes {
        [message, repeated] nodes: Vec<NodeInfo> = 1;
    }

    NodeInfo {
        [uint64] node_id: u64 = 1;
        /// Changes whenever the node is activated.
        [string] last_activated_at: String = 6;
        [bytes = "vec"] public_key: Vec<u8> = 11;
    }

    PushedAppMessages {
        [string, repeated] message_ids: Vec<String> = 1;
        [string, repeated] objects_to_push: Vec<String> = 2;
        [string] session_id: String = 3;
    }

    PullAppMessages {
        [string, repeated] message_ids: Vec<String> = 2;
    }

    PulledAppMessages {
        [message, repeated] messages: Vec<Message> = 1;
    }

    PushLogs {
        [message, optional] node: Option<Node> = 1;
        [uint64] run_id: u64 = 2;
        [string, repeated] logs: Vec<String> = 3;
    }
}

// Records.
messages! {
    Record {
        [message, repeated] items: Vec<Item> = 1;
    }

    Item {
        [string] key: String = 1;
        [message, optional] value: Option<Value> = 2;
    }

    BytesList {
        [bytes = "bytes", repeated] vals: Vec<Bytes> = 1;
    }
}

#[derive(Clone, PartialEq, prost::Message)]
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
