//! What a federation came to, round by round.

use fedra_client::to_values;
use fedra_compute::Seed;
use fedra_engine::{Federation, Recipe, RoundReport};
use fedra_wire::ParamValues;

use crate::deployment::{Clients, Deployment, Opened};
use crate::noted::{Call, Noted};
use crate::world::{Reports, bits};

/// Everything that has to be alike, however clients are reached.
#[derive(Default)]
pub struct Outcome {
    /// The shared model after each round.
    pub models: Vec<ParamValues>,
    pub reports: Vec<RoundReport>,
    /// What the engine asked of the fleet, and what it was answered.
    pub calls: Vec<Call>,
}

impl Outcome {
    /// Runs rounds; `before` each of them, and after the last, something may happen to the clients.
    pub fn of(
        (deployment, clients): (&dyn Deployment, &Clients),
        (recipe, rounds): (&Recipe, u32),
        mut before: impl FnMut(u32, &mut dyn Opened),
    ) -> Self {
        let initial = to_values(&clients.world.params);
        let layout = clients.world.model.layout().clone();
        let mut federation = Federation::new(recipe.clone(), layout, initial, Seed(3)).unwrap();
        let mut opened = deployment.open(clients);
        let (mut outcome, mut reports) = (Self::default(), Reports::default());
        for round in 0..rounds {
            before(round, &mut *opened);
            let mut noted = Noted::new(opened.fleet(), &mut outcome.calls);
            federation.run(&mut noted, &mut [&mut reports], round + 1, &|| false).unwrap();
            outcome.models.push(federation.model().clone());
        }
        before(rounds, &mut *opened);
        opened.finish();
        outcome.reports = reports.0;
        outcome
    }

    pub fn expect_same(&self, far: &Self) {
        for (number, (near, far)) in self.reports.iter().zip(&far.reports).enumerate() {
            assert_eq!(near, far, "the report of round {number}");
        }
        for (number, (near, far)) in self.models.iter().zip(&far.models).enumerate() {
            assert!(bits(near) == bits(far), "other bits of the model after round {number}");
        }
        for (number, (near, far)) in self.calls.iter().zip(&far.calls).enumerate() {
            assert_eq!(near, far, "call {number} of the trait");
        }
        let lengths = |it: &Self| (it.models.len(), it.reports.len(), it.calls.len());
        assert_eq!(lengths(self), lengths(far));
        assert!(!self.models.is_empty(), "nothing was compared");
    }
}
