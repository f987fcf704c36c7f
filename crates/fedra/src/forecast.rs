//! What the rounds of a run will send and keep, gone through without training.
//!
//! Payload lengths follow from layout, scope and encoding alone, so the bytes are those that a run
//! reports, to the last one, as long as no client fails and hence no round is repeated. Where a
//! rule chooses blocks by evidence that only a run has, the first blocks stand for the chosen ones
//! ([`crate::forecast::choices`]).

pub mod choices;
pub mod crossing;

use std::collections::{BTreeMap, BTreeSet};

use fedra_client::Limits;
use fedra_compute::Seed;
use fedra_engine::{
    Bytes, Choice, ClientId, ClientInfo, ClientVersions, CrossingBytes, Encoding, LocalRule,
    Population, Recipe, SHIFT_BYTES, Start,
};
use fedra_plan::{ByteCount, Held, Layout, Plan, Round, Scope, Side};
use fedra_wire::payload_length;

use crate::error::Result;
use crate::experiment::Experiment;
use crate::forecast::choices::{Foreseen, ForeseenChoices, Overlap};
use crate::forecast::crossing::Batches;
use crate::prepared::Prepared;
use crate::state_placement::{StateLocation, StatePlacement};
use crate::state_size::StateSize;

/// What a run by this recipe sends, at the least where that is not known beforehand.
pub fn least_bytes(experiment: &Experiment, prepared: &Prepared, recipe: &Recipe) -> Result<Bytes> {
    Ok(Forecast::of(experiment, prepared, recipe, Overlap::Most)?.total())
}

/// What clients will keep between the rounds of a run. Rounds are gone through only if that can
/// matter.
pub fn placement(
    experiment: &Experiment,
    prepared: &Prepared,
    recipe: &Recipe,
) -> Result<StatePlacement> {
    let layout = prepared.model.layout();
    let everything = recipe.plan(("", Round(0)), Scope::everything(layout), layout)?;
    let most = StateSize::of(&prepared.model, (recipe, experiment), &everything);
    let clients = prepared.shards.clients.len();
    let bound = StatePlacement::new(experiment, most, (clients, clients));
    match bound.location {
        StateLocation::Memory => Ok(bound),
        StateLocation::Disk => {
            let forecast = Forecast::of(experiment, prepared, recipe, Overlap::Most)?;
            Ok(forecast.placement(experiment, prepared))
        }
    }
}

/// What the rounds of a run will send.
pub struct Forecast {
    /// Bytes of each round.
    pub rounds: Vec<Bytes>,
    /// The plan of the first client, from the round in which its part begins to learn.
    pub stages: Vec<(u32, Plan)>,
    /// Everybody who takes part in a round.
    drawn: BTreeSet<ClientId>,
    /// The most that any of them keeps.
    most: StateSize,
}

impl Forecast {
    /// Goes through all rounds.
    pub fn of(
        experiment: &Experiment,
        prepared: &Prepared,
        recipe: &Recipe,
        overlap: Overlap,
    ) -> Result<Self> {
        let layout = prepared.model.layout();
        let seed = Seed(experiment.draft.seed);
        let clients: Vec<ClientInfo> = (0..)
            .zip(&prepared.shards.clients)
            .map(|(number, shard)| ClientInfo {
                id: ClientId(number),
                name: shard.name.clone(),
                examples: shard.train.len() as u64,
            })
            .collect();
        let mut holds = Holds::new(recipe.start);
        let mut forecast = Self {
            rounds: Vec::new(),
            stages: Vec::new(),
            drawn: BTreeSet::new(),
            most: StateSize::default(),
        };
        let scorers = scorers(&clients, prepared, recipe);
        let (mut guess, mut last_rule) = (ForeseenChoices::new(overlap), None);
        for number in 0..experiment.rounds {
            let round = Round(number);
            let here = |client: &&ClientInfo| recipe.conditions.is_here(&client.name, round);
            let here: Vec<ClientId> = clients.iter().filter(here).map(|client| client.id).collect();
            let drawn = recipe.cohort(seed, round, &here);
            let cohort: Vec<&ClientInfo> =
                clients.iter().filter(|client| drawn.binary_search(&client.id).is_ok()).collect();
            forecast.drawn.extend(drawn);
            let rule = &recipe.learns_in(round);
            let choice = Choice { recipe, rule, layout, round, seed };
            let foreseen = guess.round(&choice, &cohort, &clients)?;
            // Blocks that one rule changes from round to round are one stage: their number does not change.
            let same_rule = rule.needs_choice() && last_rule.as_ref() == Some(rule);
            // Neighbours mostly learn the same: each part is looked at once.
            let mut before = None;
            for plan in foreseen.plans.values() {
                if before.replace(plan.learns()) != Some(plan.learns()) {
                    let kept = StateSize::of(&prepared.model, (recipe, experiment), plan);
                    forecast.most = forecast.most.max_by_bytes(kept);
                }
            }
            if let Some(plan) = foreseen.plans.values().next()
                && forecast.stages.last().is_none_or(|(_, last)| last.learns() != plan.learns())
                && !same_rule
            {
                forecast.stages.push((number, plan.clone()));
            }
            last_rule = Some(rule.clone());
            forecast.rounds.push(match recipe.population {
                Population::Pooled => Bytes::default(),
                Population::Federated => {
                    let mut bytes = holds.bytes(recipe, (round, &cohort), &foreseen, layout);
                    let crossed =
                        crossing((experiment, prepared, recipe), round, &cohort, &foreseen);
                    bytes.up += crossed.up();
                    bytes.down += crossed.down();
                    bytes.crossing = crossed;
                    let every = recipe.evaluation.every.max(1);
                    if number + 1 == experiment.rounds || (number + 1).is_multiple_of(every) {
                        bytes.evaluation =
                            holds.evaluation((recipe, round.next()), &scorers, layout)?;
                        bytes.evaluation += scoring_crossing(prepared, recipe);
                    }
                    bytes
                }
            });
        }
        Ok(forecast)
    }

    /// What is kept by those who take part.
    pub fn placement(&self, experiment: &Experiment, prepared: &Prepared) -> StatePlacement {
        StatePlacement::new(
            experiment,
            self.most,
            (self.drawn.len(), prepared.shards.clients.len()),
        )
    }

    /// Bytes of all rounds.
    pub fn total(&self) -> Bytes {
        let mut total = Bytes::default();
        for bytes in &self.rounds {
            total += *bytes;
        }
        total
    }
}

/// What everybody holds as rounds go by.
struct Holds {
    versions: ClientVersions,
    /// Who has looked at the model's attention.
    looked: BTreeSet<ClientId>,
}

impl Holds {
    fn new(start: Start) -> Self {
        Self { versions: ClientVersions::new(start), looked: BTreeSet::new() }
    }

    /// The bytes of a round in which everybody drawn answers.
    fn bytes(
        &mut self,
        recipe: &Recipe,
        (round, cohort): (Round, &[&ClientInfo]),
        foreseen: &Foreseen,
        layout: &Layout,
    ) -> Bytes {
        let length = |scope: &Scope, encoding| payload_length(layout, scope, encoding) as u64;
        let everything = Scope::everything(layout);
        let full = length(&everything, Encoding::F32);
        let full_down = match recipe.start {
            Start::Shared if round == Round(0) => length(&Scope::empty(), Encoding::F32),
            Start::Sent | Start::Shared => full,
        };
        let mut bytes = Bytes {
            up: ByteCount(foreseen.scores_up),
            down: ByteCount(foreseen.masks_down),
            ..Bytes::default()
        };
        let mut changed = foreseen.may_change.clone();
        let mut known: Vec<Exchange<'_>> = Vec::new();
        for client in cohort {
            let Some(plan) = foreseen.plans.get(&client.id) else { continue };
            let held = self.versions.held(client.id);
            // Thousands of clients are mostly in the same place: each is gone through once.
            let same = |known: &Exchange<'_>| known.held == held && known.plan == plan;
            let place = known.iter().position(same).unwrap_or_else(|| {
                let sent = plan.uploads();
                let variate = match recipe.work.local {
                    LocalRule::ControlVariate => length(&sent, Encoding::F32),
                    LocalRule::Plain | LocalRule::Proximal { .. } | LocalRule::Dynamic { .. } => 0,
                };
                let cut_in = |round| recipe.cut(&client.name, round, layout);
                let lacks = self.versions.lacks(client.id, plan, &cut_in);
                let lacks = lacks.unwrap_or_else(|_| plan.held_by(Side::Client));
                let down = length(&lacks, recipe.work.download) + variate;
                let up = length(&sent, recipe.work.encoding) + variate;
                changed = &changed | &sent;
                known.push(Exchange { held, plan, up, down });
                known.len() - 1
            });
            self.versions.received(client.id, round);
            let exchange = &known[place];
            bytes.down += ByteCount(exchange.down);
            bytes.up += ByteCount(exchange.up);
            // Who looks for the first time has nothing to compare with and sends nothing.
            if recipe.evaluation.attention && !self.looked.insert(client.id) {
                let blocks = recipe.depths.get(&client.name).copied().unwrap_or(layout.blocks());
                bytes.up += ByteCount(SHIFT_BYTES * u64::from(blocks));
            }
            bytes.full_up += ByteCount(full);
            bytes.full_down += ByteCount(full_down);
        }
        self.versions.changed(&changed, round);
        bytes
    }

    /// What clients receive in order to score the model now.
    fn evaluation(
        &self,
        (recipe, round): (&Recipe, Round),
        scorers: &[ClientInfo],
        layout: &Layout,
    ) -> Result<ByteCount> {
        let (mut known, mut total) = (BTreeMap::new(), 0);
        for client in scorers {
            let case = (self.versions.held(client.id), recipe.depths.get(&client.name));
            total += if let Some(length) = known.get(&case) {
                *length
            } else {
                let plan = recipe.plan((&client.name, round), Scope::empty(), layout)?;
                let cut_in = |round| recipe.cut(&client.name, round, layout);
                let lacks = self.versions.lacks(client.id, &plan, &cut_in)?;
                let length = payload_length(layout, &lacks, recipe.work.download) as u64;
                *known.entry(case).or_insert(length)
            };
        }
        Ok(ByteCount(total))
    }
}

/// What a round's measurements and training make cross the cut.
fn crossing(
    (experiment, prepared, recipe): (&Experiment, &Prepared, &Recipe),
    round: Round,
    cohort: &[&ClientInfo],
    foreseen: &Foreseen,
) -> CrossingBytes {
    let mut all = CrossingBytes::default();
    let Some(split) = &recipe.split else { return all };
    let (seed, clips) = (Seed(experiment.draft.seed), recipe.work.clip.is_some());
    for client in cohort {
        let Some(plan) = foreseen.plans.get(&client.id) else { continue };
        let examples = prepared.shards.clients[client.id.0 as usize].train.encoded();
        let seed = crossing::client_seed(seed, round, u64::from(client.id.0));
        let batches = Batches::of_training(&recipe.work, examples, seed);
        all += batches.crossing((plan, split), prepared.model.width(), clips);
        if let Some(probe) = recipe.selection.probe.filter(|_| foreseen.scores_up > 0) {
            let asked = (probe, recipe.selection.profile_examples as usize);
            let seed = Seed(experiment.draft.seed);
            let seed = crossing::probe_seed(seed, round, u64::from(client.id.0));
            let blocks = plan.cut().server_blocks().map_or(0, |blocks| blocks.len());
            let batches = Batches::of_probing(asked, examples, seed);
            all += batches.probing((probe, blocks), split, prepared.model.width());
        }
    }
    all
}

/// What scoring at clients makes cross the cut.
fn scoring_crossing(prepared: &Prepared, recipe: &Recipe) -> ByteCount {
    let Some(split) = &recipe.split else { return ByteCount(0) };
    let mut all = CrossingBytes::default();
    for shard in &prepared.shards.clients {
        for examples in recipe.evaluation.on.iter().filter_map(|on| shard.of(*on)) {
            let batches = Batches::of_scoring(examples.encoded(), Limits::default().tokens);
            all += batches.hidden(split, prepared.model.width());
        }
    }
    all.up() + all.down()
}

/// Clients that have examples to score the model on.
fn scorers(clients: &[ClientInfo], prepared: &Prepared, recipe: &Recipe) -> Vec<ClientInfo> {
    let scores = |place: usize| {
        let shard = &prepared.shards.clients[place];
        let sets = recipe.evaluation.on.iter().filter_map(|on| shard.of(*on));
        sets.into_iter().any(|examples| !examples.is_empty())
    };
    let with_place = clients.iter().enumerate();
    with_place.filter(|(place, _)| scores(*place)).map(|(_, client)| client.clone()).collect()
}

/// What goes between the server and a client that holds this and has this plan.
struct Exchange<'a> {
    held: Held,
    plan: &'a Plan,
    up: u64,
    down: u64,
}
