//! The server's half of a cut model as the engine sees it.
//!
//! The engine hands over exact numbers before anybody needs them, says who is about to train, tells
//! what became of each answer, and takes the change of the middle beside the clients' updates:
//!
//! ```text
//! engine                          middle                        clients, through their peers
//!   host      the exact model  ->   numbers to compute with
//!   begin     the requests     ->   opens a turn for each    <->  hidden states, gradients
//!   settle    client, verdict  ->   keeps or undoes a turn
//!   updates                    <-   what the middle learned, and from whom
//!   crossed                    <-   bytes since it was last asked
//! ```

use std::collections::BTreeMap;
use std::fmt;

use fedra_plan::ByteCount;
use fedra_wire::{ClientId, ParamValues};
use serde::{Deserialize, Serialize};

use crate::error::EngineError;
use crate::protocol::bytes::CrossingBytes;
use crate::protocol::fleet::{TrainRequest, Verdict};

/// The server's half of a cut model.
pub trait SegmentHost: fmt::Debug + Send + Sync {
    /// Takes the exact numbers of the model; turns that are open have ended.
    fn host(&self, model: &ParamValues) -> Result<(), EngineError>;

    /// Opens a turn for each request, in their order; `weights` says how much each client counts.
    fn begin(
        &self,
        requests: &[TrainRequest],
        weights: &BTreeMap<ClientId, f64>,
    ) -> Result<(), EngineError>;

    /// Hears what became of a client's answer. What a refused client taught is undone where it can
    /// be: in modes where it has not met others' teaching.
    fn settle(&self, client: ClientId, verdict: Verdict);

    /// What the middle learned from clients whose answers were taken, in order of their first.
    fn updates(&self) -> Result<Vec<SegmentUpdate>, EngineError>;

    /// The most tensor memory that its process has held so far.
    fn memory(&self) -> ByteCount;

    /// What has crossed the cut since this was last asked.
    fn crossed(&self) -> CrossingBytes;
}

/// The change of some of the middle's parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentUpdate {
    /// From whom it was learned, in order: it counts as much as they do together.
    pub clients: Vec<ClientId>,
    /// The change.
    pub change: ParamValues,
}

/// The most tensor memory that each side of a cut held so far, weights included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SideMemory {
    /// The client that held the most.
    pub client: ByteCount,
    /// The server.
    pub server: ByteCount,
}
