//! `fedra plan`: what an experiment would train, send and cost. Nothing is trained.

use anyhow::Result;
use clap::Args;
use fedra::folder::summary::travelled;
use fedra::forecast::cutting::{CutCosts, Cuts, describe};
use fedra::forecast::gpu_memory::GpuMemory;
use fedra::forecast::run_memory::RunMemory;
use fedra::run::plan_report::{PartRow, PlanReport};
use fedra::text::grid::{Grid, counted, grouped};
use fedra_engine::{Begins, Bytes, ClientBlocks, Masks, Move, Recipe};
use fedra_plan::{ByteCount, Layout};

use crate::console;
use crate::device::DeviceFlags;
use crate::experiment::Written;
use crate::flags::Verbosity;
use crate::terminal::Terminal;

/// How to use the command.
pub const EXAMPLES: &str = "\
Examples:
  fedra plan experiments/clinic-concepts.toml
  fedra plan experiments/clinic-concepts.toml --set wire.encoding=int8
  fedra plan experiments/clinic-concepts.toml --set method.name=fedper
  fedra plan experiments/frozen.toml

The byte counts are those of the encoded payloads and equal what the run will report. The memory
of the run is an estimate with its error: the current size of this process plus the tensors and
models that training adds.";

/// What to plan.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    written: Written,
    #[command(flatten)]
    device: DeviceFlags,
    /// Print the cost of every cut of a model with many blocks
    #[arg(long)]
    cuts: bool,
}

/// Prints the plan.
pub fn run(arguments: &Arguments) -> Result<()> {
    let terminal = Terminal::new(Verbosity::Lively);
    let wanted = if arguments.cuts { Cuts::All } else { Cuts::Few };
    let report =
        fedra::plan_with(&arguments.written.experiment(arguments.device)?, wanted, &terminal)?;
    report.notes.iter().for_each(console::say);
    console::table(&parts(&report.parts));
    console::data("");
    console::page(costs(&report));
    if let Some(split) = &report.recipe.split {
        console::data("");
        console::table(&cuts(&report.cuts, split.ends));
    }
    Ok(())
}

/// What each cut would cost in a round in which everybody takes part.
fn cuts(rows: &[CutCosts], chosen: ClientBlocks) -> Grid {
    let mut grid = Grid::new([
        "first, last",
        ">client tensors",
        ">server tensors",
        ">parameters up",
        ">crossing up",
        ">crossing down",
        ">round trips",
        "",
    ]);
    for row in rows {
        let ClientBlocks { first, last } = row.ends;
        let is_chosen = row.ends == chosen;
        grid.row([
            format!("{first}, {last}"),
            row.memory.client.to_string(),
            row.memory.server.to_string(),
            row.parameters_up.to_string(),
            row.crossing.up().to_string(),
            row.crossing.down().to_string(),
            grouped(row.crossing.exchanges),
            if is_chosen { "<- this run" } else { "" }.to_owned(),
        ]);
    }
    grid
}

/// One line a layer: what it holds, what of it learns, what travels.
fn parts(rows: &[PartRow]) -> Grid {
    let mut grid =
        Grid::new(["layer", ">parameters", ">learn", ">travel", ">bytes up", "from round"]);
    for row in rows {
        grid.row([
            row.layer.map_or_else(|| "all".to_owned(), |layer| layer.to_string()),
            grouped(row.parameters),
            grouped(row.learn),
            grouped(row.travel),
            row.bytes_up.to_string(),
            (row.from + 1).to_string(),
        ]);
    }
    grid
}

/// What there is to say about a cut.
fn cut_facts(report: &PlanReport) -> Vec<(&'static str, String)> {
    let Some(split) = &report.recipe.split else { return Vec::new() };
    let ClientBlocks { first, last } = split.ends;
    let middle = report.layout.blocks() - first - last;
    let blocks = |count: u16| counted(u64::from(count), "block");
    let mut facts = vec![(
        "cut",
        format!(
            "clients have {} at the embedding and {} at the head; the server has {}",
            blocks(first),
            blocks(last),
            blocks(middle)
        ),
    )];
    let keep = |ClientBlocks { first, last }: ClientBlocks| {
        format!("{} and {}", blocks(first), blocks(last))
    };
    for (name, ends) in &split.clients {
        facts.push(("separate cut", format!("{name:?} has {}", keep(*ends))));
    }
    for Move { round, first, last } in &split.moves {
        let ends = keep(ClientBlocks { first: *first, last: *last });
        facts.push(("cut moves", format!("from round {round} on, clients have {ends}")));
    }
    facts.push(("mode", describe(split.mode).to_owned()));
    if let Some(saving) = &report.saving {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        facts.push((
            "client saves",
            format!(
                "{} of the {} of tensors that training the whole model takes (of weights alone: {})",
                percent(saving.memory),
                saving.whole,
                percent(saving.weights)
            ),
        ));
    }
    let crossing = report.least.first().crossing;
    facts.push((
        "crossing",
        format!(
            "{} up, {} down in the first round; {} of it lengths and headers",
            crossing.up(),
            crossing.down(),
            crossing.metadata_up + crossing.metadata_down
        ),
    ));
    if let Some(masks) = report.masks {
        let mask = ByteCount(masks.mask as u64);
        let lengths = format!("{:.1} B of lengths a sample", masks.lengths);
        let whole = format!("a mask of one byte for each pair of tokens: {mask}");
        facts.push(("instead of masks", format!("{lengths}; {whole}")));
    }
    facts.push(("noise", split.describe_noise().unwrap_or("none".to_owned())));
    facts
}

fn costs(report: &PlanReport) -> String {
    let PlanReport { recipe, least, most, .. } = report;
    let mut grid = Grid::new(["", ""]);
    let mut fact = |name: &str, value: String| grid.row([name.to_owned(), value]);
    fact("experiment", report.name.clone());
    fact("method", {
        let rounds = counted(u64::from(report.rounds), "round");
        format!("{}, {rounds}", recipe.method)
    });
    let everybody = counted(report.clients, "client");
    fact("clients", {
        let count = grouped(report.clients);
        format!("{count} with {}", counted(report.examples, "training example"))
    });
    fact("steps per round", format!("{} if all take part", grouped(report.steps)));
    fact("encoding", format!("{} up, {} down", recipe.work.encoding, recipe.work.download));
    if recipe.learns.needs_choice() {
        fact("choice", choice(recipe, &report.layout));
    }
    let first = least.first();
    let last = least.last();
    fact("first round", format!("{} up, {} down", first.up, first.down));
    fact("last round", format!("{} up, {} down", last.up, last.down));
    let (total, top) = (least.total(), most.total());
    for (name, found) in traffic(total, top) {
        fact(name, found);
    }
    match recipe.stage.as_ref().map(|stage| stage.begins) {
        Some(Begins::Evidence(_) | Begins::ByBlock(_)) => fact(
            "note",
            "the round in which query and key freeze is decided in the run: bytes are an upper bound"
                .to_owned(),
        ),
        Some(Begins::At(_) | Begins::Share(_)) | None => {}
    }
    if total.down != top.down {
        fact("note", "the overlap of choices is known only in the run, hence the range".to_owned());
    }
    for (name, value) in cut_facts(report) {
        fact(name, value);
    }
    // The table of cuts has what reports of a run measure; a side also holds what is on its way.
    let beside = if report.cuts.is_empty() { "" } else { ", with updates in transit" };
    fact("client memory", format!("about {} at most{beside}", report.client_memory));
    fact("server memory", format!("about {} at most{beside}", report.server_memory));
    let kept = &report.kept;
    let each = kept.each.bytes();
    if each.0 > 0 {
        let (what, all, whose) = (kept.each.in_words(recipe), kept.total(), kept.whose());
        fact("client state", format!("{each} each between rounds, {what}: {all} for {whose}"));
        let checkpoint = report.checkpoint;
        fact("checkpoint", format!("about {checkpoint}; two of them while one is written"));
    }
    if kept.on_disk {
        let scratch = kept.scratch();
        fact("scratch file", format!("about {scratch} in the run's folder, removed when it ends"));
    }
    if let Some(gpu) = &report.gpu {
        for (name, value) in gpu_facts(gpu, recipe) {
            fact(name, value);
        }
    }
    let RunMemory { prepared, tensors, first, models, clients } = report.memory;
    let (total, error) = (report.memory.total(), 100.0 * RunMemory::ERROR);
    fact("run memory", format!("about {total} with {everybody} in one process, within {error} %"));
    let models = models.max(first);
    fact("", format!("{prepared} program, data and initial weights; at their largest"));
    fact("", format!("{tensors} tensors; {models} models in transit; {clients} client state"));
    if let Some(round) = report.hopeless {
        let number = round + 1;
        let found =
            format!("every attempt at round {number} selects too few clients: the run stops");
        fact("note", found);
    }
    if report.has_conditions {
        let found = "bytes assume that no client fails or is late, so no round is repeated";
        fact("note", found.to_owned());
    }
    match &report.privacy {
        None => fact("privacy", "none".to_owned()),
        Some(privacy) => {
            fact("privacy", format!("{} after the last round", privacy.in_words()));
            let (noise, clip) = (privacy.noise, privacy.clip);
            fact("", format!("noise {noise:.4} times a clip norm of {clip}"));
        }
    }
    grid.lines()[1..].join("\n")
}

/// What of a GPU's memory is in use at once.
fn gpu_facts(gpu: &GpuMemory, recipe: &Recipe) -> Vec<(&'static str, String)> {
    let GpuMemory { precision, client, server, run, at_once } = gpu;
    let error = 100.0 * GpuMemory::ERROR;
    let mut facts = vec![(
        "GPU memory",
        format!("about {client} for a client in {precision}, within {error} %"),
    )];
    if recipe.split.is_some() {
        facts.push(("", format!("about {server} for the server's blocks")));
    }
    let clients = counted(*at_once, "client");
    facts
        .push(("", format!("at most {run} for a run in one process, {clients} at work at a time")));
    facts
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
        1 => " (1 client has another number)".to_owned(),
        count => format!(" ({count} clients have other numbers)"),
    };
    format!("{k} of {blocks} blocks{others}, {who}{stand_in}")
}

/// What all rounds send, where choices overlap most and where they overlap least.
fn traffic(total: Bytes, top: Bytes) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    let crossing = total.crossing;
    for (name, bytes, top, crossing, full) in [
        ("bytes up", total.up, top.up, crossing.up(), total.full_up),
        ("bytes down", total.down, top.down, crossing.down(), total.full_down),
    ] {
        let found = if bytes == top {
            format!("{} in all ({})", grouped(bytes.0), travelled((bytes, crossing), full))
        } else {
            let (least, most) = (bytes.min(top), bytes.max(top));
            let (low, high) =
                (travelled((least, crossing), full), travelled((most, crossing), full));
            format!("{} to {} in all ({low}, to {high})", grouped(least.0), grouped(most.0))
        };
        facts.push((name, found));
    }
    let scoring = total.evaluation.max(top.evaluation);
    if scoring.0 > 0 {
        let most = if total.evaluation == top.evaluation { "" } else { "at most " };
        let found = format!("{most}{scoring} more, to clients that score the model");
        facts.push(("bytes scoring", found));
    }
    facts
}
