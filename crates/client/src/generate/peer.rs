//! Whoever holds the middle blocks of a cut decoder while it writes.
//!
//! A peer sees rows of hidden states and the position of the first, never a token. It keeps the
//! keys and values of what it has seen, so that each further token costs one row each way. How rows
//! travel is the peer's affair: in this process here, over a network elsewhere.

use super::sessions::{Answer, DecodeSessions, DecodeStep, SessionKey};
use crate::Result;
use std::time::Instant;

/// The middle of one cut decoder, for one sequence.
pub trait DecodePeer: Send {
    /// Runs rows through the middle blocks. The first row is at `position`, which is where the peer
    /// stands, or where its last step began: a step whose answer was lost may be repeated.
    ///
    /// Returns a row for each, or only the last one, as `answer` says.
    fn decode(&mut self, position: usize, rows: &[f32], answer: Answer) -> Result<Vec<f32>>;

    /// How many rows the peer has: where to go on after a lost connection.
    fn position(&mut self) -> Result<usize>;
}

/// The middle in this process and on this thread.
#[derive(Debug)]
pub struct LocalPeer {
    sessions: DecodeSessions,
    key: SessionKey,
}

impl LocalPeer {
    /// Opens a session of its own.
    pub fn open(mut sessions: DecodeSessions) -> Result<Self> {
        let key = SessionKey { owner: "local".into(), id: 0 };
        sessions.open(&key, Instant::now())?;
        Ok(Self { sessions, key })
    }
}

impl DecodePeer for LocalPeer {
    fn decode(&mut self, position: usize, rows: &[f32], answer: Answer) -> Result<Vec<f32>> {
        let step = DecodeStep { key: self.key.clone(), position, rows: rows.to_vec(), answer };
        Ok(self.sessions.decode(&step, Instant::now())?)
    }

    fn position(&mut self) -> Result<usize> {
        Ok(self.sessions.position(&self.key, Instant::now())?)
    }
}
