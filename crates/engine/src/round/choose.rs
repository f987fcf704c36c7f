//! One round's choice of blocks, from measurements to the plan of each client.
//!
//! Under client-level privacy blocks are chosen in every round, also in one to which nobody came: what
//! is released then is what would have been released otherwise.

use std::collections::{BTreeMap, BTreeSet};

use fedra_plan::{ByteCount, Plan, PlanError, Rule, Scope};
use fedra_wire::{ClientId, Mask};

use crate::error::EngineError;
use crate::own_parts::OwnRanking;
use crate::protocol::fleet::{ClientInfo, Fleet};
use crate::recipe::planner::Choice;
use crate::selection::{Masks, Observed, Profile, SelectionReport};
use crate::state::State;

use super::survey::Survey;

impl State {
    /// Asks for evidence if it is due, ranks the blocks and takes the first few, client by client.
    pub(crate) fn choose(
        &mut self,
        fleet: &mut dyn Fleet,
        rule: &Rule,
        cohort: &[&ClientInfo],
    ) -> Result<(BTreeMap<ClientId, Plan>, SelectionReport), EngineError> {
        let selection = self.recipe.selection.clone();
        let is_due = selection.is_due(self.round, self.memory.measurements);
        let Survey { measured, answered, up: scores_up, effort } = match selection.probe {
            Some(probe) if is_due => self.survey(fleet, probe, cohort)?,
            Some(_) | None => Survey::default(),
        };
        if !measured.is_empty() {
            self.memory.take(&selection, &measured, self.layout.blocks());
        }

        let (ranking, round, layout) = (self.ranking(rule), self.round, &self.layout);
        let mut plans: BTreeMap<ClientId, Plan> = BTreeMap::new();
        let mut agreements = Vec::new();
        let mut masks_down = ByteCount(0);
        for client in cohort {
            let measured = ranking.own(client).filter(|_| answered.contains(&client.id));
            if let Some(own) = measured {
                let count = ranking.choice.count(&client.name);
                agreements.push(shared(&own, &ranking.common(client), count));
            }
            let plan = match self.own_order(&ranking, client)? {
                Some(order) => ranking.choice.plan(&client.name, &order)?,
                None => ranking.plan(client)?,
            };
            let notice = Mask { round, client: client.id, learns: plan.learns().clone() };
            masks_down += ByteCount(notice.encode(layout)?.len() as u64);
            plans.insert(client.id, plan);
        }
        let chosen = match self.recipe.client_privacy() {
            None => plans.values().flat_map(|plan| plan.learns().blocks()).collect(),
            Some(_) => self.support(fleet.clients())?.blocks(),
        };
        let observed = Observed {
            selection: &selection,
            masks: self.recipe.masks,
            k: selection.k,
            blocks: layout.blocks(),
            plans: &plans,
            chosen: &chosen,
            agreements: &agreements,
        };
        let report = observed.report(&mut self.memory);
        Ok((plans, SelectionReport { scores_up, masks_down, effort, ..report }))
    }

    /// What may change in this round, whoever takes part and whatever they send: all that any registered
    /// client may send. It follows from settings, from names and from what was released before.
    pub(super) fn support(&self, clients: &[ClientInfo]) -> Result<Scope, EngineError> {
        let (recipe, rule) = (&self.recipe, self.rule());
        let ranking = self.ranking(&rule);
        let (mut support, mut seen) = (Scope::empty(), BTreeSet::new());
        for client in clients {
            // Clients of one depth that take as many blocks of one list have the same part.
            let whose = match recipe.masks {
                Masks::Consensus => None,
                Masks::PerClient => Some(client.id),
            };
            let count = recipe.selection.counts.get(&client.name);
            if seen.insert((count, recipe.depths.get(&client.name), whose)) {
                support = support | ranking.plan(client)?.uploads();
            }
        }
        Ok(support)
    }

    /// The blocks of a client as code of a program ranks them.
    fn own_order(
        &self,
        ranking: &Ranking<'_>,
        client: &ClientInfo,
    ) -> Result<Option<Vec<u16>>, EngineError> {
        let Some(parts) = self.parts.as_ref().filter(|parts| parts.makes().order) else {
            return Ok(None);
        };
        let (measured, usual) = (ranking.basis(client), ranking.common(client));
        let (round, usual) = (self.round, &usual[..]);
        parts.order(&OwnRanking { round, client, measured, usual }).map(Some)
    }

    /// What decides the plans of this round.
    pub(super) fn choice<'state>(&'state self, rule: &'state Rule) -> Choice<'state> {
        let (recipe, layout, round) = (&self.recipe, &self.layout, self.round);
        Choice { recipe, rule, layout, round, seed: self.seed }
    }

    /// How blocks are ranked now.
    fn ranking<'state>(&'state self, rule: &'state Rule) -> Ranking<'state> {
        Ranking { choice: self.choice(rule), profile: self.memory.profile.as_ref() }
    }
}

/// How the blocks of any client are ranked, after what was measured.
struct Ranking<'state> {
    choice: Choice<'state>,
    profile: Option<&'state Profile>,
}

impl Ranking<'_> {
    /// By what all measured.
    fn common(&self, client: &ClientInfo) -> Vec<u16> {
        let basis = self.profile.map_or(&[][..], |profile| &profile.basis.0);
        self.choice.order(client, basis)
    }

    /// What a client is ranked by: its own measurements where each has its own, everybody's otherwise.
    fn basis(&self, client: &ClientInfo) -> &[f64] {
        let Some(profile) = self.profile else { return &[] };
        let own = profile.own.get(&client.id).filter(|_| match self.choice.recipe.masks {
            Masks::Consensus => false,
            Masks::PerClient => true,
        });
        &own.unwrap_or(&profile.basis).0
    }

    /// By what the client measured itself, if it ever did.
    fn own(&self, client: &ClientInfo) -> Option<Vec<u16>> {
        let own = self.profile?.own.get(&client.id)?;
        Some(self.choice.order(client, &own.0))
    }

    /// The client's plan. One that never measured follows the others.
    fn plan(&self, client: &ClientInfo) -> Result<Plan, PlanError> {
        let own = match self.choice.recipe.masks {
            Masks::Consensus => None,
            Masks::PerClient => self.own(client),
        };
        let order = own.unwrap_or_else(|| self.common(client));
        self.choice.plan(&client.name, &order)
    }
}

/// Which share of the first K of one order is among the first K of another.
fn shared(own: &[u16], common: &[u16], k: u16) -> f64 {
    let k = usize::from(k).min(own.len()).min(common.len());
    let both = own[..k].iter().filter(|block| common[..k].contains(block)).count();
    both as f64 / k.max(1) as f64
}
