//! Who wants to know that a client began or ended its work.

use fedra_engine::{Arrival, ClientInfo};
use fedra_plan::Round;

/// Is told what happens, on whatever thread it happens, so that somebody can draw it.
pub trait Observer: Send + Sync {
    /// A client has begun to train.
    fn started(&self, client: &ClientInfo, round: Round);

    /// A client has ended, with an update or without; its arrival still waits for its turn.
    fn finished(&self, client: &ClientInfo, round: Round, arrival: &Arrival);
}

/// Draws nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {
    fn started(&self, _client: &ClientInfo, _round: Round) {}

    fn finished(&self, _client: &ClientInfo, _round: Round, _arrival: &Arrival) {}
}
