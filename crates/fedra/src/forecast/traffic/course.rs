//! Who takes part in which round of a run, and by which rule.

use std::ops::Range;

use fedra_engine::{Choice, ClientId, ClientInfo, Recipe};
use fedra_plan::{Round, Rule};

use crate::config::Experiment;
use crate::forecast::traffic::stretches::stretches;
use crate::prepare::prepared::Prepared;

/// What a forecast is made for: an experiment, its model and rows, its method.
pub type Setting<'a> = (&'a Experiment, &'a Prepared, &'a Recipe);

/// Who takes part in which round, and by which rule.
pub struct Course<'a> {
    setting: Setting<'a>,
    /// All clients.
    pub clients: Vec<ClientInfo>,
}

impl<'a> Course<'a> {
    /// The course of a run.
    pub fn of(setting: Setting<'a>) -> Self {
        let clients = (0..).zip(&setting.1.shards.clients).map(|(number, shard)| ClientInfo {
            id: ClientId(number),
            name: shard.name.clone(),
            examples: shard.train.len() as u64,
        });
        Self { setting, clients: clients.collect() }
    }

    /// Stretches of rounds for which the experiment says the same.
    pub fn stretches(&self) -> Vec<Range<u32>> {
        stretches(self.setting.2, self.setting.0.rounds)
    }

    /// Clients that can be drawn in a round.
    pub fn here(&self, number: u32) -> Vec<ClientId> {
        let is_here = |client: &&ClientInfo| {
            client.examples > 0 && self.setting.2.conditions.is_here(&client.name, Round(number))
        };
        self.clients.iter().filter(is_here).map(|client| client.id).collect()
    }

    /// The rule of a round and who is drawn.
    pub fn round(&self, number: u32) -> (Rule, Vec<ClientId>) {
        let (experiment, _, recipe) = self.setting;
        let drawn = recipe.cohort(experiment.seed, Round(number), &self.here(number));
        (recipe.learns_in(Round(number)), drawn)
    }

    /// Those who are drawn.
    pub fn infos(&self, drawn: &[ClientId]) -> Vec<&ClientInfo> {
        drawn.iter().filter_map(|client| self.clients.get(client.0 as usize)).collect()
    }

    /// Who trains what in a round, by its rule.
    pub fn choice<'c>(&'c self, rule: &'c Rule, number: u32) -> Choice<'c> {
        let (experiment, prepared, recipe) = self.setting;
        let (layout, seed) = (prepared.model.layout(), experiment.seed);
        Choice { recipe, rule, layout, round: Round(number), seed }
    }
}
