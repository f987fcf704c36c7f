//! Text from a decoder, whole or cut between a client and a server.
//!
//! A [`Generator`] pulls tokens out of a [`CachedDecoder`], which holds all blocks, or the first and
//! the last ones with a [`DecodePeer`] between them. The server's half is [`DecodeSessions`], and
//! [`SharedSessions`] for callers on many threads. A crossing is rows of hidden states and a position:
//! the prompt in a few pieces, then one row each way for each token, and nothing else.
//!
//! ```text
//! client  prompt -> CachedDecoder -> Sampling -> token -> TextStream -> text
//!                     |      ^  ^______________________|
//!                rows v      | rows
//! server         SharedSessions -> DecodeSessions: a cache per session, one batch for all
//! ```

mod generator;
mod sampling;
mod text_stream;
mod token_rules;

mod cached_decoder;
mod chat_session;
mod peer;

mod sessions;
mod shared_sessions;

pub use crate::session_error::SessionError;
pub use cached_decoder::{CachedDecoder, Leaving};
pub use chat_session::{ChatAnswer, ChatSession, MakeDecoder};
pub use fedra_model::{Candidate, RandomSampling};
pub use generator::{Ended, GenerateSettings, Generator, Written};
pub use peer::{DecodePeer, LocalPeer};
pub use sampling::Sampling;
pub use sessions::{Answer, DecodeSessions, DecodeStep, SessionKey, SessionLimits};
pub use shared_sessions::{Gathering, SessionUsage, SharedSessions};
pub use text_stream::{NewText, TextStream};
pub use token_rules::{TextSoFar, TokenRules};
