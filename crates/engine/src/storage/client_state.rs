//! What a client keeps from one round to the next.

use std::sync::Arc;

use fedra_plan::{Layout, Round, Scope};
use fedra_wire::{
    ClientId, Encoding, Expectation, Header, Kind, ParamValues, WireError, decode, encode,
    from_bytes, to_bytes,
};

use crate::storage::optimiser_state::OptimiserState;

/// Under which its values are written: they belong to no round.
const HEADER: Header = Header::download(Kind::Values, Encoding::F32, Round(0));

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
    /// What its optimiser remembers, where it may (`work.moments`).
    pub moments: OptimiserState,
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
            moments: OptimiserState::default(),
            attention: AttentionMemory::default(),
        }
    }

    /// Forgets the corrections, residuals and moments of these parameters; tells whether there were any.
    pub fn forget(&mut self, part: &Scope) -> bool {
        let Self { correction, residual, moments, .. } = self;
        let mut forget = |id| correction.remove(id).is_some() | residual.remove(id).is_some();
        part.iter().fold(false, |any, id| forget(id) | any) | moments.forget(part)
    }

    /// Whether there is nothing to keep.
    pub fn is_empty(&self) -> bool {
        let Self { client: _, personal, correction, residual, moments, attention } = self;
        let values = [personal, correction, residual];
        values.iter().all(|it| it.is_empty()) && moments.is_empty() && attention.is_empty()
    }

    /// How many sections it is written as.
    pub const SECTIONS: usize = 8;

    /// Itself as bytes, one section after another: its values and moments as payloads, then the steps of its
    /// optimiser and its patterns of attention.
    pub fn sections(&self, layout: &Layout) -> impl Iterator<Item = Result<Vec<u8>, WireError>> {
        let Self { client: _, personal, correction, residual, moments, attention } = self;
        let values = [personal, correction, residual, &moments.first, &moments.second].into_iter();
        let steps = std::iter::once(Ok(moments.written_steps()));
        let patterns = [&attention.first, &attention.last].into_iter();
        let numbers = |pattern: &Arc<[f32]>| Ok(to_bytes(pattern));
        let values = values.map(|values| encode(layout, &HEADER, values, None));
        values.chain(steps).chain(patterns.map(numbers))
    }

    /// What was written as these sections, or what is wrong with them.
    pub fn from_sections<B: AsRef<[u8]>>(
        client: ClientId,
        layout: &Layout,
        sections: &[B; Self::SECTIONS],
    ) -> Result<Self, String> {
        let values = |bytes: &B| -> Result<ParamValues, String> {
            let read = decode(bytes.as_ref(), &Expectation::of(layout, &HEADER));
            read.map(|(_, values)| values).map_err(|error| error.to_string())
        };
        let numbers = |bytes: &B| -> Result<Arc<[f32]>, String> {
            let numbers = from_bytes(bytes.as_ref());
            numbers.map(Arc::from).ok_or_else(|| "a client's attention is cut short".to_owned())
        };
        let [personal, correction, residual, mean, square, steps, first, last] = sections;
        Ok(Self {
            client,
            personal: values(personal)?,
            correction: values(correction)?,
            residual: values(residual)?,
            moments: OptimiserState::read(values(mean)?, values(square)?, steps.as_ref())?,
            attention: AttentionMemory { first: numbers(first)?, last: numbers(last)? },
        })
    }
}
