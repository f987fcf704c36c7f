//! What becomes of the answers: who holds what, the next model, the server's variate.

use fedra_wire::ClientId;

use crate::error::EngineError;
use crate::privacy::Privacy;
use crate::protocol::fleet::ClientInfo;
use crate::round::aggregator::Gathered;
use crate::state::State;
use fedra_wire::ServerInput;

impl State {
    /// Notes what those hold now whose updates arrived; of the others nothing is known.
    pub(super) fn note_arrivals(&mut self, arrived: &[ClientId]) {
        for client in arrived {
            self.versions.received(*client, self.round);
        }
        self.history.arrived |= !arrived.is_empty();
    }

    /// Moves the global model, and with SCAFFOLD the server's variate.
    pub(super) fn apply(
        &mut self,
        gathered: &Gathered,
        clients: &[ClientInfo],
    ) -> Result<(), EngineError> {
        let share = self.share(gathered, clients)?;
        let step = ServerInput { mean: &gathered.mean, share };
        self.recipe.server.apply(&mut self.server, &mut self.model, &step);
        // c stays the weighted mean of all c_i: see methods/scaffold.rs.
        gathered.correction.add_to(&mut self.server.variate, share as f32);
        let changed = gathered.mean.scope();
        if !changed.iter().all(|id| self.model.is_finite(id)) {
            return Err(EngineError::Diverged { round: self.round.0 + 1 });
        }
        self.versions.changed(&changed, self.round);
        Ok(())
    }

    /// Which share of all clients a step is by. Under client-level privacy it is the share that is
    /// drawn on average: a factor of those who came would tell their number, whatever the noise.
    fn share(&self, gathered: &Gathered, clients: &[ClientInfo]) -> Result<f64, EngineError> {
        if self.recipe.client_privacy().is_some() {
            return Privacy::rate(self.recipe.sampler);
        }
        let weighting = self.recipe.weighting;
        let everyone: f64 = clients.iter().map(|client| weighting.of(client.examples)).sum();
        Ok(if everyone > 0.0 { gathered.weight / everyone } else { 0.0 })
    }
}
