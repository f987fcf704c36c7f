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

mod frame;
mod link;

mod dialer;
mod peer;
mod server;
mod service;
mod watched;

pub mod certs;
mod tls;

mod error;
mod runtime;

pub use dialer::{Dialer, is_loopback};
pub use error::NetError;
pub use frame::{Assembler, CHUNK, Frame, FrameError, Head, Limits, Message, Part, frames};
pub use link::Link;
pub use peer::{Peer, Traffic};
pub use runtime::Runtime;
pub use server::{Server, ServerOptions};
pub use service::{Handler, Inbound, Outbound, Routes};
pub use tls::{ClientSecurity, Identity, ServerSecurity};
