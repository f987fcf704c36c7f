//! Which part each client will train, as far as that can be known before anybody measures.
//!
//! Orders by place, by turn or by lot follow from the file and its seed, so they are known exactly.
//! Where data decide, every block weighs the same and only the overlap of choices is open. Two
//! guesses then bound the downloads: everybody always chooses the same blocks, and choices overlap
//! as little as they can.

use std::collections::BTreeMap;

use crate::error::Result;
use fedra_engine::{Choice, ClientId, ClientInfo, Masks, Privacy, PrivateSelection};
use fedra_plan::{Layout, Plan, Scope};
use fedra_wire::{Mask, Measured};

/// How much the choices of clients and rounds overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// As much as they can: the least has to be sent.
    Most,
    /// As little as they can: the most has to be sent.
    Least,
}

/// Follows a run from round to round.
pub struct ForeseenChoices {
    overlap: Overlap,
    /// Measurements so far.
    measured: u32,
    next: u16,
    /// How far the next choice may lie from this one, where all choose together.
    step: u16,
}

/// What a round is about to do.
pub struct Foreseen {
    /// The plan of each client of the cohort.
    pub plans: BTreeMap<ClientId, Plan>,
    /// Bytes of scores, of the whole cohort.
    pub scores_up: u64,
    /// Bytes of notices, of the whole cohort.
    pub masks_down: u64,
    /// What may change besides: a client that lacks the upper blocks may choose others than its
    /// neighbours, so the most that can be said of blocks is that each may. Under client-level privacy
    /// what any of them may send changes in every round, whoever comes.
    pub may_change: Scope,
}

impl ForeseenChoices {
    /// Before round 0.
    pub const fn new(overlap: Overlap) -> Self {
        Self { overlap, measured: 0, next: 0, step: 0 }
    }

    /// One round, with these of all clients.
    pub fn round(
        &mut self,
        choice: &Choice<'_>,
        cohort: &[&ClientInfo],
        clients: &[ClientInfo],
    ) -> Result<Foreseen> {
        let Choice { recipe, layout, round, .. } = *choice;
        let mut foreseen = Foreseen {
            plans: BTreeMap::new(),
            scores_up: 0,
            masks_down: 0,
            may_change: Scope::empty(),
        };
        let measures = recipe.selection.probe.is_some();
        if !choice.rule.needs_choice() {
            foreseen.plans = choice.plans(cohort.iter().copied())?;
            if recipe.client_privacy().is_some() {
                let all = choice.plans(clients)?;
                foreseen.may_change = all.values().flat_map(Plan::uploads).collect();
            }
            return Ok(foreseen);
        }
        let due = recipe.selection.is_due(round, self.measured);
        // Whether all clients of a round take their blocks from one list.
        let selection = &recipe.selection;
        let alike = selection.counts.is_empty() && recipe.depths.is_empty();
        let nested = selection.criterion.is_nested() && selection.explore == 0;
        let together = recipe.masks == Masks::Consensus && (alike || nested);
        // Under a guarantee something else may stand for what clients would measure.
        let stands_in = |privacy: &Privacy| {
            matches!(privacy.selection, PrivateSelection::NoisyUpdate | PrivateSelection::Public)
        };
        let asks_clients = !recipe.privacy.as_ref().is_some_and(stands_in);
        if together && (due || recipe.selection.explore > 0) {
            let step = std::mem::take(&mut self.step);
            self.advance(step, layout);
        }
        let known = !measures;
        let ragged = measures && !recipe.depths.is_empty() && !cohort.is_empty();
        if ragged && self.overlap == Overlap::Least {
            foreseen.may_change = Scope::of_blocks(layout, 0..layout.blocks());
        }
        let plan = |place: &Self, client: &ClientInfo| {
            let order = if known { choice.order(client, &[]) } else { place.order(layout) };
            let has = choice.blocks(&client.name);
            let order: Vec<u16> = order.into_iter().filter(|block| *block < has).collect();
            choice.plan(&client.name, &order)
        };
        if recipe.client_privacy().is_some() {
            for client in clients {
                foreseen.may_change.extend(plan(self, client)?.uploads());
            }
        }
        for client in cohort {
            foreseen.plans.insert(client.id, plan(self, client)?);
            foreseen.masks_down += Mask::length(layout) as u64;
            if measures && due && asks_clients {
                let has = usize::from(choice.blocks(&client.name));
                foreseen.scores_up += Measured::length(has) as u64;
            }
            if !together {
                self.advance(choice.count(&client.name), layout);
            }
        }
        if measures && due && (!cohort.is_empty() || recipe.measures_unattended()) {
            self.measured += 1;
        }
        let most = cohort.iter().map(|client| choice.count(&client.name)).max();
        self.step = most.unwrap_or(self.step);
        Ok(foreseen)
    }

    fn order(&self, layout: &Layout) -> Vec<u16> {
        let start = match self.overlap {
            Overlap::Most => 0,
            Overlap::Least => self.next,
        };
        (start..layout.blocks()).chain(0..start).collect()
    }

    fn advance(&mut self, by: u16, layout: &Layout) {
        self.next = (self.next + by) % layout.blocks().max(1);
    }
}
