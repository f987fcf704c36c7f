//! Text from a decoder: whole, cut, and from a server with many sessions.
#![expect(clippy::unwrap_used, reason = "the functions that serve tests are tests too")]

mod cut;
mod rules;
mod sampling;
mod sessions;
mod shared;
mod stories;
mod text;
mod tiny;
