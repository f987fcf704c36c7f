//! What the rounds of a run will send and keep, gone through without training.
//!
//! Payload lengths follow from layout, scope and encoding alone, so the bytes are those that a run
//! reports, to the last one, as long as no client fails. Where a rule chooses blocks by evidence that
//! only a run has, the first blocks stand for the chosen ones ([`crate::guess`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::Result;
use fedra_compute::Seed;
use fedra_engine::{
    Bytes, Choice, ClientId, ClientInfo, Encoding, LocalRule, Population, Recipe, SHIFT_BYTES,
    Start,
};
use fedra_plan::{ByteCount, Layout, ParamId, Probe, Round, Scope, Selector, View};
use fedra_wire::payload_length;

use crate::experiment::Experiment;
use crate::guess::{Foreseen, Guess, Overlap};
use crate::keeping::{Home, Keeping};
use crate::prepared::Prepared;
use crate::upkeep::Upkeep;

/// What a run by this recipe sends, at the least where that is not known beforehand.
pub fn least_bytes(experiment: &Experiment, prepared: &Prepared, recipe: &Recipe) -> Result<Bytes> {
    Ok(Forecast::of(experiment, prepared, recipe, Overlap::Most)?.total())
}

/// What clients will keep between the rounds of a run. Rounds are gone through only if that can
/// matter.
pub fn keeping(experiment: &Experiment, prepared: &Prepared, recipe: &Recipe) -> Result<Keeping> {
    let everything = Scope::everything(prepared.model.layout());
    let most = Upkeep::of(&prepared.model, (recipe, experiment), &everything);
    let clients = prepared.shards.clients.len();
    let bound = Keeping::new(experiment, most, (clients, clients));
    match bound.home {
        Home::Memory => Ok(bound),
        Home::Disk => {
            let forecast = Forecast::of(experiment, prepared, recipe, Overlap::Most)?;
            Ok(forecast.keeping(experiment, prepared))
        }
    }
}

/// What the rounds of a run will send.
pub struct Forecast {
    /// Bytes of each round.
    pub rounds: Vec<Bytes>,
    /// The part that learns, from the round it starts to.
    pub stages: Vec<(u32, Scope)>,
    /// Everybody who takes part in a round.
    drawn: BTreeSet<ClientId>,
    /// The most that any of them keeps.
    most: Upkeep,
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
        let ids: Vec<ClientId> = clients.iter().map(|client| client.id).collect();
        let mut holds = Holds::new(recipe.start, &ids, layout);
        let mut forecast = Self {
            rounds: Vec::new(),
            stages: Vec::new(),
            drawn: BTreeSet::new(),
            most: Upkeep::default(),
        };
        let (mut guess, mut ranked) = (Guess::new(overlap), None);
        for number in 0..experiment.rounds {
            let round = Round(number);
            let personal = recipe.personal.select(View { layout, round, scores: None })?;
            let here = |client: &&ClientInfo| recipe.conditions.is_here(&client.name, round);
            let here: Vec<ClientId> = clients.iter().filter(here).map(|client| client.id).collect();
            let drawn = recipe.sampler.draw(seed, round, &here);
            // In ascending order, as all draws are.
            let is_drawn = |client: &&ClientInfo| drawn.binary_search(&client.id).is_ok();
            let cohort: Vec<&ClientInfo> = clients.iter().filter(is_drawn).collect();
            forecast.drawn.extend(drawn);
            let choice = Choice { recipe, rule: &recipe.learns, layout, round, seed };
            let foreseen = guess.round(&choice, &cohort)?;
            // Blocks that change from round to round are one stage: their number does not change.
            let ranks = recipe.learns.probe(round) != Probe::Nothing;
            // Neighbours mostly learn the same: each part is looked at once.
            let mut before = None;
            for part in foreseen.learns.values().filter(|part| before.replace(*part) != Some(part))
            {
                let kept = Upkeep::of(&prepared.model, (recipe, experiment), part);
                forecast.most = forecast.most.max_by_bytes(kept);
            }
            let part = foreseen.learns.values().next().cloned();
            if let Some(part) = part
                && forecast.stages.last().is_none_or(|(_, last)| *last != part)
                && !(ranks && ranked == Some(true))
            {
                forecast.stages.push((number, part));
            }
            ranked = Some(ranks);
            forecast.rounds.push(match recipe.population {
                Population::Pooled => Bytes::default(),
                Population::Federated => {
                    holds.bytes(recipe, (round, &cohort), (&foreseen, &personal), layout)
                }
            });
        }
        Ok(forecast)
    }

    /// What is kept by those who take part.
    pub fn keeping(&self, experiment: &Experiment, prepared: &Prepared) -> Keeping {
        Keeping::new(experiment, self.most, (self.drawn.len(), prepared.shards.clients.len()))
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

/// Which version of each parameter everybody has; a client downloads what it lacks.
struct Holds {
    newest: BTreeMap<ParamId, u32>,
    /// Clients that hold the same share one list.
    held: BTreeMap<ClientId, Arc<BTreeMap<ParamId, u32>>>,
    /// Who has looked at the model's attention.
    looked: BTreeSet<ClientId>,
}

impl Holds {
    fn new(start: Start, clients: &[ClientId], layout: &Layout) -> Self {
        let all = |version: u32| layout.ids().map(|id| (id, version)).collect();
        let first = match start {
            Start::Sent => BTreeMap::new(),
            Start::Shared => all(0),
        };
        let first = Arc::new(first);
        let held = clients.iter().map(|id| (*id, Arc::clone(&first))).collect();
        Self { newest: all(0), held, looked: BTreeSet::new() }
    }

    /// The bytes of a round in which everybody drawn answers.
    fn bytes(
        &mut self,
        recipe: &Recipe,
        (round, cohort): (Round, &[&ClientInfo]),
        (foreseen, personal): (&Foreseen, &Scope),
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
        let mut known: Vec<Exchange> = Vec::new();
        for client in cohort {
            let learns = foreseen.learns.get(&client.id).cloned().unwrap_or_default();
            let held = self.held.entry(client.id).or_default();
            let depth = recipe.depths.get(&client.name).copied();
            // Thousands of clients are mostly in the same place: each is gone through once.
            let same = |known: &Exchange| {
                Arc::ptr_eq(&known.before, held) && known.depth == depth && known.learns == learns
            };
            let place = known.iter().position(same).unwrap_or_else(|| {
                let newest = &self.newest;
                let lacks: Scope = recipe
                    .reach(&client.name, layout)
                    .into_iter()
                    .filter(|id| match held.get(id) {
                        None => true,
                        Some(own) => *own != newest[id] && !personal.contains(*id),
                    })
                    .collect();
                let mut after = BTreeMap::clone(held);
                after.extend(lacks.iter().map(|id| (id, newest[&id])));
                let equal = known.iter().find(|exchange| *exchange.after == after);
                let after = equal.map_or_else(|| Arc::new(after), |e| Arc::clone(&e.after));
                let sent = &learns - personal;
                let (variate_up, variate_down) = match recipe.work.local {
                    LocalRule::Scaffold => {
                        (length(&learns, Encoding::F32), length(&sent, Encoding::F32))
                    }
                    LocalRule::Plain | LocalRule::Proximal { .. } | LocalRule::Dynamic { .. } => {
                        (0, 0)
                    }
                };
                let down = length(&lacks, recipe.work.download) + variate_down;
                let up = length(&sent, recipe.work.encoding) + variate_up;
                changed = &changed | &sent;
                let before = Arc::clone(held);
                known.push(Exchange { before, depth, learns: learns.clone(), after, up, down });
                known.len() - 1
            });
            let exchange = &known[place];
            *held = Arc::clone(&exchange.after);
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
        self.newest.extend(changed.iter().map(|id| (id, round.0 + 1)));
        bytes
    }
}

/// What goes between the server and a client that holds and learns this.
struct Exchange {
    before: Arc<BTreeMap<ParamId, u32>>,
    /// How many blocks the client has, if not all.
    depth: Option<u16>,
    learns: Scope,
    after: Arc<BTreeMap<ParamId, u32>>,
    up: u64,
    down: u64,
}
