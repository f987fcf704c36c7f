//! From what is known before a round to the plan of each client: nothing here measures or trains.
//!
//! The rounds of a run and the forecast of a run that has not begun go through the same value.

use std::collections::BTreeMap;

use fedra_plan::{Layout, Plan, PlanError, Round, Rule};
use fedra_seed::Seed;
use fedra_wire::ClientId;

use crate::protocol::fleet::ClientInfo;
use crate::recipe::Recipe;
use crate::selection::{Masks, Turn, explored};

/// Everything about a round's choice that is known before anybody measures.
#[derive(Clone, Copy, Debug)]
pub struct Choice<'a> {
    /// Whose selection.
    pub recipe: &'a Recipe,
    /// The rule in force: the recipe's, less what a second stage has frozen.
    pub rule: &'a Rule,
    /// The model to choose from.
    pub layout: &'a Layout,
    /// The round to choose for.
    pub round: Round,
    /// The experiment's seed.
    pub seed: Seed,
}

impl Choice<'_> {
    /// How many blocks the named client has.
    pub fn blocks(&self, name: &str) -> u16 {
        let depth = self.recipe.depths.get(name).copied();
        depth.unwrap_or(u16::MAX).min(self.layout.blocks())
    }

    /// How many blocks the named client takes: no more than it has.
    pub fn count(&self, name: &str) -> u16 {
        let (selection, blocks) = (&self.recipe.selection, self.blocks(name));
        let count = selection.counts.get(name).copied().unwrap_or(selection.k);
        match selection.criterion.among(blocks) {
            Some(named) => count.min(named),
            None => count.min(blocks),
        }
    }

    /// The blocks of a client, best first, given what it is to rank by.
    pub fn order(&self, client: &ClientInfo, basis: &[f64]) -> Vec<u16> {
        let selection = &self.recipe.selection;
        let whose = |lot: Seed| match self.recipe.masks {
            Masks::Consensus => lot,
            Masks::PerClient => lot.with(u64::from(client.id.0)),
        };
        let lot = self.seed.of("blocks");
        let explores = whose(lot.with(u64::from(self.round.0)));
        let lot = if selection.criterion.is_fixed() { whose(lot) } else { explores };
        let (k, blocks) = (self.count(&client.name), self.blocks(&client.name));
        let turn = Turn { k, blocks, round: self.round, lot, explores, basis };
        explored(selection.criterion.order(&turn), selection.explore, &turn)
    }

    /// The plans of clients for whom nothing has to be chosen.
    pub fn plans<'c>(
        &self,
        cohort: impl IntoIterator<Item = &'c ClientInfo>,
    ) -> Result<BTreeMap<ClientId, Plan>, PlanError> {
        let learns = self.rule.select(self.layout)?;
        let plan = |client: &ClientInfo| {
            let plan = self.recipe.plan((&client.name, self.round), learns.clone(), self.layout)?;
            Ok((client.id, plan))
        };
        cohort.into_iter().map(plan).collect()
    }

    /// The plan of a client that takes its blocks in this order.
    pub fn plan(&self, name: &str, order: &[u16]) -> Result<Plan, PlanError> {
        let chosen = order.iter().copied().take(usize::from(self.count(name))).collect();
        let learns = self.rule.select_with(self.layout, &chosen)?;
        self.recipe.plan((name, self.round), learns, self.layout)
    }
}
