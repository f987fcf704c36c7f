//! `fedra plan`: what an experiment would train, send and cost. Nothing is trained.
//!
//! Payload lengths follow from layout, scope and encoding alone, so the bytes printed here are the
//! bytes a run reports, to the last one, as long as no client fails. Where a rule chooses blocks by
//! evidence that only a run has, the first blocks stand for the chosen ones.

use std::collections::BTreeMap;

use anyhow::Result;
use clap::Args;
use fedra_compute::Seed;
use fedra_engine::{
    Begins, Bytes, ClientId, Encoding, LocalRule, Masks, Population, Recipe, SCORE_BYTES,
    ServerRule, Solver, Start,
};
use fedra_plan::{
    BlockScores, ByteCount, Layout, ParamId, Probe, Round, Scope, Selector, Site, View,
};
use fedra_wire::payload_length;

use crate::console;
use crate::experiment::{Experiment, Written};
use crate::federate::Run;
use crate::grid::{Grid, grouped};
use crate::prepared::Prepared;
use crate::summary::travelled;

/// How to use the command.
pub const EXAMPLES: &str = "\
Examples:
  fedra plan experiments/clinic-concepts.toml
  fedra plan experiments/clinic-concepts.toml --set wire.encoding=int8
  fedra plan experiments/clinic-concepts.toml --set method.name=fedper
  fedra plan experiments/frozen.toml --advise

The bytes are those of the encoded payloads and equal what the run will report. Memory is an
estimate.";

/// The whole command.
#[derive(Args)]
pub struct Plan {
    #[command(flatten)]
    written: Written,
    /// Run a short pilot and propose how long FedFrozen should warm up, from validation examples
    #[arg(long)]
    advise: bool,
}

impl Plan {
    /// Prints the plan, or the advice.
    pub fn run(&self) -> Result<()> {
        let experiment = self.written.experiment()?;
        if self.advise { crate::advise::run(&experiment) } else { print(&experiment) }
    }
}

fn print(experiment: &Experiment) -> Result<()> {
    let run = Run::prepare(experiment)?;
    let (prepared, recipe) = run.parts();
    let layout = prepared.model.layout();
    let rounds = Forecast::of(experiment, prepared, recipe)?;

    console::data(parts(layout, &rounds.stages, recipe)?);
    console::data("");
    console::data(costs(experiment, prepared, recipe, &rounds));
    Ok(())
}

/// What the rounds of a run will send.
struct Forecast {
    /// Bytes of each round.
    rounds: Vec<Bytes>,
    /// The part that learns, from the round it starts to.
    stages: Vec<(u32, Scope)>,
}

impl Forecast {
    fn of(experiment: &Experiment, prepared: &Prepared, recipe: &Recipe) -> Result<Self> {
        let layout = prepared.model.layout();
        let seed = Seed(experiment.draft.seed);
        let clients = &prepared.shards.clients;
        let ids: Vec<ClientId> = (0..clients.len() as u32).map(ClientId).collect();
        let mut holds = Holds::new(recipe.start, &ids, layout);
        let mut forecast = Self { rounds: Vec::new(), stages: Vec::new() };
        for number in 0..experiment.rounds {
            let round = Round(number);
            let learns = learns(recipe, layout, round)?;
            let personal = recipe.personal.select(View { layout, round, scores: None })?;
            let cohort = recipe.sampler.draw(seed, round, &ids);
            forecast.rounds.push(match recipe.population {
                Population::Pooled => Bytes::default(),
                Population::Federated => {
                    holds.bytes(recipe, (round, &cohort), (&learns, &personal), layout)
                }
            });
            if forecast.stages.last().is_none_or(|(_, last)| *last != learns) {
                forecast.stages.push((number, learns));
            }
        }
        Ok(forecast)
    }

    fn total(&self) -> Bytes {
        let mut total = Bytes::default();
        for bytes in &self.rounds {
            total += *bytes;
        }
        total
    }
}

fn learns(recipe: &Recipe, layout: &Layout, round: Round) -> Result<Scope> {
    let probe = recipe.learns.probe(round);
    let scores = match probe {
        Probe::Nothing => None,
        Probe::Attention { .. } | Probe::GradientNorm => {
            let falling = (0..layout.blocks()).map(|block| -f64::from(block)).collect();
            Some(BlockScores::new(probe, falling)?)
        }
    };
    Ok(recipe.learns.select(View { layout, round, scores: scores.as_ref() })?)
}

/// Which version of each parameter everybody has; a client downloads what it lacks.
struct Holds {
    newest: BTreeMap<ParamId, u32>,
    held: BTreeMap<ClientId, BTreeMap<ParamId, u32>>,
}

impl Holds {
    fn new(start: Start, clients: &[ClientId], layout: &Layout) -> Self {
        let all = |version: u32| layout.ids().map(|id| (id, version)).collect();
        let first = match start {
            Start::Sent => BTreeMap::new(),
            Start::Shared => all(0),
        };
        Self { newest: all(0), held: clients.iter().map(|id| (*id, first.clone())).collect() }
    }

    /// The bytes of a round in which everybody drawn answers.
    fn bytes(
        &mut self,
        recipe: &Recipe,
        (round, cohort): (Round, &[ClientId]),
        (learns, personal): (&Scope, &Scope),
        layout: &Layout,
    ) -> Bytes {
        let length = |scope: &Scope, encoding| payload_length(layout, scope, encoding) as u64;
        let everything = Scope::everything(layout);
        let sent = learns - personal;
        let (variate_up, variate_down) = match recipe.work.local {
            LocalRule::Scaffold => (length(learns, Encoding::F32), length(&sent, Encoding::F32)),
            LocalRule::Plain | LocalRule::Proximal { .. } | LocalRule::Dynamic { .. } => (0, 0),
        };
        let full = length(&everything, Encoding::F32);
        let full_down = match recipe.start {
            Start::Shared if round == Round(0) => length(&Scope::empty(), Encoding::F32),
            Start::Sent | Start::Shared => full,
        };
        let scores = match recipe.evaluation.attention {
            None | Some(Probe::Nothing) => 0,
            Some(Probe::Attention { .. } | Probe::GradientNorm) => {
                SCORE_BYTES * u64::from(layout.blocks())
            }
        };
        let mut bytes = Bytes::default();
        for client in cohort {
            let held = self.held.entry(*client).or_default();
            let lacks: Scope = layout
                .ids()
                .filter(|id| match held.get(id) {
                    None => true,
                    Some(own) => *own != self.newest[id] && !personal.contains(*id),
                })
                .collect();
            held.extend(lacks.iter().map(|id| (id, self.newest[&id])));
            bytes.down += ByteCount(length(&lacks, recipe.work.download) + variate_down);
            bytes.up += ByteCount(length(&sent, recipe.work.encoding) + variate_up + scores);
            bytes.full_up += ByteCount(full);
            bytes.full_down += ByteCount(full_down);
        }
        if !cohort.is_empty() {
            self.newest.extend(sent.iter().map(|id| (id, round.0 + 1)));
        }
        bytes
    }
}

/// One line a site: what it holds, what of it learns, what travels.
fn parts(layout: &Layout, stages: &[(u32, Scope)], recipe: &Recipe) -> Result<Grid> {
    let view = View { layout, round: Round(0), scores: None };
    let personal = recipe.personal.select(view)?;
    let mut grid =
        Grid::new(["site", ">parameters", ">learn", ">travel", ">bytes up", "from round"]);
    let blocks = (0..layout.blocks()).map(Site::Block);
    let sites: Vec<Site> =
        [Site::Embedding].into_iter().chain(blocks).chain([Site::Head]).collect();
    for (from, learns) in stages {
        let mut row = |name: String, site: &Scope| {
            let (learns, travels) = (site & learns, &(site & learns) - &personal);
            let pooled = recipe.population == Population::Pooled;
            let travels = if pooled { Scope::empty() } else { travels };
            let count = |scope: &Scope| grouped(scope.elements(layout) as u64);
            // Without header and bitmap, which belong to no site.
            let frame = payload_length(layout, &Scope::empty(), recipe.work.encoding);
            let length = payload_length(layout, &travels, recipe.work.encoding) - frame;
            let bytes = ByteCount(length as u64).to_string();
            let from = (from + 1).to_string();
            grid.row([name, count(site), count(&learns), count(&travels), bytes, from]);
        };
        for site in &sites {
            row(site.to_string(), &Scope::of_sites(layout, [*site]));
        }
        row("all".to_owned(), &Scope::everything(layout));
    }
    Ok(grid)
}

fn costs(
    experiment: &Experiment,
    prepared: &Prepared,
    recipe: &Recipe,
    forecast: &Forecast,
) -> String {
    let mut grid = Grid::new(["", ""]);
    let mut fact = |name: &str, value: String| grid.row([name.to_owned(), value]);
    let clients = &prepared.shards.clients;
    let examples: usize = clients.iter().map(|shard| shard.train.len()).sum();
    fact("experiment", experiment.name.clone());
    fact("method", format!("{}, {} rounds", recipe.method, experiment.rounds));
    fact("clients", {
        let (count, examples) = (grouped(clients.len() as u64), grouped(examples as u64));
        format!("{count} with {examples} training examples")
    });
    let steps: u64 = clients.iter().map(|shard| recipe.work.steps(shard.train.len() as u64)).sum();
    fact("steps a round", format!("{} if all take part", grouped(steps)));
    fact("encoding", format!("{} up, {} down", recipe.work.encoding, recipe.work.download));
    let first = forecast.rounds.first().copied().unwrap_or_default();
    let last = forecast.rounds.last().copied().unwrap_or_default();
    fact("first round", format!("{} up, {} down", first.up, first.down));
    fact("last round", format!("{} up, {} down", last.up, last.down));
    let total = forecast.total();
    for (name, bytes, full) in
        [("bytes up", total.up, total.full_up), ("bytes down", total.down, total.full_down)]
    {
        fact(name, format!("{} in all ({})", grouped(bytes.0), travelled(bytes, full)));
    }
    let (client, server) = memory(experiment, prepared, recipe, forecast);
    fact("client memory", format!("about {client} in training"));
    fact("server memory", format!("about {server}"));
    if recipe.masks == Masks::PerClient {
        fact(
            "note",
            "each client chooses its own part: bytes are of one choice for all".to_owned(),
        );
    }
    match recipe.stage.as_ref().map(|stage| stage.begins) {
        Some(Begins::Evidence(_) | Begins::ByBlock(_)) => fact(
            "note",
            "when query and key freeze is found out in the run: bytes are the most it can send"
                .to_owned(),
        ),
        Some(Begins::At(_) | Begins::Share(_)) | None => {}
    }
    if experiment.draft.conditions.is_some() {
        fact("note", "bytes are of rounds in which nobody fails or is late".to_owned());
    }
    fact("privacy", "none".to_owned());
    grid.lines()[1..].join("\n")
}

/// Values that a block keeps of each token for the backward pass, in multiples of the width: its
/// input, query, key, value, context, two norms and four and four again in the feed-forward layer.
const KEPT_WIDTHS: u64 = 16;

/// Rough memory of one client in training and of the server, without the program itself.
fn memory(
    experiment: &Experiment,
    prepared: &Prepared,
    recipe: &Recipe,
    forecast: &Forecast,
) -> (ByteCount, ByteCount) {
    let layout = prepared.model.layout();
    let model = layout.elements() as u64;
    let trained =
        forecast.stages.iter().map(|(_, scope)| scope.elements(layout) as u64).max().unwrap_or(0);
    let moments = match recipe.work.solver {
        Solver::Sgd { .. } => 0,
        Solver::Momentum { .. } => 1,
        Solver::AdamW { .. } => 2,
    };
    let longest = experiment.draft.data.max_tokens.unwrap_or(0) as u64;
    let tokens = u64::from(recipe.work.batch) * longest;
    let activations =
        tokens * prepared.model.width() as u64 * prepared.model.blocks() as u64 * KEPT_WIDTHS;
    // The model, a copy of what trains, its gradient, moments and encoded change, and activations.
    let client = 4 * (model + trained * (3 + moments) + activations);
    let server_moments = match recipe.server {
        ServerRule::Average { .. } => 0,
        ServerRule::Momentum { .. } | ServerRule::Dynamic { .. } => 1,
        ServerRule::Adaptive { .. } => 2,
    };
    // The model, the sum, the update that is being added, and what a server optimiser remembers.
    let server = 4 * (model + trained * (2 + server_moments));
    (ByteCount(client), ByteCount(server))
}
