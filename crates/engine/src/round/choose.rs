//! One round's choice of blocks, from measurements to the plan of each client.

use std::collections::{BTreeMap, BTreeSet};

use fedra_plan::{ByteCount, Plan, Round, Rule, Scope, Side};
use fedra_wire::{ClientId, Mask, Measured};

use crate::error::EngineError;
use crate::fleet::{ClientInfo, Evidence, Fleet, ProbeRequest};
use crate::planner::Choice;
use crate::selection::{Masks, Observed, SelectionReport};
use crate::state::State;

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
        let (mut answered, mut scores_up, mut effort) = (BTreeSet::new(), ByteCount(0), 0);
        let is_due = selection.is_due(self.round, self.memory.measurements());
        if let Some(probe) = selection.probe.filter(|_| is_due) {
            let clients: Vec<ClientId> = cohort.iter().map(|client| client.id).collect();
            let evidence = fleet.probe(&ProbeRequest {
                probe,
                clients: &clients,
                round: self.round,
                seed: self.seed.of("probe").with(u64::from(self.round.0)),
                examples: selection.profile_examples,
                split: self.recipe.split.as_ref(),
            })?;
            let (measured, bytes) = travel(&evidence, self.round, self.layout.blocks())?;
            if measured.is_empty() {
                return Err(EngineError::Unmeasured { round: self.round.0 + 1, probe });
            }
            scores_up = bytes;
            answered = measured.iter().map(|one| one.client).collect();
            for client in cohort.iter().filter(|client| answered.contains(&client.id)) {
                let looked = client.examples.min(u64::from(selection.profile_examples));
                let plan =
                    self.recipe.plan((&client.name, self.round), Scope::empty(), &self.layout)?;
                effort += plan.probing_work(Side::Client, &self.layout, (probe, looked));
            }
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

/// Scores as the server receives them: through real messages. One that cannot be read is no answer.
fn travel(
    evidence: &[Evidence],
    round: Round,
    blocks: u16,
) -> Result<(Vec<Measured>, ByteCount), EngineError> {
    let (mut measured, mut length) = (Vec::with_capacity(evidence.len()), ByteCount(0));
    for one in evidence {
        let scores = one.scores.as_slice().iter().map(|score| *score as f32).collect();
        let bytes = Measured { round, client: one.client, scores }.encode()?;
        length += ByteCount(bytes.len() as u64);
        measured.extend(Measured::decode(&bytes, (round, one.client), blocks));
    }
    Ok((measured, length))
}

/// Which share of the first K of one order is among the first K of another.
fn shared(own: &[u16], common: &[u16], k: u16) -> f64 {
    let k = usize::from(k).min(own.len()).min(common.len());
    let both = own[..k].iter().filter(|block| common[..k].contains(block)).count();
    both as f64 / k.max(1) as f64
}
