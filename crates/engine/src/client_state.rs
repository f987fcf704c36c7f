//! What a client keeps from one round to the next.

use std::sync::Arc;

use fedra_wire::{ClientId, ParamValues};

/// What a client keeps between rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientState {
    /// Whose it is.
    pub client: ClientId,
    /// Its own values of the parameters that never leave it (`FedPer`, local-only).
    pub personal: ParamValues,
    /// Its control variate (SCAFFOLD) or its linear term (`FedDyn`); absent means zero.
    pub correction: ParamValues,
    /// What the encoding of its last updates lost (error feedback); absent means zero.
    pub residual: ParamValues,
    /// The attention it has seen, for it to compare with.
    pub attention: AttentionMemory,
}

/// What a client remembers of a model's attention on its sample. It is never sent; the checkpoint of
/// a simulation holds it with the client's other state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttentionMemory {
    /// When it first looked; empty before.
    pub first: Arc<[f32]>,
    /// When it last looked; empty before.
    pub last: Arc<[f32]>,
}

impl AttentionMemory {
    /// Whether it has never looked.
    pub fn is_empty(&self) -> bool {
        self.first.is_empty() && self.last.is_empty()
    }
}

impl ClientState {
    /// A client that keeps nothing yet.
    pub fn empty(client: ClientId) -> Self {
        Self {
            client,
            personal: ParamValues::new(),
            correction: ParamValues::new(),
            residual: ParamValues::new(),
            attention: AttentionMemory::default(),
        }
    }

    /// Whether there is nothing to keep.
    pub fn is_empty(&self) -> bool {
        let Self { client: _, personal, correction, residual, attention } = self;
        personal.is_empty() && correction.is_empty() && residual.is_empty() && attention.is_empty()
    }
}
