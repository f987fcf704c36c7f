//! `fedra plan`: what an experiment would train, send and cost. Nothing is trained.
//!
//! Bytes are foreseen to the last one ([`crate::forecast`]); where they depend on how far choices
//! overlap, they are a range. Memory is an estimate: of a client and a server that have machines of
//! their own ([`crate::memory`]), and of all in one process ([`crate::run_memory`]).

use anyhow::Result;
use fedra_engine::{Begins, Bytes, Masks, Population, Recipe};
use fedra_plan::{ByteCount, Layout, Scope, Site};
use fedra_wire::payload_length;

use crate::bench::memory::resident_bytes;
use crate::console;
use crate::experiment::{Experiment, Written, idle};
use crate::federate::Run;
use crate::forecast::Forecast;
use crate::forecast::choices::Overlap;
use crate::grid::{Grid, counted, grouped};
use crate::memory;
use crate::prepared::Prepared;
use crate::run_memory::RunMemory;
use crate::state_placement::StateLocation;
use crate::summary::travelled;

/// How to use the command.
pub const EXAMPLES: &str = "\
Examples:
  fedra plan experiments/clinic-concepts.toml
  fedra plan experiments/clinic-concepts.toml --set wire.encoding=int8
  fedra plan experiments/clinic-concepts.toml --set method.name=fedper
  fedra plan experiments/frozen.toml

The bytes are those of the encoded payloads and equal what the run will report. Memory is an
estimate: of a client and a server with machines of their own, and of the run, which is this
process as it is now and what training will add.";

/// Prints the plan.
pub fn run(written: &Written) -> Result<()> {
    let experiment = &written.experiment()?;
    let run = Run::prepare(experiment)?;
    // Before the forecasts take memory of their own.
    let resident = ByteCount(resident_bytes().unwrap_or(0));
    let (prepared, recipe) = run.parts();
    let layout = prepared.model.layout();
    idle(experiment).into_iter().chain(run.notes()).for_each(console::say);
    let least = Forecast::of(experiment, prepared, recipe, Overlap::Most)?;
    let most = Forecast::of(experiment, prepared, recipe, Overlap::Least)?;

    console::data(parts(layout, &least.stages, recipe)?);
    console::data("");
    console::data(costs(experiment, prepared, recipe, (&least, &most), resident));
    Ok(())
}

/// One line a site: what it holds, what of it learns, what travels.
fn parts(layout: &Layout, stages: &[(u32, Scope)], recipe: &Recipe) -> Result<Grid> {
    let personal = recipe.personal.select(layout)?;
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
    resident: ByteCount,
) -> String {
    let mut grid = Grid::new(["", ""]);
    let mut fact = |name: &str, value: String| grid.row([name.to_owned(), value]);
    let clients = &prepared.shards.clients;
    let examples: usize = clients.iter().map(|shard| shard.train.len()).sum();
    fact("experiment", experiment.name.clone());
    fact("method", {
        let rounds = counted(u64::from(experiment.rounds), "round");
        format!("{}, {rounds}", recipe.method)
    });
    let everybody = counted(clients.len() as u64, "client");
    fact("clients", {
        let (count, examples) = (grouped(clients.len() as u64), examples as u64);
        format!("{count} with {}", counted(examples, "training example"))
    });
    let steps: u64 = clients.iter().map(|shard| recipe.work.steps(shard.train.len() as u64)).sum();
    fact("steps a round", format!("{} if all take part", grouped(steps)));
    fact("encoding", format!("{} up, {} down", recipe.work.encoding, recipe.work.download));
    if recipe.learns.needs_choice() {
        fact("choice", choice(recipe, prepared.model.layout()));
    }
    let first = least.rounds.first().copied().unwrap_or_default();
    let last = least.rounds.last().copied().unwrap_or_default();
    fact("first round", format!("{} up, {} down", first.up, first.down));
    fact("last round", format!("{} up, {} down", last.up, last.down));
    let (total, top) = (least.total(), most.total());
    for (name, found) in traffic(total, top) {
        fact(name, found);
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
    let placement = least.placement(experiment, prepared);
    let each = placement.each.bytes();
    if each.0 > 0 {
        let (what, all, whose) =
            (placement.each.in_words(recipe), placement.total(), placement.whose());
        fact("kept by clients", format!("{each} each between rounds, {what}: {all} for {whose}"));
        let server = stages().map(|scope| memory::saved(model, recipe, scope)).max();
        let checkpoint = ByteCount(server.unwrap_or_default().0 + placement.total().0);
        fact("checkpoint", format!("about {checkpoint}; two of them while one is written"));
    }
    match placement.location {
        StateLocation::Memory => {}
        StateLocation::Disk => fact(
            "scratch file",
            format!("about {} in the run's folder, gone when it ends", placement.scratch()),
        ),
    }
    let run = RunMemory::of(experiment, prepared, recipe, (&placement, &least.stages), resident);
    let (total, RunMemory { prepared, pool, models, clients }) = (run.total(), run);
    fact("run memory", format!("about {total} with {everybody} in one process"));
    fact("", format!("{prepared} program, data and first weights; {pool} steps and scoring;"));
    fact("", format!("{models} models on their way; {clients} what is kept for clients"));
    let hopeless = |bytes: &Bytes| bytes.full_down == ByteCount(0);
    if recipe.population == Population::Federated
        && recipe.min_arrivals.of(0) > 0
        && let Some(round) = least.rounds.iter().position(hopeless)
    {
        let number = round + 1;
        let found = format!("every attempt at round {number} draws too few clients: the run stops");
        fact("note", found);
    }
    if experiment.draft.conditions.is_some() {
        let found = "bytes are of rounds in which nobody fails or is late: none is repeated";
        fact("note", found.to_owned());
    }
    fact("privacy", "none".to_owned());
    grid.lines()[1..].join("\n")
}

/// How many blocks learn, who says which, and that the table shows a stand-in.
fn choice(recipe: &Recipe, layout: &Layout) -> String {
    let (k, blocks) = (recipe.selection.k, layout.blocks());
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

/// What all rounds send, where choices overlap most and where they overlap least.
fn traffic(total: Bytes, top: Bytes) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    for (name, bytes, top, full) in [
        ("bytes up", total.up, top.up, total.full_up),
        ("bytes down", total.down, top.down, total.full_down),
    ] {
        let found = if bytes == top {
            format!("{} in all ({})", grouped(bytes.0), travelled(bytes, full))
        } else {
            let (least, most) = (bytes.min(top), bytes.max(top));
            let (low, high) = (travelled(least, full), travelled(most, full));
            format!("{} to {} in all ({low}, to {high})", grouped(least.0), grouped(most.0))
        };
        facts.push((name, found));
    }
    let scoring = total.evaluation.max(top.evaluation);
    if scoring.0 > 0 {
        let most = if total.evaluation == top.evaluation { "" } else { "at most " };
        let found = format!("{most}{scoring} beside that, to clients that score the model");
        facts.push(("bytes scoring", found));
    }
    facts
}
