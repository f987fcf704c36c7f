//! Text from a decoder: whole, cut, and from a server with many sessions.

mod cut;
mod sampling;
mod sessions;
mod shared;
mod stories;
mod text;
mod tiny;
