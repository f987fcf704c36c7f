//! Other futures of one federation: go back to a moment and go on by another recipe.
//!
//! A moment is everything that decides what comes next, the server's state and the clients', so a
//! branch by the recipe of a whole run *is* that run from there on, to the bit. That is how the
//! worth of freezing after W rounds is measured without training the first W rounds again.
//!
//! ```text
//! trunk    0 ---- W1 ------- W2 --------------> rounds      everything learns
//! branch           \----------------------------> rounds      recipe.with_stage_at(W1)
//! ```

use fedra_plan::Round;

use crate::error::EngineError;
use crate::federation::Federation;
use crate::protocol::fleet::Fleet;
use crate::recipe::Recipe;
use crate::recipe::stage::{Begins, Stage};
use crate::state::State;
use crate::storage::state_store::StateHandle;

/// A federation between two rounds.
#[derive(Clone, Debug)]
pub struct Moment {
    state: State,
    clients: Vec<StateHandle>,
}

impl Federation {
    /// What there is now, server and clients.
    pub fn moment(&self, fleet: &dyn Fleet) -> Moment {
        Moment { state: self.state.clone(), clients: fleet.states() }
    }
}

impl Moment {
    /// Continues from here by another recipe; the clients become what they were.
    pub fn branch(&self, recipe: Recipe, fleet: &mut dyn Fleet) -> Result<Federation, EngineError> {
        recipe.fits(&self.state.layout)?;
        let state = State { recipe, ..self.state.clone() };
        let states = &mut self.clients.iter().map(StateHandle::state);
        fleet.restore(&state.as_received()?, states)?;
        Ok(Federation::from_state(state))
    }
}

impl Recipe {
    /// The same with its second stage from another round on; `None` when it has none.
    pub fn with_stage_at(self, round: Round) -> Option<Self> {
        let stage = Stage { begins: Begins::At(round), ..self.stage? };
        Some(Self { stage: Some(stage), ..self })
    }
}
