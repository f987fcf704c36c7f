//! A private round: announced before it begins, and noised before anybody sees its mean.

use std::collections::BTreeMap;

use fedra_plan::{Plan, Scope};
use fedra_wire::ClientId;

use crate::error::EngineError;
use crate::gather::Gathered;
use crate::privacy::Privacy;
use crate::state::State;

impl State {
    /// Writes down what this round is about to release; refuses it where the promise would be broken.
    pub(super) fn announce(&mut self) -> Result<(), EngineError> {
        let (Some(privacy), Some(account)) = (&self.recipe.privacy, &mut self.account) else {
            return Ok(());
        };
        account.announce(self.round, privacy.release(self.recipe.sampler)?)
    }

    /// Makes the mean of clipped updates private.
    pub(super) fn protect(
        &self,
        gathered: &mut Gathered,
        plans: &BTreeMap<ClientId, Plan>,
        registered: usize,
    ) -> Result<(), EngineError> {
        let Some(privacy) = &self.recipe.privacy else { return Ok(()) };
        let divisor = Privacy::rate(self.recipe.sampler)? * registered as f64;
        let support = self.support(plans)?;
        let key = self.noise.of("client updates").with(u64::from(self.round.0));
        let folded = (&gathered.mean, gathered.private_weight);
        gathered.mean = privacy.noised(folded, (&support, &self.layout), (divisor, &key));
        Ok(())
    }

    /// What may change in this round, whoever takes part.
    fn support(&self, plans: &BTreeMap<ClientId, Plan>) -> Result<Scope, EngineError> {
        let rule = self.rule();
        if !rule.needs_choice() {
            let learns = rule.select(&self.layout)?;
            return Ok(self.recipe.plan(("", self.round), learns, &self.layout)?.uploads());
        }
        // Blocks that are drawn for all clients together are known to everybody.
        let mut uploads = plans.values().map(Plan::uploads);
        if let (Some(first), true) = (uploads.next(), self.recipe.depths.is_empty())
            && uploads.all(|other| other == first)
        {
            return Ok(first);
        }
        let everything = Scope::everything(&self.layout);
        Ok(self.recipe.plan(("", self.round), everything, &self.layout)?.uploads())
    }
}
