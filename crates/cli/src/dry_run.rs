//! `fedra plan`: what an experiment would train, send and cost. Nothing is trained.
//!
//! Payload lengths follow from layout, scope and encoding alone, so the bytes printed here are the
//! bytes a run reports, to the last one, as long as no client fails. Where a rule chooses blocks by
//! evidence that only a run has, the first blocks stand for the chosen ones, and where the overlap
//! of choices matters, the bytes are a range ([`crate::guess`]).

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use fedra_compute::Seed;
use fedra_engine::{
    Begins, Bytes, Choice, ClientId, ClientInfo, Encoding, LocalRule, Masks, Population, Recipe,
    SHIFT_BYTES, Start,
};
use fedra_plan::{ByteCount, Layout, ParamId, Probe, Round, Scope, Selector, Site, View};
use fedra_wire::payload_length;

use crate::console;
use crate::experiment::{Experiment, Written, idle};
use crate::federate::Run;
use crate::grid::{Grid, grouped};
use crate::guess::{Foreseen, Guess, Overlap};
use crate::keeping::{Home, Keeping};
use crate::memory::{self, Upkeep};
use crate::prepared::Prepared;
use crate::summary::travelled;

/// How to use the command.
pub const EXAMPLES: &str = "\
Examples:
  fedra plan experiments/clinic-concepts.toml
  fedra plan experiments/clinic-concepts.toml --set wire.encoding=int8
  fedra plan experiments/clinic-concepts.toml --set method.name=fedper
  fedra plan experiments/frozen.toml

The bytes are those of the encoded payloads and equal what the run will report. Memory is an
estimate.";

/// Prints the plan.
pub fn run(written: &Written) -> Result<()> {
    let experiment = &written.experiment()?;
    let run = Run::prepare(experiment)?;
    let (prepared, recipe) = run.parts();
    let layout = prepared.model.layout();
    idle(experiment).iter().for_each(console::say);
    let least = Forecast::of(experiment, prepared, recipe, Overlap::Most)?;
    let most = Forecast::of(experiment, prepared, recipe, Overlap::Least)?;

    console::data(parts(layout, &least.stages, recipe)?);
    console::data("");
    console::data(costs(experiment, prepared, recipe, (&least, &most)));
    Ok(())
}

/// What a run by this recipe sends, at the least where that is not known beforehand.
pub fn least_bytes(experiment: &Experiment, prepared: &Prepared, recipe: &Recipe) -> Result<Bytes> {
    Ok(Forecast::of(experiment, prepared, recipe, Overlap::Most)?.total())
}

/// What clients will keep between the rounds of a run.
pub fn keeping(experiment: &Experiment, prepared: &Prepared, recipe: &Recipe) -> Result<Keeping> {
    Ok(Forecast::of(experiment, prepared, recipe, Overlap::Most)?.keeping(experiment, prepared))
}

/// What the rounds of a run will send.
struct Forecast {
    /// Bytes of each round.
    rounds: Vec<Bytes>,
    /// The part that learns, from the round it starts to.
    stages: Vec<(u32, Scope)>,
    /// Everybody who takes part in a round.
    drawn: BTreeSet<ClientId>,
    /// The most that any of them keeps.
    most: Upkeep,
}

impl Forecast {
    fn of(
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
            let cohort: Vec<&ClientInfo> =
                clients.iter().filter(|client| drawn.contains(&client.id)).collect();
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

    fn keeping(&self, experiment: &Experiment, prepared: &Prepared) -> Keeping {
        Keeping::new(experiment, self.most, (self.drawn.len(), prepared.shards.clients.len()))
    }

    fn total(&self) -> Bytes {
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
    held: BTreeMap<ClientId, BTreeMap<ParamId, u32>>,
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
        let held = clients.iter().map(|id| (*id, first.clone())).collect();
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
        for client in cohort {
            let learns = foreseen.learns.get(&client.id).cloned().unwrap_or_default();
            let sent = &learns - personal;
            let (variate_up, variate_down) = match recipe.work.local {
                LocalRule::Scaffold => {
                    (length(&learns, Encoding::F32), length(&sent, Encoding::F32))
                }
                LocalRule::Plain | LocalRule::Proximal { .. } | LocalRule::Dynamic { .. } => (0, 0),
            };
            let held = self.held.entry(client.id).or_default();
            let lacks: Scope = recipe
                .reach(&client.name, layout)
                .into_iter()
                .filter(|id| match held.get(id) {
                    None => true,
                    Some(own) => *own != self.newest[id] && !personal.contains(*id),
                })
                .collect();
            held.extend(lacks.iter().map(|id| (id, self.newest[&id])));
            bytes.down += ByteCount(length(&lacks, recipe.work.download) + variate_down);
            bytes.up += ByteCount(length(&sent, recipe.work.encoding) + variate_up);
            // Who looks for the first time has nothing to compare with and sends nothing.
            if recipe.evaluation.attention && !self.looked.insert(client.id) {
                let blocks = recipe.depths.get(&client.name).copied().unwrap_or(layout.blocks());
                bytes.up += ByteCount(SHIFT_BYTES * u64::from(blocks));
            }
            bytes.full_up += ByteCount(full);
            bytes.full_down += ByteCount(full_down);
            changed = changed | sent;
        }
        self.newest.extend(changed.iter().map(|id| (id, round.0 + 1)));
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
    (least, most): (&Forecast, &Forecast),
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
    if recipe.learns.probe(Round(experiment.rounds - 1)) != Probe::Nothing {
        fact("choice", choice(recipe, prepared.model.layout()));
    }
    let first = least.rounds.first().copied().unwrap_or_default();
    let last = least.rounds.last().copied().unwrap_or_default();
    fact("first round", format!("{} up, {} down", first.up, first.down));
    fact("last round", format!("{} up, {} down", last.up, last.down));
    let (total, top) = (least.total(), most.total());
    for (name, bytes, top, full) in [
        ("bytes up", total.up, top.up, total.full_up),
        ("bytes down", total.down, top.down, total.full_down),
    ] {
        fact(
            name,
            if bytes == top {
                format!("{} in all ({})", grouped(bytes.0), travelled(bytes, full))
            } else {
                let (least, most) = (bytes.min(top), bytes.max(top));
                let (low, high) = (travelled(least, full), travelled(most, full));
                format!("{} to {} in all ({low}, to {high})", grouped(least.0), grouped(most.0))
            },
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
    if total.down != top.down {
        fact(
            "note",
            "how far choices overlap is known only in the run: hence the range".to_owned(),
        );
    }
    let model = &prepared.model;
    let stages = || least.stages.iter().map(|(_, scope)| scope);
    let client = stages().map(|scope| memory::client(model, (recipe, experiment), scope)).max();
    let server = stages().map(|scope| memory::server(model, recipe, scope)).max();
    let (client, server) = (client.unwrap_or_default(), server.unwrap_or_default());
    fact("client memory", format!("about {client} in training"));
    fact("server memory", format!("about {server}"));
    let keeping = least.keeping(experiment, prepared);
    let together =
        stages().map(|scope| memory::simulation((model, &keeping), (recipe, experiment), scope));
    let count = grouped(clients.len() as u64);
    let each = keeping.each.bytes();
    if each.0 > 0 {
        let (what, all, whose) = (keeping.each.in_words(recipe), keeping.total(), keeping.whose());
        fact("kept by clients", format!("{each} each between rounds, {what}: {all} for {whose}"));
        let server = stages().map(|scope| memory::saved(model, recipe, scope)).max();
        let checkpoint = ByteCount(server.unwrap_or_default().0 + keeping.total().0);
        fact("checkpoint", format!("about {checkpoint}; two of them while one is written"));
    }
    match keeping.home {
        Home::Memory => {}
        Home::Disk => fact(
            "scratch file",
            format!("about {} in the run's folder, gone when it ends", keeping.scratch()),
        ),
    }
    let together = together.max().unwrap_or_default();
    fact("run memory", format!("about {together} with all {count} clients in one process"));
    if experiment.draft.conditions.is_some() {
        fact("note", "bytes are of rounds in which nobody fails or is late".to_owned());
    }
    fact("privacy", "none".to_owned());
    grid.lines()[1..].join("\n")
}

/// How many blocks learn, who says which, and that the table shows a stand-in.
fn choice(recipe: &Recipe, layout: &Layout) -> String {
    let (k, blocks) = (recipe.learns.block_count().unwrap_or(0), layout.blocks());
    let who = match recipe.masks {
        Masks::Consensus => "the same at all clients",
        Masks::PerClient => "each client its own",
    };
    let stand_in = if recipe.selection.criterion.looks_at_data() {
        "; the first blocks stand for them above"
    } else {
        ""
    };
    let others = match recipe.selection.counts.len() {
        0 => String::new(),
        count => format!(" ({count} clients have a number of their own)"),
    };
    format!("{k} of {blocks} blocks{others}, {who}{stand_in}")
}
