//! `fedra account ledger`: the guarantee and the releases of a run or a client, read from its folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use fedra::folder::held_ledger;
use fedra::forecast::private::{SIMULATED, ratio};
use fedra::run_files::{CHECKPOINT, EXPERIMENT, LEDGER, ROUNDS, SITES, SUMMARY};
use fedra::text::grid::{Grid, counted};
use fedra_engine::{LayerNoise, RoundReport};
use fedra_plan::Layer;
use fedra_privacy::{Ledger, Release, Sampling};
use serde_json::json;

use crate::console;

pub const HELP: &str = "\
Examples:
  fedra account ledger runs/quickstart     the folder of a run, or of a client (fedra join --state)
  fedra account ledger ledger.jsonl --json

An edited, reordered or shortened ledger is refused.";

/// Reads a ledger.
#[derive(Args)]
pub struct LedgerOf {
    /// A folder with a ledger, or the ledger itself
    #[arg(value_name = "DIR|FILE")]
    place: PathBuf,
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
}

impl LedgerOf {
    /// Prints it.
    pub fn run(&self) -> Result<()> {
        let file = if self.place.is_dir() { self.place.join(LEDGER) } else { self.place.clone() };
        if !file.exists() {
            check_private(&self.place, &file)?;
        }
        let ledger = held_ledger::read(&file)?;
        let spent = ledger.spent()?;
        if !file.with_extension("end").is_file() {
            let known =
                [CHECKPOINT, SUMMARY].iter().any(|name| file.with_file_name(name).is_file());
            let missing = if known { "entries after the last complete round" } else { "entries" };
            console::say(format_args!(
                "warning: {} is missing, so the removal of {missing} cannot be detected",
                file.with_extension("end").display()
            ));
        }
        if self.json {
            let finite = |epsilon: f64| epsilon.is_finite().then_some(epsilon);
            console::json(json!({
                "guarantee": ledger.guarantee(),
                "events": ledger.events().len(),
                "pld": finite(spent.pld),
                "rdp": finite(spent.rdp),
                "statement": ledger.statement()?,
            }));
            return Ok(());
        }
        console::table(&releases(&ledger));
        let rounds = file.with_file_name(ROUNDS);
        if rounds.is_file()
            && let Some(table) = signals(&rounds)?
        {
            console::data("");
            console::table(&table);
        }
        let folder = file.with_file_name("");
        // A run in one process: sites leave a list of themselves, or have keys.
        let simulated = folder.join(EXPERIMENT).is_file() && !folder.join(SITES).is_file();
        let more = if simulated { format!(" {SIMULATED}") } else { String::new() };
        console::page(format_args!("\n{}{more}", ledger.statement()?));
        Ok(())
    }
}

/// Refuses a place without a ledger, unless a private run should have left one there.
fn check_private(place: &Path, file: &Path) -> Result<()> {
    let shown = place.display();
    if !place.exists() {
        bail!(
            "there is no file or folder {shown}: give the folder of a private run, or its ledger"
        );
    }
    let Ok(experiment) = fs::read_to_string(file.with_file_name(EXPERIMENT)) else {
        bail!(
            "found no {LEDGER} in {shown}, expected the folder of a private run, or of a client (fedra join --state)"
        );
    };
    if !experiment.lines().any(|line| line.trim() == "[privacy]") {
        bail!("the run in {shown} has no [privacy]: it kept no account of what it released");
    }
    Ok(())
}

/// What was released, equal releases together.
fn releases(ledger: &Ledger) -> Grid {
    let mut counts: BTreeMap<(&str, String), (u64, BTreeSet<&str>)> = BTreeMap::new();
    for event in ledger.events() {
        let (count, clients) =
            counts.entry((&event.mechanism, in_words(&event.release))).or_default();
        *count += 1;
        clients.insert(event.client.as_deref().unwrap_or("everyone"));
    }
    let mut grid = Grid::new(["mechanism", "release", ">times", "about"]);
    for ((mechanism, release), (count, clients)) in counts {
        let about = match clients.first() {
            Some(one) if clients.len() == 1 => (*one).to_owned(),
            Some(_) | None => counted(clients.len() as u64, "client"),
        };
        grid.row([mechanism.to_owned(), release, count.to_string(), about]);
    }
    grid
}

fn in_words(release: &Release) -> String {
    match release {
        Release::SampledGaussian { sampling, noise, steps } => {
            let cap = match sampling {
                Sampling::Poisson { .. } => String::new(),
                Sampling::CappedPoisson { cap, .. } => format!(", at most {cap}"),
            };
            let (steps, rate) = (counted(steps.get(), "step"), sampling.rate().get());
            let noise = noise.get();
            format!("{steps} with noise {noise:.4}, sampling rate {rate:.4}{cap}")
        }
        Release::Gaussian { sensitivity, deviation, count } => {
            let values = counted(count.get(), "value");
            format!("{values} with noise {:.4}", deviation / sensitivity)
        }
        Release::NonPrivate { what, why } => format!("NO BOUND: {what} ({why})"),
    }
}

/// Signal over noise by round and layer; `None` where reports have none.
fn signals(file: &Path) -> Result<Option<Grid>> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let mut rows: Vec<(u32, Vec<LayerNoise>)> = Vec::new();
    for line in text.lines() {
        let Ok(report) = serde_json::from_str::<RoundReport>(line) else { continue };
        rows.extend(report.privacy.map(|privacy| (report.round.0 + 1, privacy.layers)));
    }
    let all = rows.iter().flat_map(|(_, layers)| layers);
    let layers: BTreeSet<Layer> = all.map(|one| one.layer).collect();
    if layers.is_empty() {
        return Ok(None);
    }
    let names = layers.iter().map(|layer| format!(">{layer}"));
    let headings: Vec<String> =
        std::iter::once(">signal-to-noise ratio: round".to_owned()).chain(names).collect();
    let mut grid = Grid::new(&headings);
    for (round, found) in rows {
        let of = |layer: &Layer| {
            let one = found.iter().find(|one| one.layer == *layer).and_then(ratio);
            one.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
        };
        let cells = std::iter::once(round.to_string()).chain(layers.iter().map(of));
        grid.row(cells);
    }
    Ok(Some(grid))
}
