//! Where a round asks code of a program, and what it makes of the answers.

use fedra_wire::{ClientId, Mean};

use crate::error::EngineError;
use crate::own_parts::OwnStep;
use crate::protocol::fleet::ClientInfo;
use crate::state::State;

impl State {
    /// What the code of a program makes of a mean change.
    pub(crate) fn own_change(&mut self, mean: Mean) -> Result<Mean, EngineError> {
        let Some(parts) = self.parts.as_ref().filter(|parts| parts.makes().change) else {
            return Ok(mean);
        };
        let mut change = mean.tensors();
        for (id, values) in change.iter() {
            self.server.first.or_zeros(id, values.len());
        }
        let (round, layout) = (self.round, &self.layout);
        let (model, state) = (&self.model, &mut self.server.first);
        parts.change(OwnStep { round, layout, model, change: &mut change, state })?;
        Ok(change.iter().map(|(id, values)| (id, values.to_vec())).collect())
    }

    /// Whom the code of a program draws, out of these clients.
    pub(crate) fn own_cohort(
        &self,
        clients: &[ClientInfo],
    ) -> Result<Option<Vec<ClientId>>, EngineError> {
        let Some(parts) = self.parts.as_ref().filter(|parts| parts.makes().cohort) else {
            return Ok(None);
        };
        let mut drawn = parts.cohort(self.round, clients)?;
        drawn.sort_unstable();
        drawn.dedup();
        Ok(Some(drawn))
    }
}
