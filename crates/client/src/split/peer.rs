//! The other half of a cut model, wherever it is.

use fedra_plan::Round;
use fedra_wire::ClientId;

use crate::error::Result;

/// A connection to the server's half: a frame goes out, and its answer comes back.
pub trait Peer {
    /// Sends a frame and waits for the answer.
    fn exchange(&mut self, frame: Vec<u8>) -> Result<Vec<u8>>;
}

/// Makes connections to the server's half.
pub trait Connect: Send + Sync {
    /// A connection for one client and one purpose.
    fn connect(&self, client: ClientId, purpose: Purpose) -> Result<Box<dyn Peer + '_>>;
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The training of a round.
    Train(Round),
    /// Answers of the model as it is when so many rounds are complete.
    Score(Round),
    /// Measurements of the model with which this round is about to begin.
    Probe(Round),
}
