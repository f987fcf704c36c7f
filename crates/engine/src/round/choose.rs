//! One round's choice of blocks, from measurements to the plan of each client.

use std::collections::BTreeMap;

use fedra_plan::{ByteCount, Plan, Rule};
use fedra_wire::{ClientId, Mask};

use crate::error::EngineError;
use crate::fleet::{ClientInfo, Fleet};
use crate::planner::Choice;
use crate::selection::{Masks, Observed, SelectionReport};
use crate::state::State;

use super::survey::Survey;

/// What was chosen, and what choosing cost.
pub(crate) struct Chosen {
    pub(crate) plans: BTreeMap<ClientId, Plan>,
    pub(crate) report: SelectionReport,
}

impl State {
    /// Asks for evidence if it is due, ranks the blocks and takes the first few, client by client.
    pub(crate) fn choose(
        &mut self,
        fleet: &mut dyn Fleet,
        rule: &Rule,
        cohort: &[&ClientInfo],
    ) -> Result<Chosen, EngineError> {
        let selection = self.recipe.selection.clone();
        let is_due = selection.is_due(self.round, self.memory.measurements());
        let Survey { measured, answered, up: scores_up, effort } = match selection.probe {
            Some(probe) if is_due => self.survey(fleet, probe, cohort)?,
            Some(_) | None => Survey::default(),
        };
        if !measured.is_empty() {
            self.memory.take(&selection, &measured, self.layout.blocks());
        }

        let profile = self.memory.profile.clone().unwrap_or_default();
        let (recipe, layout, round) = (&self.recipe, &self.layout, self.round);
        let choice = Choice { recipe, rule, layout, round, seed: self.seed };
        let mut plans = BTreeMap::new();
        let mut agreements = Vec::new();
        let mut masks_down = ByteCount(0);
        for client in cohort {
            let common = choice.order(client, &profile.basis.0);
            // A client that never measured follows the others.
            let own = profile.own.get(&client.id).map(|own| choice.order(client, &own.0));
            if let Some(own) = own.as_ref().filter(|_| answered.contains(&client.id)) {
                agreements.push(shared(own, &common, choice.count(&client.name)));
            }
            let order = match recipe.masks {
                Masks::Consensus => common,
                Masks::PerClient => own.unwrap_or(common),
            };
            let plan = choice.plan(&client.name, &order)?;
            let notice = Mask { round, client: client.id, learns: plan.learns().clone() };
            masks_down += ByteCount(notice.encode(layout)?.len() as u64);
            plans.insert(client.id, plan);
        }
        let observed = Observed {
            selection: &selection,
            masks: recipe.masks,
            k: selection.k,
            blocks: layout.blocks(),
            plans: &plans,
            agreements: &agreements,
        };
        let report = observed.report(&mut self.memory);
        let report = SelectionReport { scores_up, masks_down, effort, ..report };
        Ok(Chosen { plans, report })
    }
}

/// Which share of the first K of one order is among the first K of another.
fn shared(own: &[u16], common: &[u16], k: u16) -> f64 {
    let k = usize::from(k).min(own.len()).min(common.len());
    let both = own[..k].iter().filter(|block| common[..k].contains(block)).count();
    both as f64 / k.max(1) as f64
}
