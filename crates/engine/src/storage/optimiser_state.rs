//! What a client's optimiser remembers between two of the client's rounds (`work.moments = "kept"`).

use std::collections::BTreeMap;

use fedra_plan::{ParamId, Scope};
use fedra_wire::ParamValues;

/// The moments of an optimiser, as numbers. Of parameters that are absent it remembers nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OptimiserState {
    /// Steps that each parameter has taken.
    pub steps: BTreeMap<ParamId, u32>,
    /// The first moments, of the same parameters.
    pub first: ParamValues,
    /// The second moments, for optimisers that have some.
    pub second: ParamValues,
}

impl OptimiserState {
    /// Whether it remembers nothing.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Takes over what another one remembers; of other parameters it keeps what it had.
    pub fn absorb(&mut self, newer: Self) {
        self.steps.extend(newer.steps);
        self.first.absorb(newer.first);
        self.second.absorb(newer.second);
    }

    /// Forgets some parameters; tells whether there was anything to forget.
    pub(crate) fn forget(&mut self, part: &Scope) -> bool {
        part.iter().fold(false, |any, id| {
            self.first.remove(id);
            self.second.remove(id);
            self.steps.remove(&id).is_some() | any
        })
    }

    /// The steps as bytes, in the order of parameters.
    pub(crate) fn written_steps(&self) -> Vec<u8> {
        self.steps.values().flat_map(|steps| steps.to_le_bytes()).collect()
    }

    /// What was written as these steps and moments, or what is wrong with them.
    pub(crate) fn read(
        first: ParamValues,
        second: ParamValues,
        steps: &[u8],
    ) -> Result<Self, String> {
        let (counts, rest) = steps.as_chunks::<4>();
        let ids = || first.iter().map(|(id, _)| id);
        if !rest.is_empty() || counts.len() != ids().len() {
            return Err("a client's optimiser has other steps than moments".to_owned());
        }
        if second.iter().any(|(id, _)| first.get(id).is_none()) {
            return Err("a client's optimiser has a second moment without a first".to_owned());
        }
        let steps = ids().zip(counts.iter().map(|count| u32::from_le_bytes(*count))).collect();
        Ok(Self { steps, first, second })
    }
}
