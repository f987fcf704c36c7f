//! A small HTTP/1.1 server for programs that ask for JSON and read events: bounded in everything that a stranger decides.
//!
//! It knows no route but those that need no key, and no meaning of a body. A handler is called for each whole request
//! and answers when it likes, from any thread, at once or piece by piece; what it does for a client that hung up it
//! learns by asking ([`Responder::is_gone`]).
//!
//! ```text
//! accept -> head, in time -> Host, key -> body, in time and size -> handler -> Responder -> whole or pieces
//! ```
//!
//! | bound | what a client gets |
//! | --- | --- |
//! | connections | the next one waits to be accepted |
//! | time for a head, a body | the connection ends; 408 |
//! | bytes of a head, a body | 431; 413 |
//! | time without a byte taken | the connection ends |

mod access;
mod body;
mod patient;
mod responder;
mod server;

pub use access::{ApiKey, SHORTEST_KEY};
pub use responder::{Pieces, Responder};
pub use server::{HttpHandler, HttpOptions, HttpRequest, HttpServer};
