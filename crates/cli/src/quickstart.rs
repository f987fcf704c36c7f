//! `fedra quickstart`: the main methods side by side on notes that no patient wrote.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use fedra::federate::{Ending, Run};
use fedra::folder::Folder;
use fedra::grid::Grid;
use fedra::output_folder::{self, Over};
use fedra::private::PrivacySummary;
use fedra::process::forget_peak;
use fedra::summary::duration;
use fedra::{Experiment, Overrides, Summary};

use crate::console;
use crate::experiment::parse_seed;
use crate::interrupt;
use crate::progress::Voice;
use crate::terminal::Terminal;

/// The experiment; each method replaces `method.name`.
const EXPERIMENT: &str = include_str!("quickstart.toml");
/// The ceiling, the floor, and what lies between, each with its settings.
const METHODS: [(&str, &[&str]); 5] = [
    ("centralised", &[]),
    ("local-only", &[]),
    ("fedavg", &[]),
    // Fresh embeddings know nothing, so they have to learn as well. The rate was chosen on seeds 11
    // and 12, whose notes are others; a part of a model takes, and needs, a larger one.
    ("safl", &["method.k=1", "method.embeddings=learn", "work.optimiser.rate=3e-3"]),
    ("fedfrozen", &["method.warmup=0.5"]),
];

const EXAMPLES: &str = "\
Examples:
  fedra quickstart
  fedra quickstart --seed 2 --out runs/another

Six synthetic hospitals learn to mark problems, tests and treatments in their notes:
  word by word  no learning: every word gets the tag it had most often
  centralised   all notes in one place: the ceiling
  local-only    every hospital alone: the mean of the six, on the same test notes
  fedavg        notes stay where they are, models travel
  safl          the same, but only the one block of four to which attention points, the head and
                the embeddings (they start fresh, so they must learn) do; at twice the rate, which
                was chosen on other notes and is no better for fedavg
  fedfrozen     fedavg; after half of the rounds query and key stay as they are and at home
The files of each run lie under DIR/METHOD; run its experiment.toml again with `fedra run`.";

/// The whole command.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Quickstart {
    /// Where results go
    #[arg(long, value_name = "DIR", default_value = "runs/quickstart")]
    out: PathBuf,
    /// Another seed
    #[arg(long, value_name = "N", value_parser = parse_seed)]
    seed: Option<u64>,
    /// Print the table and nothing else
    #[arg(long, short)]
    quiet: bool,
}

impl Quickstart {
    /// Runs the methods one after another and prints one table.
    pub fn run(self) -> Result<ExitCode> {
        let begun = Instant::now();
        let voice = if self.quiet { Voice::Quiet } else { Voice::Lively };
        let say = |line: String| {
            if voice == Voice::Lively {
                console::say(line);
            }
        };
        let mut experiments = Vec::new();
        for (method, settings) in METHODS {
            let mut sets =
                vec![format!("method.name={method}"), format!("name=quickstart-{method}")];
            sets.extend(settings.iter().map(|&setting| setting.to_owned()));
            let overrides = Overrides::new(sets, self.seed);
            let experiment =
                Experiment::from_text(EXPERIMENT, "quickstart.toml", "quickstart", &overrides)?;
            // Its own earlier runs may be replaced; any other is refused before the first begins.
            output_folder::check(&self.out.join(method), &experiment, Over::Namesake)?;
            experiments.push((method, experiment));
        }
        // Held to the end: another one would take turns with this one.
        let whole = Folder::claim(&self.out)?;
        let mut summaries = Vec::new();
        let mut floor = None;
        for (method, experiment) in experiments {
            forget_peak();
            let run = Run::prepare(&experiment)?;
            if summaries.is_empty() {
                floor = run.baseline().and_then(|floor| floor.score("central_test", "span_f1"));
                say(format!("{}\n", run.introduction()));
            }
            let folder = Folder::create(&self.out.join(method), &experiment)?;
            match run.run(&folder, None, &Terminal::new(voice))? {
                Ending::Complete(summary) => summaries.push(*summary),
                Ending::Interrupted { .. } => {
                    console::say("stopped; fedra quickstart starts anew");
                    return Ok(ExitCode::from(interrupt::STATUS));
                }
            }
        }
        drop(whole);
        say(String::new());
        console::data(table(floor.unwrap_or(0.0), &summaries));
        let (spent, out) = (duration(begun.elapsed().as_secs_f64()), self.out.display());
        say(format!("\n{spent} in all; the files of each run are under {out}"));
        say("next: fedra run experiments/clinic-concepts.toml, or fedra run --help".to_owned());
        Ok(ExitCode::SUCCESS)
    }
}

fn table(floor: f64, summaries: &[Summary]) -> Grid {
    let score = summaries.iter().find_map(|summary| summary.score.as_ref());
    let name = format!(">{}", score.map_or("score", |score| &score.name));
    let headings = ["method", &name, ">bytes up", ">bytes down", "privacy", ">time"];
    let mut grid = Grid::new(headings);
    let dash = || "-".to_owned();
    grid.row(["word by word".to_owned(), format!("{floor:.3}"), dash(), dash(), dash(), dash()]);
    for summary in summaries {
        let bytes = |bytes: fedra_plan::ByteCount| {
            if bytes.0 == 0 { dash() } else { bytes.to_string() }
        };
        grid.row([
            summary.method.clone(),
            summary.score.as_ref().map_or_else(dash, |score| format!("{:.3}", score.value)),
            bytes(summary.bytes.up),
            bytes(summary.bytes.down),
            summary.privacy.as_ref().map_or("none".to_owned(), PrivacySummary::in_words),
            duration(summary.seconds),
        ]);
    }
    grid
}
