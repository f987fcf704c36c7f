//! What the rounds of a run will send and keep, gone through without training.
//!
//! Payload lengths follow from layout, scope and encoding alone, so the bytes are those that a run
//! reports, to the last one, as long as no client fails and hence no round is repeated. Rounds that are
//! sure to be alike are counted and not gone through. Where a rule chooses blocks by evidence that only a run has, the first blocks stand for the chosen ones
//! ([`crate::forecast::traffic::choices`]).

pub mod choices;
pub(crate) mod course;
pub mod crossing;
pub mod stages;
pub mod stretches;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use fedra_client::EVALUATION_TOKENS;
use fedra_engine::{
    Bytes, ClientId, ClientInfo, ClientVersions, CrossingBytes, Encoding, LocalRule, Population,
    Recipe, SHIFT_BYTES, Sampler, Start,
};
use fedra_plan::{ByteCount, Held, Layout, Plan, Round, Scope, Side};
use fedra_wire::payload_length;

use crate::error::{Error, Result};
use crate::forecast::state_placement::StatePlacement;
use crate::forecast::state_size::StateSize;
use crate::forecast::traffic::choices::{Foreseen, ForeseenChoices, Overlap};
use crate::forecast::traffic::course::{Course, Setting};
use crate::forecast::traffic::crossing::Batches;
use crate::forecast::traffic::stages::Stages;
use crate::forecast::traffic::stretches::scored;
use crate::prepare::prepared::Prepared;

/// What clients will keep between the rounds of a run. Rounds are looked at only if that can matter.
pub fn placement(setting: Setting<'_>) -> Result<StatePlacement> {
    let (experiment, prepared, recipe) = setting;
    let layout = prepared.model.layout();
    let everything = recipe.plan(("", Round(0)), Scope::everything(layout), layout)?;
    let most = StateSize::of(&prepared.model, (recipe, experiment), &everything);
    let clients = prepared.shards.clients.len();
    let bound = StatePlacement::new(experiment, most, (clients, clients));
    if !bound.on_disk {
        return Ok(bound);
    }
    Ok(Stages::of(setting)?.placement(experiment, prepared))
}

/// What the rounds of a run will send.
pub struct Forecast {
    /// Its rounds, in order; where neighbours send the same they stand together.
    pub rounds: Vec<Alike>,
    /// What learns, and who takes part.
    pub stages: Stages,
}

/// Rounds that send the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alike {
    /// The first of them, counted from 0.
    pub from: u32,
    /// How many there are; others may stand between them.
    pub count: u32,
    /// Bytes of each.
    pub bytes: Bytes,
}

/// Rounds at the start of a stretch after which all that follow are alike, if everybody always takes part
/// and nothing is chosen: in the first, clients receive what they lacked, in the second what the first has
/// changed.
const UNLIKE: u32 = 2;

impl Forecast {
    /// Foresees all rounds. Those that are sure to send the same are counted; where clients are drawn or
    /// blocks change from round to round, each is gone through.
    pub fn of(setting: Setting<'_>, overlap: Overlap) -> Result<Self> {
        let (experiment, prepared, recipe) = setting;
        let course = Course::of(setting);
        let layout = prepared.model.layout();
        let versions = ClientVersions::over(recipe.start, prepared.model.storage().scope().clone());
        let mut holds = Holds { versions, looked: BTreeSet::new() };
        let mut forecast = Self { rounds: Vec::new(), stages: Stages::default() };
        let scorers = scorers(&course.clients, prepared, recipe);
        let (mut guess, every) = (ForeseenChoices::new(overlap), recipe.evaluation.every.max(1));
        for Range { start, end } in course.stretches() {
            let mut number = start;
            while number < end {
                let (rule, drawn) = course.round(number);
                let cohort = course.infos(&drawn);
                let foreseen =
                    guess.round(&course.choice(&rule, number), &cohort, &course.clients)?;
                let draws_nothing = recipe.sampler == Sampler::All
                    && recipe.split.is_none()
                    && !rule.needs_choice();
                let round = Round(number);
                let is_pooled = recipe.population == Population::Pooled;
                let mut bytes = Bytes::default();
                if !is_pooled {
                    bytes = holds.bytes(recipe, (round, &cohort), &foreseen, layout);
                    bytes.crossing = crossing(setting, round, &cohort, &foreseen);
                    bytes.up += bytes.crossing.up();
                    bytes.down += bytes.crossing.down();
                }
                let evaluation = || {
                    if is_pooled {
                        return Ok(ByteCount(0));
                    }
                    let own = holds.evaluation((recipe, round.next()), &scorers, layout)?;
                    Ok::<_, Error>(own + scoring_crossing(prepared, recipe))
                };
                let is_scored = scored(number..number + 1, every, experiment.rounds) > 0;
                let plain = bytes;
                if is_scored {
                    bytes.evaluation = evaluation()?;
                }
                forecast.add(Alike { from: number, count: 1, bytes });
                forecast.stages.note(setting, (number, rule), (drawn, &foreseen));
                number += 1;
                // The last of a stretch is gone through again: it leaves behind what the next begins with.
                let last = end - 1;
                let is_settled = draws_nothing && number - start > UNLIKE && number < last;
                if is_settled {
                    let count = scored(number..last, every, experiment.rounds);
                    let others = last - number - count;
                    forecast.add(Alike { from: number, count: others, bytes: plain });
                    if count > 0 {
                        let bytes = Bytes { evaluation: evaluation()?, ..plain };
                        forecast.add(Alike { from: number, count, bytes });
                    }
                    number = last;
                }
            }
        }
        Ok(forecast)
    }

    fn add(&mut self, more: Alike) {
        match self.rounds.last_mut() {
            Some(last) if last.bytes == more.bytes => last.count += more.count,
            Some(_) | None if more.count > 0 => self.rounds.push(more),
            Some(_) | None => {}
        }
    }

    /// Bytes of the first round.
    pub fn first(&self) -> Bytes {
        self.rounds.first().map_or(Bytes::default(), |alike| alike.bytes)
    }

    /// Bytes of the last round.
    pub fn last(&self) -> Bytes {
        self.rounds.last().map_or(Bytes::default(), |alike| alike.bytes)
    }

    /// Bytes of all rounds.
    pub fn total(&self) -> Bytes {
        let mut total = Bytes::default();
        for alike in &self.rounds {
            total += alike.bytes.times(u64::from(alike.count));
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
    /// The bytes of a round in which everybody drawn answers.
    fn bytes(
        &mut self,
        recipe: &Recipe,
        (round, cohort): (Round, &[&ClientInfo]),
        foreseen: &Foreseen,
        layout: &Layout,
    ) -> Bytes {
        let whole = |scope: &Scope| payload_length(layout, scope, Encoding::F32) as u64;
        let full = whole(&Scope::everything(layout));
        let full_down = match recipe.start {
            Start::Shared if round == Round(0) => whole(&Scope::empty()),
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
            let rank = recipe.ranks.get(&client.name).copied();
            let same = |known: &Exchange<'_>| {
                known.held == held && known.plan == plan && known.rank == rank
            };
            let place = known.iter().position(same).unwrap_or_else(|| {
                let own = recipe.layout_of(&client.name, layout);
                let length = |scope: &Scope, encoding| payload_length(&own, scope, encoding) as u64;
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
                known.push(Exchange { held, plan, rank, up, down });
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
            let (depth, rank) = (recipe.depths.get(&client.name), recipe.ranks.get(&client.name));
            let case = (self.versions.held(client.id), depth, rank);
            total += if let Some(length) = known.get(&case) {
                *length
            } else {
                let plan = recipe.plan((&client.name, round), Scope::empty(), layout)?;
                let cut_in = |round| recipe.cut(&client.name, round, layout);
                let lacks = self.versions.lacks(client.id, &plan, &cut_in)?;
                let own = recipe.layout_of(&client.name, layout);
                let length = payload_length(&own, &lacks, recipe.work.download) as u64;
                *known.entry(case).or_insert(length)
            };
        }
        Ok(ByteCount(total))
    }
}

/// What a round's measurements and training make cross the cut.
fn crossing(
    (experiment, prepared, recipe): Setting<'_>,
    round: Round,
    cohort: &[&ClientInfo],
    foreseen: &Foreseen,
) -> CrossingBytes {
    let mut all = CrossingBytes::default();
    let Some(split) = &recipe.split else { return all };
    let (seed, clips) = (experiment.seed, recipe.work.clip.is_some());
    for client in cohort {
        let Some(plan) = foreseen.plans.get(&client.id) else { continue };
        let examples = prepared.shards.clients[client.id.0 as usize].train.encoded();
        let seed = crossing::client_seed(seed, round, u64::from(client.id.0));
        let batches = Batches::of_training(&recipe.work, examples, seed);
        all += batches.crossing((plan, split), prepared.model.width(), clips);
        if let Some(probe) = recipe.selection.probe.filter(|_| foreseen.scores_up > 0) {
            let asked = (probe, recipe.selection.profile_examples as usize);
            let seed = experiment.seed;
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
            let batches = Batches::of_scoring(examples.encoded(), EVALUATION_TOKENS);
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
    /// That of its adapters, where it is not the model's.
    rank: Option<u16>,
    up: u64,
    down: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Experiment, Overrides};
    use crate::run::federate::Run;

    fn forecast(setting: Setting<'_>, overlap: Overlap) -> Forecast {
        Forecast::of(setting, overlap).unwrap()
    }

    /// The same with every round gone through, because everybody is drawn.
    fn one_by_one((experiment, prepared, recipe): Setting<'_>, overlap: Overlap) -> Forecast {
        let mut recipe = recipe.clone();
        if recipe.sampler == Sampler::All {
            recipe.sampler = Sampler::Uniform(prepared.shards.clients.len() as u32);
        }
        forecast((experiment, prepared, &recipe), overlap)
    }

    fn with_run(sets: &[&str], check: impl FnOnce(Setting<'_>)) {
        let overrides = sets.iter().fold(Overrides::default(), |all, set| all.set(set));
        let text = include_str!("../../tests/tiny.toml");
        let experiment = Experiment::from_toml(text, &overrides).unwrap();
        let run = Run::prepare(&experiment).unwrap();
        check((&experiment, &run.prepared, &run.recipe));
    }

    /// Setups in which rounds differ for a reason each.
    const CASES: [&[&str]; 6] = [
        &["federation.rounds=23"],
        &["federation.rounds=23", "evaluate.every=4", "federation.start=shared"],
        &["federation.rounds=24", "evaluate.every=5", "method.name=fedper"],
        &["federation.rounds=24", "method.name=fedfrozen", "method.warmup=9"],
        &[
            "federation.rounds=24",
            "conditions.away={ \"hospital-1\" = [{ from = 5, to = 11 }], \"hospital-3\" = [{ from = 20 }] }",
        ],
        &["federation.rounds=40", "federation.sample={uniform=2}"],
    ];

    #[test]
    fn rounds_that_are_counted_send_what_they_send_one_by_one() {
        for sets in CASES {
            with_run(sets, |setting| {
                for overlap in [Overlap::Most, Overlap::Least] {
                    let (counted, each) =
                        (forecast(setting, overlap), one_by_one(setting, overlap));
                    assert_eq!(counted.total(), each.total(), "{sets:?}");
                    assert_eq!((counted.first(), counted.last()), (each.first(), each.last()));
                    assert_eq!(counted.stages.plans, each.stages.plans, "{sets:?}");
                    let rounds = |one: &Forecast| one.rounds.iter().map(|it| it.count).sum::<u32>();
                    assert_eq!(rounds(&counted), rounds(&each), "{sets:?}");
                }
            });
        }
    }

    #[test]
    fn what_a_run_knows_of_its_rounds_is_what_all_of_them_tell() {
        for sets in CASES {
            with_run(sets, |setting| {
                let (experiment, prepared, _) = setting;
                let each = one_by_one(setting, Overlap::Most);
                let stages = Stages::of(setting).unwrap();
                assert_eq!(stages.plans, each.stages.plans, "{sets:?}");
                let (soon, late) = (
                    stages.placement(experiment, prepared),
                    each.stages.placement(experiment, prepared),
                );
                assert_eq!((soon.keepers, soon.each), (late.keepers, late.each), "{sets:?}");
                assert!(stages.visited < each.stages.visited, "{sets:?}");
            });
        }
    }

    #[test]
    fn work_before_the_first_round_does_not_grow_with_the_number_of_rounds() {
        for (more, most) in [("evaluate.every=7", 1), ("federation.sample={uniform=2}", 40)] {
            with_run(&["federation.rounds=200000", more], |setting| {
                let stages = Stages::of(setting).unwrap();
                assert!(stages.visited <= most, "{more}: {}", stages.visited);
            });
        }
        with_run(&["federation.rounds=200000"], |setting| {
            let forecast = forecast(setting, Overlap::Least);
            assert!(forecast.stages.visited <= UNLIKE + 2, "{}", forecast.stages.visited);
            let rounds: u32 = forecast.rounds.iter().map(|alike| alike.count).sum();
            assert_eq!(rounds, 200_000);
        });
    }
}
