//! Sites and a coordinator on a Flower SuperLink.
//!
//! A SuperLink stores and forwards: nodes and the coordinator both dial it, poll it, and leave content
//! with it as objects that are named by their SHA-256. Everything between transport and engine is that of
//! our own network: a coordinator is a [`Carrier`](fedra_net::Carrier) of a
//! [`NetFleet`](fedra_net::NetFleet), and a node has the same [`Conversation`](fedra_net::Conversation).
//!
//! ```text
//! node  ── POST /v1/fleet/...   ──> SuperLink <── POST /v1/runtime/... ── coordinator
//!   Conversation <── MessageContent: messages of ours as few arrays ──> Reception
//! ```
//!
//! Nothing here is asynchronous: a node has one conversation, and a coordinator does one thing at a time
//! because the SuperLink does.

#![forbid(unsafe_code)]

mod coordinator;
mod message_pump;
mod node;
mod online_node;

mod arrays;
mod stock;
mod stock_client;

mod exchange;
mod message_content;

mod npy;
mod object;
mod proto;
mod record;

mod fleet_api;
mod heartbeat;
mod kept_task;
mod object_store;
mod runtime_api;
mod superlink;

mod clock;
mod http;
mod key;
mod node_keys;
mod openssh;

#[cfg(test)]
#[path = "../tests/fleets/listener.rs"]
mod listener;
#[cfg(test)]
mod scripted;

mod app;
mod error;

pub use app::{Apps, write_app};
pub use arrays::TensorNames;
pub use coordinator::{Coordinator, Task};
pub use error::FlowerError;
pub use http::Endpoint;
pub use key::NodeKey;
pub use message_pump::Admission;
pub use node::{Membership, join};
pub use node_keys::NodeKeys;
pub use stock::StockRun;
pub use stock_client::StockClients;
