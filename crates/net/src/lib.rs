//! Sites and a server over a real network: gRPC streams under mutual TLS.
//!
//! This is the only crate that knows sockets, certificates and asynchronous code. Everything above it
//! sees blocking types: a [`Server`] with one handler for each kind of stream, a [`Dialer`] that opens
//! such a stream, and a [`Link`] over which [`Message`]s go both ways. What is said over a link is
//! decided by whoever opens it.
//!
//! ```text
//! Dialer ── TCP, TLS, HTTP/2 ──> Server        who a client is, its certificate says: Peer
//!    └── Link ══ frames ══ Link ──┘            one gRPC stream; chunks, limits, back-pressure
//! ```

#![forbid(unsafe_code)]

mod carrier;
mod conversation;
mod cut;
mod decode;
mod join;
mod net_fleet;
mod protocol;

mod host;
mod journal;
mod processes;
mod registry;
mod site;
mod site_state;

mod frame;
mod link;
mod newest;

mod listener;
mod outage;

mod http_server;

mod capacity;
mod dialer;
mod peer;
mod server;
mod service;
mod watched;

pub mod certs;
mod tls;

mod error;
mod runtime;
mod secret;

use fedra_engine::durable;

pub use capacity::{Capacity, Demand, USUAL_CONNECTIONS};
pub use carrier::{Carrier, Reception, Urgency, urgency};
pub use conversation::{Conversation, Heard};
pub use cut::{CUT, CutDialer, CutHello, row_limits, with_middle};
pub use decode::{
    DECODE, DecodeDialer, DecodeHello, DecodeHost, DecodeWelcome, NetDecodePeer, with_sessions,
};
pub use dialer::{Dialer, is_loopback};
pub use error::{Fault, NetError, Standing, is_out_of_descriptors};
pub use fedra_client::JoinOnDrop;
pub use frame::{Assembler, CHUNK, Frame, FrameBody, FrameError, Head, Limits, Message, frames};
pub use host::{Delivery, Host, Seated};
pub use http_server::{
    ApiKey, HttpHandler, HttpOptions, HttpRequest, HttpServer, Pieces, Responder, SHORTEST_KEY,
};
pub use join::join;
pub use journal::FILE as JOURNAL;
pub use link::Link;
pub use listener::{Left, Listener, rest};
pub use net_fleet::{
    CentralTest, CountsByClient, EVENTS, Federated, FleetOptions, FleetPhase, FleetStatus,
    NetFleet, STATUS, SiteStatus, Start,
};
pub use outage::Outage;
pub use peer::{Peer, Traffic, WireBytes};
pub use protocol::{
    Answer, Asked, ConfigFingerprint, Counts, DataDigest, Forget, HeldModel, Hello, JOIN, PROTOCOL,
    Request, RoundStage, RunEnd, StateVersion, Welcome, limits,
};
pub use registry::Room;
pub use runtime::Runtime;
pub use secret::{kept_key, kept_secret, secret_key, secret_number};
pub use server::{Server, ServerOptions};
pub use service::{Handler, Inbound, Outbound, Routes};
pub use site::ClientNode;
pub use tls::{ClientSecurity, Identity, ServerSecurity, is_of_certificate};
